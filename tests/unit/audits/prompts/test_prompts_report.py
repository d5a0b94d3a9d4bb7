"""The page of `c2b prompts`: the order of its pictures, which frequencies it shows, and what its models are called."""

from __future__ import annotations

from typing import Any

from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.report import Tables, answers, page
from c2b_ray.report import words
from c2b_ray.report.blocks import Bar, Strips, Table
from c2b_ray.tables.prompts import ASSOCIATIONS, METHODS, MODIFIERS, PROMPTS

CONFIG = PromptsConfig(
    subjects=["bus"], attributes={"lighting": ["day", "night"]}, generators="world:linked", language_model="world:lm",
    judge="world:clip",
)  # fmt: skip


def method(value: str, generator: str, name: str = "bgps λ=10", frequency: float = 0.5) -> dict[str, Any]:
    about = {"attribute": "lighting", "value": value, "generator": generator, "method": name, "perplexity": 12345.6}
    return {**dict.fromkeys(METHODS.names), **about, "prompts": 1, "leaked": 0.0, "frequency": frequency,
            "frequency_low": 0.4, "frequency_high": 0.6, "candidates": 1, "rejected": 0, "images_used": 1}  # fmt: skip


def example(value: str, generator: str, prompt: str, pictures: int = 0) -> dict[str, Any]:
    about = {"attribute": "lighting", "value": value, "generator": generator, "prompt": prompt}
    return {**about, "example_id": f"{value} {prompt}", "pictures": [b""] * pictures, "seeds": []}


def sections(tables: Tables, manifest: dict[str, Any] | None = None, pictures: dict[str, str] | None = None):
    """Returns the blocks of each section of the page by its id."""
    return {one.link: one.blocks for one in page(manifest or {}, CONFIG, tables, pictures or {}).sections}


def captions(blocks: Any) -> list[tuple[str, str]]:
    (strips,) = (block for block in blocks if isinstance(block, Strips))
    return [tuple(span.text for span in caption) for caption in strips.captions]


def rows(blocks: Any) -> list[list[Any]]:
    """Returns the texts of a section's table."""
    (table,) = (block for block in blocks if isinstance(block, Table))
    return [[cell.text for cell in row.cells if not isinstance(cell, Bar)] for row in table.lines]


def test_the_best_prompt_of_a_value_stands_before_the_plain_one_and_values_in_their_order() -> None:
    best, plain = "a photo of a rusty bus", "a photo of a bus"
    examples = [example("day", "base", plain), example("night", "base", plain), example("day", "base", best),
                example("night", "base", best), example("night", "control", best)]  # fmt: skip
    methods = [method("night", "base"), method("night", "control"), method("day", "base")]
    models = {"generator base": {"spec": "g", "revision": "r"}, "language model": {"spec": "l"}}
    shown = sections(Tables([], methods, [], [], [], [], examples), {"models": models})
    assert captions(shown["pictures"]) == [
        (best, "lighting: night, on base"),
        (plain, "lighting: night, on base"),
        (best, "lighting: night, on control"),
        (best, "lighting: day, on base"),
        (plain, "lighting: day, on base"),
    ]
    html = page({"models": models}, CONFIG, Tables([], methods, [], [], [], [], examples), {}).html()
    assert all(f'<th scope="row">{role}</th>' in html for role in ("Generator base", "Language model"))
    assert {row[4] for row in rows(shown["methods"])} == {"12,346"}


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
    examples = [example(value, "base", "a bus 1") for value in ("day", "night")]
    methods = [method("day", "base"), method("night", "base")]
    edits = [{**dict.fromkeys(MODIFIERS.names), **edit}]
    shown = sections(Tables(prompts, methods, [], [], edits, [], examples))
    rate = words.percent(0.7)
    assert [row[-1] for row in rows(shown["values"])] == [f"a bus 1 ({rate})", "a bus 1"]
    assert [about for _, about in captions(shown["pictures"])] == [
        f"lighting: day, on base: {rate}",
        "lighting: night, on base",
    ]


def test_the_best_method_of_each_generator_is_marked_and_a_rule_parts_the_generators() -> None:
    methods = [method("day", "base", "llm", 0.2), method("day", "base"), method("day", "control", "curated", 0.1)]
    (table,) = (b for b in sections(Tables([], methods, [], [], [], [], []))["methods"] if isinstance(b, Table))
    shown = [(row.style, row.cells[1].text, row.cells[2].style, row.cells[3].segments[0]) for row in table.lines]
    assert [(style, name, leads, bar.verdict, bar.width) for style, name, leads, bar in shown] == [
        ("", "Language model", "", "none", "20.0"),
        ("", "Bias-guided search, λ=10", "leads", "against", "50.0"),
        ("first", "Written by people", "leads", "against", "10.0"),
    ]


def test_pictures_that_are_not_there_are_said_to_be_missing() -> None:
    tables = Tables([], [], [], [], [], [], [example("day", "base", "a bus", pictures=2)])
    html = page({}, CONFIG, tables, {"day a bus 1": "data:image/jpeg;base64,x"}).html()
    assert html.count("no image") == 1
    assert html.count('<img src="data:image/jpeg;base64,x" alt="an image of: a bus">') == 1


def test_words_that_raise_a_value_come_first_and_are_marked() -> None:
    blank = {**dict.fromkeys(ASSOCIATIONS.names), "attribute": "lighting", "value": "night", "low": 0.0, "high": 0.5,
             "q_value": 0.01, "against": "without it", "images": 8, "generator": "base"}  # fmt: skip
    effects = (("old", False, 0.9), ("lit", True, 0.2), ("dark", True, 0.4))
    associations = [{**blank, "word": word, "raises": raises, "effect": effect} for word, raises, effect in effects]
    text, table = sections(Tables([], [], [], associations, [], [], []))["words"]
    assert text.text.startswith("2 associations of 3 words and their values.")
    assert [(row.cells[0].text, row.cells[0].mark is not None, row.data["word"]) for row in table.lines] == [
        ("dark", True, "dark"), ("lit", True, "lit"), ("old", False, "old"),
    ]  # fmt: skip


def test_words_without_an_established_effect_are_not_said_to_have_none() -> None:
    associations = [{"word": word, "raises": False, "effect": 0.3} for word in ("rusty", "old")]
    (answer,) = answers(Tables([], [], [], associations, [], [], []), 0.05)
    assert answer.text == "Of 2 words none is established to raise a value by more than the least effect."


def test_a_gain_of_less_than_an_image_in_a_hundred_is_not_told_as_none() -> None:
    gain = {"generator": "base", "method": "bgps λ=10", "gain": 0.004, "low": 0.001, "high": 0.007, "verdict": "above",
            "prompts": 20}  # fmt: skip
    (answer,) = answers(Tables([], [], [gain], [], [], [], []), 0.05)
    assert "bring a value about in 0.4 of 100 images more than" in answer.text


def test_a_run_without_the_language_models_own_prompts_shows_no_frequency_of_them() -> None:
    """`methods` of a config may leave them out: then no other method's stand in their column."""
    searched, by_people = method("day", "base"), method("day", "base", "curated", 0.9)
    plain = method("night", "base", "llm", 0.2)
    shown = sections(Tables([], [by_people, searched, plain, method("night", "base")], [], [], [], [], []))
    assert [row[3] for row in rows(shown["values"])] == [words.UNKNOWN, words.percent(0.2)]
