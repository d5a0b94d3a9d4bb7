"""Which captions a search confirms: the shortest that may fail as often as the one that failed most."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.audits.failures.drawing import Counts
from c2b_ray.audits.failures.search import chosen
from c2b_ray.audits.failures.state import FailuresState, Hypothesis, Kind

KIND = Kind("net", "bus", None)
BASE = Candidate("bus", "a bus.", (), "baseline")


def _chosen(seen: dict[tuple[str, ...], tuple[int, int]]) -> list[tuple[str, ...]]:
    """`seen`: failures and draws of a caption of these sentences."""
    captions = {Candidate("bus", "a bus.", sentences, "cluster"): counts for sentences, counts in seen.items()}
    of = {BASE.caption_id: (450, 18_000), **{one.caption_id: counts for one, counts in captions.items()}}

    def counts(caption: Candidate, *_: Any) -> Counts:
        failures, draws = of[caption.caption_id]
        return Counts(draws, failures)

    work = SimpleNamespace(
        drawing=SimpleNamespace(counts=counts), baselines={"bus": BASE}, config=SimpleNamespace(smallest_ratio=2.0)
    )
    (group,) = chosen(cast(FailuresState, work), [Hypothesis(KIND, one) for one in captions])
    return [one.caption.sentences for one in group]


def test_the_cause_alone_is_confirmed_though_a_longer_caption_failed_somewhat_more_often():
    cause, more = ("at night", "in the rain"), ("at night", "in the rain", "in purple", "with a balloon")
    assert _chosen({more: (23, 64), cause: (18, 64), more[:3]: (19, 64)})[0] == cause


def test_a_caption_without_part_of_the_cause_is_not_taken_for_the_cause():
    cause = ("at night", "in the rain")
    assert _chosen({cause: (23, 64), cause[:1]: (8, 64)})[0] == cause
    assert _chosen({cause: (6, 64), cause[:1]: (6, 192)})[0] == cause
