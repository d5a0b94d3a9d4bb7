"""The order of the pictures of `c2b prompts`, and what its models are called."""

from __future__ import annotations

from typing import Any

from c2b_ray.report.prompts.view import Tables, build_view
from c2b_ray.schemas.prompts import METHODS, PROMPTS


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
