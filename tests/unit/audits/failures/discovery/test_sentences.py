"""Captions taken apart and put together: prompts, sentences, what is dropped, and what a captioner says freely."""

from __future__ import annotations

import unicodedata

import pytest

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.sentences import baseline, behind, caption, contained, split, statements, usable
from c2b_ray.errors import ConfigError
from c2b_ray.names import mentions
from c2b_ray.world.captions import caption as caption_of_scene
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import sample

PROMPT = FailuresConfig.model_fields["prompt"].default


@pytest.mark.parametrize(
    ("label", "parent", "text"),
    [
        ("fly", "insect", "a realistic photograph of a fly (insect)."),
        ("umbrella", None, "a realistic photograph of an umbrella."),
        (
            "acoustic_guitar",
            "stringed instrument",
            "a realistic photograph of an acoustic guitar (stringed instrument).",
        ),
        ("tench, Tinca tinca", None, "a realistic photograph of a tench."),
        ("sunglasses", None, "a realistic photograph of sunglasses."),
    ],
)
def test_the_baseline_prompt_reads_as_english(label, parent, text):
    assert baseline(PROMPT, label, parent) == text


@pytest.mark.parametrize("template", ["a photo", "a {label} in {place}", "a {label", "a {label} {}"])
def test_a_prompt_without_its_label_or_with_other_places_is_refused(template):
    with pytest.raises(ConfigError, match="prompt: "):
        baseline(template, "fly", None)


def test_a_caption_is_its_prompt_and_its_sentences():
    text = "a realistic photograph of a fly (insect). it is on a yellow flower. the background is blurred."
    prompt, sentences = behind(text, "fly")
    assert (prompt, sentences) == (
        baseline(PROMPT, "fly", "insect"),
        ["it is on a yellow flower", "the background is blurred"],
    )
    assert caption(prompt, sentences) == text
    assert split("It is 3.5 m high, e.g. tall! is it by St. Mary? yes") == [
        "It is 3.5 m high, e.g. tall",
        "is it by St. Mary",
        "yes",
    ]


def test_names_are_whole_words_of_any_lemma_in_singular_or_plural():
    assert mentions("two flies", "fly")
    assert mentions("Chainlink fences", "chainlink_fence")
    assert mentions("it is an ounce", "snow leopard, ounce, Panthera uncia")
    assert not mentions("a butterfly on a fly-wheel", "fly")
    assert mentions("two mice and Wolves", "computer mouse, mouse")
    assert mentions("two mice and Wolves", "Wolf")


def test_a_name_with_an_accent_is_found_in_either_form_of_unicode_and_not_without_it():
    forms = [unicodedata.normalize(form, "caf\u00e9 bar") for form in ("NFC", "NFD")]
    assert forms[0] != forms[1]
    assert all(mentions(f"two {text}s at night", label) for text in forms for label in forms)
    assert not any(mentions(f"a {text}", "cafe") for text in forms)


def test_sentences_that_leak_a_class_or_say_nothing_new_are_dropped_and_counted():
    said = [
        "The fly is in focus",
        "it is on a flower",
        "it looks like bees",
        "another fly is near",
        "it is on a yellow flower",
        "it is",
        "it is in focus",
        "it is " + "very " * 30 + "far",
    ]
    kept, dropped = usable(said, "fly", ["bee, honey bee", "fly"])
    assert kept == ["it is in focus", "it is on a yellow flower"]
    assert sorted((drop.reason, drop.sentence[:20]) for drop in dropped) == [
        ("names_class", "it looks like bees"),
        ("names_label", "another fly is near"),
        ("repeated", "it is in focus"),
        ("repeated", "it is on a flower"),
        ("says_nothing", "it is"),
        ("too_long", "it is very very very"),
    ]
    assert usable(["it is on a flower."], "fly") == (["it is on a flower"], [])
    assert not contained("it is by day", ["it is on a rainy day"])


@pytest.mark.parametrize(
    ("text", "label", "sentences"),
    [
        (
            "a photo of a bus, in red, at night, without any pattern, with nobody beside it",
            "bus",
            ["it is in red", "it is at night", "it is without any pattern", "it is with nobody beside it"],
        ),
        (
            "A small red bus is driving on a street at night with a dog.",
            "bus",
            ["it is small", "it is red", "it is driving", "it is on a street", "it is at night", "it is with a dog"],
        ),
        (  # the paper's Fig. 5(c), commas included
            "a realistic photograph of a crayfish, the crayfish is facing the camera, it has two antennae.",
            "crayfish",
            ["it is facing the camera", "it has two antennae"],
        ),
        (
            "The image shows a fly sitting on a yellow flower with a blurred background.",
            "fly",
            ["it is sitting on a yellow flower", "it is with a blurred background"],
        ),
        (
            "A black and white photo of two light blue buses",
            "bus",
            ["the picture is black and white", "it is light blue"],
        ),
        ("There is a dog next to the bus.", "bus", ["there is a dog next to it"]),
        ("In the woods there is a yellow school bus", "bus", ["it is in the woods", "it is yellow"]),
        ("bus, red, street, companion: none", "bus", ["it is red", "it is in the street", "its companion is none"]),
        ("A person is holding a red umbrella.", "umbrella", ["a person is holding it", "it is red"]),
        (
            "This is a photo of a mug filled with tea. The mug's handle is broken.",
            "mug",
            ["it is filled with tea", "its handle is broken"],
        ),
        (
            "Several boats are docked, held by ropes",
            "boat",
            ["there are several", "it is docked", "it is held by ropes"],
        ),
        (
            "The bird perches on a branch, its feathers wet",
            "bird",
            ["it perches on a branch", "it is with its feathers wet"],
        ),
        ("a fly", "fly", []),
        ("the sky is dark. at night", "fly", ["the sky is dark", "it is at night"]),
    ],
)
def test_what_a_captioner_says_becomes_sentences(text, label, sentences):
    assert statements(text, label) == sentences


def test_a_captioner_that_repeats_itself_without_end_says_nothing():
    for text in ("the bus " * 4000, "in a " * 4000 + "bus", "a photo " * 4000 + "of a bus", "a, " * 4000 + "bus"):
        assert usable(statements(text, "bus"), "bus")[0] == []
    assert usable(statements("a bus. it is wet. " * 1000, "bus"), "bus")[0] == ["it is wet"]


def test_what_the_worlds_reader_understands_of_a_caption_it_understands_of_its_sentences():
    for seed, scene in enumerate(sample(400, 5)):
        text = caption_of_scene(scene, seed)
        sentences, dropped = usable(statements(text, scene.target_class), scene.target_class)
        assert read(caption(baseline(PROMPT, scene.target_class, "thing"), sentences)) == read(text), text
        assert {drop.reason for drop in dropped} <= {"repeated", "says_nothing"}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("夜のバスの写真", "バス"),
        ("一辆红色的公交车", "公交车"),
        ("วันนี้มีรถบัสสีแดง", "รถบัส"),
        ("빨간 버스가 있다", "버스"),
    ],
)
def test_a_label_is_found_in_scripts_without_spaces_between_words(text: str, label: str) -> None:
    assert mentions(text, label)
    assert not mentions("a bus at night", label)
