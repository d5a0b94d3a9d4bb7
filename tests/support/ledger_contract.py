"""The contract of a ledger in every database: tests that take `db`, an empty ledger, and `open_db`, which opens it
again.

A test module for each database (SQLite, PostgreSQL) inherits all of these classes.
"""

from __future__ import annotations

from ledger_contract_access import KeysContract, QuotasContract
from ledger_contract_alone import AloneContract
from ledger_contract_jobs import JobsContract
from ledger_contract_migrations import MigrationsContract
from ledger_contract_records import AuditLogContract, WebhooksContract
from ledger_contract_running import LeasesContract, RunningContract
from ledger_contract_tenants import IsolationContract

__all__ = [
    "AloneContract",
    "AuditLogContract",
    "IsolationContract",
    "JobsContract",
    "KeysContract",
    "LeasesContract",
    "MigrationsContract",
    "QuotasContract",
    "RunningContract",
    "WebhooksContract",
]
