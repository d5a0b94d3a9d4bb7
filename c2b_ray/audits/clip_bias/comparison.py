"""Compares two models by the biases that were measured for both, B against A.

It composes runs, the comparing step, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits import gate as gates
from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.measure import ALL, GLOBAL
from c2b_ray.audits.clip_bias.steps.relations import margin_of
from c2b_ray.audits.kit.comparison import Comparison, compared, compared_names, decide, differing, importance, refuse
from c2b_ray.audits.kit.models import one_of
from c2b_ray.errors import Argument, RunError
from c2b_ray.report import words
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, difference_texts
from c2b_ray.report.redact import clean
from c2b_ray.stats.resampling import SampledEstimate, difference_of_estimates
from c2b_ray.tables import content_id
from c2b_ray.tables.clip_bias import CLIP_BIAS_COMPARISON, ComparisonRow

# Compares biases of two models: whose is larger, by dataset, metric, attribute and view, and whether that could be
# chance.


KEY = ("dataset", "metric", "attribute", "view", "group")


@dataclass(frozen=True)
class Bias:
    """`estimate`: the value with bootstrap samples of images, or with none but an interval; None where it cannot be
    compared. `images`: identifies the sampled images: models with the same `images` have the same samples."""

    value: float
    n: int
    images: str
    estimate: SampledEstimate | None = None


def compared_biases(
    a: Mapping[tuple[str, ...], Bias], b: Mapping[tuple[str, ...], Bias], alpha: float, margin: float
) -> pa.Table:
    """Returns a table of `CLIP_BIAS_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: biases by `KEY`. With the same samples the difference is paired; otherwise the two are taken as
    independent, which is conservative for images in common. q is computed over all comparable rows (Benjamini &
    Hochberg 1995); a row is worse (B is more biased) or better where it is at most alpha. p is of a difference within
    the margin (`margin_of`).
    """
    rows = [_row(key, a.get(key), b.get(key), 1 - alpha, margin) for key in dict.fromkeys([*a, *b])]
    decide(rows, alpha)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, CLIP_BIAS_COMPARISON)


def _row(key: tuple[str, ...], a: Bias | None, b: Bias | None, confidence: float, margin: float) -> ComparisonRow:
    dataset, metric, attribute, view, group = key
    paired, numbers = False, compared()
    if a is not None and b is not None and a.estimate is not None and b.estimate is not None:
        estimate_a, estimate_b = a.estimate, b.estimate
        paired = a.images == b.images and len(estimate_a.replicates) == len(estimate_b.replicates) > 0
        least = margin_of(metric, margin)
        low, high, p_value = difference_of_estimates(estimate_b, estimate_a, confidence, least, paired=paired)
        if np.isfinite(p_value):
            numbers = compared(b.value - a.value, low, high, p_value)
    return {
        "dataset": dataset,
        "metric": metric,
        "attribute": attribute,
        "view": view,
        "group": group,
        "value_a": _value(a),
        "value_b": _value(b),
        "n_a": 0 if a is None else a.n,
        "n_b": 0 if b is None else b.n,
        "paired": paired,
        **numbers,
    }


def _value(bias: Bias | None) -> float | None:
    return bias.value if bias is not None and np.isfinite(bias.value) else None


# The texts of a comparison of two models by their biases, for the page and a terminal.


HEADINGS = (
    Heading("dataset"),
    Heading("bias"),
    Heading("attribute"),
    Heading("images"),
    Heading("A", number=True),
    Heading("B", number=True),
    *DIFFERENCE,
    Heading("samples", page_only=True),
)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    is_compared = row["p_value"] is not None
    value_a, value_b = (
        words.UNKNOWN if row[f"value_{side}"] is None else wording.amount(row[f"value_{side}"]) for side in "ab"
    )
    return (
        clean(row["dataset"]),
        wording.metric(row["metric"]),
        clean(row["attribute"]),
        wording.group(row["group"]),
        value_a,
        value_b,
        *difference_texts(row, _signed),
        "the same" if row["paired"] else "others" if is_compared else words.UNKNOWN,
    )


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{wording.amount(value)}"


PAGES = Pages(
    kicker="Two models compared",
    title="Whose bias is larger",
    caption="Biases, the surest difference first",
    terms=(
        "Biases are the same where dataset, metric, attribute and group are; a group that clusters share is the "
        "same where it is the same images. **More biased** and **less biased** where q is at most "
        "α\u00a0=\u00a0{alpha}, adjusted for the false discovery rate over all that can be compared (Benjamini & "
        "Hochberg 1995). Differences scatter as in bootstrap samples of the images, and of the descriptions of "
        "MaxSkew: the same samples for both models where the images and the seed are the same, so that what both "
        "owe to the images falls away; else both are taken for independent, which is too careful where they share "
        "images. LIC has no such samples and is not compared.",
    ),
    titles={"worse": "More biased", "better": "Less biased", "undetermined": "Not told apart"},
    headings=HEADINGS,
    texts=_texts,
    rising=True,
)


# Gates on a run of `c2b clip-bias`: `people/max_skew@1000/*:value_low>0.1`, `*/kl_*/gender/all:q_value<0.05`.


def findings(run: ClipBiasRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns the biases of all models of the run, or of one."""
    rows = run.biases.to_pylist()
    if classifier is not None:
        model = one_of(models_of(run), classifier, Argument.CLASSIFIER, run.path)
        rows = [row for row in rows if row["model"] == model]
    return [gates.GateCell(row["model"], cell_name(row), row) for row in rows]


def models_of(run: ClipBiasRun) -> list[str]:
    return list(dict.fromkeys(run.biases["model"].to_pylist()))


def cell_name(row: Mapping[str, Any]) -> str:
    return f"{row['dataset']}/{row['metric']}/{row['attribute']}/{row['group']}"


SAME = ("hit", "skew_k", "skew_share", "skew_rule", "amplification", "answers")
"""Settings that change what a number means. `recall_k` is not among them: it is part of the metric's name."""
OF_QUESTIONS = "dba"
"""Its samples are images with open-ended questions: the same in one run, but not known to be the same in two."""
GUESSED = "lic"
"""It depends on how attributes were guessed. It has no samples of images: two are compared by their intervals."""


def compare(
    run_a: ClipBiasRun, run_b: ClipBiasRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two models by their biases: B against A, or two of one run.

    Groups are compared where they hold the same images in both runs. Raises ConfigError where it is unclear which
    models are meant; RunError for runs whose settings give a number another meaning, or that have nothing in common.
    """
    a, b = compared_names((run_a, run_b), (classifier_a, classifier_b), models_of, _check_settings)
    alpha = run_a.config.alpha
    images_a, images_b = images_of_groups(run_a, run_b)
    groups = (
        {}
        if run_a.config.groups.column
        else {(dataset, members): group for (dataset, group), members in images_a.items()}
    )
    margin = run_a.config.margin
    same_settings = _guessing(run_a) == _guessing(run_b)
    biases_of_a, biases_of_b = (
        _biases(run, model, images, groups, same_settings)
        for run, model, images in ((run_a, a, images_a), (run_b, b, images_b))
    )
    cells = compared_biases(biases_of_a, biases_of_b, alpha, margin)
    if cells["difference"].null_count == cells.num_rows:
        raise RunError(
            f"{run_a.path} and {run_b.path} have no bias in common that can be compared; run c2b clip-bias for both "
            "models at once, or give both configs datasets, attributes and metrics of the same names"
        )
    return Comparison(
        (run_a.path, run_b.path), (a, b), alpha, cells, PAGES, [_gated(b, row) for row in cells.to_pylist()]
    )


def _gated(model: str, row: Mapping[str, Any]) -> gates.GateCell:
    """Returns the cell for gates. `worse`: B is more biased."""
    pairs = min(row["n_a"], row["n_b"]) if row["p_value"] is not None else 0
    return gates.GateCell(model, cell_name(row), {**row, "n": row["n_b"], "pairs": pairs})


def _biases(
    run: ClipBiasRun,
    model: str,
    images: Mapping[tuple[str, str], str],
    groups: Mapping[tuple[str, str], str],
    guessed_alike: bool,
) -> dict[tuple[str, ...], Bias]:
    """Returns the model's biases by `KEY`.

    `images`: (dataset, group) → a hash of its images; `groups`: (dataset, hash of its images) → the group's number in
    both runs; if empty, groups are matched by their names.
    """
    replicates = {
        tuple(row[name] for name in KEY): np.array(row["values"], np.float64)
        for row in run.read("replicates").to_pylist()
        if row["model"] == model
    }
    downstream = run.config.downstream
    result = {}
    for row in run.biases.to_pylist():
        if row["model"] != model:
            continue
        dataset = downstream[row["dataset"]].dataset if row["dataset"] in downstream else row["dataset"]
        members, of_row = images[dataset, row["group"]], tuple(row[name] for name in KEY)
        # A group's samples follow from its number, which may differ between runs.
        samples = [members, row["group"], row["n"], run.config.seed, run.config.chance.model_dump()]
        if row["metric"] == OF_QUESTIONS:
            samples.append(run.record.run_id)
        key = of_row
        if row["view"] != GLOBAL and groups:
            key = (*of_row[:-1], groups.get((dataset, members), f"{row['group']} of {model}'s run alone"))
        limits = row["value"], row["value_low"], row["value_high"]
        if row["metric"] == GUESSED and guessed_alike:
            replicates[of_row] = np.zeros(0)
        estimate = None if of_row not in replicates else SampledEstimate(*limits, replicates[of_row])
        result[key] = Bias(row["value"], row["n"], content_id("clip-bias samples", samples), estimate)
    return result


def _guessing(run: ClipBiasRun) -> object:
    """Returns the settings that LIC and its interval depend on."""
    masks = {name: dataset.mask for name, dataset in run.config.datasets.items()}
    return run.config.leakage, run.config.alpha, masks


def images_of_groups(run_a: ClipBiasRun, run_b: ClipBiasRun) -> list[dict[tuple[str, str], str]]:
    """Returns for each run a hash of the images of each dataset's groups, and of all of its images: of their names and
    bytes, and of their names alone where a run of an older release lacks a hash of the bytes."""
    clusters = [run.read("clusters") for run in (run_a, run_b)]
    has_contents = all(table["content"].null_count < max(1, table.num_rows) for table in clusters)
    columns = ["key", "content"] if has_contents else ["key"]
    result = []
    for table in clusters:
        images: dict[tuple[str, str], list[list[str | None]]] = {}
        for row in table.to_pylist():
            for group in (ALL, *([row["group"]] if row["group"] else [])):
                images.setdefault((row["dataset"], group), []).append([row[name] for name in columns])
        result.append({where: content_id("clip-bias images", listed) for where, listed in images.items()})
    return result


def _check_settings(run_a: ClipBiasRun, run_b: ClipBiasRun) -> None:
    why = (
        "a number of one is none of the other's: run c2b clip-bias for both models with the same settings, or in "
        "one run"
    )
    refuse(run_a, run_b, [*differing(run_a, run_b, SAME), *_other_texts(run_a, run_b)], why)


def _other_texts(run_a: ClipBiasRun, run_b: ClipBiasRun) -> list[str]:
    """Returns the datasets whose MaxSkew is over other texts, as fields of the config."""
    a, b = (
        {name: dataset.texts for name, dataset in run.config.datasets.items() if dataset.texts}
        for run in (run_a, run_b)
    )
    return [f"datasets.{name}.texts" for name in a if name in b and sorted(a[name]) != sorted(b[name])]
