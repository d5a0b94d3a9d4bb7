"""Compares two generators by the prompts and words that expose them, such as before and after debiasing, B against A:
the tests, the tables, the texts and the gates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import t as student

from c2b_ray.audits import gate as gates
from c2b_ray.audits.kit.comparison import (
    UNDETERMINED,
    Comparison,
    compared,
    compared_names,
    decide,
    differing,
    importance,
    refuse,
)
from c2b_ray.audits.kit.models import one_of
from c2b_ray.audits.prompts.measurement import PLAIN, Rows, Term, gain_terms, sum_of
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.audits.prompts.summary import method_name
from c2b_ray.errors import Argument, RunError
from c2b_ray.report import words
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, difference_texts
from c2b_ray.report.redact import clean
from c2b_ray.stats.gains import Gain
from c2b_ray.tables.prompts import PROMPTS_COMPARISON, ComparisonRow

GAIN, FREQUENCY, WORD = "gain", "frequency", "word"
ALL = ("all attributes", "all values")
RAISES, NONE = "raises", "none"

Key = tuple[str, str, str]
"""Attribute, value, method or word."""


@dataclass(frozen=True)
class GeneratorResults:
    """One generator's results. `prompts`, `associations`: its rows of the tables of these names. `least`: the least
    effect of its words."""

    prompts: Rows
    associations: Rows
    least: float


def compared_generators(a: GeneratorResults, b: GeneratorResults, alpha: float) -> pa.Table:
    """Returns a table of `PROMPTS_COMPARISON`, B minus A: changed rows first, smallest q first.

    It has rows for each method's frequency by value; for its gain over the language model's own prompts, by value and
    over the values that both sides have; and for each word's effect. Prompts that name the value are left out. q is
    computed over all comparable rows of a measure (Benjamini & Hochberg 1995); a row is worse (more in B) or better
    where it is at most alpha.
    """
    rows = [*_of_methods(a.prompts, b.prompts, 1 - alpha), *_of_words(a, b, alpha)]
    for measure in (GAIN, FREQUENCY, WORD):
        decide([row for row in rows if row["measure"] == measure], alpha)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, PROMPTS_COMPARISON)


def gains_by_value(prompts: Rows, confidence: float) -> dict[Key, tuple[Gain, int]]:
    """Returns by `Key` each method's mean frequency minus that of the language model's own prompts, and its images."""
    groups = _groups(prompts)
    plain = {key[:2]: rows for key, rows in groups.items() if key[2] == PLAIN}
    return {
        key: (sum_of(gain_terms(rows, plain[key[:2]]), confidence), _images(rows))
        for key, rows in groups.items()
        if key[2] != PLAIN and key[:2] in plain
    }


def verdict(row: Mapping[str, Any], least: float) -> str:
    """Returns the verdict on a word: it raises the value by more than the least effect, by no more than that, or
    undetermined."""
    if row["raises"]:
        return RAISES
    return NONE if row["high"] is not None and row["high"] <= least else UNDETERMINED


def _of_methods(a: Rows, b: Rows, confidence: float) -> Iterator[ComparisonRow]:
    groups_a, groups_b = _groups(a), _groups(b)
    for key in dict.fromkeys([*groups_a, *groups_b]):
        sides = [groups_a.get(key, []), groups_b.get(key, [])]
        yield _row(FREQUENCY, key, sides, _frequencies(sides, confidence), confidence)
    pairs: dict[str, list[tuple[Rows, ...]]] = defaultdict(list)
    for key in dict.fromkeys([*groups_a, *groups_b]):
        plain = (*key[:2], PLAIN)
        four = tuple(side.get(group_key, []) for group_key in (key, plain) for side in (groups_a, groups_b))
        if key[2] != PLAIN:
            yield _row(GAIN, key, four[:2], _gains([four], confidence), confidence)
            if all(four):
                pairs[key[2]].append(four)
    for method, fours in pairs.items():
        sides = [[row for four in fours for row in four[i]] for i in (0, 1)]
        yield _row(GAIN, (*ALL, method), sides, _gains(fours, confidence), confidence)


def _groups(prompts: Rows) -> dict[Key, list[Mapping[str, Any]]]:
    groups: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in prompts:
        if not row["leaked"] and row["frequency"] is not None:
            groups[row["attribute"], row["value"], row["method"]].append(row)
    return groups


def _frequencies(sides: Sequence[Rows], confidence: float) -> tuple[float | None, float | None, Gain | None]:
    """Returns A's frequency, B's, and B's minus A's."""
    a, b = map(_mean, sides)
    if a is None or b is None:
        return a, b, None
    return a, b, sum_of([Term(sides[1], 1.0, "b"), Term(sides[0], -1.0, "a")], confidence)


def _gains(fours: Sequence[tuple[Rows, ...]], confidence: float) -> tuple[float | None, float | None, Gain | None]:
    """Returns the same as `_frequencies`, for the mean gain over values.

    `fours`: for each value, the rows of A, of B, and of the language model's own prompts on A and on B.
    """
    share = 1 / len(fours)
    gains = [[gain_terms(four[i], four[i + 2], share, side) for i, side in enumerate("ab")] for four in fours]
    if len(fours) == 1 and not all(fours[0]):
        a, b = (sum(term.weight * term.mean for term in gain) if gain else None for gain in gains[0])
        return a, b, None
    a, b = (sum(term.weight * term.mean for gain in gains for term in gain[i]) for i in (0, 1))
    terms = [
        term
        for terms_a, terms_b in gains
        for term in (*terms_b, *(replace(term_a, weight=-term_a.weight) for term_a in terms_a))
    ]
    return a, b, sum_of(terms, confidence)


def _mean(rows: Rows) -> float | None:
    return float(np.mean([row["frequency"] for row in rows])) if rows else None


def _images(rows: Rows) -> int:
    return sum(int(row["images"]) for row in rows)


def _row(
    measure: str, key: Key, sides: Sequence[Rows], numbers: tuple[float | None, float | None, Gain | None],
    confidence: float,
) -> ComparisonRow:  # fmt: skip
    value_a, value_b, difference = numbers
    outcome = compared()
    if difference is not None and np.isfinite(difference.low):
        error = (difference.high - difference.value) / float(student.ppf((1 + confidence) / 2, difference.freedom))
        p_value = 2 * float(student.sf(abs(difference.value) / error, difference.freedom))
        reach = 1.0 if measure == FREQUENCY else 2.0
        low, high = max(-reach, difference.low), min(reach, difference.high)
        outcome = compared(difference.value, low, high, p_value)
    attribute, value, name = key
    return {
        "attribute": attribute,
        "value": value,
        "name": name,
        "measure": measure,
        "value_a": value_a,
        "value_b": value_b,
        "n_a": _images(sides[0]),
        "n_b": _images(sides[1]),
        "verdict_a": None,
        "verdict_b": None,
        **outcome,
    }


def _of_words(a: GeneratorResults, b: GeneratorResults, alpha: float) -> Iterator[ComparisonRow]:
    rows_a, rows_b = ({(r["attribute"], r["value"], r["word"]): r for r in side.associations} for side in (a, b))
    for key in dict.fromkeys([*rows_a, *rows_b]):
        row_a, row_b = rows_a.get(key), rows_b.get(key)
        effects = [row["effect"] if row is not None else None for row in (row_a, row_b)]
        images = [{"images": row["images"]} if row is not None else {"images": 0} for row in (row_a, row_b)]
        difference = _difference_of_words(row_a, row_b, alpha) if row_a is not None and row_b is not None else None
        row = _row(WORD, key, [images[:1], images[1:]], (effects[0], effects[1], difference), 1 - alpha)
        row["verdict_a"] = None if row_a is None else verdict(row_a, a.least)
        row["verdict_b"] = None if row_b is None else verdict(row_b, b.least)
        yield row


def _difference_of_words(a: Mapping[str, Any], b: Mapping[str, Any], alpha: float) -> Gain | None:
    """Returns Welch's difference of two means over contexts, which are taken as independent; conservative where both
    have the same contexts."""
    if a["against"] != b["against"] or None in (a["effect"], b["effect"]):
        return None
    errors = [_error(row, alpha) for row in (a, b)]
    total = errors[0] ** 2 + errors[1] ** 2
    parts = [error**4 / (row["contexts"] - 1) for error, row in zip(errors, (a, b), strict=True)]
    freedom = total**2 / sum(parts)
    reach = float(student.ppf(1 - alpha / 2, freedom)) * total**0.5
    value = b["effect"] - a["effect"]
    return Gain(value, value - reach, value + reach, freedom)


def _error(row: Mapping[str, Any], alpha: float) -> float:
    """Returns the standard error behind an interval, one side of which may have been cut at 1."""
    reach = max(row["high"] - row["effect"], row["effect"] - row["low"])
    return float(reach / student.ppf(1 - alpha / 2, row["contexts"] - 1))


# The texts of a comparison of two generators by the prompts and words that expose them, for the page and a
# terminal.


HEADINGS = (
    Heading("measure"),
    Heading("attribute"),
    Heading("value"),
    Heading("prompts or word"),
    Heading("A", number=True),
    Heading("B", number=True),
    *DIFFERENCE,
    Heading("verdict", page_only=True),
)
_MEASURES = {"gain": "gain", "frequency": "frequency", "word": "effect of a word"}


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    word = row["measure"] == "word"
    return (
        _MEASURES[row["measure"]],
        clean(row["attribute"]),
        clean(row["value"]),
        f"“{clean(row['name'])}”" if word else method_name(row["name"]),
        *(_amount(row, row[f"value_{side}"]) for side in "ab"),
        *difference_texts(row),
        f"{_verdict(row['verdict_a'])} → {_verdict(row['verdict_b'])}" if word else "",
    )


def _amount(row: Mapping[str, Any], value: float | None) -> str:
    if value is None:
        return words.UNKNOWN
    return words.percent(value) if row["measure"] == "frequency" else words.signed(value)


def _verdict(verdict: str | None) -> str:
    return {"none": "does not raise", None: "not tested"}.get(verdict, str(verdict))


def _remark(rows: Rows) -> str:
    of_words = [row for row in rows if row["measure"] == "word"]
    only_in_b = [row["name"] for row in of_words if row["verdict_b"] == RAISES != row["verdict_a"]]
    only_in_a = [row["name"] for row in of_words if row["verdict_a"] == RAISES != row["verdict_b"]]
    in_both = sum(row["verdict_a"] == row["verdict_b"] == RAISES for row in of_words)
    if not (only_in_b or only_in_a or in_both):
        return ""
    return (
        f"Words that raise a value: {in_both} on both, of A alone {_listed(only_in_a)}, of B alone "
        f"{_listed(only_in_b)}. That a word is established on one side alone is no difference by itself: see its own."
    )


def _listed(names: list[str]) -> str:
    return words.listed(sorted({clean(name) for name in names})) if names else "none"


PAGES = Pages(
    kicker="Two generators compared",
    title="What prompts and words bring about on B, and on A",
    caption="Gains, frequencies and words, the surest difference first",
    terms=(
        "A **frequency** is how often images of a method’s prompts show the value, under seeds that no search has "
        "seen; a **gain** is by how much that exceeds the frequency of the language model’s own prompts on the "
        "same generator; the **effect of a word** is what it adds to the value’s frequency. Prompts that name the "
        "value are left out. A value **rises** or **falls** where q is at most α\u00a0=\u00a0{alpha}, adjusted "
        "for the false discovery rate over all gains, all frequencies, or all words that can be compared "
        "(Benjamini & Hochberg 1995). Intervals are Welch’s: prompts that both generators were given count as one "
        "draw, so that what both owe to a prompt falls away; what a search gave for one subject is one draw of "
        "its own generator; contexts of a word are taken for independent, which is too careful where they are the "
        "same. A word or method that one side alone has is not compared, and a difference of gains is less surely "
        "known than either gain.",
    ),
    titles={"worse": "Rises", "better": "Falls", "undetermined": "Not told apart"},
    headings=HEADINGS,
    texts=_texts,
    remark=_remark,
    rising=True,
)


# Gates on a run of `c2b prompts`: `word/*:raises`, `gain/*/bgps λ=100:gain_low>0.1`, `frequency/*:frequency>0.9`.


def findings(run: PromptsRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns the frequencies, gains and words of all generators of the run, or of one (`classifier`: its name in the
    config)."""
    names = generators_of(run)
    chosen_generators = names if classifier is None else [one_of(names, classifier, Argument.CLASSIFIER, run.path)]
    return [cell for name in chosen_generators for cell in _cells(run, name)]


def generators_of(run: PromptsRun) -> list[str]:
    """Returns the names of the generators that prompts were judged on."""
    return list(dict.fromkeys(run.prompts["generator"].to_pylist()))


def rows_of(run: PromptsRun, table: str, generator: str) -> list[Mapping[str, Any]]:
    return [row for row in run.read(table).to_pylist() if row["generator"] == generator]


def least_effect(run: PromptsRun) -> float:
    return 0.0 if run.config.associations is None else run.config.associations.least_effect


def cell_name(row: Mapping[str, Any]) -> str:
    """Returns the name of a row of `PROMPTS_COMPARISON`."""
    return f"{row['measure']}/{row['attribute']}/{row['value']}/{row['name']}"


def _cells(run: PromptsRun, generator: str) -> Iterator[gates.GateCell]:
    prompts = rows_of(run, "prompts", generator)
    for row in rows_of(run, "methods", generator):
        images_judged = sum(
            int(p["images"]) for p in prompts if all(p[k] == row[k] for k in ("attribute", "value", "method"))
        )
        values = {name: row[name] for name in ("frequency", "frequency_low", "frequency_high", "leaked", "perplexity")}
        yield _cell(generator, (FREQUENCY, row["attribute"], row["value"], row["method"]), values, images_judged)
    for key, (gain, images) in gains_by_value(prompts, 1 - run.config.alpha).items():
        values = {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
        yield _cell(generator, (GAIN, *key), values, images)
    for row in rows_of(run, "gains", generator):
        values = {"gain": row["gain"], "gain_low": row["low"], "gain_high": row["high"]}
        yield _cell(generator, (GAIN, *ALL, row["method"]), values, row["prompts"])
    least = least_effect(run)
    for row in rows_of(run, "associations", generator):
        values = {"effect": row["effect"], "effect_low": row["low"], "effect_high": row["high"]}
        values |= {"q_value": row["q_value"], "verdict": verdict(row, least)}
        yield _cell(generator, (WORD, row["attribute"], row["value"], row["word"]), values, row["images"])


def _cell(generator: str, name: Sequence[str], values: Mapping[str, Any], images: int) -> gates.GateCell:
    return gates.GateCell(generator, "/".join(name), {**values, "n": images})


SAME = ("subjects", "attributes", "intersections", "language_model", "judge", "guide", "search", "alpha")
"""Settings that change what a frequency or a gain means."""
JUDGE = "judge"
NUMBERS = ("value_a", "value_b", "difference", "difference_low", "difference_high", "p_value", "q_value")


def compare(
    run_a: PromptsRun, run_b: PromptsRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two generators: B against A, or two of one run. `classifier_a`, `classifier_b`: their names.

    Raises ConfigError where it is unclear which generators are meant; RunError for runs whose settings give a number
    another meaning, or that have no method and no word in common.
    """
    a, b = compared_names((run_a, run_b), (classifier_a, classifier_b), generators_of, _check_settings)
    alpha = run_a.config.alpha
    cells = compared_generators(_side(run_a, a), _side(run_b, b), alpha)
    if cells["difference"].null_count == cells.num_rows:
        raise RunError(
            f"{run_a.path} and {run_b.path} have nothing in common that can be compared; run c2b prompts for both "
            "generators at once, or give both configs the same methods, with two prompts or more of each value"
        )
    return Comparison(
        (run_a.path, run_b.path), (a, b), alpha, cells, PAGES, [_gated(b, row) for row in cells.to_pylist()]
    )


def _side(run: PromptsRun, generator: str) -> GeneratorResults:
    return GeneratorResults(
        rows_of(run, "prompts", generator), rows_of(run, "associations", generator), least_effect(run)
    )


def _gated(generator: str, row: Mapping[str, Any]) -> gates.GateCell:
    """Returns the cell for gates. Numbers and `verdict` are B's.

    `worse`: B gains more, or the word raises the value more. That B shows a value more often than A is neither worse
    nor better.
    """
    column = {GAIN: "gain", WORD: "effect", FREQUENCY: "frequency"}[row["measure"]]
    values: dict[str, Any] = {name: row[name] for name in NUMBERS} | {column: row["value_b"], "n": row["n_b"]}
    values["pairs"] = min(row["n_a"], row["n_b"]) if row["p_value"] is not None else 0
    if row["measure"] != FREQUENCY:
        values["change"] = row["change"]
    if row["measure"] == WORD:
        values["verdict"] = row["verdict_b"]
    return gates.GateCell(generator, cell_name(row), values)


def _check_settings(run_a: PromptsRun, run_b: PromptsRun) -> None:
    different = differing(run_a, run_b, SAME)
    if JUDGE not in different and _judge(run_a) != _judge(run_b):
        different.append("the judge's revision")
    if all("curated" in run.config.methods for run in (run_a, run_b)):
        different += differing(run_a, run_b, ["curated"])
    if None not in (run_a.config.associations, run_b.config.associations):
        different += ["associations.least_effect"] if least_effect(run_a) != least_effect(run_b) else []
    why = (
        "a number of one is none of the other's: run c2b prompts for both generators with the same settings, or "
        "in one run"
    )
    refuse(run_a, run_b, different, why)


def _judge(run: PromptsRun) -> object:
    return ((run.manifest.get("models") or {}).get(JUDGE) or {}).get("revision")
