"""The endpoint's pages, rendered on the server. They read and write through the functions of the API's routes.

    rendering   the signed-in visitor, templates, and the format of numbers and times
    overview, submit, job, slices, tenant    the pages

No page needs a script: static/pages.js only follows a job's events and checks a form during typing.
"""
