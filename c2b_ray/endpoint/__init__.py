"""The shared audit endpoint: an organisation submits audits to one service, and reads their results.

    application   the HTTP application: API and pages on one port
    api           the routes of the API
    web           the pages
    kinds         the kinds of jobs: every audit, and questions to finished runs
    ledger        jobs, keys, quotas, leases, events and the audit log, in one database
    policy        what a submitted audit may name, and what may be uploaded
    work          the dispatcher, which shares the machines between tenants, and runners, which run one job per slot
    operate       metrics, webhooks, retention, backups

Nothing that must last is held by Ray: the ledger and the store hold it. The audits do not know the endpoint.
"""
