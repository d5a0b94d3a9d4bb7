"""Compares two generators by the prompts and words that expose them, such as before and after debiasing: B against A.

It composes runs, the comparing, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.audits import gate as gates
from c2b_ray.audits.kit.comparison import Comparison, compared_names, differing, refuse
from c2b_ray.audits.kit.models import one_of
from c2b_ray.audits.prompts.compared import ALL, FREQUENCY, GAIN, WORD, GeneratorResults, gains_by_value, verdict
from c2b_ray.audits.prompts.compared import compare as compared
from c2b_ray.audits.prompts.report.comparison import PAGES
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.errors import Argument, RunError

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
    cells = compared(_side(run_a, a), _side(run_b, b), alpha)
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
