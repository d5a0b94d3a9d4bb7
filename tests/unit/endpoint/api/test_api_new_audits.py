"""Searches for prompts, audits of CLIP models and latent directions over HTTP: submitted, and read once they ended."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.audits.audit import AUDITS
from c2b_ray.audits.latent.run import open_latent_run
from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.report import write_report
from c2b_ray.audits.prompts.run import open_prompts_run
from c2b_ray.endpoint.api.models import Kind
from c2b_ray.endpoint.kinds import kinds
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.work.child import _classifier_hashes
from c2b_ray.report.export import exported, parquet_of
from c2b_ray.tables.prompts import PROMPTS

CONFIGS = {
    "prompts": {
        "subjects": ["bus"], "attributes": {"lighting": ["day", "night"]}, "generators": "world:linked",
        "language_model": "world:lm", "judge": "world:clip", "guide": "judge", "associations": None,
    },
    "clip-bias": {
        "models": {"a": "world:clip", "b": "world:clip-05"},
        "datasets": {"people": {"table": "data/people.parquet", "attributes": ["coin"]}},
    },
    "latent": {"classifier": "world:resnet-planted-1", "generator": "world:diffusion?prompt=a bus", "label": "boat"},
    "evaluate": {
        "classifier": "world:resnet-planted-0", "truth": {"world": {"scenes": 1000}},
        "methods": {"C2B": {
            "images": {"source": "generate", "generator": "world:renderer"}, "attributes": {"size": ["small", "large"]},
        }},
    },
}  # fmt: skip
WRONG = {
    "prompts": ("heads", {"files": "/etc"}, "config.heads.files"),
    "clip-bias": ("datasets", {"x": {"table": "/etc/passwd", "attributes": ["a"]}}, "config.datasets.x.table"),
    "latent": ("latents", "../x.parquet", "config.latents"),
    "evaluate": ("methods", {"C2B": "/etc/audit.yaml"}, "config.methods.C2B"),
}
MODELS = {
    "prompts": ("world:linked",), "clip-bias": ("world:clip", "world:clip-05"), "latent": ("world:resnet-planted-1",),
    "evaluate": ("world:resnet-planted-0",),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def table(endpoint):
    folder = Path(endpoint.context.tenant_root(endpoint.tenants["a"]), "data")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": ["a.png"], "caption": ["a"], "coin": ["heads"]}), folder / "people.parquet")


@pytest.mark.parametrize(
    ("classifier", "why"),
    [("open_clip:ViT-B-32/laion2b_s34b_b79k", "zero-shot"), ("world:clip", "zero-shot"), ("table:data/p.csv", "table")],
)
def test_a_classifier_without_gradients_is_refused_when_it_is_submitted(endpoint, classifier, why):
    Path(endpoint.context.tenant_root(endpoint.tenants["a"]), "data/p.csv").write_text("image,a,b\n")
    for named in (classifier, {"one": CONFIGS["latent"]["classifier"], "two": classifier}):
        config = {**CONFIGS["latent"], "classifier": named, "problems": [{"classifier": "one"}] * (named != classifier)}
        for path in ("/v1/audits", "/v1/audits/check"):
            refused = endpoint.as_("a").post(path, json={"kind": "latent", "config": config | {"label": None}})
            assert refused.status_code == 422, refused.text
            [error] = refused.json()["errors"]
            assert error["field"] == ("config.classifier" if named == classifier else "config.classifier.two")
            assert why in error["message"]


def test_what_a_kind_may_cost_is_said_before_it_runs(endpoint):
    """Of CLIP models only the table says how many images there are."""
    at_most = {
        kind: endpoint.as_("a").post("/v1/audits/check", json={"kind": kind, "config": CONFIGS[kind]}).json()
        for kind in ("prompts", "latent", "clip-bias")
    }
    assert at_most["prompts"]["images_at_most"] > 2 * 20 * 10
    assert at_most["latent"]["images_at_most"] > 2000
    assert at_most["clip-bias"]["images_at_most"] is None


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_kind_is_submitted_and_checked(endpoint, kind):
    client, sent = endpoint.as_("a"), {"kind": kind, "config": CONFIGS[kind]}
    assert client.post("/v1/audits/check", json=sent).json()["valid"]
    answer = client.post("/v1/audits", json=sent)
    assert answer.status_code == 202, answer.text
    job = jobs.get(endpoint.db, endpoint.tenants["a"], answer.json()["id"])
    assert (job.kind, job.config) == (kind, CONFIGS[kind])
    assert tuple(kinds()[kind].models_of(job.config)) == MODELS[kind]
    name, value, field = WRONG[kind]
    for path in ("/v1/audits", "/v1/audits/check"):
        refused = client.post(path, json={"kind": kind, "config": {**CONFIGS[kind], name: value}})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field), refused.text
    unknown = client.post("/v1/audits", json={"kind": kind, "config": {**CONFIGS[kind], "plugin": "x"}})
    assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (422, "config.plugin")
    assert endpoint.as_("b").post("/v1/audits", json=sent).status_code == (422 if kind == "clip-bias" else 202)


def test_the_catalogue_lists_every_kind_and_every_kind_is_one_of_the_documents(endpoint):
    listed = {kind["name"] for kind in endpoint.as_("a").get("/v1/catalog").json()["kinds"]}
    assert listed == set(kinds()) == set(Kind.__args__)
    assert set(kinds()) == {*AUDITS, "question"}


@pytest.fixture(scope="module")
def searched(endpoint):
    """A finished search for prompts, which found nothing."""
    job = endpoint.finish("prompts")
    Path(job.run_path).parent.mkdir(parents=True, exist_ok=True)
    config = PromptsConfig.model_validate(CONFIGS["prompts"]).model_dump(mode="json")
    with open_prompts_run(job.run_path, "prompts-1", config) as run:
        run.write("prompts", PROMPTS.empty_table())
        run.update({"status": "finished", "finished": "2026-01-01T00:00:00", "counts": {"prompts": 0}, "notes": []})
        write_report(run)
    return job.id


def test_what_a_search_for_prompts_made_is_read_by_url(endpoint, searched):
    client, base = endpoint.as_("a"), f"/v1/audits/{searched}"
    listed = client.get(f"{base}/tables").json()
    assert {item["name"] for item in listed["items"]} == {"prompts"}
    assert client.get(f"{base}/tables/prompts").json()["items"] == []
    assert client.get(f"{base}/tables/prompts?format=csv").text.startswith('"attribute","value","generator"')
    assert "text/html" in client.get(f"{base}/report").headers["content-type"]
    assert sorted(listed["exports"]) == ["csv", "images", "json", "parquet"]
    for form in listed["exports"]:
        assert client.get(f"{base}/exports/{form}").status_code == 200
    for path in ("", "/tables", "/report", "/exports/csv"):
        assert endpoint.as_("b").get(f"{base}{path}").status_code == 404


def test_what_the_kind_does_not_have_is_a_problem_that_says_so(endpoint, searched):
    client, base = endpoint.as_("a"), f"/v1/audits/{searched}"
    for answer, status, words in (
        (client.get("/v1/comparisons", params={"a": searched, "b": searched}), 422, "name the two to compare"),
        (client.post(f"{base}/questions", json={"sentence": "a bus"}), 409, "answers no questions"),
        (client.get(f"{base}/images/{'a' * 16}"), 404, "image"),
        (client.get(f"{base}/exports/model-card"), 404, "csv, json, parquet"),
    ):
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.json()["detail"]
        assert not re.search(r"/tenants/|/tmp/", answer.text)


def test_a_run_that_lists_its_classifiers_has_a_hash_of_them(tmp_path):
    """As `latent` does, which may have many; one without a revision counts for nothing."""
    with open_latent_run(tmp_path / "run", "latent-1", {}) as run:
        run.update({"models": {"classifier": [{"spec": "a", "revision": "1"}, {"spec": "b", "revision": None}]}})
    with open_latent_run(tmp_path / "other", "latent-1", {}) as run:
        run.update({"models": {"classifier": [{"spec": "a", "revision": "2"}]}})
    (first, each), (second, _) = (_classifier_hashes(str(tmp_path / name)) for name in ("run", "other"))
    assert each == ()
    with open_latent_run(tmp_path / "both", "latent-1", {}) as run:
        run.update({"models": {"classifier": [{"spec": "a", "revision": "1"}, {"spec": "b", "revision": "2"}]}})
    both, each = _classifier_hashes(str(tmp_path / "both"))
    assert both not in (first, second)
    assert set(each) == {first, second}
    assert first
    assert second
    assert first != second


def test_a_number_that_is_not_known_is_null_in_parquet_too():
    """Also where the run's table says that there is no null, as that of the biases of CLIP models does."""
    table = pa.table({"value": [1.0, float("nan")]}, pa.schema([pa.field("value", pa.float64(), nullable=False)]))
    written = pq.read_table(pa.BufferReader(parquet_of(exported(table))))
    assert written["value"].to_pylist() == [1.0, None]
