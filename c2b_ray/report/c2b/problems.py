"""Problems of a run: rejected replies, unusable images, missing predictions.

Counts rows by reason and hides what must not leave the machine; knows nothing of scores or pages.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.kit import words
from c2b_ray.report.kit.redact import clean

MOST_REASONS = 12
LONGEST_REASON = 160
LONGEST_REPLY = 140
_STEPS = {"propose": "proposing attributes", "template": "the captions' template", "caption": "writing captions"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Reason:
    """A kind of problem with its number of occurrences and the affected classifiers; `sample` is one instance of it."""

    number: str
    reason: str
    where: str
    sample: str = ""


@dataclass(frozen=True)
class Problems:
    """`*_more` counts the rows of the reasons that are not listed."""

    rejected: int
    rejected_line: str
    rejections: tuple[Reason, ...]
    rejections_more: int
    unusable: int
    unusable_line: str
    reasons: tuple[Reason, ...]
    reasons_more: int
    missing: tuple[str, ...]


def problems(
    rejected: pa.Table, draws: pa.Table, images: pa.Table, predictions: pa.Table, names: Mapping[str, str]
) -> Problems:
    """Returns the problems. `images` needs no bytes; `names` maps all classifiers of the run to their names."""
    rejections, rejections_more = _rejections(rejected)
    reasons, unusable, reasons_more = _unusable(images, predictions, names)
    return Problems(
        rejected=rejected.num_rows,
        rejected_line=f"{words.plural(rejected.num_rows, 'reply', 'replies')} of the language model could not be used."
        if rejected.num_rows
        else "Every reply of the language model could be used, or none was asked for.",
        rejections=rejections,
        rejections_more=rejections_more,
        unusable=unusable,
        unusable_line=f"{words.plural(unusable, 'image')} could not be used by one classifier or more."
        if unusable
        else "No image was unusable.",
        reasons=reasons,
        reasons_more=reasons_more,
        missing=_missing(draws, images, predictions, names),
    )


@dataclass
class _Kind:
    """Rows with the same reason, ignoring numbers: the ids concerned, the affected classifiers, and the original
    reasons."""

    members: set[str] = field(default_factory=set)
    sufferers: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    sample: str = ""

    def reason(self, pattern: str) -> str:
        return self.texts.copy().pop() if len(self.texts) == 1 else pattern


def _rejections(rejected: pa.Table) -> tuple[tuple[Reason, ...], int]:
    kinds: dict[tuple[str, str], _Kind] = defaultdict(_Kind)
    columns = (rejected[name].to_pylist() for name in ("step", "reason", "reply"))
    for row, (step, reason, reply) in enumerate(zip(*columns, strict=True)):
        text, pattern = _message(reason)
        kind = kinds[step, pattern]
        kind.members.add(str(row))
        kind.texts.add(text)
        kind.sample = kind.sample or reply
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1].members), item[0]))
    reasons = tuple(
        Reason(
            number=words.count(len(kind.members)),
            reason=kind.reason(pattern),
            where=_STEPS.get(step, step),
            sample=words.shortened(clean(kind.sample), LONGEST_REPLY),
        )
        for (step, pattern), kind in ordered[:MOST_REASONS]
    )
    return reasons, sum(len(kind.members) for _, kind in ordered[MOST_REASONS:])


def _unusable(images: pa.Table, predictions: pa.Table, names: Mapping[str, str]) -> tuple[tuple[Reason, ...], int, int]:
    """Returns the reasons, the number of images concerned, and the number of cases with reasons that are not listed.

    An image that could not be fetched fails for every classifier and is one image all the same.
    """
    kinds: dict[str, _Kind] = defaultdict(_Kind)
    failed = pa.chunked_array([t.filter(pc.is_valid(t["error"]))["image_id"].unique() for t in (images, predictions)])
    known = images.filter(pc.is_in(images["image_id"], failed.combine_chunks()))
    key_of = dict(zip(known["image_id"].to_pylist(), known["key"].to_pylist(), strict=True))
    for image_id, classifier, error in _failures(images, predictions):
        text, pattern = _message(error, key_of.get(image_id, ""))
        kind = kinds[pattern]
        kind.members.add(image_id)
        kind.texts.add(text)
        kind.sufferers.update(names if classifier is None else [classifier])
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1].members), item[0]))
    reasons = tuple(
        Reason(words.count(len(kind.members)), kind.reason(pattern), _who(kind.sufferers, names))
        for pattern, kind in ordered[:MOST_REASONS]
    )
    concerned = len(set().union(*(kind.members for kind in kinds.values())))
    return reasons, concerned, sum(len(kind.members) for _, kind in ordered[MOST_REASONS:])


def _failures(images: pa.Table, predictions: pa.Table) -> Iterator[tuple[str, str | None, str]]:
    """Yields (image, classifier, error); classifier is None where the image itself could not be read."""
    bad = images.filter(pc.is_valid(images["error"]))
    for image_id, error in zip(bad["image_id"].to_pylist(), bad["error"].to_pylist(), strict=True):
        yield image_id, None, error
    bad = predictions.filter(pc.is_valid(predictions["error"]))
    yield from zip(*(bad[name].to_pylist() for name in ("image_id", "classifier", "error")), strict=True)


def _who(sufferers: set[str], names: Mapping[str, str]) -> str:
    if sufferers.issuperset(names):
        return "every classifier" if len(names) > 1 else "the classifier"
    return words.listed([name for spec, name in names.items() if spec in sufferers])


def _missing(draws: pa.Table, images: pa.Table, predictions: pa.Table, names: Mapping[str, str]) -> tuple[str, ...]:
    drawn = pc.unique(draws["image_id"])
    lines = []
    never = _absent(drawn, images["image_id"])
    if never:
        lines.append(f"{words.plural(never, 'image')} of the draws {_was(never)} never fetched.")
    for classifier, name in names.items():
        answered = predictions.filter(pc.equal(predictions["classifier"], classifier))["image_id"]
        lacking = _absent(drawn, answered)
        if lacking:
            lines.append(f"{words.plural(lacking, 'image')} {_was(lacking)} never shown to {name}.")
    return tuple(lines)


def _absent(ids: pa.Array, among: pa.ChunkedArray) -> int:
    """Counts the ids that are not among others."""
    return len(ids) - int(pc.sum(pc.is_in(ids, among.combine_chunks())).as_py() or 0)


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _message(reason: str, key: str = "") -> tuple[str, str]:
    """Returns a reason without the image's name and path, and the same without numbers as the key for counting."""
    for name in (key, key.rsplit("/", 1)[-1]):
        if len(name) > 3:
            reason = reason.replace(name, "")
    text = words.shortened(clean(reason).strip(" :,;"), LONGEST_REASON) or "no reason given"
    return text, _NUMBER.sub("…", text)
