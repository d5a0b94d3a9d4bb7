"""The four younger kinds of jobs, each through API, dispatcher, runner and a process of its own, up to its report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clip_bias_tables
import httpx
import pytest
import small_configs
from endpoint_parts import Parts, parts
from toy_latent import toy_generator, toy_labels

from c2b_ray.endpoint.ledger import quotas

LATENT = {
    "generator": "vae:local-dir:data/generator",
    "classifier": "world:resnet-planted-1",
    "latents": "data/labels.parquet",
    "problems": [{"label": "boat", "target": "target", "biased": "first"}],
    "search": {"iterations": 4, "batch": 4, "walk": 3, "starts": 1},
    "evidence": {"latents": 100},
    "strips": {"latents": 1, "positions": 3},
}
PROMPTS = {
    **small_configs.PROMPTS,
    "subjects": ["bus"],
    "search": {**small_configs.PROMPTS["search"], "images": 4, "most_tokens": 8},
    "methods": ["templates", "bgps"],
    "evaluation": {"prompts": 1, "images": 3},
}
CLIP_BIAS = {
    "models": {"a": "world:clip", "b": "world:clip-05"},
    "datasets": {"people": {"table": "data/people.parquet", "attributes": ["coin"], "texts": ["something red"]}},
    "groups": {"k": 2, "least": 30},
    "chance": {"permutations": 100, "resamples": 50},
}
EVALUATE = {name: small_configs.EVALUATE[name] for name in ("classes", "classifier", "methods")} | {
    "truth": {"world": {"scenes": 400}}
}
CONFIGS: dict[str, dict[str, Any]] = {
    "latent": LATENT, "prompts": PROMPTS, "clip-bias": CLIP_BIAS, "evaluate": EVALUATE,
}  # fmt: skip
SLOW_SEARCH = {"weights": list(range(10, 90)), "images": 8, "beams": 3, "expansion": 3, "pool": 12, "most_tokens": 40}
ENDLESS: dict[str, dict[str, Any]] = {
    "latent": {
        "generator": LATENT["generator"], "classifier": LATENT["classifier"], "label": "boat",
        "evidence": {"latents": 1_000_000},
    },
    "prompts": {**PROMPTS, "search": SLOW_SEARCH, "methods": ["bgps"]},
}  # fmt: skip
"""Each in a search that lasts far longer than the test, unless someone stops it."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Parts, httpx.Client, dict[str, str]]]:
    """The endpoint, a client, and a job of each kind, which wait beside each other."""
    folder = tmp_path_factory.mktemp("kinds")
    with parts(folder, [], {}, slots=2, lease_seconds=30.0, slice_seconds=600.0) as made:
        data = Path(made.site.config.storage_root, "tenants", made.site.tenant, "data")
        data.mkdir(parents=True)
        clip_bias_tables.write_tables(data, images=80)
        toy_labels(toy_generator(data / "generator"), data / "labels.parquet", 400)
        with made.client(made.site.tenant) as client:
            yield made, client, {kind: made.submit(client, kind, config) for kind, config in CONFIGS.items()}


def spent(endpoint: Parts) -> tuple[int, float]:
    every = quotas.spend(endpoint.site.db, endpoint.site.tenant, "2000", "3000")
    return sum(one.images for one in every), sum(one.model_seconds for one in every)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_job_of_each_kind_ends_with_a_report_that_is_read_over_http(endpoint, kind) -> None:
    made, client, jobs = endpoint
    body = made.ended(client, jobs[kind], 240)
    assert body["state"] == "finished", (body, made.site.logs())
    assert body["images"] > 0
    assert body["model_seconds"] > 0
    page = client.get(f"{jobs[kind]}/report")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert str(made.site.config.storage_root) not in page.text
    listed = client.get(f"{jobs[kind]}/tables").json()
    rows = {item["name"]: client.get(f"{jobs[kind]}/tables/{item['name']}").json() for item in listed["items"]}
    assert any(table["items"] for table in rows.values())
    assert {name: table["rows"] for name, table in rows.items()} == {t["name"]: t["rows"] for t in listed["items"]}
    for form in listed["exports"]:
        assert client.get(f"{jobs[kind]}/exports/{form}").status_code == 200


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_cancelled_job_books_what_it_used(endpoint, kind) -> None:
    made, client, jobs = endpoint
    for job in jobs.values():
        made.ended(client, job, 240)
    images, seconds = spent(made)
    job = made.submit(client, kind, ENDLESS[kind])

    def answering() -> bool:
        body = client.get(job).json()
        return body["images"] > 0 or body["progress"]["stage"] == "search"

    made.site.wait(answering, "the job's models to answer")
    time.sleep(3)
    assert client.delete(job).status_code == 202
    body = made.ended(client, job, 60)
    assert body["state"] == "cancelled", (body, made.site.logs())
    assert body["images"] > 0
    assert spent(made)[0] - images == body["images"]
    assert spent(made)[1] - seconds == pytest.approx(body["model_seconds"])
