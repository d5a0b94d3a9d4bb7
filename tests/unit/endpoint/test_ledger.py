"""The ledger in SQLite: what every ledger does."""

import ledger_contract as contract


class TestJobs(contract.JobsContract): ...


class TestRunning(contract.RunningContract): ...


class TestLeases(contract.LeasesContract): ...


class TestKeys(contract.KeysContract): ...


class TestQuotas(contract.QuotasContract): ...


class TestAuditLog(contract.AuditLogContract): ...


class TestWebhooks(contract.WebhooksContract): ...


class TestIsolation(contract.IsolationContract): ...


class TestMigrations(contract.MigrationsContract): ...
