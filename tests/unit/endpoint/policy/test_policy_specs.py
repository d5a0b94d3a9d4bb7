"""What a tenant may name in a config: every field, every scheme, and the ways out that people try."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from c2b_ray.audits.dataset.config import DatasetConfig
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.endpoint import SCHEMES as DEFAULT_SCHEMES
from c2b_ray.config.endpoint import Policy
from c2b_ray.config.named import Name, Names, RunPath, StrictModel, TablePath, names_by_field
from c2b_ray.endpoint.kinds import kinds
from c2b_ray.endpoint.policy import names as schemes
from c2b_ray.endpoint.policy.configs import check_resolved, paths_of, resolve_config
from c2b_ray.endpoint.policy.names import Tenancy
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog

SHA, OTHER = "a" * 64, "b" * 64
OPEN = Policy(
    urls=["https://models.example.org/v1/", "http://127.0.0.1:8000"],
    stores=["s3://shared/public/"],
    hub=["timm/*", "org/*"],
    schemes={"language_model": ["world", "openai", "scripted"]},
)


@pytest.fixture
def tenancy(tmp_path):
    root = tmp_path / "tenants" / "tenant_a"
    for name in ("data/photos", "data/index", "uploads", "runs/job_1"):
        (root / name).mkdir(parents=True)
    for name in ("data/t.csv", "data/names.txt", "data/net.onnx", "data/map.json", f"uploads/{SHA}.onnx"):
        (root / name).write_text("x")
    other = tmp_path / "tenants" / "tenant_b"
    (other / "data").mkdir(parents=True)
    (other / "data" / "secret.csv").write_text("x")
    (root / "data" / "out").symlink_to(other / "data")
    (root / "data" / "sibling.csv").symlink_to(root / "data" / "t.csv")
    return Tenancy(str(root), OPEN, {SHA: "onnx"})


def audit(**fields):
    labelled = {"source": "labelled", "table": "data/t.csv"}
    return {"task": "t", "classes": ["bus"], "classifier": "world:clip", "images": labelled, **fields}


def checked(tenancy, **fields):
    return resolve_config(audit(**fields), AuditConfig, tenancy)


def test_no_tenant_widens_the_folder_that_a_table_reads_images_below(tenancy):
    for root in ("data", f"{tenancy.root}/data", "/", "../tenant_b/data"):
        images = {"source": "labelled", "table": "data/t.csv", "root": root}
        with pytest.raises(ConfigError, match=r"images\.root: this endpoint reads the images of a table below"):
            checked(tenancy, images=images)


@pytest.mark.parametrize("kind", kinds())
def test_every_field_of_every_kind_says_what_it_names(kind):
    fields = list(fields_of(kinds()[kind].config_class))
    assert [field for field, names, _ in fields if names is None] == []
    assert [field for field, names, _ in fields if names is not Names.NOTHING]


def test_texts_of_any_form_name_something_but_for_these_few():
    """Before a field joins this list: nothing may ever read a file, or load a model, by its value."""
    words = {
        (kind, field)
        for kind, about in kinds().items()
        for field, names, hint in fields_of(about.config_class)
        if names is Names.NOTHING and is_free_text(hint)
    }
    assert words == {
        ("c2b", "templates"),
        ("c2b", "images.separator"),  # what stands between two names in a cell of a table
        ("c2b", "metric"),  # one of a list; a function of one's own is passed in Python, never named
        ("prompts", "curated"),
        ("clip-bias", "datasets.texts"),
    }


class Hidden(StrictModel):
    table: str = "x"


class Planted(AuditConfig):
    """An audit with fields whose types do not say what they name."""

    notes: str | None = None
    anything: Any = None
    either: TablePath | RunPath | None = None
    listed: dict[str, int] | None = None
    deep: dict[Name, list[list[Hidden]]] | None = None
    section: Hidden | None = None


@pytest.mark.parametrize(
    "field",
    [
        {"notes": "data/t.csv"},
        {"anything": "data/t.csv"},
        {"either": "data/t.csv"},
        {"listed": {"data/t.csv": 1}},
        {"deep": {"a": [[{"table": "/etc/passwd"}]]}},
        {"section": {"table": "/etc/passwd"}},
    ],
)
def test_a_field_whose_type_does_not_say_what_it_names_is_refused(tenancy, field):
    (name,) = field
    with pytest.raises(ConfigError, match=rf"^{name}.*: this endpoint does not accept the field"):
        resolve_config({**audit(), **field}, Planted, tenancy)
    assert resolve_config({**audit(), "section": None, "deep": {}}, Planted, tenancy)["deep"] == {}


def test_every_scheme_of_the_catalogue_is_classified():
    """A third party's is not, and is refused whatever the policy lists."""
    assert {*catalog.CATALOG, ("group_guesser", "bert")} == set(schemes.SCHEMES)  # `models.group_guessers` loads it
    listed = {(role, scheme) for role, names in DEFAULT_SCHEMES.items() for scheme in names}
    assert listed <= {pair for pair, grammar in schemes.SCHEMES.items() if grammar is not None}


def test_a_scheme_that_is_in_no_table_is_refused(tenancy):
    policy = Policy(schemes={"classifier": ["acme", "in-memory", "onnx"]})
    for spec in ("acme:x", "in-memory:x", "world:clip", "file:/etc/passwd", "ONNX:data/net.onnx", "pickle:data/t.csv"):
        with pytest.raises(ConfigError, match="not a scheme that this endpoint accepts"):
            resolve_config(audit(classifier=spec), AuditConfig, Tenancy(tenancy.root, policy))


def test_names_are_located_and_the_rest_is_as_it_was(tenancy):
    config = audit(
        classifier=[f"onnx:upload:{SHA}?labels=data/names.txt&mean=0.5,0.5,0.5", "timm:resnet50.a1_in1k"],
        language_model="world:lm",
        label_map="data/map.json",
        classes="all",
        images={"source": "labelled", "table": " data/sibling.csv "},
    )
    result = resolve_config(config, AuditConfig, tenancy)
    root = os.path.realpath(tenancy.root)
    located = f"onnx:{root}/uploads/{SHA}.onnx?labels={root}/data/names.txt&mean=0.5,0.5,0.5"
    assert result == {
        **config,
        "classifier": {config["classifier"][0]: located, "timm:resnet50.a1_in1k": "timm:resnet50.a1_in1k"},
        "label_map": f"{root}/data/map.json",
        "images": {"source": "labelled", "table": f"{root}/data/t.csv"},
    }
    check_resolved(result, AuditConfig, tenancy)
    named = paths_of(result, AuditConfig, tenancy)
    assert (Names.TABLE, "images.table", f"{root}/data/t.csv") in named
    assert (Names.CLASSIFIER, "classifier", f"{root}/data/names.txt") in named


WAYS_OUT = [
    "/etc/passwd", "../tenant_b/data/secret.csv", "data/../../tenant_b/data/secret.csv", "data/./t.csv",
    "data//t.csv",
    "~/x", "~root/x", "data/~/../x", "$HOME/x", "data/$HOME", "data/out/secret.csv", "runs/job_1",
    "uploads/x", "data",
    "data/", "file:///etc/passwd", "file:/etc/passwd", "http://169.254.169.254/",
    "https://example.org/t.csv", "gs://b/x",
    "s3://other/public/x", "s3://shared/public/../private/x", "s3://key:secret@shared/public/x",
    "s3:/shared/public/x",
    "s3://shared/publicx", "S3://shared/public/x", "data\\..\\x", "data/%2e%2e/x", "data/t.csv\n", "data/absent.csv",
    "upload:" + OTHER, "upload:" + SHA.upper(), "upload:../x", "run:../../tenant_b", "run:job_1", "\\\\host\\share",
    "data/..", "data/...", "DATA/t.csv", "./data/t.csv", "data/t.csv ", "/proc/self/environ",
    "data/x" * 300, "data/ｅ／../x",
]  # fmt: skip


@pytest.mark.parametrize("path", [path for path in WAYS_OUT if path.strip() == path])
def test_paths_that_lead_out_are_refused_in_every_field(tenancy, path):
    """Through a table, a map, and each kind of spec that names a file."""
    for fields in (
        {"images": {"source": "labelled", "table": path}},
        {"label_map": path},
        {"classifier": f"onnx:{path}"},
        {"classifier": f"onnx:data/net.onnx?labels={path}"},
        {"classifier": f"table:{path}"},
        {"classifier": {"a": f"timm:local-dir:{path}"}},
        {"classifier": [f"timm:resnet50?weights={path}"]},
        {"language_model": f"scripted:{path}"},
        {"images": {"source": "retrieve", "index": path}, "attributes": {"a": ["b", "c"]}},
        {"images": {"source": "retrieve", "index": f"faiss:{path}"}, "attributes": {"a": ["b", "c"]}},
    ):
        if path == f"upload:{SHA}" or (path == "data/t.csv " and "classifier" not in fields):
            continue
        with pytest.raises(ConfigError):
            checked(tenancy, **fields)


@pytest.mark.parametrize(
    "spec",
    [
        "onnx:data%2f..%2fx", "onnx:data/net.onnx?labels=%2Fetc%2Fpasswd",
        "onnx:data/net.onnx?labels=data/names.txt&labels=/x",
        "onnx:data/net.onnx?new=1", "onnx:data/net.onnx?device=cuda:0;x", "timm:../../x", "timm:/etc/x",
        "timm:hf-hub:evil/x",
        "timm:local-dir:/etc", "hf:evil/model", "hf:..", "hf:org/../x", "hf:org/a/b",
        "hf:org/x?revision=../x", "world:../x", "world:resnet-plantd-0",
        "world:clip?vocabulary=/etc/passwd", "torchvision:resnet50?weights=/x.safetensors", "torchvision:resnet50",
        "table:https://example.org/t.csv", "https://example.org/", "http://models.example.org/v1/",
        "https:models.example.org",
        "https://models.example.org/v1/../admin", "https://models.example.org@evil/v1/", "http://127.0.0.1:8001",
        "http://127.1:8000", "http://[::ffff:127.0.0.1]:8000",
        "https://models.example.org/v1/?api_key=abcdefgh12345678",
        "clip", ":", "onnx:", "openai:https://models.example.org/v1/#x",
        "onnx:data/net.onnx?labels=data/names.txt%0d%0aX: y",
    ],
)  # fmt: skip
def test_specs_that_are_refused(tenancy, spec):
    with pytest.raises(ConfigError, match="classifier"):
        checked(tenancy, classifier=spec)


def test_services_are_asked_at_listed_urls_alone(tenancy):
    assert checked(tenancy, classifier="http://127.0.0.1:8000/x")["classifier"] == "http://127.0.0.1:8000/x"
    for model in (
        "openai:http://169.254.169.254/v1#m",
        "openai:file:///x#m",
        "openai:https://models.example.org/v1/#a\r\nX: y",
    ):
        with pytest.raises(ConfigError):
            checked(tenancy, language_model=model)


def test_no_service_is_asked_beside_uploaded_weights(tenancy):
    service, uploaded = "https://models.example.org/v1/resnet", f"onnx:upload:{SHA}"
    with pytest.raises(ConfigError, match="run without network") as refused:
        checked(tenancy, classifier={"new": uploaded, "old": service})
    assert refused.value.field == "classifier"
    with pytest.raises(ConfigError, match="language_model: 'openai:"):
        checked(tenancy, classifier=uploaded, language_model="openai:https://models.example.org/v1/x#a/b")
    checked(tenancy, classifier=uploaded, task="See https://models.example.org/v1/")
    tables = Tenancy(tenancy.root, OPEN, {SHA: "table"})
    os.rename(f"{tenancy.root}/uploads/{SHA}.onnx", f"{tenancy.root}/uploads/{SHA}.parquet")
    checked(tables, classifier={"new": f"table:upload:{SHA}", "old": service})


def test_what_changed_since_it_was_submitted_is_refused(tenancy, tmp_path):
    result = checked(tenancy)
    table = tmp_path / "tenants" / "tenant_a" / "data" / "t.csv"
    table.unlink()
    table.symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match=r"images\.table: the path no longer leads"):
        check_resolved(result, AuditConfig, tenancy)
    with pytest.raises(ConfigError):
        check_resolved(audit(images={"source": "labelled", "table": "/etc/passwd"}), AuditConfig, tenancy)


def test_runs_and_hierarchies_of_the_other_kinds(tenancy):
    dataset = {
        "classifier": "world:clip",
        "captions": {"run": "run:job_1"},
        "images": {"generate": {"model": "world:renderer"}},
    }
    root = os.path.realpath(tenancy.root)
    assert resolve_config(dataset, DatasetConfig, tenancy)["captions"] == {"run": f"{root}/runs/job_1"}
    failures = {
        "labels": ["bus"],
        "classifier": "world:clip",
        "images": {"labelled": {"table": "data/t.csv"}},
        "hierarchy": "world",
    }
    assert resolve_config(failures, FailuresConfig, tenancy)["hierarchy"] == "world"
    for wrong in ("run:job_2", "run:../job_1", "data/photos", "/etc", "run:"):
        with pytest.raises(ConfigError, match=r"captions\.run"):
            resolve_config({**dataset, "captions": {"run": wrong}}, DatasetConfig, tenancy)
    with pytest.raises(ConfigError, match="hierarchy"):
        resolve_config({**failures, "hierarchy": "/usr/share/wordnet"}, FailuresConfig, tenancy)


def test_odd_text_and_deep_nesting_are_refused(tenancy):
    deep = ["x"]
    for _ in range(500):
        deep = [deep]
    for fields in (
        {"task": "a\0b"},
        {"task": "a\rb"},
        {"classes": ["\x1b[2J"]},
        {"task": "\ud800"},
        {"classes": deep},
        {"task": "\u2028a"},
    ):
        with pytest.raises(ConfigError):
            checked(tenancy, **fields)


def test_a_tenant_on_a_store_stays_below_its_prefix():
    tenancy = Tenancy("s3://endpoint/tenants/tenant_a", OPEN, {SHA: "onnx"})
    result = checked(tenancy)
    assert result["images"]["table"] == "s3://endpoint/tenants/tenant_a/data/t.csv"
    check_resolved(result, AuditConfig, tenancy)
    for table in ("s3://endpoint/tenants/tenant_b/data/t.csv", "s3://endpoint/tenants/tenant_a/data/../../tenant_b/x"):
        with pytest.raises(ConfigError):
            checked(tenancy, images={"source": "labelled", "table": table})
        with pytest.raises(ConfigError):
            check_resolved(audit(images={"source": "labelled", "table": table}), AuditConfig, tenancy)


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, Names | None, Any]]:
    """Yields (field, what it names, type); the fields of a section follow its name: `methods.index`."""
    hints = typing.get_type_hints(model, include_extras=True)
    for name, names in names_by_field(model).items():
        sections = list(_sections(hints[name]))
        for section in sections:
            yield from fields_of(section, f"{above}{name}.")
        if not sections:
            yield f"{above}{name}", names, hints[name]


def is_free_text(hint: Any) -> bool:
    """Whether a type holds texts that are neither names of at most 200 letters nor choices."""
    if typing.get_origin(hint) is typing.Literal:
        return False
    if typing.get_origin(hint) is typing.Annotated:
        return hint.__metadata__ != Name.__metadata__ and is_free_text(hint.__origin__)
    return hint in (str, Any) or any(is_free_text(part) for part in typing.get_args(hint))


def _sections(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in typing.get_args(hint):
        yield from _sections(part)
