"""The ledger: jobs, keys, quotas, leases, events and the audit log of an endpoint, in SQLite or PostgreSQL.

    database   connections, transactions, the database's clock; what a lost connection becomes
    tables     the tables; migrations change a database from one revision of them to another
    jobs       submitting, reading and cancelling jobs; `running` and `queue`: running them, under leases with fences
    quotas     what a tenant may use; buckets: rates of requests
    resubmitted  whose run a resubmitted job continues, after it was cancelled
    sessions   sessions of pages that were signed out
    keys, tenants, usage, uploads, webhooks, events, leases, audit_log

Each function takes a `Database` and is one transaction, or takes a `Transaction` and is part of the caller's. What they
return are frozen dataclasses. Functions that take a tenant's id see nothing of another tenant. It knows no HTTP and
runs no job.
"""
