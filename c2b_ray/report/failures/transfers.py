"""The captions of findings on other images, from other generators or an index: the counterpart of Tables 5 and 6.

Rates of other classifiers on the images that measured a finding are no rows here: `compared` shows them.

Knows the table of `schemas.TRANSFERS`; knows nothing of pages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report.failures.sentences import ANY
from c2b_ray.report.failures.tallies import share
from c2b_ray.report.kit import words
from c2b_ray.report.kit.redact import clean, names_of

MOST_ROWS = 200


@dataclass(frozen=True)
class Transfer:
    """Rates are means over runs ± their standard deviation, of the caption and of its baseline; without runs, failures
    over images. `runs`: empty where there is none."""

    classifier: str
    source: str
    label: str
    target: str
    says: str
    baseline: str
    rate: str
    anyhow: str
    images: str
    runs: str
    p: str
    holds: bool


@dataclass(frozen=True)
class Transfers:
    present: bool
    line: str = ""
    rows: tuple[Transfer, ...] = ()
    more: int = 0


def transfers(
    table: pa.Table, says_of: Mapping[str, str], names: Mapping[str, str], alpha: float, measured: Collection[str] = ()
) -> Transfers:
    """`says_of`: what each caption says, by its id; `names`: what each classifier is called; `measured`: the sources of
    the images that measured the findings."""
    rows = [row for row in table.to_pylist() if row["rates"] or row["source"] not in measured]
    if not rows:
        return Transfers(present=False)
    sources = names_of([row["source"] for row in rows])
    rows.sort(key=lambda row: (not _is_tested(row), row["p_value"] or 0.0))
    shown = tuple(
        Transfer(
            classifier=names.get(row["classifier"], clean(row["classifier"])),
            source=sources[row["source"]],
            label=clean(row["label"]),
            target=ANY if row["target"] is None else clean(row["target"]),
            says=says_of.get(row["caption_id"], words.UNKNOWN),
            baseline=_rate(row["baseline_rates"], row["baseline_failures"], row["baseline_draws"]),
            rate=_rate(row["rates"], row["failures"], row["draws"]),
            anyhow=words.rate(share(row["any_failures"], row["draws"])),
            images=words.count(row["draws"]),
            runs=words.plural(len(row["rates"]), "run") if row["rates"] else "",
            p=p_value(row["p_value"]),
            holds=_holds(row, alpha),
        )
        for row in rows[:MOST_ROWS]
    )
    return Transfers(True, _line(rows, alpha), shown, max(len(rows) - MOST_ROWS, 0))


def _rate(rates: Sequence[float], failures: int, draws: int) -> str:
    return spread(rates) if rates else words.rate(share(failures, draws))


def spread(rates: Sequence[float]) -> str:
    """Formats mean ± standard deviation (n − 1) in percent; only the mean for one run."""
    known = [rate for rate in rates if rate is not None and not math.isnan(rate)]
    if not known:
        return words.UNKNOWN
    mean = words.rate(statistics.fmean(known))
    if len(known) < 2:
        return mean
    return f"{mean.removesuffix(f'{words.THIN}%')} ± {words.rate(statistics.stdev(known))}"


def p_value(value: float | None) -> str:
    """Formats a p-value to two digits, however small."""
    if value is None or math.isnan(value):
        return words.UNKNOWN
    return words.rate(value / 100).removesuffix(f"{words.THIN}%") if value else "0"


def _is_tested(row: Mapping[str, Any]) -> bool:
    return row["p_value"] is not None and not math.isnan(row["p_value"])


def _holds(row: Mapping[str, Any], alpha: float) -> bool:
    more = share(row["failures"], row["draws"]) > share(row["baseline_failures"], row["baseline_draws"])
    return _is_tested(row) and row["p_value"] <= alpha and more


def _line(rows: Sequence[Mapping[str, Any]], alpha: float) -> str:
    tested = [row for row in rows if _is_tested(row)]
    holds = words.count(sum(_holds(row, alpha) for row in tested))
    of_tested = (
        f"{holds} of {words.plural(len(tested), 'comparison')} show more failures under the caption than at "
        f"its baseline, each taken alone (p at most {words.decimal(alpha)}). Nobody checked that these images show "
        "their label: an index gives the nearest that it has, and those that show something else count as failures. "
        "Mean rate over runs ± standard deviation; p is that of the exact Mann–Whitney test of the runs’ rates."
    )
    untested = "Rows without p are failures over images, and were not tested."
    return " ".join([*([of_tested] if tested else []), *([untested] if len(tested) < len(rows) else [])])
