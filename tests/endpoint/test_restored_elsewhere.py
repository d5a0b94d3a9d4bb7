"""A ledger and a storage that were copied while a job ran, restored into another folder: the job goes on there."""

from __future__ import annotations

from pathlib import Path

from endpoint_work import Site, site
from test_stopped_jobs import ROWS, begun, predicted

from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.operate.backup import backup, restore


def restored(copied: Site, copy: Path, folder: Path, url: str) -> Site:
    file = folder / "endpoint.yaml"
    folder.mkdir()
    file.write_text(copied.file.read_text().replace(copied.config.folder, str(folder / "endpoint")))
    config = read_endpoint(file)
    db = Database(config.database_url)
    restore(db, config, copy, with_storage=True)
    return Site(config, db, copied.tenant, copied.key, file, tenants=dict(copied.tenants))


def test_a_job_goes_on_where_the_storage_was_restored(tmp_path, classifier, slow):
    url, service = classifier
    slow.service.delay_s = 0.5
    with site(tmp_path, [url]) as old:
        old.runner()
        job_id = begun(old, slow.audit(old))
        old.ask_to_yield(job_id)
        old.wait_for(job_id, "queued")
        waiting = old.submit({**slow.audit(old), "seed": 1})
        rows = predicted(old, job_id)
        assert 0 < len(rows) < ROWS
        backup(old.db, old.config, tmp_path / "copy", with_storage=True)
        slow.service.delay_s, before = 0.0, len(service.posts)

        new = restored(old, tmp_path / "copy", tmp_path / "elsewhere", url)
        try:
            new.runner()
            for one in (job_id, waiting):
                new.grant(one)
                new.wait_for(one, "finished", "failed")
                assert jobs.get(new.db, None, one).failure is None
                assert len(predicted(new, one)) == ROWS
            assert sum(service.posts[before:]) == ROWS - len(rows) + ROWS
        finally:
            new.close()
        assert predicted(old, job_id) == rows, "what was copied stays as it was"


def test_a_copy_of_the_ledger_alone_takes_no_run_of_the_endpoint_that_it_was_made_of(tmp_path, classifier, slow):
    url, _ = classifier
    slow.service.delay_s = 0.5
    with site(tmp_path, [url]) as old:
        old.runner()
        job_id = begun(old, slow.audit(old))
        old.ask_to_yield(job_id)
        old.wait_for(job_id, "queued")
        rows = predicted(old, job_id)
        backup(old.db, old.config, tmp_path / "copy")

        folder = tmp_path / "rehearsal"
        folder.mkdir()
        file = folder / "endpoint.yaml"
        file.write_text(old.file.read_text().replace(old.config.folder, str(folder / "endpoint")))
        config = read_endpoint(file)
        db = Database(config.database_url)
        restore(db, config, tmp_path / "copy")
        new = Site(config, db, old.tenant, old.key, file, tenants=dict(old.tenants))
        try:
            new.runner()
            new.grant(job_id)
            job = new.wait_for(job_id, "failed")
            assert "scenes.parquet" in job.failure["detail"], "it is not in this storage"
        finally:
            new.close()
        assert predicted(old, job_id) == rows
