"""The contract of a ledger's keys and quotas: who may do something, and how much of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from ledgers import HOUR, OpenDb, SetDatabase, at_once, claimed, member
from sqlalchemy import select

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import jobs, quotas, running, tables, tenants, uploads
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.errors import ConfigError, InputError


class TestKeys:
    def test_a_key_is_known_by_its_text_alone_and_only_its_hash_is_kept(self, db: Database) -> None:
        tenant = tenants.create(db, "acme")
        new = tenants.create_key(db, tenant.id, "ci", ["read"])
        assert tenants.verify_key(db, new.text) == new.key
        assert new.key.allows("read")
        assert not new.key.allows("submit")
        assert not new.key.allows("admin")
        secret = new.text.rpartition("_")[2]
        with db.reading() as tx:
            everything = [str(row) for table in (tables.keys, tables.audit_log) for row in tx.execute(select(table))]
        assert not any(secret in row for row in everything)
        assert secret not in repr(new)

    def test_a_wrong_secret_an_unknown_prefix_and_what_is_no_key_are_none(self, db: Database) -> None:
        new = tenants.create_key(db, tenants.create(db, "acme").id, "ci")
        wrong = new.text[:-1] + ("a" if new.text[-1] != "a" else "b")
        unknown = f"c2b_{'0' * 8}_{new.text[-32:]}"
        for text_ in (
            wrong,
            unknown,
            "",
            "c2b_",
            new.text + "\n",
            new.text.upper(),
            f"Bearer {new.text}",
            "\0",
            "\ud800",
        ):
            assert tenants.verify_key(db, text_) is None
            assert tenants.KeyRing(db).verify(text_) is None

    def test_a_key_expires_to_the_moment_also_where_it_is_remembered(self, db: SetDatabase) -> None:
        new = tenants.create_key(db, tenants.create(db, "acme").id, "ci", expires_in=100)
        assert tenants.verify_key(db, new.text) == new.key
        db.skew = 98.5
        ring = tenants.KeyRing(db, seconds=60)
        assert ring.verify(new.text) is not None
        db.skew = 100.1
        threading.Event().wait(1.6)  # the key ring uses this process's own clock
        assert ring.verify(new.text) is None
        assert tenants.verify_key(db, new.text) is None

    def test_a_revoked_key_works_no_longer_than_it_is_remembered(self, db: Database) -> None:
        tenant = tenants.create(db, "acme")
        new = tenants.create_key(db, tenant.id, "ci")
        ring, forgetful = tenants.KeyRing(db, seconds=0.2), tenants.KeyRing(db, seconds=0)
        assert ring.verify(new.text) is not None
        assert forgetful.verify(new.text) is not None
        revoked = tenants.revoke_key(db, tenant.id, new.key.id)
        assert revoked is not None
        assert revoked.revoked is not None
        assert tenants.verify_key(db, new.text) is None
        assert forgetful.verify(new.text) is None
        threading.Event().wait(0.25)
        assert ring.verify(new.text) is None
        assert tenants.revoke_key(db, tenant.id, new.key.id) == revoked

    def test_a_rotated_key_works_for_its_grace(self, db: SetDatabase) -> None:
        tenant = tenants.create(db, "acme")
        old = tenants.create_key(db, tenant.id, "ci", ["submit"], expires_in=1000)
        new = tenants.rotate_key(db, tenant.id, old.key.id, grace_seconds=60)
        assert new is not None
        assert (new.key.name, new.key.scopes, new.key.expires) == ("ci", ("submit",), old.key.expires)
        assert tenants.verify_key(db, old.text) is not None
        db.skew = 61
        assert tenants.verify_key(db, old.text) is None
        assert tenants.verify_key(db, new.text) == new.key
        with pytest.raises(InputError, match="no longer works"):
            tenants.rotate_key(db, tenant.id, old.key.id)
        db.skew = 0
        tenants.rotate_key(db, tenant.id, new.key.id, grace_seconds=HOUR)
        db.skew = 1001  # rotation does not extend a key's life
        assert tenants.verify_key(db, new.text) is None

    def test_what_a_key_ring_read_before_a_revocation_is_not_remembered_after_it(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tenant = tenants.create(db, "acme")
        new, ring, verified = (
            tenants.create_key(db, tenant.id, "ci"),
            tenants.KeyRing(db, seconds=60),
            tenants._verified,
        )

        def then_revoked(db: Database, text: str) -> tuple[tenants.Key | None, float]:
            read = verified(db, text)
            if tenants.revoke_key(db, tenant.id, new.key.id) is not None:
                ring.forget()
            return read

        monkeypatch.setattr(tenants, "_verified", then_revoked)
        assert ring.verify(new.text) is not None
        monkeypatch.setattr(tenants, "_verified", verified)
        assert ring.verify(new.text) is None

    def test_that_a_key_is_used_is_written_down_now_and_then(self, db: Database) -> None:
        tenant = tenants.create(db, "acme")
        new, ring = tenants.create_key(db, tenant.id, "ci"), tenants.KeyRing(db, seconds=0)
        ring.verify(new.text)
        [first] = tenants.list_keys(db, tenant.id)
        assert first.last_used is not None
        ring.verify(new.text)
        assert tenants.list_keys(db, tenant.id) == [first]

    @pytest.mark.parametrize(
        ("field", "values"),
        [("name", {"name": ""}), ("scopes", {"scopes": ["root"]}), ("scopes", {"scopes": []}),
         ("expires_in", {"expires_in": 0}), ("expires_in", {"expires_in": float("nan")})],
    )  # fmt: skip
    def test_a_key_that_cannot_be_is_refused_by_its_field(
        self, db: Database, field: str, values: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            tenants.create_key(db, tenants.create(db, "acme").id, **({"name": "ci"} | values))
        assert refused.value.field == field


class TestQuotas:
    def test_too_many_jobs_are_refused_until_one_ends(self, db: Database) -> None:
        who, limits = member(db), Quotas(concurrent_jobs=2)
        new = tables.NewJob("c2b", {}, {})
        first, _ = jobs.submit(db, who.tenant_id, None, new, limits)
        jobs.submit(db, who.tenant_id, None, new, limits)
        with pytest.raises(quotas.QuotaDenial) as denied:
            jobs.submit(db, who.tenant_id, None, new, limits)
        assert (denied.value.quota, denied.value.limit, denied.value.remaining) == ("concurrent_jobs", 2, 0)
        assert denied.value.retry_after > 0
        jobs.request_cancel(db, who.tenant_id, first.id)
        assert jobs.submit(db, who.tenant_id, None, new, limits)[1]

    def test_a_tenants_own_quotas_replace_the_defaults_field_by_field(self, db: Database) -> None:
        who = member(db, concurrent_jobs=1)
        limits = Quotas(concurrent_jobs=5, images_per_day=0)
        with pytest.raises(quotas.QuotaDenial) as denied:
            jobs.submit(db, who.tenant_id, None, tables.NewJob("c2b", {}, {}), limits)
        assert denied.value.quota == "images_per_day"
        tenants.change(db, who.tenant_id, quotas={"images_per_day": None})
        assert jobs.submit(db, who.tenant_id, None, tables.NewJob("c2b", {}, {}), limits)[1]

    def test_images_and_seconds_of_today_count_and_tomorrow_begins_anew(self, db: SetDatabase) -> None:
        who = member(db)
        claim = claimed(db, who)
        running.progress(db, claim.job.id, claim.fence, tables.Progress(images={"m": 90}, model_seconds={"m": 50.0}))
        limits = Quotas(images_per_day=100, model_seconds_per_day={"*": 50.0, "g": 1000.0})

        def quota_of(images: int, *models: str) -> str | None:
            try:
                jobs.submit(db, who.tenant_id, None, tables.NewJob("c2b", {}, {}, images=images, models=models), limits)
            except quotas.QuotaDenial as denied:
                return denied.quota if 0 < denied.retry_after <= 24 * HOUR else "a wrong time to wait"
            return None

        assert quota_of(10, "g") is None
        assert quota_of(11, "g") == "images_per_day"
        assert quota_of(1, "g", "m") == "model_seconds_per_day"
        assert quota_of(1) == "model_seconds_per_day"
        db.skew = 24 * HOUR
        assert quota_of(100, "m") is None

    def test_a_running_job_may_use_up_a_quota_and_not_exceed_it(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        used = tables.Progress(images={"m": 90}, model_seconds={"m": 50.0}, bytes=600)
        running.progress(db, claim.job.id, claim.fence, used)

        def exceeded(**limits: Any) -> str | None:
            try:
                quotas.check_running(db, who.tenant_id, ["m"], Quotas(**limits))
            except quotas.QuotaDenial as denied:
                return denied.quota
            return None

        assert exceeded() is None
        assert exceeded(images_per_day=90, model_seconds_per_day={"m": 50.0}, storage_bytes=600) is None
        assert exceeded(images_per_day=89) == "images_per_day"
        assert exceeded(model_seconds_per_day={"*": 49.0}) == "model_seconds_per_day"
        assert exceeded(model_seconds_per_day={"n": 1.0}) is None
        assert exceeded(storage_bytes=599) == "storage_bytes"
        assert exceeded(concurrent_jobs=0) is None
        tenants.change(db, who.tenant_id, quotas={"images_per_day": 10})
        assert exceeded() == "images_per_day"

    def test_uploads_and_runs_share_the_bytes(self, db: Database) -> None:
        who, limits = member(db), Quotas(storage_bytes=1000)
        claim = claimed(db, who)
        running.progress(db, claim.job.id, claim.fence, tables.Progress(bytes=600))
        new = uploads.NewUpload("a" * 64, "onnx", 400, "net.onnx", {})
        uploads.check_room(db, who.tenant_id, 400, limits)
        upload, created = uploads.add(db, who.tenant_id, None, new, limits)
        assert created
        assert uploads.add(db, who.tenant_id, None, new, limits) == (upload, False)  # the same content, once
        with pytest.raises(quotas.QuotaDenial) as denied:
            uploads.add(db, who.tenant_id, None, replace(new, sha256="b" * 64, bytes=1), limits)
        assert (denied.value.quota, denied.value.remaining) == ("storage_bytes", 0)
        with pytest.raises(quotas.QuotaDenial):
            jobs.submit(db, who.tenant_id, None, tables.NewJob("c2b", {}, {}), limits)
        standing = quotas.limits_and_use(db, who.tenant_id, limits)
        assert standing["storage_bytes"] == {"limit": 1000, "used": 1000}
        running.finish(db, claim.job.id, claim.fence)
        jobs.set_deleted(db, who.tenant_id, claim.job.id)
        assert uploads.add(db, who.tenant_id, None, replace(new, sha256="b" * 64), limits)[1]

    def test_a_bucket_empties_and_fills_at_its_rate_and_no_further_than_its_burst(self, db: SetDatabase) -> None:
        for _ in range(3):
            quotas.take(db, "acme", rate=2.0, burst=3)
        with pytest.raises(quotas.QuotaDenial) as denied:
            quotas.take(db, "acme", rate=2.0, burst=3)
        assert 0.3 < denied.value.retry_after <= 0.5
        assert denied.value.limit == 3
        quotas.take(db, "another", rate=2.0, burst=3)
        db.skew = 0.6
        assert quotas.take(db, "acme", rate=2.0, burst=3).remaining == 0
        db.skew = HOUR
        assert quotas.take(db, "acme", rate=2.0, burst=3).remaining == 2
        db.skew = -HOUR  # the clock is set back: the bucket fills from now on
        assert quotas.take(db, "acme", rate=2.0, burst=3).remaining == 1

    def test_an_empty_bucket_fills_from_now_on_when_the_clock_is_set_back(self, db: SetDatabase) -> None:
        quotas.take(db, "acme", rate=2.0, burst=1)
        db.skew = -HOUR
        with pytest.raises(quotas.QuotaDenial):
            quotas.take(db, "acme", rate=2.0, burst=1)
        db.skew = 0.6 - HOUR
        assert quotas.take(db, "acme", rate=2.0, burst=1).remaining == 0

    def test_threads_and_replicas_together_spend_no_more_than_flowed_in(self, db: Database, open_db: OpenDb) -> None:
        replicas = [quotas.Throttle(db), quotas.Throttle(open_db())]

        def spend(number: int) -> int:
            spent = 0
            for _ in range(60):
                try:
                    replicas[number % 2].take("acme", rate=1e-6, burst=100)
                    spent += 1
                except quotas.QuotaDenial:
                    threading.Event().wait(0.001)
            return spent

        # Replicas take tokens by the handful, so that at most a handful stays unspent.
        assert 90 <= sum(at_once(4, spend)) <= 100
