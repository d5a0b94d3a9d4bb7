"""The state that the parts of a run share: its config, its tables, where its models are, and its captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from c2b_ray.audits.failures.describing import Describing
from c2b_ray.audits.failures.drawing import Drawing
from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.steps.discovery.candidates import Candidate, Origin
from c2b_ray.store.failures_run import FailuresRun


@dataclass(frozen=True)
class Work:
    """`baselines`: the baseline caption of each label. `candidates`: every caption, by its id, in order.
    `doubts`: label → why the generator is not to be trusted with it."""

    config: FailuresConfig
    run: FailuresRun
    models: Backend
    steps: Steps
    drawing: Drawing
    describing: Describing | None
    baselines: Mapping[str, Candidate]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)

    def caption(
        self, label: str, sentences: Sequence[str], origin: Origin, parent: Candidate | None = None
    ) -> Candidate:
        """Returns the caption made of the label's baseline and these sentences. The same text gives the same caption,
        whatever its origin."""
        base = self.baselines[label]
        return self.register(Candidate(label, base.prompt, tuple(sentences), origin, (parent or base).caption_id))

    def register(self, caption: Candidate) -> Candidate:
        return self.candidates.setdefault(caption.caption_id, caption)


@dataclass(frozen=True)
class Kind:
    """One sort of failures: of a classifier, on images of a label, with the answer `target`; None: with any wrong
    answer."""

    classifier: str
    label: str
    target: str | None


@dataclass(frozen=True)
class Hypothesis:
    """That failures of a kind are more frequent on a caption's images than on the baseline's."""

    kind: Kind
    caption: Candidate
