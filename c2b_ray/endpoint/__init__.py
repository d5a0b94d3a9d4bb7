"""The shared audit endpoint: an organisation submits audits through one door, and reads what they find.

    ledger     jobs, keys, quotas, leases, events and the audit log, in one database
    policy     what a submitted audit may name, and what may be uploaded
    api        the HTTP interface
    web        its pages
    work       the dispatcher, which shares the machines between tenants, and runners, which run one job each
    operate    metrics, webhooks, retention, backups

Ray holds nothing that must last: the ledger and the store do. Nothing in the audits knows of the endpoint.
"""
