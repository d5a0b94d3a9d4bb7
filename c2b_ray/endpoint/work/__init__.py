"""How jobs are run: a dispatcher shares the machines between tenants, runners start a process for each job.

    dispatcher ─ grants turns, asks for turns back ─ ledger ─ claims, renews, reports ─ runner ─ pipes ─ child

A runner holds the lease of a job; its child, which knows neither ledger nor credentials, does the work.
"""
