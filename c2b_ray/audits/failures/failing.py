"""What failing images show, and what a label's ordinary images show: sentences of the captioner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from c2b_ray.audits.failures.combining import Combining, Group
from c2b_ray.audits.failures.drawing import ENOUGH
from c2b_ray.audits.failures.work import Kind, Work
from c2b_ray.names import mentions
from c2b_ray.pipelines.images import of_revision
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.combined import MOST_REFERENCE
from c2b_ray.steps.discovery.mining import Background, Sentences


def describe_at_once(work: Work, hypotheses: Iterable[tuple[Kind, Candidate]], labels: Iterable[str] = ()) -> None:
    """Describes in one pass all images that `described` and `background` will need."""
    if work.describing is None:
        return
    images = [(kind.label, data) for kind, caption in hypotheses for data in _images(work, kind, caption)]
    for label in labels:
        images += [(label, one["image"]) for one in work.drawing.sample(work.baselines[label])]
    work.describing.sentences(images)


def described(work: Work, kind: Kind, caption: Candidate) -> list[Sentences]:
    """Returns the sentences about the kept images of a caption's failures of this kind."""
    assert work.describing is not None
    return _without(
        work, kind, work.describing.sentences([(kind.label, data) for data in _images(work, kind, caption)])
    )


def combined(work: Work, kinds: Sequence[Kind]) -> list[list[Sentences]]:
    """Returns for each kind the sentences that describe clusters of its baseline failures best; [] where none do."""
    combining = _combining(work)
    if combining is None:
        return [[] for _ in kinds]
    groups = []
    for kind in kinds:
        base = work.baselines[kind.label]
        right = [one["image"] for one in work.drawing.sample(base) if one["predicted"] == kind.label]
        groups.append(Group(base.text, _images(work, kind, base), described(work, kind, base), right[:MOST_REFERENCE]))
    return combining.sentences(groups)


def _combining(work: Work) -> Combining | None:
    captioner, encoder = work.config.captioner, work.config.encoder
    if captioner is None:
        return None
    specs = [("captioner", captioner), *([("encoder", encoder)] if encoder else [])]
    revisions = [work.models.describe(role, spec).revision for role, spec in specs]
    loaded = work.models.encoder(encoder) if encoder else None
    says = partial(of_revision, work.models.captioner(captioner), revisions[0], captioner)
    return Combining(work.run, work.models.runner, says, loaded, revisions, work.steps)


def _images(work: Work, kind: Kind, caption: Candidate) -> list[bytes]:
    examples = work.drawing.examples(caption, kind.classifier)
    return [one["image"] for one in examples if kind.target is None or one["predicted"] == kind.target][:ENOUGH]


def _without(work: Work, kind: Kind, said: Sequence[Sentences]) -> list[Sentences]:
    """Leaves out sentences that name another label: "it looks like a bee" would ask the generator for bees."""
    others = {*work.baselines, *([kind.target] if kind.target else [])} - {kind.label}
    assert work.describing is not None
    result = []
    for each in said:
        leaks = {one for one in each if any(mentions(one, other) for other in others)}
        for one in leaks:
            work.describing.drop(kind.label, one, "names_class")
        result.append(tuple(one for one in each if one not in leaks))
    return result


def background(work: Work, label: str) -> Background:
    """Counts how often the captioner says each sentence of the label's sample, which holds failures and others."""
    assert work.describing is not None
    sample = work.drawing.sample(work.baselines[label])
    return Background(work.describing.sentences([(label, example["image"]) for example in sample]))
