"""Describes a scene in words, in many ways, and ground truth in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa

from c2b_ray.names import a_or_an
from c2b_ray.world.scenes import ATTRIBUTES, Scene

# Each completes "a photo of a bus ...". No phrase uses a word that belongs to another attribute, except "day", which
# caption() keeps out of scenes that are not in daylight.
PHRASES: dict[str, dict[str, tuple[str, ...]]] = {
    "colour": {
        name: (f"in {name}", f"painted {name}", f"that is {name}", f"coloured {name}", f"{name} in colour")
        for name in ATTRIBUTES["colour"]
    },
    "setting": {
        "street": (
            "on a street",
            "in the street",
            "on a city street",
            "on a road in town",
            "with a street and buildings behind it",
            "in front of a row of buildings",
        ),
        "beach": (
            "on a beach",
            "at the beach",
            "on a sandy beach",
            "by the sea",
            "with a beach and the sea behind it",
        ),
        "forest": (
            "in a forest",
            "in the forest",
            "in the woods",
            "in front of many trees",
            "with a forest behind it",
        ),
        "mountains": (
            "in the mountains",
            "in front of mountains",
            "among the mountains",
            "with mountains behind it",
            "in front of rocky peaks",
        ),
    },
    "lighting": {
        "day": ("by day", "during the day", "in daylight", "in the daytime", "in broad daylight", "in day lighting"),
        "sunset": (
            "at sunset",
            "during sunset",
            "at dusk",
            "in the evening glow",
            "as the sun goes down",
            "in sunset light",
        ),
        "night": (
            "at night",
            "by night",
            "during the night",
            "at nighttime",
            "in the dark of the night",
            "under the moon",
        ),
    },
    "weather": {
        "clear": (
            "in clear weather",
            "under a clear sky",
            "under clear skies",
            "in fine weather",
            "in dry weather",
            "on a clear day",
        ),
        "rain": (
            "in the rain",
            "in rainy weather",
            "while rain is falling",
            "during heavy rain",
            "in a downpour",
            "on a rainy day",
        ),
        "snow": (
            "in the snow",
            "in snowy weather",
            "while snow is falling",
            "during a snowfall",
            "on a snowy day",
        ),
        "fog": ("in the fog", "in foggy weather", "shrouded in fog", "in thick fog", "in misty haze", "on a foggy day"),
    },
    "size": {
        "small": (
            "seen small and far away",
            "that looks small",
            "small in the frame",
            "in the distance",
            "taking up little of the picture",
        ),
        "large": (
            "seen large and close up",
            "that looks large",
            "large in the frame",
            "in close-up",
            "filling much of the picture",
        ),
    },
    "pattern": {
        "plain": (
            "without any pattern",
            "with a plain surface",
            "that is plain",
            "in a plain finish",
            "of one uniform tone",
        ),
        "striped": (
            "with stripes",
            "that is striped",
            "with a striped pattern",
            "covered in stripes",
        ),
        "dotted": (
            "with dots",
            "that is dotted",
            "with a dotted pattern",
            "covered in polka dots",
        ),
    },
    "companion": {
        "none": ("with nobody beside it", "on its own", "all alone", "with nothing next to it", "with no companion"),
        "dog": ("with a dog", "with a dog beside it", "next to a dog", "accompanied by a dog", "and a dog"),
        "person": (
            "with a person",
            "with a person beside it",
            "next to a person",
            "accompanied by a person",
            "and a person",
        ),
        "balloon": (
            "with a balloon",
            "with a balloon beside it",
            "next to a balloon",
            "with a balloon on a string",
            "and a balloon",
        ),
    },
}

# Words that may stand before the class word, where the value has any.
ADJECTIVES: dict[str, dict[str, tuple[str, ...]]] = {
    "colour": {name: (name, f"{name}-coloured") for name in ATTRIBUTES["colour"]},
    "size": {"small": ("small", "little", "tiny", "distant"), "large": ("large", "big", "huge", "close-up")},
    "pattern": {
        "plain": ("plain", "unpatterned"),
        "striped": ("striped", "stripy"),
        "dotted": ("dotted", "polka-dotted", "spotted"),
    },
    "companion": {"none": ("lone", "solitary", "single")},
}

_LEADS = (
    "a photo of",
    "a picture of",
    "a picture showing",
    "an image of",
    "a snapshot of",
    "a drawing of",
    "a scene with",
    "a view of",
    "a photograph showing",
    "this is",
    "there is",
    "we see",
)
_ABSENT = {("companion", "none"), ("pattern", "plain"), ("weather", "clear")}  # what people rarely remark upon
_ABOUT_OBJECT = ("colour", "size", "pattern")
_SCENERY = ("setting", "lighting", "weather")


def caption(scene: Scene, seed: int) -> str:
    """Describes a scene; the same scene and seed give the same text."""
    random = Random(f"{seed} {scene!r}")  # noqa: S311 (no secret)
    frames, weights = zip(*_FRAMES, strict=True)
    frame: Callable[[Scene, list[str], Random], str] = random.choices(frames, weights)[0]
    text = frame(scene, _mentioned(scene, random), random)
    if random.random() < 0.35:
        text = text[0].upper() + text[1:]
        if random.random() < 0.7:
            text += "."
    return text


def _mentioned(scene: Scene, random: Random) -> list[str]:
    """Returns the attributes to mention, in random order: all in a quarter of captions, else each with p = 0.7."""
    names = list(ATTRIBUTES)
    random.shuffle(names)
    if random.random() < 0.25:
        return names
    mentioned = [name for name in names if random.random() < 0.7]
    return [n for n in mentioned if (n, scene.attribute(n)) not in _ABSENT or random.random() < 0.5]


def _phrase(scene: Scene, name: str, random: Random) -> str:
    options = PHRASES[name][scene.attribute(name)]
    if scene.lighting != "day":
        options = tuple(option for option in options if not option.endswith(" day")) or options
    return random.choice(options)


def _noun(scene: Scene, names: list[str], random: Random) -> tuple[str, list[str]]:
    """Returns the class word with some attributes before it, and the names of those still to be mentioned."""
    words: list[str] = []
    unmentioned: list[str] = []
    for name in names:
        options = ADJECTIVES.get(name, {}).get(scene.attribute(name), ())
        if options and random.random() < 0.7:
            # Mostly the plain word, which prompts of users and of language models use.
            words.append(options[0] if random.random() < 0.6 else random.choice(options))
        else:
            unmentioned.append(name)
    if random.random() < 0.7:
        words.sort(key=lambda word: word.split("-")[0] in ATTRIBUTES["colour"])  # "small red", as English has it
    # Words about the object come first: in "a house with a dog, purple in colour" the dog would be purple.
    unmentioned.sort(key=lambda name: name not in _ABOUT_OBJECT)
    return " ".join([*words, scene.target_class]), unmentioned


def _article(noun: str, random: Random) -> str:
    return random.choices((a_or_an(noun), "the", "one"), (0.85, 0.1, 0.05))[0] + " " + noun


def _phrase_frame(scene: Scene, names: list[str], random: Random) -> str:
    """a photo of a small red bus on a street, at night"""
    noun, unmentioned = _noun(scene, names, random)
    glue = random.choice((" ", ", ", " "))
    head = f"{random.choice(_LEADS)} {_article(noun, random)}"
    return " ".join([head, glue.join(_phrase(scene, name, random) for name in unmentioned)]).strip()


def _bare_frame(scene: Scene, names: list[str], random: Random) -> str:
    """red bus on a street at night"""
    noun, unmentioned = _noun(scene, names, random)
    head = noun if random.random() < 0.5 else _article(noun, random)
    return " ".join([head, *(_phrase(scene, name, random) for name in unmentioned)])


def _opening_frame(scene: Scene, names: list[str], random: Random) -> str:
    """at night, on a street: a small red bus with a dog"""
    scenery = [name for name in names if name in _SCENERY]
    noun, unmentioned = _noun(scene, [name for name in names if name not in _SCENERY], random)
    body = " ".join([_article(noun, random), *(_phrase(scene, name, random) for name in unmentioned)])
    if not scenery:
        return body
    opening = random.choice((", ", " ")).join(
        _phrase(scene, name, random).replace(" behind it", "") for name in scenery
    )
    return opening + random.choice((", ", ", there is ", ": ", ", we see ")) + body


def _sentences_frame(scene: Scene, names: list[str], random: Random) -> str:
    """there is a red bus on a street. the picture was taken at night. it stands next to a dog"""
    of_object = [name for name in names if name in _ABOUT_OBJECT]
    scenery = [name for name in names if name in _SCENERY]
    noun, unmentioned = _noun(scene, of_object, random)
    parts = [
        " ".join([random.choice(_LEADS), _article(noun, random), *(_phrase(scene, n, random) for n in unmentioned)])
    ]
    if scenery:
        verb = random.choice(("it stands", "the picture was taken", "it is seen", f"the {scene.target_class} is"))
        parts.append(" ".join([verb, *(_phrase(scene, name, random) for name in scenery)]))
    if "companion" in names:
        parts.append(f"it is shown {_phrase(scene, 'companion', random).removeprefix('and ')}")
    return ". ".join(parts)


def _list_frame(scene: Scene, names: list[str], random: Random) -> str:
    """bus, red, street, night"""
    values = [scene.attribute(name) for name in names]
    lead = random.choice(("", "a photo of ", "an image: "))
    words = [f"no {name}" if value == "none" else value for name, value in zip(names, values, strict=True)]
    return lead + ", ".join([_article(scene.target_class, random) if lead else scene.target_class, *words])


def _named_frame(scene: Scene, names: list[str], random: Random) -> str:
    """a photo of a bus, setting: beach, lighting: night"""
    head = _article(scene.target_class, random)
    if random.random() < 0.6:
        head = f"{random.choice(_LEADS)} {head}"
    form, joint = random.choice((("{}: {}", ", "), ("{} is {}", ", "), ("with {} {}", ", "), ("with {} {}", " ")))
    return joint.join([head, *(form.format(name, scene.attribute(name)) for name in names)])


_FRAMES: tuple[tuple[Callable[[Scene, list[str], Random], str], float], ...] = (
    (_phrase_frame, 0.40),
    (_bare_frame, 0.14),
    (_opening_frame, 0.16),
    (_sentences_frame, 0.14),
    (_list_frame, 0.07),
    (_named_frame, 0.09),
)


# Ground truth of the world in other words, with decoys: so that comparing strings cannot match detected biases to
# it.


_WORDS: dict[str, dict[str, str]] = {
    "colour": {
        "red": "crimson", "blue": "azure blue", "green": "emerald green", "yellow": "golden yellow",
        "purple": "violet", "white": "whitish",
    },
    "setting": {
        "street": "city street", "beach": "seaside beach", "forest": "woodland", "mountains": "mountain landscape",
    },
    "lighting": {"day": "daytime", "sunset": "sundown", "night": "nighttime"},
    "weather": {"clear": "clear skies", "rain": "rainy", "snow": "snowy", "fog": "foggy"},
    "size": {"small": "tiny", "large": "big"},
    "pattern": {"plain": "plain surface", "striped": "stripes", "dotted": "polka dots"},
    "companion": {"none": "without company", "dog": "puppy", "person": "human being", "balloon": "balloons"},
}  # fmt: skip

PARAPHRASES: dict[str, str] = {
    f"{attribute}: {value}": text for attribute, values in _WORDS.items() for value, text in values.items()
}
""" "attribute: value" → the ground truth's words for it."""


@dataclass(frozen=True)
class DecoyAttribute:
    """`name`: an attribute that images have or lack. A share `often` of the scenes without the value have it, and a
    share `seldom` of those with it."""

    name: str
    attribute: str
    value: str
    often: float = 0.8
    seldom: float = 0.1


DECOYS = (
    DecoyAttribute("fog horn", "weather", "fog"),
    DecoyAttribute("night shift", "lighting", "night"),
    DecoyAttribute("snow white", "weather", "snow"),
    DecoyAttribute("street market", "setting", "street"),
    DecoyAttribute("forest green", "setting", "forest"),
    DecoyAttribute("hot dog", "companion", "dog"),
    DecoyAttribute("small print", "size", "small"),
    DecoyAttribute("rain check", "weather", "rain"),
)


def decoy_columns(scenes: Sequence[Scene], seed: int, decoys: Sequence[DecoyAttribute] = DECOYS) -> dict[str, pa.Array]:
    """Returns a column of "present" and "absent" for each decoy. ValueError for an attribute or value that
    scenes lack."""
    columns = {}
    for number, decoy in enumerate(decoys):
        if decoy.value not in ATTRIBUTES.get(decoy.attribute, ()):
            raise ValueError(f"{decoy.name}: scenes have no {decoy.attribute}: {decoy.value}")
        chance = np.random.default_rng((seed, number)).random(len(scenes))
        limits = [decoy.seldom if scene.attribute(decoy.attribute) == decoy.value else decoy.often for scene in scenes]
        columns[decoy.name] = pa.array(
            ["present" if c < limit else "absent" for c, limit in zip(chance, limits, strict=True)]
        )
    return columns
