"""The order of the pictures of `c2b prompts`, and what its models are called."""

from __future__ import annotations

from typing import Any

from c2b_ray.audits.prompts.report import Tables, answers, build_view
from c2b_ray.report import words
from c2b_ray.tables.prompts import METHODS, MODIFIERS, PROMPTS


def method(value: str, generator: str) -> dict[str, Any]:
    about = {
        "attribute": "lighting",
        "value": value,
        "generator": generator,
        "method": "bgps λ=10",
        "perplexity": 12345.6,
    }
    return {**dict.fromkeys(METHODS.names), **about, "prompts": 1, "leaked": 0.0, "frequency": 0.5,
            "frequency_low": 0.4, "frequency_high": 0.6, "candidates": 1, "rejected": 0, "images_used": 1}  # fmt: skip


def example(value: str, generator: str, prompt: str) -> dict[str, Any]:
    about = {"attribute": "lighting", "value": value, "generator": generator, "prompt": prompt}
    return {**about, "example_id": f"{value} {prompt}", "pictures": [], "seeds": []}


def test_the_best_prompt_of_a_value_stands_before_the_plain_one_and_values_in_their_order() -> None:
    best, plain = "a photo of a rusty bus", "a photo of a bus"
    rows = [example("day", "base", plain), example("night", "base", plain), example("day", "base", best),
            example("night", "base", best), example("night", "control", best)]  # fmt: skip
    methods = [method("night", "base"), method("night", "control"), method("day", "base")]
    tables = Tables([dict.fromkeys(PROMPTS.names)][:0], methods, [], [], [], [], rows)
    models = {"generator base": {"spec": "g", "revision": "r"}, "language model": {"spec": "l"}}
    view = build_view({"models": models}, tables, {})
    shown = [(one.title, one.prompt) for one in view.examples]
    assert shown == [
        ("lighting: night, on base", best),
        ("lighting: night, on base", plain),
        ("lighting: night, on control", best),
        ("lighting: day, on base", best),
        ("lighting: day, on base", plain),
    ]
    assert [model.role for model in view.method.models] == ["Generator base", "Language model"]
    assert {row.perplexity for row in view.methods} == {"12,346"}


def test_the_prompt_that_did_best_is_shown_with_a_fresh_frequency_or_none() -> None:
    """Its own is the highest of many: it was chosen by the very images that the number counts."""
    about = {"attribute": "lighting", "generator": "base", "method": "bgps λ=10", "leaked": False, "log_prior": -9.0}
    blank = dict.fromkeys(PROMPTS.names)
    prompts = [
        {**blank, **about, "value": value, "prompt": f"a bus {number}", "frequency": frequency}
        for value in ("day", "night")
        for number, frequency in enumerate((0.5, 1.0, 0.75))
    ]
    edit = {"attribute": "lighting", "value": "day", "generator": "base", "prompt": "a bus 1", "frequency_with": 0.7,
            "modifier": "1", "frequency_without": 0.6, "adds": 0.1, "low": 0, "high": 0.2, "q_value": 0.5}  # fmt: skip
    pictures = [example(value, "base", "a bus 1") for value in ("day", "night")]
    methods = [method("day", "base"), method("night", "base")]
    edits = [{**dict.fromkeys(MODIFIERS.names), **edit}]
    view = build_view({}, Tables(prompts, methods, [], [], edits, [], pictures), {})
    assert [row.prompt for row in view.targets] == [f"a bus 1 ({words.percent(0.7)})", "a bus 1"]
    assert [one.frequency for one in view.examples] == [words.percent(0.7), ""]


def test_words_without_an_established_effect_are_not_said_to_have_none() -> None:
    rows = [{"word": word, "raises": False, "effect": 0.3} for word in ("rusty", "old")]
    (answer,) = answers(Tables([], [], [], rows, [], [], []), 0.05)
    assert answer.text == "Of 2 words none is established to raise a value by more than the least effect."
