"""The endpoint's pages, rendered on the server. They read and write through the functions of the API's routes.

    mount       puts the pages below /ui: `mount(app)`
    session     the signed-in visitor: a signed cookie, which contains no key, and a token for every form
    visit       a request for a page: its session, its key, its form
    routing     runs pages, checks sessions, and shows errors as pages
    rendering   templates, and the format of numbers and times
    signing     sign in and out
    home, submit, forms, job, tables, slices, captions, gallery, compare, history, plots, uploads, keys, usage

No page needs a script: static/pages.js only follows a job's events and checks a form during typing.
"""
