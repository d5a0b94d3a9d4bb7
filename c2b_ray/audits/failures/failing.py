"""What the images that failed show, and what a label's ordinary images show: sentences of the captioner."""

from __future__ import annotations

from c2b_ray.audits.failures.drawing import ENOUGH
from c2b_ray.audits.failures.work import Kind, Work
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.mining import Background, Sentences


def described(work: Work, kind: Kind, caption: Candidate) -> list[Sentences]:
    """What is said of those of a caption's failures of this kind whose images were kept."""
    assert work.describing is not None
    examples = work.drawing.examples(caption, kind.classifier)
    of_kind = [one for one in examples if kind.target is None or one["predicted"] == kind.target][:ENOUGH]
    return work.describing.sentences([(kind.label, one["image"]) for one in of_kind])


def background(work: Work, label: str) -> Background:
    """How often each sentence is said of the label's sample, whose images were kept whether they fail or not."""
    assert work.describing is not None
    sample = work.drawing.sample(work.baselines[label])
    return Background(work.describing.sentences([(label, example["image"]) for example in sample]))
