"""Shorter captions by rule and by a language model, and captions that a person writes."""

from __future__ import annotations

import json

import pytest

from c2b_ray.audits.failures.discovery.candidates import (
    Candidate,
    rewrite_request,
    rewrites,
    table,
    without_adjectives,
    written,
)
from c2b_ray.errors import ConfigError
from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.roles import ChatReply
from c2b_ray.tables.failures import CANDIDATES

PROMPT = "a realistic photograph of a fly (insect)."
FLY = Candidate("fly", PROMPT, ("it is in focus", "it is on a yellow flower", "the background is green"), "cluster")


def test_adjectives_before_a_noun_are_dropped_one_by_one_and_all_at_once():
    caption = Candidate(
        "fly", PROMPT, ("it is on an old red umbrella", "it is yellow", "it is a black and white photo"), "file"
    )
    assert [candidate.sentences[0] for candidate in without_adjectives(caption)] == [
        "it is on a red umbrella",
        "it is on an old umbrella",
        "it is on an umbrella",
    ]
    assert without_adjectives(Candidate("fly", PROMPT, ("the sky is dark",), "file")) == []


def test_a_language_model_may_shorten_but_say_nothing_new():
    texts = [
        f"{PROMPT} it is on a flower.",
        f"{PROMPT} it is on a yellow flower. it is wet.",
        f"{PROMPT} the background is green, the fly is in focus.",
    ]
    model = ScriptedLanguageModel([json.dumps({"captions": texts})])
    [reply] = model.chat([rewrite_request(FLY, seed=3)])
    kept, dropped = rewrites(FLY, reply)
    assert [(candidate.text, candidate.origin) for candidate in kept] == [
        (f"{PROMPT} it is on a flower.", "language_model")
    ]
    assert {(drop.reason, drop.sentence) for drop in dropped} == {
        ("says_more", texts[1]),
        ("names_label", "the background is green, the fly is in focus"),
    }
    asked = model.requests[0].messages[-1].content
    assert FLY.text in asked
    assert rewrites(FLY, ChatReply("no idea"))[1][0].reason == "no_reply"


def test_a_person_s_caption_is_used_word_for_word_with_the_one_label_it_has():
    labels = ["fly", "lion", "sea lion"]
    caption = written("a fly on a leaf, close up", labels, "person")
    assert (caption.text, caption.label) == ("a fly on a leaf, close up", "fly")
    assert written("a photo of sea lions. they swim.", labels, "file").sentences == ("they swim",)
    with pytest.raises(ConfigError, match=r"caption: .*names none of the labels 'fly', 'lion'"):
        written("a bee on a leaf", labels, "person")
    with pytest.raises(ConfigError, match="names several labels, 'fly', 'lion'"):
        written("a fly on a lion", labels, "person")


def test_candidates_are_rows_of_their_table_each_text_once():
    rows = table([FLY, Candidate("fly", PROMPT, FLY.sentences, "file")])
    assert rows.schema == CANDIDATES
    assert rows.num_rows == 1
    assert rows["origin"].to_pylist() == ["cluster"]
