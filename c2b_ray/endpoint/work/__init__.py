"""Runs jobs: a dispatcher shares the machines between tenants, and runners start a process for each job.

    dispatcher ─ grants turns, asks jobs to yield ─ ledger ─ claims, renews, reports ─ runner ─ pipes ─ child

A runner holds the lease of a job. Its child does the work, and has no access to the ledger or to credentials.
"""
