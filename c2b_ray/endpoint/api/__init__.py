"""The HTTP interface of the shared endpoint.

    app         everything put together: `create_app`
    envelope    around every request: its id, its size, its line in the access log
    auth        whose key it is, and how often it may ask
    bodies      documents as clients send them, read strictly
    problems    errors as RFC 9457 has them
    pagination  cursors that only this endpoint can make
    jobs, events, results, uploads, keys, admin, catalog, health    the routes

Handlers are plain functions: they run in a pool of threads, over the ledger's synchronous functions.
"""
