"""What failing images show, and what a label's ordinary images show: sentences of the captioner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.audits.failures.discovery.clusters import MOST_REFERENCE, Background, Sentences, combine_all
from c2b_ray.audits.failures.drawing import ENOUGH
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.failures.state import FailuresState, Kind
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import of_revision
from c2b_ray.engine.stage import Runner
from c2b_ray.names import mentions
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.tables import content_id

# Finds clusters of failures and the sentences that describe each best. The result is written once; a resumed run
# reads it.


_IMAGES, _SENTENCES = pa.list_(pa.binary()), pa.list_(pa.list_(pa.string()))
_AT_ONCE = 32  # groups at once: the driver holds their images twice


@dataclass(frozen=True)
class FailureGroup:
    """Failures of one kind: their encoded images, the sentences about each, and ordinary images of the label."""

    prompt: str
    images: Sequence[bytes]
    said: Sequence[Sentences]
    reference: Sequence[bytes]


@dataclass(frozen=True)
class Combining:
    """Combines sentences by a captioner, and by an encoder where there is one. `revisions`: of these models."""

    run: FailuresRun
    runner: Runner
    captioner: Callable[[], Captioner]
    encoder: Callable[[], TextImageEncoder] | None
    revisions: Sequence[str]
    steps: Steps

    def sentences(self, groups: Sequence[FailureGroup]) -> list[list[Sentences]]:
        """Returns for each group the sentences of its clusters, largest cluster first; [] where no model scores
        captions."""
        ids = [self._id(group) for group in groups]
        stored = self._known()
        missing = {group_id: group for group_id, group in zip(ids, groups, strict=True) if group_id not in stored}
        for start in range(0, len(missing), _AT_ONCE):
            self._combine(dict(list(missing.items())[start : start + _AT_ONCE]))
        stored = self._known()
        return [stored[group_id] for group_id in ids]

    def _combine(self, groups: Mapping[str, FailureGroup]) -> None:
        self.run.begin_writing()
        rows = pa.table(
            {
                "combination_id": list(groups),
                "prompt": [group.prompt for group in groups.values()],
                "images": pa.array([list(group.images) for group in groups.values()], _IMAGES),
                "sentences": pa.array([list(map(list, group.said)) for group in groups.values()], _SENTENCES),
                "reference": pa.array([list(group.reference) for group in groups.values()], _IMAGES),
            }
        )
        with self.steps.step("combine sentences") as on_progress:
            out = self.run.location("combinations")
            combine_all(self.runner, rows, self.captioner, self.encoder, out, on_progress)

    def _id(self, group: FailureGroup) -> str:
        parts = [
            group.prompt,
            [list(sentences) for sentences in group.said],
            *group.images,
            "reference",
            *group.reference,
        ]
        return content_id("combine", list(self.revisions), *parts)

    def _known(self) -> dict[str, list[Sentences]]:
        rows = self.run.read("combinations").to_pylist()
        return {
            row["combination_id"]: [tuple(cluster["sentences"]) for cluster in row["clusters"] if cluster["sentences"]]
            for row in rows
        }


def describe_at_once(
    work: FailuresState, hypotheses: Iterable[tuple[Kind, Candidate]], labels: Iterable[str] = ()
) -> None:
    """Describes in one pass all images that `described` and `background` will need."""
    if work.describing is None:
        return
    images = [(kind.label, data) for kind, caption in hypotheses for data in _images(work, kind, caption)]
    for label in labels:
        images += [(label, sample_row["image"]) for sample_row in work.drawing.sample(work.baselines[label])]
    work.describing.sentences(images)


def described(work: FailuresState, kind: Kind, caption: Candidate) -> list[Sentences]:
    """Returns the sentences about the kept images of a caption's failures of this kind."""
    assert work.describing is not None
    return _without(
        work, kind, work.describing.sentences([(kind.label, data) for data in _images(work, kind, caption)])
    )


def combined(work: FailuresState, kinds: Sequence[Kind]) -> list[list[Sentences]]:
    """Returns for each kind the sentences that describe clusters of its baseline failures best; [] where none do."""
    combining = _combining(work)
    if combining is None:
        return [[] for _ in kinds]
    groups = []
    for kind in kinds:
        base = work.baselines[kind.label]
        right = [
            sample_row["image"] for sample_row in work.drawing.sample(base) if sample_row["predicted"] == kind.label
        ]
        groups.append(
            FailureGroup(base.text, _images(work, kind, base), described(work, kind, base), right[:MOST_REFERENCE])
        )
    return combining.sentences(groups)


def _combining(work: FailuresState) -> Combining | None:
    captioner, encoder = work.config.captioner, work.config.encoder
    if captioner is None:
        return None
    specs = [("captioner", captioner), *([("encoder", encoder)] if encoder else [])]
    revisions = [work.models.describe(role, spec).revision for role, spec in specs]
    loaded = work.models.encoder(encoder) if encoder else None
    says = partial(of_revision, work.models.captioner(captioner), revisions[0], captioner)
    return Combining(work.run, work.models.runner, says, loaded, revisions, work.steps)


def _images(work: FailuresState, kind: Kind, caption: Candidate) -> list[bytes]:
    examples = work.drawing.examples(caption, kind.classifier)
    return [example["image"] for example in examples if kind.target is None or example["predicted"] == kind.target][
        :ENOUGH
    ]


def _without(work: FailuresState, kind: Kind, descriptions: Sequence[Sentences]) -> list[Sentences]:
    """Leaves out sentences that name another label: "it looks like a bee" would ask the generator for bees."""
    other_labels = {*work.baselines, *([kind.target] if kind.target else [])} - {kind.label}
    assert work.describing is not None
    result = []
    for sentences_of_image in descriptions:
        leaks = {
            sentence for sentence in sentences_of_image if any(mentions(sentence, other) for other in other_labels)
        }
        for sentence in leaks:
            work.describing.drop(kind.label, sentence, "names_class")
        result.append(tuple(sentence for sentence in sentences_of_image if sentence not in leaks))
    return result


def background(work: FailuresState, label: str) -> Background:
    """Counts how often the captioner says each sentence of the label's sample, which holds failures and others."""
    assert work.describing is not None
    sample = work.drawing.sample(work.baselines[label])
    return Background(work.describing.sentences([(label, example["image"]) for example in sample]))
