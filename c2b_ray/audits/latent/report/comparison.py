"""The texts of a comparison of two classifiers by directions of a latent space, for the page and a terminal.

Knows the columns of `tables.latent.LATENT_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.latent.report.page import METHODS, target_of
from c2b_ray.report import words
from c2b_ray.report.comparison import Heading, Pages, difference_texts
from c2b_ray.report.redact import clean

HEADINGS = (
    Heading("target"),
    Heading("generator"),
    Heading("method", page_only=True),
    Heading("direction"),
    Heading("note", small=True, page_only=True),
    Heading("A", number=True),
    Heading("B", number=True),
    Heading("verdicts", page_only=True),
    Heading("difference", number=True),
    Heading("interval", number=True, small=True),
    Heading("q", number=True),
    Heading("|cos|", number=True),
    Heading("by chance", small=True, page_only=True),
)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    paired = row["cosine"] is not None
    effect_a, effect_b = (
        words.UNKNOWN if row[f"effect_{side}"] is None else words.signed(row[f"effect_{side}"]) for side in "ab"
    )
    return (
        clean(target_of(row)),
        clean(row["generator"]),
        METHODS.get(row["method"], str(row["method"])),
        _direction(row),
        clean(row["note"] or ""),
        effect_a,
        effect_b,
        ", ".join(row[f"verdict_{side}"] or words.UNKNOWN for side in "ab"),
        *difference_texts(row),
        f"{row['cosine']:.2f}" if paired else words.UNKNOWN,
        f"by chance below {row['cosine_by_chance']:.2f}" if paired else "",
    )


def _direction(row: Mapping[str, Any]) -> str:
    """Returns the captioner's name of the direction, or its number."""
    names = [
        row[f"name_{side}"] or f"{side.upper()}’s {row[f'rank_{side}'] + 1}"
        for side in "ab"
        if row[f"rank_{side}"] is not None
    ]
    return clean(" and ".join(dict.fromkeys(names)))


PAGES = Pages(
    "latent_comparison.html.j2",
    {"worse": "Moves the answer more", "better": "Moves the answer less", "undetermined": "Not told apart"},
    HEADINGS,
    _texts,
    rising=True,
)
