"""The endpoint's pages, rendered on the server. They read and write through the functions of the API's routes.

    mount       puts the pages below /ui: `mount(app)`
    session     the signed-in visitor: a signed cookie, which contains no key, and a token for every form
    rendering   templates, and the format of numbers and times
    signing     sign in and out
    home, submit, job, tables, slices, captions, gallery, history, uploads, keys    the pages

No page needs a script: static/pages.js only follows a job's events and checks a form during typing.
"""
