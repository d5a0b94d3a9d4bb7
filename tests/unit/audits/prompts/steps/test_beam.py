"""The search over a scripted language model of words, guided by what the world's planted words do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from c2b_ray.audits.prompts.steps.search import Counted, ScoredPrompt, Search, SearchSettings, Shares, diverse
from c2b_ray.audits.prompts.steps.words import leaks_of
from c2b_ray.errors import ServiceError
from c2b_ray.roles import Message, TokenLogProb

GRAMMAR = {
    "": {"a": 0.7, "one": 0.3},
    "a": {"plain": 0.5, "rusty": 0.15, "dark": 0.05, "cheerful": 0.3},
    "one": {"plain": 0.5, "rusty": 0.15, "dark": 0.05, "cheerful": 0.3},
    **{key: {"bus": 0.6, "mug": 0.4} for key in ("plain", "rusty", "dark", "cheerful")},
    **{key: {"<end>": 0.5, "outside": 0.5} for key in ("bus", "mug")},
    "outside": {"<end>": 1.0},
}
WORDS = ["<start>", "<end>", *dict.fromkeys(w for row in GRAMMAR.values() for w in row if w != "<end>")]


class Bigrams:
    """A language model of the grammar above; implements `roles.ReplyContinuer`."""

    end_tokens: tuple[int, ...] = (1,)

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return (0,)

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        rows = []
        for prefix in prefixes:
            row = GRAMMAR["" if prefix[-1] == 0 else WORDS[prefix[-1]]]
            tokens = [TokenLogProb(WORDS.index(w), w, math.log(p)) for w, p in row.items()]
            rows.append(sorted(tokens, key=lambda token: -token.log_prob)[:k])
        return rows

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(WORDS[i] for i in row if i > 1) for row in tokens]


class Planted:
    """P(value) is .9 with the word "rusty", .2 without, 1 with "dark", which names the value; images are coins."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares:
        self.asked += [(prompt, seed) for prompt in prompts for seed in seeds]
        rates = [1.0 if "dark" in p else 0.9 if "rusty" in p else 0.2 for p in prompts]
        coins = np.array([np.random.default_rng(seed).random() for seed in seeds])
        return (coins < np.array(rates)[:, None]).astype(float)


SETTINGS = SearchSettings(weight=20, beams=2, expansion=4, pool=4, images=32, tokens=(2, 8), raced=False)


def search(settings: SearchSettings, seed: int = 1) -> tuple[list[ScoredPrompt], Search]:
    one = Search(Bigrams(), Counted(Planted()), leaks_of(["night"], {"night": ["dark"]}), settings, seed)
    return one.run((0,)), one


def test_it_finds_the_word_and_leaves_out_what_names_the_value() -> None:
    found, one = search(SETTINGS)
    assert "rusty" in found[0].text
    assert one.rejected
    assert all("dark" not in prompt.text for prompt in found)
    unfiltered, _ = search(replace(SETTINGS, filtered=False))
    assert "dark" in unfiltered[0].text


def test_the_prior_is_that_of_the_whole_prompt_with_its_end() -> None:
    """a rusty bus <end>: .7 × .15 × .6 × .5"""
    found, _ = search(replace(SETTINGS, keep=20, overlap=1.0))
    by_text = {prompt.text: prompt for prompt in found}
    assert by_text["a rusty bus"].log_prior == pytest.approx(math.log(0.7 * 0.15 * 0.6 * 0.5))
    best = found[0]
    assert best.score == pytest.approx(best.log_prior + 20 * best.bias)
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)


def test_without_weight_it_is_the_language_models_own_best() -> None:
    found, _ = search(replace(SETTINGS, weight=0.0))
    assert found[0].text == "a plain bus"


def test_a_race_takes_a_quarter_of_the_images_and_finds_the_same_word() -> None:
    fixed, raced = (search(replace(SETTINGS, raced=raced), 3) for raced in (False, True))
    assert "rusty" in raced[0][0].text
    assert "rusty" in fixed[0][0].text
    assert raced[1].guide.images <= 0.5 * fixed[1].guide.images  # a toy: most candidates survive its few rounds


def test_no_image_is_asked_for_twice_and_seeds_are_shared() -> None:
    _, one = search(replace(SETTINGS, raced=True))
    asked = one.guide.guide.asked  # type: ignore[attr-defined]
    assert len(asked) == len(set(asked)) == one.guide.images
    assert len({seed for _, seed in asked}) == SETTINGS.images


def test_the_same_seed_finds_the_same_prompts() -> None:
    assert search(SETTINGS)[0] == search(SETTINGS)[0]


def test_a_prompt_that_does_not_end_is_ended_at_its_probability() -> None:
    found, _ = search(replace(SETTINGS, tokens=(2, 3)))
    assert all(len(prompt.text.split()) == 3 for prompt in found)


def test_a_model_without_an_end_token_is_refused() -> None:
    class Endless(Bigrams):
        end_tokens = ()

    one = Search(Endless(), Counted(Planted()), leaks_of(["night"], {}), SETTINGS, 1)
    with pytest.raises(ServiceError, match="no end token"):
        one.run((0,))


def test_a_context_that_the_instruction_fills_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed for a search whose prompts all name the value."""
    monkeypatch.setattr(Bigrams, "continuations", lambda self, prefixes, k: [[] for _ in prefixes])
    with pytest.raises(ServiceError, match=r"1 tokens.* no room in the language model's context"):
        search(SETTINGS)


def test_a_model_that_ends_at_once_gives_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRAMMAR, "", {"<end>": 1.0})
    assert search(SETTINGS)[0] == []
    monkeypatch.setitem(GRAMMAR, "", {"a": 0.01, "<end>": 0.99})
    monkeypatch.setitem(GRAMMAR, "a", {"<end>": 1.0})
    assert search(SETTINGS)[0] == []  # one word is fewer than the fewest
    assert [prompt.text for prompt in search(replace(SETTINGS, tokens=(1, 8)))[0]] == ["a"]


def test_alike_prompts_count_once() -> None:
    prompts = [ScoredPrompt(text, -1.0, -1.0, -s) for s, text in enumerate(["a red bus", "red a bus", "a mug"])]
    assert [one.text for one in diverse(prompts, 0.8)] == ["a red bus", "a mug"]


def test_first_tokens_come_up_as_often_as_the_model_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRAMMAR, "", {"a": 1 - 1e-9, "one": 1e-9})
    planted = Planted()
    Search(Bigrams(), Counted(planted), leaks_of(["night"], {}), SETTINGS, 1).run((0,))
    assert planted.asked
    assert {prompt.split()[0] for prompt, _ in planted.asked} == {"a"}  # eight draws, and two different first words
