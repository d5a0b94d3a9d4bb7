"""Texts about scenes whose meaning is known, and which class and values a text names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from c2b_ray.names import a_or_an
from c2b_ray.world.captions import _FRAMES, ADJECTIVES, PHRASES, _mentioned
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene

FACTORS: dict[str, tuple[str, ...]] = {"target_class": CLASSES, **ATTRIBUTES}
"""The class and the seven attributes, in the order of the columns of all codes."""

Codes = NDArray[np.int64]
"""Index of each factor's value, (rows, 8); −1 where a text does not name the factor."""

_LEADS = ("a photo of", "a picture of", "an image of", "a photo showing", "photo of", "")
_THINGS = ("something", "an object", "a thing", "a scene", "one thing", "")


@dataclass(frozen=True, slots=True)
class Query:
    """A text and what it names: factor → value."""

    text: str
    mentions: dict[str, str]


def scene_codes(scenes: Sequence[Scene]) -> Codes:
    rows = [[values.index(getattr(scene, name)) for name, values in FACTORS.items()] for scene in scenes]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(FACTORS))


def query_codes(queries: Sequence[Query]) -> Codes:
    rows = [
        [values.index(query.mentions[name]) if name in query.mentions else -1 for name, values in FACTORS.items()]
        for query in queries
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(FACTORS))


def matches(queries: Codes, scenes: Codes) -> NDArray[np.bool_]:
    """Tells whether each text is true of each scene, (texts, scenes)."""
    agree = (queries[:, None, :] == scenes[None, :, :]) | (queries[:, None, :] < 0)
    return np.asarray(agree.all(axis=2))


def long_query(scene: Scene, random: Random) -> Query:
    """Words a caption as `captions.caption` does, and returns it with what it names."""
    names = _mentioned(scene, random)
    frames, weights = zip(*_FRAMES, strict=True)
    text = random.choices(frames, weights)[0](scene, names, random)
    mentions = {"target_class": scene.target_class, **{name: scene.attribute(name) for name in names}}
    return Query(_respelt(text, random), mentions)


def short_query(scene: Scene, random: Random) -> Query:
    """Words what a person types into a search box: a class, a class with one or two values, or values alone."""
    count = random.choices((0, 1, 2), (0.15, 0.6, 0.25))[0]
    names = random.sample(list(ATTRIBUTES), count)
    with_class = count == 0 or random.random() < 0.75
    values = {name: scene.attribute(name) for name in names}
    text = wording(scene.target_class if with_class else None, values, random)
    return Query(text, {"target_class": scene.target_class, **values} if with_class else values)


def wording(target_class: str | None, values: dict[str, str], random: Random) -> str:
    """Words one short text that names these values and a class, or no class."""
    first_words, later_parts = [], []
    form = random.choices(("phrase", "colon", "whose", "bare"), (0.6, 0.16, 0.12, 0.12))[0]
    for name, value in values.items():
        adjectives = ADJECTIVES.get(name, {}).get(value, ())
        if form == "phrase" and adjectives and target_class and random.random() < 0.5:
            first_words.append(adjectives[0] if random.random() < 0.6 else random.choice(adjectives))
        else:
            later_parts.append(_value_text(name, value, form, random))
    noun = " ".join([*first_words, target_class]) if target_class else random.choice(_THINGS)
    if target_class and random.random() < 0.85:
        noun = f"{a_or_an(noun)} {noun}"
    lead = random.choice(_LEADS) if noun or form == "phrase" else ""
    glue = " " if form in ("phrase", "whose") else ", "
    text = glue.join(part for part in (f"{lead} {noun}".strip(), *later_parts) if part)
    return _respelt(text, random)


def _value_text(name: str, value: str, form: str, random: Random) -> str:
    word = f"no {name}" if value == "none" else value
    if form == "phrase":
        return random.choice(PHRASES[name][value])
    if form == "colon":
        return random.choice((f"{name}: {value}", f"{name} {value}", f"{name} is {value}", f"the {name} is {value}"))
    if form == "whose":
        return random.choice((f"with {name} {value}", f"whose {name} is {value}", f"with {word} {name}"))
    return random.choice((word, word, f"{value} {name}"))


def _respelt(text: str, random: Random) -> str:
    """Respells or repunctuates some texts, as people do."""
    if random.random() < 0.15:
        text = text.replace("colour", "color")
    if random.random() < 0.3:
        text = text[:1].upper() + text[1:] + ("." if random.random() < 0.7 else "")
    return text


def alternatives(factor: str, random: Random) -> list[str]:
    """Words one text for each value of a factor, all alike, in the order of its values: a zero-shot classifier."""
    seed = random.getrandbits(32)

    def worded(target_class: str | None, values: dict[str, str]) -> str:
        return wording(target_class, values, Random(seed))  # noqa: S311 (no secret)

    context = {}
    if random.random() < 0.3:
        name = random.choice([name for name in ATTRIBUTES if name != factor])
        context = {name: random.choice(ATTRIBUTES[name])}
    if factor == "target_class":
        return [worded(value, context) for value in CLASSES]
    noun = random.choice(CLASSES) if random.random() < 0.6 else None
    if noun is None:
        context = {}
    return [worded(noun, {**context, factor: value}) for value in ATTRIBUTES[factor]]


# Reads a text about the world: which class and which attribute values it names.


_CLASS_WORDS = {"plane": "airplane", "aeroplane": "airplane", "bike": "bicycle", "cup": "mug", "buses": "bus"}

_MORE: dict[tuple[str, str], tuple[str, ...]] = {
    ("setting", "street"): ("road", "city", "town"),
    ("setting", "beach"): ("sea", "seaside", "shore"),
    ("setting", "forest"): ("woods", "trees", "woodland"),
    ("setting", "mountains"): ("mountain", "peaks"),
    ("lighting", "day"): ("daylight", "daytime"),
    ("lighting", "sunset"): ("dusk", "evening", "twilight"),
    ("lighting", "night"): ("nighttime", "moonlight", "moonlit"),
    ("weather", "clear"): ("sunny",),
    ("weather", "rain"): ("rainy", "raining", "downpour"),
    ("weather", "snow"): ("snowy", "snowing", "snowfall"),
    ("weather", "fog"): ("foggy", "misty", "mist", "haze", "hazy"),
    ("size", "small"): ("far away",),
    ("size", "large"): ("close up",),
    ("pattern", "striped"): ("stripes",),
    ("pattern", "dotted"): ("dots",),
    ("companion", "person"): ("people", "man", "woman"),
    ("companion", "none"): ("alone",),
}

# Denials, and the value that each implies.
_DENIED: dict[tuple[str, str], tuple[str, ...]] = {
    ("companion", "none"): ("dog", "person", "balloon", "companion", "people"),
    ("pattern", "plain"): ("pattern", "stripes", "dots"),
    ("weather", "clear"): ("rain", "snow", "fog"),
}
_DENIALS = ("no {}", "without {}", "without a {}", "without any {}")


def read(text: str) -> dict[str, str]:
    """Returns factor → value (`target_class` and attributes) of everything that the text names; {} where it names
    nothing."""
    pattern, meanings = _lexicon()
    result: dict[str, str] = {}
    for match in pattern.finditer(text.lower().replace("color", "colour")):
        factor, value = meanings[match.group()]
        result.setdefault(factor, value)
    return result


@lru_cache(maxsize=1)
def _lexicon() -> tuple[re.Pattern[str], dict[str, tuple[str, str]]]:
    """Returns one pattern of all known phrases, longest first ("on a clear day" says nothing of lighting), and the
    meaning of each."""
    meanings: dict[str, tuple[str, str]] = {}
    for name in CLASSES:
        meanings[name] = meanings[f"{name}s"] = ("target_class", name)
    meanings |= {word: ("target_class", name) for word, name in _CLASS_WORDS.items()}
    for factor, values in ATTRIBUTES.items():
        for value in values:
            words = [*PHRASES[factor][value], *ADJECTIVES.get(factor, {}).get(value, ())]
            if value == "none":
                words += [f"{factor} none", f"none {factor}", f"{factor}: none", f"{factor} is none"]
            else:
                words.append(value)
            words += _MORE.get((factor, value), ())
            words += [form.format(word) for word in _DENIED.get((factor, value), ()) for form in _DENIALS]
            meanings |= dict.fromkeys(words, (factor, value))
    ordered = sorted(meanings, key=len, reverse=True)
    return re.compile(r"(?<![\w-])(?:" + "|".join(re.escape(word) for word in ordered) + r")(?![\w-])"), meanings
