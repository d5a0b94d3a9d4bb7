"""`c2b prompts` on the world, guided by its judge: its tables, their resuming, and what wrong input says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grammar_lm
import pytest

import c2b_ray
from c2b_ray.audits.prompts import words as work_words
from c2b_ray.audits.prompts.config import Attribute
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.tables.prompts import ASSOCIATIONS, PROMPTS

CONFIG: dict[str, Any] = {
    "subjects": ["bus", "mug"],
    "attributes": {
        "lighting": {"values": ["day", "night"], "targets": ["night"], "synonyms": {"night": ["lamplit"]}},
        "size": {"values": ["small", "large"], "targets": ["large"]},
    },
    "intersections": [["lighting", "size"]],
    "generators": {"base": "world:linked", "control": "world:linked?links=none"},
    "language_model": grammar_lm.SPEC,
    "judge": "world:clip",
    "reader": "world:lm",
    "guide": "judge",
    "search": {"weights": [10], "images": 4, "beams": 2, "expansion": 2, "pool": 4, "most_tokens": 12, "keep": 1},
    "encoder": "world:clip",
    "methods": ["curated", "templates", "llm", "llm_biased", "pez", "bgps"],
    "evaluation": {"prompts": 2, "images": 3},
    "associations": {"prompts": 40, "words": 8, "contexts": 4, "follow_up": 6, "images": 2},
    "modifiers": {"prompts": 1, "images": 4},
}


@pytest.fixture(scope="module", autouse=True)
def _grammar() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(catalog.CATALOG, ("language_model", "grammar"), grammar_lm.TARGET)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PromptsRun:
    return c2b_ray.search_prompts(CONFIG, tmp_path_factory.mktemp("prompts") / "run", "here")


def test_the_tables_begin_with_the_columns_of_the_contract(run: PromptsRun) -> None:
    names = "attribute, value, generator, method, prompt, log_prior, bias_score, frequency, frequency_low, "
    names += "frequency_high, perplexity, leaked, images_used"
    assert run.prompts.column_names[:13] == names.split(", ")
    assert PROMPTS.names == run.prompts.column_names
    assert ASSOCIATIONS.names[:7] == ["word", "attribute", "value", "effect", "low", "high", "q_value"]


def test_every_method_has_prompts_of_every_target_on_every_generator(run: PromptsRun) -> None:
    rows = run.prompts.to_pylist()
    assert {(row["attribute"], row["value"]) for row in rows} == {
        ("lighting", "night"),
        ("size", "large"),
        ("lighting + size", "night + large"),
    }
    assert {row["generator"] for row in rows} == {"base", "control"}
    for row in rows:
        assert 0 <= row["frequency_low"] <= row["frequency"] <= row["frequency_high"] <= 1
        if row["method"] == "bgps λ=10":
            assert not row["leaked"]
            assert row["log_prior"] < 0
            assert row["images_used"] > 0
    assert {row["method"] for row in rows} >= {"curated", "templates", "llm", "llm_biased", "pez"}
    assert run.methods.num_rows >= 3 * 2 * 4


def test_each_method_is_held_against_the_language_models_own_prompts(run: PromptsRun) -> None:
    rows = run.gains.to_pylist()
    assert {row["method"] for row in rows} >= {"curated", "llm_biased", "bgps λ=10"}
    means = {(r["generator"], r["method"], r["attribute"], r["value"]): r["frequency"] for r in run.methods.to_pylist()}
    for row in rows:
        mine = {key[2:]: rate for key, rate in means.items() if key[:2] == (row["generator"], row["method"])}
        gains = [rate - means[row["generator"], "llm", *key] for key, rate in mine.items() if rate is not None]
        assert row["gain"] == pytest.approx(sum(gains) / len(gains))
        assert row["low"] is None or row["low"] <= row["gain"] <= row["high"]
    control = next(row for row in rows if row["generator"] == "control" and row["method"] == "bgps λ=10")
    assert control["verdict"] == "nothing found"
    lines = run.kind.summarise(run).lines
    assert [line for line in lines if line.startswith("control: nothing found")]
    assert "control: nothing found" in Path(run.report).read_text()


def test_words_and_parts_of_prompts_are_measured(run: PromptsRun) -> None:
    rows = run.associations.to_pylist()
    assert {row["value"] for row in rows} == {"day", "night", "small", "large"}
    assert len({row["word"] for row in rows}) > 3
    for row in rows:
        assert row["low"] <= row["effect"] <= row["high"]
        assert 0 <= row["q_value"] <= 1
        assert row["raises"] <= (row["look"] == 2)  # the second look alone decides
        assert row["images_used"] > row["images"] if row["look"] == 2 else row["images_used"] == row["images"]
    assert {row["look"] for row in rows} == {1, 2}
    assert [note for note in run.manifest["notes"] if note.startswith("Words on base: ")]
    (search,) = run.manifest["words"]
    assert search["words"] == len({row["word"] for row in rows})
    assert [one["value"] for one in search["least"]] == ["day", "night", "small", "large"]
    assert all(one["effect"] is None or 0.05 < one["effect"] <= 1 for one in search["least"])
    assert search["untested"].keys().isdisjoint(row["word"] for row in rows)
    assert [line for line in run.kind.summarise(run).lines if "found 4 times in 5" in line]
    assert "found 4 times in 5" in Path(run.report).read_text()
    assert run.modifiers.num_rows
    for row in run.modifiers.to_pylist():
        assert row["adds"] == pytest.approx(row["frequency_with"] - row["frequency_without"])
        assert row["low"] <= row["adds"] <= row["high"]
        articles = {"a", "an"}  # follow the word after them
        assert set(row["without"].split()) - articles < set(row["prompt"].split()) - articles
    assert run.read("examples")["pictures"][0]


def test_words_that_describe_a_value_are_no_associations(tmp_path: Path) -> None:
    about = {"values": ["plain", "special"], "texts": {"plain": "a rusty thing", "special": "an elegant thing"}}
    described = work_words.describes(Attribute.model_validate(about))
    assert described.word("a rusty bus")
    assert described.word("elegant")
    assert described.word("a thing") is None
    said = {"values": ["clear", "dull"], "synonyms": {"clear": ["in fine weather"], "dull": ["in bad weather"]}}
    described = work_words.describes(Attribute.model_validate(said))
    assert described.word("fine")
    assert described.word("weather") is None


def test_it_resumes_without_asking_again(run: PromptsRun) -> None:
    before = {name: run.read(name) for name in run.kind.tables}
    again = c2b_ray.search_prompts(CONFIG, run.path, "here")
    assert all(again.read(name).equals(table) for name, table in before.items())
    files = list((Path(run.path) / "searches").rglob("*.parquet"))
    assert len(files) == run.read("searches").num_rows > 4, "a kill loses the search that runs, and none before it"


def test_it_loads_reports_and_exports(run: PromptsRun) -> None:
    loaded = c2b_ray.load_run(run.path)
    assert isinstance(loaded, PromptsRun)
    for form in ("csv", "json", "parquet"):
        assert loaded.kind.export(loaded, form, None)
    page = Path(loaded.report).read_text()
    assert "Language model, told the value" in page
    assert 'class="curve"' in page
    assert "data:image/jpeg" in page
    assert loaded.kind.summarise(loaded).rows


def test_what_the_models_cannot_do_is_told_by_its_field(tmp_path: Path) -> None:
    (tmp_path / "said.json").write_text('["a bus"]')
    for changes, message in (
        ({"language_model": f"scripted:{tmp_path}/said.json", "methods": ["bgps"]}, "language_model: .*token by token"),
        ({"language_model": "openai:http://127.0.0.1:1/v1#m"}, "language_model: .*leave bgps out of `methods`"),
        ({"judge": "world:lm"}, "judge: "),
        ({"guide": "heads"}, "guide: .*use `guide: judge`"),
    ):
        with pytest.raises(ConfigError, match=message):
            c2b_ray.search_prompts({**CONFIG, **changes}, tmp_path / message[:5], "here")
