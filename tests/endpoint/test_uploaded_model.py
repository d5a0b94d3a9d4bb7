"""A model and images that a tenant uploads, audited by a process without network; and files that changed since."""

import threading
import time
from pathlib import Path

import pytest
from endpoint_app import Endpoint, started
from uploaded_files import images, model

from c2b_ray.endpoint.ledger import jobs, running, webhooks
from c2b_ray.endpoint.ledger.tables import Job
from c2b_ray.endpoint.policy.isolation import can_cut_off
from c2b_ray.endpoint.work.runner import Runner


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    runners = {"poll_seconds": 0.05, "spare": False}
    endpoint = started(tmp_path_factory.mktemp("endpoint"), {"via": "here", "runners": runners})
    yield endpoint
    endpoint.db.close()


def sent(endpoint: Endpoint, content: bytes, kind: str) -> str:
    answer = endpoint.as_("a").post("/v1/uploads", content=content, headers={"X-Upload-Kind": kind})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["spec"])


def submitted(endpoint: Endpoint, config: dict[str, object]) -> str:
    return str(endpoint.submit(config={"task": "t", "classes": ["bus", "boat"], **config})["id"])


def ended(endpoint: Endpoint, job: str) -> Job:
    """The job, once a runner has ended it."""
    lease = running.take_lease(endpoint.db, "dispatcher", "tests", 60.0)
    assert lease is not None
    running.grant(endpoint.db, job, lease)
    stop = threading.Event()
    thread = threading.Thread(target=Runner(endpoint.db, endpoint.config, "tests").run, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while (now := jobs.get(endpoint.db, endpoint.tenants["a"], job)).state not in ("finished", "failed"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
    return now


def test_an_uploaded_model_is_audited_on_uploaded_images_in_its_cell(endpoint):
    classifier, table = sent(endpoint, model(), "onnx"), sent(endpoint, images(), "images")
    config = {"classifier": classifier, "images": {"source": "labelled", "table": table}, "check": False}
    job = ended(endpoint, submitted(endpoint, config))
    assert job.state == "finished", job.failure
    warned = [event.data for event in webhooks.events_after(endpoint.db, job.id) if event.kind == "warning"]
    assert any("network" in str(data) for data in warned) is not can_cut_off()
    page = endpoint.as_("a").get(f"/v1/audits/{job.id}/report").text
    assert classifier in page
    assert endpoint.config.folder not in page  # a stranger learns nothing of the server's folders


def test_a_table_that_became_a_link_after_it_was_submitted_is_not_read(endpoint, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("image,target_class\nthe-secret-of-another,bus\n")
    data = Path(endpoint.context.tenant_root(endpoint.tenants["a"]), "data")
    data.mkdir(parents=True)
    (data / "t.csv").write_text("image,target_class\na.png,bus\n")
    config = {"classifier": "world:clip", "images": {"source": "labelled", "table": "data/t.csv"}}
    job_id = submitted(endpoint, config)
    (data / "t.csv").unlink()
    (data / "t.csv").symlink_to(secret)
    job = ended(endpoint, job_id)
    assert job.state == "failed"
    assert "no longer leads to this tenant's files" in str(job.failure)
    assert "the-secret" not in str(job.failure)
