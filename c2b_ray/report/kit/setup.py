"""What a run's answers show about its classifiers' set-up, which comes before anything else that a page says.

Reads the manifest's `setup`, which may be absent or of another release. Knows no kind of run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report.kit.method import mapping
from c2b_ray.report.kit.redact import clean, names_of


@dataclass(frozen=True)
class SetupNote:
    """`classifier`: "" where the run has one. `hopeless`: nothing else on the page says anything about it."""

    classifier: str
    seen: str
    cause: str
    remedy: str
    hopeless: bool


def setup_notes(manifest: Mapping[str, Any]) -> tuple[SetupNote, ...]:
    rows = manifest.get("setup")
    rows = [mapping(row) for row in rows] if isinstance(rows, Sequence) and not isinstance(rows, str) else []
    several = sum(name.startswith("classifier ") for name in mapping(manifest.get("models"))) > 1
    return tuple(_note(row, several) for row in rows if row.get("seen"))


def _note(row: Mapping[str, Any], several: bool) -> SetupNote:
    seen, cause, remedy = (clean(str(row.get(name, ""))) for name in ("seen", "cause", "remedy"))
    return SetupNote(_shown(row) if several else "", seen, cause, remedy, bool(row.get("hopeless")))


def setup_lines(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the notes as lines for a terminal."""
    return [
        f"set-up: {note.classifier + ': ' if note.classifier else ''}{note.seen} {note.cause} {note.remedy}"
        for note in setup_notes(manifest)
    ]


def _shown(row: Mapping[str, Any]) -> str:
    name = str(row.get("classifier", ""))
    return names_of([name])[name]
