"""A run of `c2b failures`: its tables by name, each checked when it is read.

candidates.parquet                 every caption that was drawn, with the one that it was made from
rounds/  descriptions/             Parquet parts: counts of the draws, and the captioner's sentences about failures
hypotheses.parquet                 failure rates of discovery, and of confirmation with its evidence
reliability.parquet                how often the generator shows each label, if a verifier was named
transfers.parquet                  the failures on other images and classifiers, if that was requested
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.kind import AUDIT
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run, TableOf, load_run_of, opener_of


class LeastRate(BaseModel):
    """The least `rate` at which a failure is likely to be found, if a `share` of a label's images show its condition.

    None if it is not likely at any rate.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    share: float
    rate: float | None


class ExpectedCosts(BaseModel):
    """What was expected before a run. `draws`, `seconds`: the least and the most images and, where models were tried,
    seconds of one process. `least_rates`: the least rates that its budget is likely to find
    (`audits.failures.discovery.race`).
    `smallest_ratio`: of a caption's failure rate to the bare prompt's, which is searched for; `draws_of_ratio`: the
    images that are expected to confirm a caption of exactly that ratio, where the bare prompt fails on 1 %.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    draws: list[int]
    seconds: list[float] | None = None
    least_rates: list[LeastRate] | None = None
    smallest_ratio: float | None = None
    draws_of_ratio: int | None = None


class LabelReach(BaseModel):
    """What a search of labelled images would have found of one label and classifier. `images`: of the label in the
    parts of search and test; `usual`: its failure rate there. `least`: rows of `share`, of the label's images that show
    a cause, and `rates`, the least failure rates of such a cause that are found with the probabilities `powers`; None
    where no rate is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    classifier: str
    label: str
    images: int
    usual: float
    least: list[dict[str, Any]]


class CauseSearch(BaseModel):
    """How causes were searched for among labelled images. `columns`: of the table, whose values are causes.
    `most_columns`: of one cause. `tried`: sets of values of one, two and three columns that failures show, summed over
    classifiers, labels and wrong answers; `not_extended`: sets of two to which no third value was added, because there
    were too many. `tested`: the hypotheses that came out of it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    columns: int
    most_columns: int
    tried: list[int]
    not_extended: int
    tested: int
    powers: list[float]
    labels: list[LabelReach]


class CaptionReach(BaseModel):
    """Which captions of one label were tried, for one classifier. `images`: of its baseline in discovery; `usual`:
    their failure rate. `proposed`, `screened`, `tested`: captions of one, two, and three or more sentences that were
    made, drawn in discovery, and drawn in the test. `pairs`: of sentences that the captioner said together of a
    failure; `pairs_not_tried`: those that are together in no caption that was drawn. `least`: the least failure rate of
    a caption that would have been found with probability `power` if it had been drawn; None where no rate would."""

    model_config = ConfigDict(extra="allow", frozen=True)

    classifier: str
    label: str
    images: int
    usual: float
    proposed: list[int]
    screened: list[int]
    tested: list[int]
    pairs: int
    pairs_not_tried: int
    least: float | None


class CaptionSearch(BaseModel):
    """How captions were searched for among generated images. `tested`: hypotheses. `draws_of_label`: a label's share of
    the draws of the test, with which the least rates are computed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    power: float
    tested: int
    draws_of_label: int
    labels: list[CaptionReach]


class FailuresManifest(Manifest):
    """`spent`: draws by stage and part, next to the `budget` of the config. `estimate`: made before the run.
    `dropped_sentences`: reason → the number of sentences about failures that are in no caption. `questions`: how many
    a person asked. `asking`: the number of the question that is being asked, or was interrupted; 0: none. `copies`:
    labelled images that are copies of others, and count for nothing; `other_copies`: those with another label or other
    values than the image that they are a copy of. `search`: how causes were searched for in labelled images;
    `caption_search`: how captions were, in generated ones."""

    spent: dict[str, int] | None = None
    estimate: ExpectedCosts | None = None
    dropped_sentences: dict[str, int] | None = None
    questions: int | None = None
    asking: int | None = None
    copies: int | None = None
    other_copies: int | None = None
    search: CauseSearch | None = None
    caption_search: CaptionSearch | None = None

    @property
    def has_results(self) -> bool:
        """Also while a question is asked: it changes none of the earlier results."""
        return super().has_results or (self.status == "running" and bool(self.asking))


class FailuresRun(Run):
    """A run of `c2b failures`."""

    config: FailuresConfig

    SINCE: ClassVar = {"hypotheses": ("clusters",)}

    candidates = TableOf()
    rounds = TableOf()
    hypotheses = TableOf()
    reliability = TableOf()
    transfers = TableOf()


def load_failures_run(path: str | Path | Run) -> FailuresRun:
    """Does what `load_run` does. Raises ConfigError for a run of another kind."""
    return load_run_of(path, AUDIT, FailuresRun)


open_failures_run = opener_of(AUDIT, FailuresRun)
"""As `storage.run.open_run`, for a run of this kind."""
