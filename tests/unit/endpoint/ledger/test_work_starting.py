"""Where the models of a job answer, and what its process may reach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.config.endpoint import EndpointConfig, Policy
from c2b_ray.endpoint.ledger import jobs, migrations, tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.tables import Job, NewJob
from c2b_ray.endpoint.work.process import ProcessStarter
from c2b_ray.errors import ServiceError

UPLOADED = {"classifier": f"onnx:upload:{'0' * 64}"}


@pytest.fixture
def job(tmp_path) -> Job:
    db = Database(f"sqlite:///{tmp_path}/ledger.db")
    migrations.prepare(db)
    tenant = tenants.create(db, "alpha").id
    new = NewJob("c2b", {"classifier": "world:resnet"}, {"classifier": "world:resnet"})
    made, _ = jobs.submit(db, tenant, None, new, EndpointConfig().quotas)
    db.close()
    return made


def starting(**fields: object) -> ProcessStarter:
    return ProcessStarter(EndpointConfig.model_validate({"storage": "/srv/storage", **fields}), "/tmp", None)


def test_on_a_shared_cluster_models_answer_behind_serve(job):
    start = starting(serve="ray://head:10001").start(job, until=5.0)
    assert (start.via, start.until) == ("serve", 5.0)
    assert start.out == f"/srv/storage/tenants/{job.tenant_id}/runs/{job.id}"
    assert starting(via="here").start(job, 5.0).via == "here"


def test_uploaded_weights_load_in_the_jobs_own_process_alone(job):
    """Never in an app of a cluster, which answers other tenants, too, and has a network."""
    uploaded = replace(job, config=UPLOADED)
    assert starting().loads_uploaded_weights(uploaded)
    assert not starting().loads_uploaded_weights(job)
    assert starting(serve="ray://head:10001").start(uploaded, 5.0).via == "here"
    nested = {"classifier": {"mine": f"timm:resnet18?weights=upload:{'0' * 64}"}}
    assert starting().loads_uploaded_weights(replace(job, config=nested))


def test_a_question_loads_the_weights_of_its_run(job, tmp_path):
    tenant = tmp_path / "tenants" / job.tenant_id
    kind = {"kind": "question"}
    for name, spec, strange in (
        ("onnx", f"onnx:{tenant}/uploads/{'0' * 64}.onnx?std=0.5", True),
        ("table", f"table:{tenant}/uploads/{'0' * 64}.parquet", False),
        ("world", "world:resnet", False),
    ):
        path = f"{tenant}/runs/{name}"
        with open_c2b_run(path, name, {"classifier": {"mine": spec}}):
            pass
        asked = replace(job, **kind, config={"run": f"run:{name}"}, resolved={"run": path})
        assert starting(storage=str(tmp_path)).loads_uploaded_weights(asked) is strange, name
    gone = replace(job, **kind, config={"run": "run:gone"}, resolved={"run": f"{tenant}/runs/gone"})
    assert starting(storage=str(tmp_path)).loads_uploaded_weights(gone)


def test_an_uploaded_table_of_predictions_is_no_weights(job):
    config = {"classifier": {"old": f"table:upload:{'0' * 64}", "new": "https://models.example/v1"}}
    assert not starting().loads_uploaded_weights(replace(job, config=config))


def test_uploaded_images_are_audited_with_models_of_a_service_or_a_hub(job):
    """They need the network, and on a shared cluster its apps."""
    config = {"classifier": "https://models.example/v1", "images": {"table": f"upload:{'0' * 64}"}}
    start = starting(serve="ray://head:10001").start(replace(job, config=config), 5.0)
    assert (start.via, start.strange) == ("serve", False)


def test_a_policy_that_requires_isolation_refuses_what_needs_a_store():
    """Before any process is started."""
    strict = starting(storage="s3://bucket/runs", policy=Policy(require_isolation=True).model_dump())
    with pytest.raises(ServiceError, match="keep runs on a file system"):
        strict.process(network=False)
