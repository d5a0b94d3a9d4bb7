from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from endpoint_app import CONFIG
from failures_recipes import showcase
from sqlalchemy import update
from starlette.testclient import TestClient
from synthetic_failures import make_run

from c2b_ray.audits.failures.run import open_failures_run
from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.application import create_application
from c2b_ray.endpoint.ledger import jobs, quotas, tables
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.tables import NewJob


def test_a_submission_is_kept_before_it_is_answered(endpoint):
    answer = endpoint.as_("a").post("/v1/audits", json={"kind": "c2b", "name": "nightly", "config": CONFIG})
    assert answer.status_code == 202
    job_id = answer.json()["id"]
    assert answer.headers["location"] == f"/v1/audits/{job_id}"
    kept = jobs.get(endpoint.db, endpoint.tenants["a"], job_id)
    assert kept is not None
    assert kept.config == CONFIG
    assert kept.state == "queued"
    read = endpoint.as_("a").get(answer.headers["location"]).json()
    assert (read["state"], read["name"], read["config"]) == ("queued", "nightly", CONFIG)
    assert endpoint.as_("a").get("/v1/audits").json()["items"][0]["config"] is None


def test_a_key_makes_one_job_of_one_body_and_refuses_another(endpoint):
    once = {"Idempotency-Key": "build-7"}
    client = endpoint.as_("a")
    first = client.post("/v1/audits", json={"kind": "c2b", "config": CONFIG}, headers=once)
    # The same JSON, written otherwise.
    text = '{{"config": {}, "kind": "c2b"}}'.format(first.request.content.decode().partition('"config":')[2][:-1])
    again = client.post("/v1/audits", content=text, headers={**once, "content-type": "application/json"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    other = client.post("/v1/audits", json={"kind": "c2b", "config": {**CONFIG, "seed": 1}}, headers=once)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"
    of_another = endpoint.as_("b").post("/v1/audits", json={"kind": "c2b", "config": CONFIG}, headers=once)
    assert of_another.status_code == 202
    assert of_another.json()["id"] != first.json()["id"]


def test_two_at_once_with_one_key_make_one_job(endpoint):
    answers = []

    def post() -> None:
        answers.append(endpoint.as_("a").post("/v1/audits", json={"kind": "c2b", "config": CONFIG},
                                              headers={"Idempotency-Key": "at-once"}))  # fmt: skip

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_a_submission_that_comes_again_is_its_job_also_where_its_files_are_gone(endpoint):
    table = endpoint.run_path("x").parent.parent / "data" / "scenes.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("image,target_class\na.png,bus\n")
    config = {**CONFIG, "images": {"source": "labelled", "table": "data/scenes.csv"}}
    sent = {"json": {"kind": "c2b", "config": config}, "headers": {"Idempotency-Key": "lost-answer"}}
    client = endpoint.as_("a")
    first = client.post("/v1/audits", **sent)
    assert first.status_code == 202, first.text
    table.unlink()
    again = client.post("/v1/audits", **sent)
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
    sent["headers"]["Idempotency-Key"] = "another"
    assert client.post("/v1/audits", **sent).status_code == 422


def test_two_replicas_at_once_with_one_key_make_one_job(endpoint):
    """And of two bodies at once, one is refused."""
    replicas = [create_application(endpoint.config, Database(endpoint.config.database_url)) for _ in range(2)]
    for turn in range(5):
        answers, start = [], threading.Barrier(4)

        def post(app, seed, key=f"both-{turn}", answers=answers, start=start) -> None:
            client = TestClient(app, headers={"Authorization": f"Bearer {endpoint.keys['a']}"})
            start.wait()
            config = {**CONFIG, "seed": seed}
            answers.append(client.post("/v1/audits", json={"kind": "c2b", "config": config},
                                       headers={"Idempotency-Key": key}))  # fmt: skip

        threads = [threading.Thread(target=post, args=(app, seed)) for app in replicas for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.status_code for answer in answers) == [202, 202, 422, 422]
        made = {answer.json()["id"] for answer in answers if answer.status_code == 202}
        assert len(made) == 1
        refused = {answer.json()["code"] for answer in answers if answer.status_code == 422}
        assert refused == {"idempotency_conflict"}
    for app in replicas:
        app.state.context.db.close()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**CONFIG, "classifer": "x"}, "config.classifer"),
        ({**CONFIG, "classifier": "onnx:/etc/passwd"}, "config.classifier"),
        ({**CONFIG, "images": {"source": "labelled", "table": "../../b/data/t.csv"}}, "config.images.table"),
        ({**CONFIG, "tau": 7}, "config.tau"),
    ],
)
def test_a_wrong_config_names_its_field_and_is_not_kept(endpoint, config, field):
    before = len(endpoint.as_("a").get("/v1/audits?limit=200").json()["items"])
    for path in ("/v1/audits", "/v1/audits/check"):
        answer = endpoint.as_("a").post(path, json={"kind": "c2b", "config": config})
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "invalid_config"
        assert answer.json()["errors"][0]["field"] == field
    assert len(endpoint.as_("a").get("/v1/audits?limit=200").json()["items"]) == before


def test_a_metric_that_is_a_function_is_refused_before_there_is_a_job(endpoint):
    folder = Path(endpoint.context.tenant_root(endpoint.tenants["a"]), "data")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metric.csv").write_text("image,target_class,weather\na.png,bus,clear\n")
    labelled = {name: value for name, value in CONFIG.items() if name not in ("attributes", "images_per_caption")}
    labelled["images"] = {"source": "labelled", "table": "data/metric.csv"}
    check = "/v1/audits/check"
    good = endpoint.as_("a").post(check, json={"kind": "c2b", "config": {**labelled, "metric": "f1"}})
    assert good.status_code == 200, good.text
    for path in ("/v1/audits", check):
        answer = endpoint.as_("a").post(path, json={"kind": "c2b", "config": {**labelled, "metric": "python:mine"}})
        assert answer.status_code == 422, answer.text
        [error] = answer.json()["errors"]
        assert error["field"] == "config.metric"
        assert "run the audit from Python" in error["message"]


def test_check_counts_images_and_keeps_nothing(endpoint):
    answer = endpoint.as_("a").post("/v1/audits/check", json={"kind": "c2b", "config": CONFIG}).json()
    assert answer["valid"]
    assert answer["images_at_most"] == 2 * 2 * 5 * 8
    two = {**CONFIG, "classifier": ["world:resnet-control-0", "world:resnet-planted-0"]}
    answer = endpoint.as_("a").post("/v1/audits/check", json={"kind": "c2b", "config": two}).json()
    assert answer["images_at_most"] == 2 * (2 * 2 * 5 * 8), "each classifier answers about each, and use is booked so"


def test_a_waiting_job_is_cancelled_at_once_and_purged(endpoint):
    job_id = endpoint.submit()["id"]
    client = endpoint.as_("a")
    assert client.delete(f"/v1/audits/{job_id}?purge=true").status_code == 409
    cancelled = client.delete(f"/v1/audits/{job_id}")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")
    folder = endpoint.run_path(job_id)
    folder.mkdir(parents=True)
    (folder / "part").write_text("rows")
    assert client.delete(f"/v1/audits/{job_id}?purge=true").status_code == 202
    assert not folder.exists()
    assert client.get(f"/v1/audits/{job_id}").status_code == 404


def test_pages_go_on_by_cursors_that_only_the_endpoint_makes(endpoint):
    there = {endpoint.submit(who="b")["id"] for _ in range(3)}
    client = endpoint.as_("b")
    seen, cursor = [], None
    while True:
        page = client.get("/v1/audits", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [job["id"] for job in page["items"]]
        if (cursor := page["next"]) is None:
            break
        kept = cursor
        late = endpoint.submit(who="b")["id"]  # while somebody turns pages
    assert len(seen) == len(set(seen))
    assert there <= set(seen)
    assert late not in seen, "what is newer than the first page is not on a later one"
    flipped = kept[:-1] + ("A" if kept[-1] != "A" else "B")
    for client, wrong, more in (
        (endpoint.as_("b"), flipped, {}),
        (endpoint.as_("b"), "nonsense", {}),
        (endpoint.as_("b"), "é" * 5, {}),
        (endpoint.as_("a"), kept, {}),  # of another tenant
        (endpoint.as_("b"), kept, {"state": "queued"}),  # of another list
    ):
        answer = client.get("/v1/audits", params={"cursor": wrong, **more})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")


@pytest.mark.parametrize("name", ["a\nb", "", "x" * 201, 7])
def test_a_name_that_is_no_name(endpoint, name):
    answer = endpoint.as_("a").post("/v1/audits", json={"kind": "c2b", "name": name, "config": CONFIG})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "name")


def test_more_jobs_than_a_quota_allows(tmp_path):
    from endpoint_app import started

    small = started(tmp_path, {"quotas": {"concurrent_jobs": 1}})
    small.submit()
    answer = small.as_("a").post("/v1/audits", json={"kind": "c2b", "config": CONFIG})
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["ratelimit-remaining"] == "0"
    assert small.as_("b").post("/v1/audits", json={"kind": "c2b", "config": CONFIG}).status_code == 202
    small.db.close()


@pytest.mark.parametrize(
    ("quota", "kind", "frees"),
    [
        ({"concurrent_jobs": 1}, "concurrent_jobs", False),
        ({"images_per_day": 170}, "images_per_day", True),  # 80 or 160 of them are used
        ({"images_per_day": 79}, "images_per_day", False),  # no day would do
        ({"storage_bytes": 1}, "storage_bytes", False),
        ({"model_seconds_per_day": {"*": 5.0}}, "model_seconds_per_day", True),
        ({"model_seconds_per_day": {"*": 0.0}}, "model_seconds_per_day", False),
    ],
)
def test_an_estimate_says_which_quota_would_refuse_the_job_as_the_submission_does(tmp_path, quota, kind, frees):
    from endpoint_app import started
    from signed_in import Visitor

    site = started(tmp_path, {"quotas": quota})
    jobs.submit(site.db, site.tenants["a"], None, NewJob("c2b", CONFIG, CONFIG), Quotas())
    model, sent = CONFIG["classifier"], {"kind": "c2b", "config": CONFIG}
    with site.db.transaction() as tx:
        quotas.add(tx, site.tenants["a"], None, model, 160, 5.0)
        tx.execute(update(tables.jobs).values(bytes=1))
    checked = site.as_("a").post("/v1/audits/check", json=sent).json()
    refused = site.as_("a").post("/v1/audits", json=sent)
    assert checked["valid"]
    assert (checked["refused"]["quota"], checked["refused"]["detail"]) == (kind, refused.json()["detail"])
    assert (checked["refused"]["free_in_seconds"] is not None) == frees
    page = Visitor(site, "a").post("/ui/check", {"kind": "c2b", "yaml": json.dumps(CONFIG)}).json()
    assert (page["valid"], page["message"]) == (False, refused.json()["detail"])
    assert site.as_("b").post("/v1/audits/check", json=sent).json()["refused"] is None or kind != "concurrent_jobs"
    site.db.close()


def test_a_limit_of_millions_is_written_out(tmp_path):
    from endpoint_app import started

    site = started(tmp_path, {"quotas": {"storage_bytes": 2_000_000}})
    headers = {"X-Upload-Kind": "images", "Content-Type": "application/octet-stream", "Content-Length": "2000001"}
    answer = site.as_("a").post("/v1/uploads", content=b"x" * 2_000_001, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
    assert answer.headers["ratelimit-limit"] == answer.headers["ratelimit-remaining"] == "2000000"
    site.db.close()


def _rows(client: Any, path: str) -> list[Any]:
    rows, cursor = [], None
    while cursor is not None or not rows:
        page = client.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        rows, cursor = rows + page["items"], page["next"]
        assert page["items"], "a page that another page announced has rows"
    assert page["rows"] == len(rows)
    return rows


def test_rows_of_a_question_are_on_the_pages_of_a_table(endpoint: Any) -> None:
    job = endpoint.finish("failures")
    run = make_run(endpoint.run_path(job.id), showcase())
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}/tables/hypotheses"
    before = _rows(client, path)
    with open_failures_run(run.path, run.manifest["run_id"], run.config) as asked:
        asked.write("hypotheses", pa.concat_tables([asked.hypotheses, asked.hypotheses.slice(0, 2)]))
        assert len(_rows(client, path)) == len(before) + 2
        asked.write("hypotheses", pa.concat_tables([asked.hypotheses, asked.hypotheses.slice(0, 1)]))
        asked.update({"status": "finished"})
    assert _rows(client, path) == [*before, *before[:2], before[0]]
