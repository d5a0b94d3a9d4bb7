"""The head of the page: the extent of the audit and its result, in sentences.

Knows cells and a manifest; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.c2b.ranking import Cell
from c2b_ray.report.kit import words
from c2b_ray.report.kit.redact import clean


def unfinished(manifest: Mapping[str, Any]) -> str:
    status = str(manifest.get("status", "finished"))
    return (
        "" if status == "finished" else f"This run is not finished (status: {clean(status)}); its numbers may change."
    )


def tally(cells: Sequence[Cell], pooled: int = 0, pairs: int = 0, perturbed: int = 0) -> str:
    """Returns how many cells have which verdict. `pooled`, `pairs`, `perturbed`: the findings over all classes, of two
    values at once, and of perturbations, which are no cells."""
    of = Counter(cell.verdict for cell in cells)
    findings = words.plural(of["against"] + of["for"], "finding")
    line = f"{findings}, {words.count(of['none'])} clear, {words.count(of['undetermined'])} undetermined"
    others = ((pooled, "over all classes"), (pairs, "of two values at once"), (perturbed, "of perturbations"))
    more = [f"{words.plural(number, 'finding')} {what}" for number, what in others if number]
    return f"{line}; besides, {words.listed(more)}" if more else line


def scale(cells: Sequence[Cell], draws: pa.Table) -> str:
    if not cells:
        return "Nothing was scored."
    classes, attributes = ({getattr(cell, name) for cell in cells} for name in ("target_class", "attribute"))
    images = pc.count_distinct(draws["image_id"]).as_py()
    per_classifier = len({(c.target_class, c.attribute, c.bias_class) for c in cells})
    classifiers = len({cell.classifier for cell in cells})
    each = " for each classifier" if classifiers > 1 else ""
    return (
        f"{words.plural(per_classifier, 'cell')}{each}: a cell is one value of an attribute, for one class. "
        f"{words.plural(len(classes), 'class', 'classes')}, {words.plural(len(attributes), 'attribute')}, "
        f"{words.plural(images, 'image')}."
    )


def two_stages(config: Mapping[str, Any], cells: Sequence[Cell], captions: pa.Table, fresh: pa.Table) -> str:
    """Returns sentences on an audit in two stages, and what it would have found; empty for other audits. `fresh`: the
    draws of the second stage."""
    design = config.get("screening")
    if not isinstance(design, Mapping) or not cells:
        return ""
    drew = captions.filter(pc.is_in(captions["caption_id"], fresh["caption_id"].unique().cast(pa.string())))
    groups = set(zip(drew["target_class"].to_pylist(), drew["attribute"].to_pylist(), strict=True))
    again = sum((cell.target_class, cell.attribute) in groups for cell in cells)
    first = int(config.get("images_per_caption") or 0) * int(config.get("captions_per_cell") or 0)
    in_all = pc.count_distinct(fresh["image_id"]).as_py()
    line = (
        f"Two stages: {words.plural(first, 'image')} of each cell, then {words.count(int(design['fresh']))} fresh ones "
        f"({words.count(in_all)} in all) of the {words.count(again)} of {words.plural(len(cells), 'cell')} whose "
        f"attribute had |φ| ≥ {words.decimal(design['least'])}. Findings rest on the fresh images alone."
    )
    found = sorted(cell.detectable for cell in cells if not math.isnan(cell.detectable))
    if not found:
        return line
    return (
        f"{line} In the median cell |φ| of {words.decimal(math.ceil(100 * found[len(found) // 2]) / 100)} is found in "
        f"four of five audits; in nine of ten cells |φ| of "
        f"{words.decimal(math.ceil(100 * found[9 * (len(found) - 1) // 10]) / 100)}."
    )


def paper(cells: Sequence[Cell]) -> str:
    more = sum(cell.disagrees and not cell.is_finding for cell in cells)
    if not more:
        return ""
    return (
        f"The paper’s rule, |φ| > τ alone, would have called {words.plural(more, 'more cell', 'more cells')} biased; "
        "the images at hand do not establish that."
    )


def findings_line(cells: Sequence[Cell], sentences: int) -> str:
    findings = sum(cell.is_finding for cell in cells)
    order = "Strongest first, by φ drawn towards 0 as far as its noise makes likely."
    if any(not math.isnan(cell.phi_confirmed) for cell in cells):
        order = "Strongest first, by φ on fresh images, which had no part in finding anything."
    if findings == sentences:
        return order
    return (
        f"{order} {words.plural(findings, 'finding')} in {words.plural(sentences, 'sentence')}: one sentence tells "
        "of all findings of one class and attribute, and of two attributes that rest on the same images."
    )


def no_findings(cells: Sequence[Cell], tau: float) -> str:
    if not cells:
        return "Nothing was scored, so nothing can be said."
    if all(cell.n == 0 for cell in cells):
        return "No image has a prediction, so nothing can be said about the classifier."
    return f"No cell’s φ is established to lie beyond ±{words.decimal(tau)}."
