"""The endpoint's pages, made on the server: they read and write through the functions that the API's routes use.

mount       everything put together: `mount(app)` puts the pages below /ui
session     who is signed in: a signed cookie, which holds no key; a token for every form
visit       a request of a page: its session, its key, its form; and errors as pages
rendering   templates, and how numbers and times are written in them
signing     sign in and out
home, submit, forms, job, tables, slices, compare, history, plots, uploads, keys, usage    the pages

Nothing here needs a script: static/pages.js follows a job's events and checks a form as one types.
"""
