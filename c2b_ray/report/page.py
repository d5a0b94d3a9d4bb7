"""Renders a page as one HTML document that makes no network requests.

Its Content-Security-Policy allows one style sheet and one script, each by its hash, and images from data: URIs. Every
text is escaped by Jinja; only the plots, the style sheet and the script, all made here, are not. The page is readable
without the script, which filters, sorts, folds and enlarges. Knows the template, not the blocks of the page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from c2b_ray.report.pictures import Gallery
from c2b_ray.report.words import Sentence
from c2b_ray.text import visible

STYLES = ("report.css", "overview.css", "perturbations.css")
SCRIPTS = ("page.js",)
EXPLORE = (*SCRIPTS, "explore.js")


def render(page: object, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Renders a `blocks.Page`, its style sheets as one, its scripts as one, and the policy that allows only these."""
    style, script = ("".join(_source(name) for name in names) for names in (styles, scripts))
    template = _environment().get_template("page.html.j2")
    return template.render(page=page, style=style, script=script, policy=policy(style, script))


def policy(style: str, script: str) -> str:
    """Returns the Content-Security-Policy of a page whose only style sheet is `style` and whose only script is
    `script`."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _source(name: str) -> str:
    environment = _environment()
    return environment.loader.get_source(environment, name)[0] if environment.loader else ""


def without_hidden(value: Any) -> Any:
    """Prepares a printed value: characters in names that would reverse or hide neighbouring text are made visible."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_RIGHT_TO_LEFT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_RUN = re.compile(f"[{_RIGHT_TO_LEFT}]+(?:[ \u00a0'’_-]+[{_RIGHT_TO_LEFT}]+)*")


def isolated(text: str) -> str:
    """Returns a text of a page with its words of Arabic, Hebrew and the like each in an element of its own: otherwise
    a browser moves the numbers and signs that follow a name to the name's other side."""
    shown = visible(text)
    if _RUN.search(shown) is None:
        return shown
    return Markup(_RUN.sub(r"<bdi>\g<0></bdi>", str(escape(shown))))  # noqa: S704 (escaped)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("c2b_ray.report", "templates"),
        autoescape=True,
        finalize=without_hidden,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["isolated"] = isolated
    return environment


# The block at the head of a page: what was found, in at most three sentences, each with its pictures.


MOST = 3


@dataclass(frozen=True)
class Answer:
    """One sentence of the headline. `verdict`: for, against, none or undetermined; `sign` stands for it; `beneath`:
    the evidence and what else belongs to it; `link`: the id of its details on the page, empty without."""

    verdict: str
    sign: str
    sentence: Sentence
    beneath: tuple[str, ...] = ()
    link: str = ""
    galleries: tuple[Gallery, ...] = ()

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.sentence)
