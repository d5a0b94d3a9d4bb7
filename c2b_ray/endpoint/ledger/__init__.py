"""The ledger of an endpoint, in SQLite or PostgreSQL: jobs, keys, quotas, leases, events and the audit log.

    alone        one block at a time for a name, such as an upload's
    database     connections, transactions, the database's clock, and errors of lost connections
    tables       the tables; `migrations` changes a database from one revision of them to another
    jobs         submits, reads, lists, cancels and deletes jobs
    queue        what the dispatcher does with jobs: grants turns, asks jobs to yield
    running      what runners do with jobs: claim, renew, report, end; each change names the runner's fence
    quotas       checks what a tenant may use
    buckets      limits the rate of requests
    resubmitted  finds the run that a resubmitted job continues after a cancellation
    sessions     sessions of the web pages that were signed out
    keys, tenants, usage, uploads, webhooks, events, leases, audit_log

A function that takes a `Database` is one transaction; a function that takes a `Transaction` is part of its caller's.
Functions return frozen dataclasses. A function that takes a tenant's id reads no rows of other tenants. The ledger
knows no HTTP and runs no job.
"""
