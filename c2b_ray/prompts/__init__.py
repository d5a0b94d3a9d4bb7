"""The prompts for language models, one text file each; knows no model.

A file has a header of `#` lines (paper, version), then sections `[system]` and `[user]` with placeholders `$name`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

from c2b_ray.roles import Message

_ROLES = {"[system]": "system", "[user]": "user", "[assistant]": "assistant"}


@cache
def _sections(name: str) -> tuple[tuple[str, str], ...]:
    lines = files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    sections: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.strip() in _ROLES:
            sections.append((_ROLES[line.strip()], []))
        elif sections:
            sections[-1][1].append(line)
    return tuple((role, "\n".join(body).strip()) for role, body in sections)


def messages(name: str, /, **values: str) -> tuple[Message, ...]:
    """Returns the messages of prompt `name` with its placeholders filled. KeyError names a placeholder without
    a value."""
    return tuple(Message(role, Template(body).substitute(values)) for role, body in _sections(name))  # type: ignore[arg-type]


@cache
def text(name: str) -> str:
    """Returns the file's whole text, header included; it is part of the ids of everything that the prompt produces."""
    return files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
