"""Gates on a run of `c2b prompts`: `word/*:raises`, `gain/*/bgps λ=100:gain_low>0.1`, `frequency/*:frequency>0.9`.

A cell is what is measured, attribute, value, and the method or word; `gain/all attributes/all values/METHOD` is a
method's gain over all values. It composes runs and gates, and knows no formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.audits.kit.classifiers import one_of
from c2b_ray.audits.prompts.compared import ALL, FREQUENCY, GAIN, WORD, gains_by_value, verdict
from c2b_ray.steps import gate as gates
from c2b_ray.store.prompts_run import PromptsRun


def check(
    run: PromptsRun, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[gates.Check]:
    """Checks gates on all generators of the run, or on one (`classifier`: its name in the config).

    A gate that could be checked on nothing fails, unless `allow_unchecked`.
    """
    names = generators_of(run)
    chosen = names if classifier is None else [one_of(names, classifier, "--classifier", run.path)]
    return gates.check(fail_on, [cell for name in chosen for cell in _cells(run, name)], allow_unchecked)


def generators_of(run: PromptsRun) -> list[str]:
    """Returns the names of the generators that prompts were judged on."""
    return list(dict.fromkeys(run.prompts["generator"].to_pylist()))


def rows_of(run: PromptsRun, table: str, generator: str) -> list[Mapping[str, Any]]:
    return [row for row in run.read(table).to_pylist() if row["generator"] == generator]


def least_effect(run: PromptsRun) -> float:
    return float((run.config.get("associations") or {}).get("least_effect", 0.0))


def cell_name(row: Mapping[str, Any]) -> str:
    """Returns the name of a row of `PROMPTS_COMPARISON`."""
    return f"{row['measure']}/{row['attribute']}/{row['value']}/{row['name']}"


def _cells(run: PromptsRun, generator: str) -> Iterator[gates.GateCell]:
    prompts = rows_of(run, "prompts", generator)
    for row in rows_of(run, "methods", generator):
        judged = sum(int(p["images"]) for p in prompts if all(p[k] == row[k] for k in ("attribute", "value", "method")))
        values = {name: row[name] for name in ("frequency", "frequency_low", "frequency_high", "leaked", "perplexity")}
        yield _cell(generator, (FREQUENCY, row["attribute"], row["value"], row["method"]), values, judged)
    for key, (gain, images) in gains_by_value(prompts, 1 - float(run.config["alpha"])).items():
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
