"""The view as one HTML document that asks nothing of the network and runs no script.

Its Content-Security-Policy allows one style sheet, by its hash, and images from data: URIs. Every text is escaped by
Jinja; only the plots and the style sheet, both made here, are not. Knows the template, not what the view says.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from c2b_ray.report.view import View
from c2b_ray.text import visible


def page(view: View) -> str:
    return render("report.html.j2", view)


def render(template: str, view: object) -> str:
    """A template of this package with its view, the report's style sheet and the policy that allows it alone."""
    environment = _environment()
    style = environment.loader.get_source(environment, "report.css")[0] if environment.loader else ""
    return environment.get_template(template).render(
        view=view, style=_trusted(style), policy=policy(style), trusted=_trusted
    )


def policy(style: str) -> str:
    """The Content-Security-Policy of a page whose only style sheet is `style`."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _trusted(markup: str) -> Markup:
    return Markup(markup)  # noqa: S704 — the style sheet is ours, and forest.py escapes its labels


def _shown(value: Any) -> Any:
    """What a template prints: names with characters that would turn or hide the text beside them show these."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("c2b_ray.report", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
