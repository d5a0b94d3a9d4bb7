"""Two generators compared by prompts and words: what falls when one is debiased, gates, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from c2b_ray.audits import runs
from c2b_ray.audits.gate import failed
from c2b_ray.audits.prompts.comparison import GeneratorResults, compared_generators
from c2b_ray.audits.prompts.run import PromptsRun, open_prompts_run
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.tables.prompts import ASSOCIATIONS, GAINS, METHODS, PROMPTS, PROMPTS_COMPARISON

SUBJECTS = [f"subject {n}" for n in range(12)]
CONFIG: dict[str, Any] = {
    "subjects": SUBJECTS, "attributes": {"lighting": {"values": ["day", "night"]}}, "intersections": [],
    "generators": {"base": "world:pipeline"}, "language_model": "world:tiny-llama", "judge": "world:clip",
    "guide": "heads", "search": {}, "alpha": 0.05, "associations": {"least_effect": 0.05},
    "methods": ["curated", "llm", "bgps"],
}  # fmt: skip


def prompt(generator: str, method: str, text: str, frequency: float, subject: str, value: str = "night") -> Any:
    row = dict.fromkeys(PROMPTS.names)
    row |= {"attribute": "lighting", "value": value, "generator": generator, "method": method, "prompt": text}
    return row | {"frequency": frequency, "leaked": False, "images_used": 0, "subject": subject, "images": 20}


def prompts(generator: str, gain: float, seed: int = 0) -> list[dict[str, Any]]:
    """Plain prompts that every generator is given, and a search's own for each subject."""
    hard, noise = Random("prompts"), Random(f"{generator} {seed}")
    rows = []
    for subject in SUBJECTS:
        level = 0.3 + 0.4 * hard.random()
        rows.append(prompt(generator, "llm", f"a {subject}", level + 0.02 * noise.random(), subject))
        searched = 0.5 + gain + 0.05 * noise.random()
        rows.append(prompt(generator, "bgps λ=100", f"a {generator} {subject}", searched, subject))
    return rows


def word(generator: str, name: str, effect: float, raises: bool, contexts: int = 90) -> dict[str, Any]:
    row = {"word": name, "attribute": "lighting", "value": "night", "generator": generator, "effect": effect}
    row |= {"low": effect - 0.06, "high": effect + 0.06, "q_value": 0.001 if raises else 0.9, "p_value": 0.5}
    return row | {"against": "without it", "contexts": contexts, "images": 180, "raises": raises, "look": 2}


def side(generator: str, gain: float, words: dict[str, float]) -> GeneratorResults:
    listed = [word(generator, name, effect, effect > 0.11) for name, effect in words.items()]
    return GeneratorResults(prompts(generator, gain), listed, 0.05)


def make_run(path: Path, sides: dict[str, GeneratorResults], **config: Any) -> PromptsRun:
    rows = [row for one in sides.values() for row in one.prompts]
    words = [{**dict.fromkeys(ASSOCIATIONS.names), **row} for one in sides.values() for row in one.associations]
    with open_prompts_run(path, "id", {**CONFIG, **config}) as run:
        run.write("prompts", pa.Table.from_pylist(rows, schema=PROMPTS))
        run.write("associations", pa.Table.from_pylist(words, schema=ASSOCIATIONS))
        run.write("methods", METHODS.empty_table())
        run.write("gains", GAINS.empty_table())
        run.update({"status": "finished"})
    return run


BEFORE = side("base", 0.4, {"rusty": 0.6, "quiet": 0.0, "wooden": 0.12})
AFTER = side("lora", 0.0, {"rusty": -0.02, "quiet": 0.01, "wooden": 0.10, "new": 0.3})


def by_name(table: pa.Table) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["measure"], f"{row['value']} {row['name']}"): row for row in table.to_pylist()}


def test_a_debiased_generator_gains_less_and_loses_its_words() -> None:
    table = compared_generators(BEFORE, AFTER, 0.05)
    assert table.schema.equals(PROMPTS_COMPARISON)
    rows = by_name(table)
    gain = rows["gain", "night bgps λ=100"]
    assert gain["change"] == "better"
    assert gain["difference"] == pytest.approx(gain["value_b"] - gain["value_a"])
    assert gain["difference_low"] < gain["difference"] < gain["difference_high"] < 0
    assert rows["gain", "all values bgps λ=100"]["difference"] == pytest.approx(gain["difference"])
    rusty = rows["word", "night rusty"]
    assert (rusty["change"], rusty["verdict_a"], rusty["verdict_b"]) == ("better", "raises", "none")
    # Welch by hand: errors .06 / 1.987 = .0302 each, so .0427 of the difference, and t(178, .975) = 1.973
    assert rusty["difference_high"] - rusty["difference"] == pytest.approx(1.973 * 0.0427, abs=2e-4)
    wooden = rows["word", "night wooden"]  # established before alone, and yet no difference
    assert (wooden["verdict_a"], wooden["verdict_b"], wooden["change"]) == ("raises", "undetermined", "undetermined")
    assert rows["word", "night new"]["p_value"] is None


def test_prompts_in_common_are_one_draw_and_noise_alone_is_no_change() -> None:
    rows = by_name(compared_generators(side("base", 0.2, {}), side("lora", 0.2, {}), 0.05))
    plain = rows["frequency", "night llm"]
    assert plain["difference_high"] - plain["difference_low"] < 0.03  # how much prompts differ falls away
    assert all(row["change"] == "undetermined" for row in rows.values())


def test_few_prompts_are_not_compared() -> None:
    few = GeneratorResults([row for row in BEFORE.prompts if row["subject"] == SUBJECTS[0]], [], 0.05)
    assert by_name(compared_generators(few, AFTER, 0.05))["gain", "night bgps λ=100"]["p_value"] is None


def test_gates_on_a_run_and_on_a_comparison(tmp_path: Path) -> None:
    run = make_run(tmp_path / "both", {"base": BEFORE, "lora": AFTER})
    assert failed(runs.check(run, ["word/*:raises"], "base"))
    assert failed(runs.check(run, ["word/*:raises"], "lora"))  # "new"
    assert not failed(runs.check(run, ["word/*/rusty:raises"], "lora"))
    assert failed(runs.check(run, ["gain/*:gain_low>0.2"], "base"))
    assert not failed(runs.check(run, ["gain/*:gain_low>0.2"], "lora"))
    comparison = runs.compare(run)
    assert not failed(comparison.check(["gain/*:worse", "word/lighting/night/rusty:raises"]))
    assert failed(comparison.check(["word/*:raises"]))
    swapped = runs.compare(run, None, "lora", "base")
    assert failed(swapped.check(["worse"]))
    with pytest.raises(ConfigError, match="no cell 'frequency"):
        comparison.check(["frequency/*:worse"])  # of one value more and of another less: neither worse nor better
    assert not failed(comparison.check(["frequency/*:frequency>0.95"]))


def test_the_page_says_which_words_are_lost(tmp_path: Path) -> None:
    named = {"base": BEFORE, "lora": side("lora", 0.0, {"rusty": 0.0, "<b>bold</b>": 0.3})}
    comparison = runs.compare(make_run(tmp_path / "both", named))
    page = Path(comparison.write(tmp_path / "out")).read_text()
    assert "of A alone rusty and wooden, of B alone" in page
    assert "<b>bold" not in page
    assert json.loads(json.dumps(comparison.to_json()))["changes"]["better"] > 0


def test_generators_of_one_name_are_told_apart_by_their_runs(tmp_path: Path) -> None:
    a = make_run(tmp_path / "before", {"base": BEFORE})
    b = make_run(tmp_path / "after", {"base": side("base", 0.0, {"rusty": 0.0})})
    comparison = runs.compare(a, b)
    page = Path(comparison.write(tmp_path / "out")).read_text()
    assert "base of before" in page
    assert "base of after" in page
    assert comparison.summaries()[0].lines == ["A: base of before", "B: base of after"]
    assert re.search(r"▼</span> Falls", page)


def test_a_difference_of_frequencies_is_no_larger_than_one() -> None:
    few = [GeneratorResults([prompt("base", "llm", text, rate, "bus") for text, rate in rows], [], 0.05) for rows in (
        [("a", 0.0), ("b", 0.9)], [("c", 0.1), ("d", 1.0)],
    )]  # fmt: skip
    row = by_name(compared_generators(few[0], few[1], 0.05))["frequency", "night llm"]
    assert (row["difference_low"], row["difference_high"]) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"judge": "open_clip:RN50/openai"}, RunError, "differ in judge"),
        ({"associations": {"least_effect": 0.2}}, RunError, "least_effect"),
        ({"search": {"images": 4}}, RunError, "differ in search"),
        ({"curated": ["a bus at dusk"]}, RunError, "differ in curated"),
    ],
)
def test_runs_whose_numbers_mean_something_else_are_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    a = make_run(tmp_path / "a", {"base": BEFORE})
    b = make_run(tmp_path / "b", {"lora": AFTER}, **change)
    with pytest.raises(error, match=words):
        runs.compare(a, b)
    same = runs.compare(a, make_run(tmp_path / "c", {"lora": AFTER}))
    assert same.names == ("base", "lora")
