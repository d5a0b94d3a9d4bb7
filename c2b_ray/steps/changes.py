"""Which rows of a comparison are changes for the worse or the better, and their order.

It knows the columns that the comparisons of all kinds of runs share, and nothing of what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from c2b_ray.metrics.testing import benjamini_hochberg
from c2b_ray.schemas.comparison_rows import Compared

WORSE, BETTER, UNDETERMINED = "worse", "better", "undetermined"


def compared(
    difference: float | None = None,
    low: float | None = None,
    high: float | None = None,
    p_value: float | None = None,
) -> Compared:
    """Returns what the rows of every comparison have; without arguments, of sides that cannot be compared."""
    return {
        "difference": difference,
        "difference_low": low,
        "difference_high": high,
        "p_value": p_value,
        "q_value": None,
        "change": UNDETERMINED,
    }


def decide(rows: Iterable[Compared], alpha: float, rising: str = WORSE) -> None:
    """Fills in `q_value` of the comparable rows, which form one family (Benjamini & Hochberg 1995), and `change` of
    those where it is at most alpha. `rising`: what a positive difference is."""
    falling = BETTER if rising == WORSE else WORSE
    known = [(row, p_value) for row in rows if (p_value := row["p_value"]) is not None]
    q_values = benjamini_hochberg([p_value for _, p_value in known])
    for (row, _), q_value in zip(known, q_values.tolist(), strict=True):
        row["q_value"] = q_value
        if q_value <= alpha:
            row["change"] = rising if (row["difference"] or 0.0) > 0 else falling


def importance(row: Compared) -> tuple[bool, float]:
    """Sorts changed rows first, then by rising q; those that cannot be compared come last."""
    return row["change"] == UNDETERMINED, 2.0 if row["q_value"] is None else row["q_value"]
