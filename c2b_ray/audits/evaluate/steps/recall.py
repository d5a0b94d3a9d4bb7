"""Computes recall@A·K (section 4.4, Figure 6) from embeddings of captions and of images of known content; and how often
a method's images show what they were drawn for (App. F).

It knows vectors, labels and answers, not what made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.truth import TARGET, Ints, Rows, TruthCell
from c2b_ray.tables.evaluate import RECALL, SHOWN

WHAT = ("class", "value", "both")


@dataclass(frozen=True)
class CaptionRelevance:
    """A caption, the rows of the images for which it is true, and those for which that is unknown."""

    kind: str
    target_class: str | None
    attribute: str | None
    value: str | None
    caption: str
    relevant: Ints  # rows
    unknown: Ints  # rows


def wanted(
    labels: pa.Table,
    cells: Mapping[TruthCell, Rows],
    classes: Sequence[str],
    texts: Mapping[tuple[str, str], str],
    captions: Sequence[str],
) -> Iterator[CaptionRelevance]:
    """Yields the captions of every class, of every value, and of both.

    `captions`: the three templates, with {class} and {value}. `texts`: the text for each (attribute, value) in them.
    """
    targets = np.array(labels[TARGET].to_pylist(), object)
    for target in classes:
        relevant = np.flatnonzero(targets == target)
        yield CaptionRelevance("class", target, None, None, _filled(captions[0], target, ""), relevant, relevant[:0])
    for attribute, value in dict.fromkeys((attribute, value) for _, attribute, value in cells):
        column = labels[attribute].combine_chunks()
        unknown = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        # Of all classes, also of those with too few images of the value for a cell.
        relevant = np.flatnonzero(pc.equal(column, value).fill_null(False).to_numpy(zero_copy_only=False))
        yield CaptionRelevance(
            "value", None, attribute, value, _filled(captions[1], "", texts[attribute, value]), relevant, unknown
        )
        for target in [name for name in classes if (name, attribute, value) in cells]:
            caption = _filled(captions[2], target, texts[attribute, value])
            yield CaptionRelevance("both", target, attribute, value, caption, cells[target, attribute, value][0],
                         unknown[targets[unknown] == target])  # fmt: skip


def _filled(template: str, target: str, value: str) -> str:
    return template.replace("{class}", target).replace("{value}", value)


def recall_table(
    queries: Sequence[CaptionRelevance],
    texts: NDArray[np.float32],
    images: NDArray[np.float32],
    shares: Sequence[float],
) -> pa.Table:
    """Returns a table of `RECALL`.

    `images`: a unit vector per row, NaN where there is no embedding. Such images are left out, and so are those whose
    labels do not tell whether the caption is true.
    """
    has_vector = np.asarray(np.isfinite(images).all(axis=1), bool)
    vectors = images[has_vector]
    rows = []
    for query, text in zip(queries, texts, strict=True):
        relevant, is_judged = np.zeros(len(images), bool), has_vector.copy()
        relevant[query.relevant] = True
        is_judged[query.unknown] = False
        cosines = (vectors @ text)[is_judged[has_vector]]
        order = np.argsort(-cosines, kind="stable")
        marks, ranked = relevant[is_judged][order], cosines[order]
        for share in shares:
            recall = stats.recall_of_matches(marks, share, ranked)
            rows.append(
                {
                    "kind": query.kind,
                    TARGET: query.target_class,
                    "attribute": query.attribute,
                    "value": query.value,
                    "caption": query.caption,
                    "relevant": int(marks.sum()),
                    "share": share,
                    **recall._asdict(),
                }
            )
    return pa.Table.from_pylist(rows, RECALL)


def shown_table(
    method: str, captions: pa.Table, draws: pa.Table, verifications: pa.Table, confidence: float
) -> pa.Table:
    """Returns a table of `SHOWN`: how many of the images that a method drew show the class, the value, and both, as a
    question-answering model sees them."""
    of_caption = {row["caption_id"]: row for row in captions.to_pylist()}
    answers = {(row["image_id"], row["target_class"]): row for row in verifications.to_pylist() if row["error"] is None}
    hits, count = np.zeros(3, np.int64), 0
    for draw in draws.select(["caption_id", "image_id"]).to_pylist():
        caption = of_caption[draw["caption_id"]]
        answer = answers.get((draw["image_id"], caption["target_class"]))
        if answer is None or caption["attribute"] not in answer["attributes"]:
            continue
        of_class = answer["class_shown"] == caption["target_class"]
        value = answer["values"][answer["attributes"].index(caption["attribute"])]
        of_value = value == caption["bias_class"]
        hits += np.array([of_class, of_value, of_class and of_value])
        count += 1
    rows = []
    for subject, hit in zip(WHAT, hits.tolist(), strict=True):
        low, high = stats.wilson_interval(hit, count, confidence)
        share = hit / count if count else float("nan")
        rows.append(
            {"method": method, "what": subject, "images": count, "share": share, "share_low": low, "share_high": high}
        )
    return pa.Table.from_pylist(rows, SHOWN)
