"""How many images each caption gets: a fixed number, or more wherever a verdict is still open, as long as they last.

It reads the run's tables and decides what is drawn next and what the scores are; the evidence is `steps.settle`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError
from c2b_ray.steps.agreement import agreement
from c2b_ray.steps.draw import GENERATE, RETRIEVE
from c2b_ray.steps.duplicates import COLUMNS, Distinct
from c2b_ray.steps.group import grouped
from c2b_ray.steps.intersect import is_pair, score_pairs
from c2b_ray.steps.score import distinct_images, images_of_cells, score
from c2b_ray.steps.settle import Look, look, open_groups, settled
from c2b_ray.steps.verified import Group, Verified
from c2b_ray.store.run import Run

GROWTH = 2
"""By how much a caption's images grow from look to look, while a cell of its attribute is open."""


def first_grant(captions: pa.Table, asked: AuditConfig) -> dict[str, int]:
    """Images of each caption at first: all that it may get, or with a budget as many as a first look takes.

    Captions of intersections get all of theirs at once. ConfigError where the budget is too small for a first look.
    """
    most = _most(asked)
    ids = zip(captions["caption_id"].to_pylist(), captions["proposal_id"].to_pylist(), strict=True)
    of_pair = {caption: is_pair(proposal) for caption, proposal in ids}
    pairs, sources = sum(of_pair.values()), len(asked.images.sources)
    first = most
    if asked.budget is not None:
        others = len(of_pair) - pairs
        room = asked.budget.images // sources - most * pairs
        first = min(asked.budget.first, most, room // max(1, others))
        if first < 1:
            needed = (others + most * pairs) * sources
            raise ConfigError(
                "budget.images",
                f"{asked.budget.images} are too few for a first look: one image for each of {others} captions and "
                f"{most} for each of {pairs} of intersections, from {sources} source(s), are {needed} in all",
            )
    return {caption: most if pair else first for caption, pair in of_pair.items()}


def grant_so_far(run: Run, first: Mapping[str, int]) -> dict[str, int]:
    """What a run's captions were granted before it was interrupted or finished: it goes on from there."""
    noted = run.manifest.get("budget", {}).get("granted", {})
    return {caption: noted.get(caption, images) for caption, images in first.items()}


def next_grant(run: Run, grant: Mapping[str, int], asked: AuditConfig) -> dict[str, int] | None:
    """Images of each caption at the next look; None where all is settled, the budget is spent or no image is left.

    Open groups get twice as many, those with the fewest images first; the last of them what the budget has left. A
    group gets no more where a bias class has no image left: evidence is gathered in rounds of one image of each. What
    was looked at is noted in the run's manifest.
    """
    if asked.budget is None:
        return None
    captions, spent = run.captions, run.draws.num_rows
    left_open = open_groups(run.read("scores"))
    most, left = _most(asked), asked.budget.images - spent
    reached, new = _reached(run), dict(grant)
    rows = captions.select(["caption_id", "proposal_id", "target_class", "attribute"]).to_pylist()
    groups: dict[Group, list[str]] = {}
    for row in rows:
        if is_pair(row["proposal_id"]):
            continue
        groups.setdefault((row["target_class"], row["attribute"]), []).append(row["caption_id"])
    looked = {"images": spent, "open": len(left_open), "groups": len(groups)}
    for group in sorted(left_open, key=lambda group: (grant[groups[group][0]], group)):
        own = groups[group]
        granted = grant[own[0]]
        if min(reached[group].values()) < granted:
            continue
        each = len(own) * len(asked.images.sources)
        more = min(min(GROWTH * granted, most) - granted, left // each)
        left -= more * each
        new |= dict.fromkeys(own, granted + more)
    _note(run, looked, new, asked)
    return new if new != grant else None


def _reached(run: Run) -> dict[Group, dict[str, int]]:
    """Of every group and bias class, the most images that any of its captions had drawn, from its best source."""
    ranks: dict[str, int] = {}
    for caption, rank in zip(run.draws["caption_id"].to_pylist(), run.draws["rank"].to_pylist(), strict=True):
        ranks[caption] = max(rank + 1, ranks.get(caption, 0))
    found: dict[Group, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in run.captions.to_pylist():
        if not is_pair(row["proposal_id"]):
            cells = found[row["target_class"], row["attribute"]]
            cells[row["bias_class"]] = max(cells[row["bias_class"]], ranks.get(row["caption_id"], 0))
    return found


def looks(run: Run, asked: AuditConfig) -> list[tuple[str, Look]]:
    """What each classifier's answers say by now, in evidence that may be looked at as often as one likes."""
    captions, draws, predictions, distinct = run.captions, run.draws, run.predictions, duplicates(run)
    verified, levels = verification(run, distinct), (asked.tau, asked.alpha)
    return [(spec, look(captions, draws, predictions, spec, levels, verified, distinct)) for spec in asked.classifiers]


def duplicates(run: Run) -> Distinct:
    """Which of the run's images are one picture."""
    return Distinct(run.read("images", COLUMNS))


def verification(run: Run, distinct: Distinct) -> Verified | None:
    """What is known of the run's images, where they were verified."""
    return Verified(run.verifications, run.calibration, distinct) if run.has("verifications") else None


def write_scores(run: Run, asked: AuditConfig) -> None:
    """Scores of the images by now and, where they come from two sources, whether these agree."""
    captions, draws, predictions, distinct = run.captions, run.draws, run.predictions, duplicates(run)
    verified = verification(run, distinct)

    def scores(images: pa.Table) -> pa.Table:
        return score(captions, images, predictions, asked.classifiers, asked.tau, asked.alpha, verified, distinct)

    whole = scores(draws)
    if asked.budget is not None:
        cells = distinct_images(images_of_cells(captions, draws), distinct)
        whole = grouped(settled(whole, looks(run, asked), asked.tau, asked.alpha), cells, asked.tau)
    run.write("scores", whole)
    if asked.intersections:
        tables = (run.proposals, captions, draws, predictions)
        run.write("intersections", score_pairs(tables, asked.classifiers, asked.tau, asked.alpha, distinct))
    if len(asked.images.sources) > 1:
        retrieved, made = (scores(draws.filter(pc.equal(draws["source"], name))) for name in (RETRIEVE, GENERATE))
        run.write("agreement", agreement(retrieved, made, asked.tau, asked.alpha))


def _most(asked: AuditConfig) -> int:
    """Images that any caption may get; a labelled table's rows are all taken, unless a number is given."""
    labelled = asked.images.sources == ("labelled",)
    given = "images_per_caption" in asked.model_fields_set or asked.budget is not None
    return asked.images_per_caption if given or not labelled else 2**31 - 1


def _note(run: Run, looked: dict[str, Any], granted: Mapping[str, int], asked: AuditConfig) -> None:
    assert asked.budget is not None
    spent = run.manifest.get("budget", {}).get("looks", [])
    # A resumed run comes by its earlier looks again.
    spent = [entry for entry in spent if entry["images"] < looked["images"]] + [looked]
    run.update({"budget": {"images": asked.budget.images, "looks": spent, "granted": dict(granted)}})
