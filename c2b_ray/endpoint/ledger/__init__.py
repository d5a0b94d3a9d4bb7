"""The ledger of an endpoint, in SQLite or PostgreSQL: jobs, keys, quotas, leases, events and the audit log.

    database     connections, transactions, the database's clock, one block at a time for a name
    tables       the tables, and the rows of jobs; `migrations` changes a database between revisions of the tables
    jobs         submits, reads, lists, cancels and deletes jobs
    running      what runners do with jobs: claim, renew, report, end; each change names the runner's fence
    quotas       checks what a tenant may use, and limits the rate of requests
    webhooks     events of jobs, webhooks and their deliveries
    tenants, uploads, audit_log

A function that takes a `Database` is one transaction; a function that takes a `Transaction` is part of its caller's.
Functions return frozen dataclasses. A function that takes a tenant's id reads no rows of other tenants. The ledger
knows no HTTP and runs no job.
"""
