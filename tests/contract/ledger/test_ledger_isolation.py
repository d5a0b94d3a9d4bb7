"""The contract of a ledger's tenants: none sees or changes what belongs to another."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from ledgers import PLENTY, claimed, everything, member, submit

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import audit_log, jobs, quotas, running, tables, tenants, uploads, webhooks
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.errors import RunError

CREATE = {"jobs.submit", "tenants.create_key", "uploads.add", "uploads.check_room", "webhooks.create"}
"""Functions that take a tenant's id and only create what belongs to that tenant."""
PARTS = {"quotas.add", "quotas.by_model", "quotas.locked_limits", "quotas.check_submission", "quotas.check_use",
         "quotas.check_running", "quotas.jobs_and_bytes", "uploads.upload_lock", "uploads.reader_of",
         "webhooks.announce"}  # fmt: skip
"""Functions that are steps of other functions of the ledger."""
OPERATORS = {"tenants.change", "tenants.get", "tenants.remove", "uploads.removed_uploads", "uploads.tenant_was_removed"}
"""Functions of the operator and of its clean-up."""


class TestIsolation:
    def test_a_tenant_sees_and_changes_nothing_of_another(self, db: Database) -> None:
        """Calls every function that takes a tenant's id, by one tenant for another's data."""
        who, other = member(db, "who"), member(db, "other")
        claim = claimed(db, who)
        running.progress(
            db, claim.job.id, claim.fence, tables.Progress(images={"m": 5}, model_seconds={"m": 1.0}, bytes=9)
        )
        upload, _ = uploads.add(db, who.tenant_id, None, uploads.NewUpload("a" * 64, "onnx", 9, "n", {}), PLENTY)
        hook = webhooks.create(db, who.tenant_id, "https://example.org", "s")
        running.finish(db, claim.job.id, claim.fence, "runs/x", "hash", ["one", "two"])
        submit(db, who, idempotency_key="k", body_hash="a")
        job_id, them, before = claim.job.id, other.tenant_id, everything(db)
        answers: dict[str, Any] = {
            "jobs.get": jobs.get(db, them, job_id),
            "jobs.page": jobs.page(db, them).items,
            "jobs.page by classifiers": jobs.page(db, them, tables.Filters(classifier_hash="hash")).items,
            "jobs.page by classifier": jobs.page(db, them, tables.Filters(classifier_hash="one")).items,
            "jobs.page after a cursor": jobs.page(db, them, cursor=(9e12, "z")).items,
            "jobs.listing": jobs.listing(db, them, jobs.JobFilters()).items,
            "jobs.request_cancel": jobs.request_cancel(db, them, job_id),
            "jobs.set_deleted": jobs.set_deleted(db, them, job_id),
            "jobs.submitted_before": jobs.submitted_before(db, them, "k", "a"),
            "running.resized": running.resized(db, them, job_id, 9),
            "quotas.spend": quotas.spend(db, them, "0000-00-00", "9999-99-99"),
            "quotas.refusal": quotas.refusal(db, them, tables.NewJob("c2b", {}, {}), Quotas(concurrent_jobs=1)),
            "uploads.get": uploads.get(db, them, upload.sha256),
            "uploads.page": uploads.page(db, them)[0],
            "uploads.remove": uploads.remove(db, them, upload.sha256),
            "webhooks.listed": webhooks.listed(db, them),
            "webhooks.get": webhooks.get(db, them, hook.id),
            "webhooks.remove": webhooks.remove(db, them, hook.id),
            "webhooks.deliveries": webhooks.deliveries(db, them, hook.id),
            "tenants.get_key": tenants.get_key(db, them, who.key_id),
            "tenants.revoke_key": tenants.revoke_key(db, them, who.key_id),
            "tenants.rotate_key": tenants.rotate_key(db, them, who.key_id),
            "tenants.list_keys": [key for key in tenants.list_keys(db, them) if key.tenant_id != them],
            "audit_log.page": [entry for entry in audit_log.page(db, tenant_id=them) if entry.tenant_id != them],
        }
        assert {name: answer for name, answer in answers.items() if answer} == {}
        # A function that is written later is called here too, unless it is listed above.
        called = {name.split()[0] for name in answers} | {"quotas.limits_and_use"}
        assert _of_tenants() - called - CREATE - PARTS - OPERATORS == set()
        standing = quotas.limits_and_use(db, them, PLENTY)
        assert [standing[name]["used"] for name in ("concurrent_jobs", "images_per_day", "storage_bytes")] == [0, 0, 0]
        assert everything(db) == before

    def test_the_same_content_is_an_upload_of_each_and_removed_by_each(self, db: Database) -> None:
        who, other = member(db, "who"), member(db, "other")
        new = uploads.NewUpload("a" * 64, "onnx", 9, "n", {})
        for tenant in (who, other):
            assert uploads.add(db, tenant.tenant_id, None, new, PLENTY)[1]
        assert uploads.remove(db, who.tenant_id, new.sha256)
        assert uploads.get(db, who.tenant_id, new.sha256) is None
        assert uploads.get(db, other.tenant_id, new.sha256) is not None

    def test_a_tenant_that_is_removed_leaves_nothing_but_its_entries_in_the_log(self, db: Database) -> None:
        other = member(db, "other")
        submit(db, other)
        before = everything(db)
        who = member(db, "who")
        webhooks.create(db, who.tenant_id, "https://example.org", "s")
        claim = claimed(db, who)
        with pytest.raises(RunError, match="jobs wait or run"):
            tenants.remove(db, who.tenant_id)
        running.progress(db, claim.job.id, claim.fence, tables.Progress(images={"m": 5}))
        running.finish(db, claim.job.id, claim.fence, None, "both", ["one", "two"])
        uploads.add(db, who.tenant_id, None, uploads.NewUpload("a" * 64, "onnx", 9, "n", {}), PLENTY)
        jobs.submit(db, who.tenant_id, None, tables.NewJob("c2b", {}, {}, idempotency_key="k"), PLENTY)
        jobs.request_cancel(db, who.tenant_id, jobs.page(db, who.tenant_id).items[0].id)
        assert tenants.remove(db, who.tenant_id)
        assert not tenants.remove(db, who.tenant_id)
        left = {name: rows for name, rows in everything(db).items() if rows != before[name]}
        assert sorted(left) == ["audit_head", "audit_log", "leases"]
        assert audit_log.verify(db) is None


def _of_tenants() -> set[str]:
    """Returns the ledger's public functions that take a tenant's id."""
    modules = (audit_log, jobs, quotas, running, tenants, uploads, webhooks)
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and "tenant_id" in inspect.signature(function).parameters
        if function.__module__ == module.__name__
    }
