"""The HTTP interface of the shared endpoint.

    envelope    handles every request: its id, its size limit, its line in the access log
    context     the state of the process; finds the key of a request, and limits the rate of requests
    models      what clients send, read strictly, and what they get
    problems    turns errors into problems of RFC 9457
    reads       the results at a job's path, for routes and pages
    watch       new events of jobs, for streams
    jobs, results, uploads, keys, webhooks, catalog    the routes

Handlers are plain functions: they run in a pool of threads, because the ledger's functions block.
"""
