"""Captions that are tried, each with its text, its sentences and its origin: rows of `schemas.CANDIDATES`.

It checks captions that a person or a file provides; `refine` and `clusters` make others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from c2b_ray.errors import ConfigError
from c2b_ray.names import mentions, normalise
from c2b_ray.schemas import content_id
from c2b_ray.schemas.failures import CANDIDATES
from c2b_ray.steps.discovery.sentences import behind, caption, finished, noun

Origin = Literal[
    "baseline", "cluster", "sentence", "pair", "triple", "shorter", "adjective", "language_model", "person", "file"
]


@dataclass(frozen=True)
class Candidate:
    """A caption of one label: a baseline prompt and the sentences behind it.

    `parent`: the id of the caption that it is made from. `verbatim`: the text where it was written as a whole.
    """

    label: str
    prompt: str
    sentences: tuple[str, ...]
    origin: Origin
    parent: str | None = None
    verbatim: str | None = None

    @property
    def text(self) -> str:
        """The text that the generator gets."""
        return caption(self.prompt, self.sentences) if self.verbatim is None else self.verbatim

    @property
    def caption_id(self) -> str:
        return content_id("caption", self.label, self.text)


def table(candidates: Iterable[Candidate]) -> pa.Table:
    """Returns rows of `schemas.CANDIDATES`, each caption once: the first with its text."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.caption_id, candidate)
    rows = [
        {
            "caption_id": caption_id,
            "label": candidate.label,
            "text": candidate.text,
            "sentences": list(candidate.sentences),
            "parent_caption": candidate.parent,
            "origin": candidate.origin,
        }
        for caption_id, candidate in first.items()
    ]
    return pa.Table.from_pylist(rows, CANDIDATES)


def written(text: str, labels: Sequence[str], origin: Origin, field: str = "caption") -> Candidate:
    """Returns a caption as a person or a file wrote it, word for word, for the one label that it contains.

    Raises ConfigError for `field` where it contains none of the labels, or several, which is ambiguous. Where one label
    is part of another, as "lion" of "sea lion", the longer one counts.
    """
    line = " ".join(text.split())
    said = [label for label in labels if mentions(line, label)]
    within = [label for label in said if any(label != other and mentions(noun(other), label) for other in said)]
    meant = [label for label in said if label not in within]
    if len({normalise(label) for label in meant}) != 1:
        known = ", ".join(map(repr, labels[:10])) + (" …" if len(labels) > 10 else "")
        why = (
            f"names several labels, {', '.join(map(repr, meant))}; write one"
            if meant
            else f"names none of the labels {known}"
        )
        raise ConfigError(field, f"the caption {line[:200]!r} {why}")
    prompt, sentences = behind(finished(line), meant[0])
    return Candidate(meant[0], prompt, tuple(sentences), origin, verbatim=line)
