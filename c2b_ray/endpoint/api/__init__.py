"""The HTTP interface of the shared endpoint.

    app         the application: `create_app`
    envelope    handles every request: its id, its size limit, its line in the access log
    auth        finds the key of a request, and limits the rate of requests
    models      what clients send, read strictly, and what they get
    problems    turns errors into problems of RFC 9457
    jobs, events, results, judging, uploads, receiving, keys, webhooks, catalog, health    the routes

Handlers are plain functions: they run in a pool of threads, because the ledger's functions block.
"""
