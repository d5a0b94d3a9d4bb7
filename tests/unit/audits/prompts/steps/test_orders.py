"""Which searches are made of which subjects, and how subjects stand in prompts."""

from __future__ import annotations

from collections import Counter

from c2b_ray.audits.prompts.steps.judging import filled
from c2b_ray.audits.prompts.steps.search import SearchSettings
from c2b_ray.audits.prompts.steps.tasks import SearchPlan, Target, search_tasks
from c2b_ray.audits.prompts.steps.words import leaks_of

TARGETS = (Target(("colour",), ("orange",)), Target(("size",), ("large",)))
LEAKS = (leaks_of(["orange", "blue"], {}), leaks_of(["large"], {}))
PLAN = SearchPlan("base", TARGETS, LEAKS, SearchSettings(10.0), "", 1)


def test_a_subject_that_names_the_value_is_not_searched_for() -> None:
    """An orange, the fruit, is of the colour orange: no prompt about it could be kept, and one without it is about
    something else."""
    rows = search_tasks(PLAN, ["orange", "bus", "mug"], {"bgps λ=10": 10.0}, 4).to_pylist()
    counts = Counter((row["target"], row["subject"]) for row in rows)
    assert counts == {(0, "bus"): 2, (0, "mug"): 2, (1, "orange"): 2, (1, "bus"): 1, (1, "mug"): 1}
    alone = SearchPlan("base", TARGETS[:1], LEAKS[:1], PLAN.settings, "", 1)
    assert search_tasks(alone, ["orange"], {"x": 1.0}, 4).num_rows == 0


def test_without_the_filter_every_subject_is_searched_for() -> None:
    settings = SearchSettings(10.0, filtered=False)
    plan = SearchPlan("base", TARGETS[:1], LEAKS[:1], settings, "", 1)
    assert [row["subject"] for row in search_tasks(plan, ["orange"], {"x": 1.0}, 2).to_pylist()] == ["orange"] * 2


def test_an_article_goes_with_its_subject_and_with_no_other_word() -> None:
    forms = ("a photo of a {subject}", "A {subject} beside a camera {subject}")
    assert filled(forms, ["engine"], 2) == [
        ("a photo of an engine", "engine"),
        ("An engine beside a camera engine", "engine"),
    ]
    assert filled(forms[:1], ["bus"], 1) == [("a photo of a bus", "bus")]
