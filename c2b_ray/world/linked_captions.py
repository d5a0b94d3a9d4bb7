"""Words captions that hold words of hidden associations, and lists the words of a text.

Knows how captions use an adjective, an object and an activity; does not know links, nor which value a word favours. It
never mentions the attributes to hide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from random import Random

from c2b_ray.names import a_or_an
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.scenes import ATTRIBUTES, Scene

FORMS: dict[str, tuple[str, ...]] = {
    "adjective": ("that is {}", "that looks {}", "which looks {}"),
    "object": ("with {a}", "next to {a}", "beside {a}", "near {a}"),
    "activity": ("at {a}", "during {a}", "before {a}", "at the {}"),
}
"""How a word of each form follows the noun; an adjective mostly stands before it."""

LEADS = (
    "a photo of",
    "a picture of",
    "an image of",
    "a snapshot of",
    "a drawing of",
    "a view of",
    "a photograph of",
    "there is",
    "we see",
    "",
)
_ABOUT_THING = ("colour", "size", "pattern")
_WORD = re.compile(r"[a-z]+")
_FRAME = {"object", "something"}.union(*(_WORD.findall(text) for text in (*LEADS, *sum(FORMS.values(), ()))))


def is_frame(word: str) -> bool:
    """Tells whether captions hold the word whatever they describe."""
    return word in _FRAME


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in lower case, letters only."""
    return _WORD.findall(text.lower())


def with_article(noun: str) -> str:
    return f"{a_or_an(noun)} {noun}"


def linked_caption(scene: Scene, words: Mapping[str, str], hidden: Collection[str], random: Random) -> str:
    """Words a caption of the scene that holds the words (word → form), and some attributes that are not hidden.

    One caption in twelve names no class, if it holds a word.
    """
    target_class = None if words and random.random() < 0.08 else scene.target_class
    visible = [name for name in ATTRIBUTES if name not in hidden and random.random() < 0.3]
    random.shuffle(visible)
    return wording(target_class, words, {name: scene.attribute(name) for name in visible}, random)


def wording(target_class: str | None, words: Mapping[str, str], values: Mapping[str, str], random: Random) -> str:
    """Words one fluent text about a class, or about the words alone, that holds all the words and names these
    values."""
    head, words_used = _head(target_class, words, values, random)
    later_parts = [(word, _after(word, form, random)) for word, form in words.items() if word not in words_used]
    later_parts += [(name, phrase(name, value, random)) for name, value in values.items() if name not in words_used]
    random.shuffle(later_parts)
    # Words about the noun come first: in "a boat at a picnic that looks old" the picnic would look old.
    later_parts.sort(key=lambda part: part[0] not in _ABOUT_THING and words.get(part[0]) != "adjective")
    tail = [text for _, text in later_parts]
    text = " ".join(part for part in (random.choice(LEADS), head, *tail) if part)
    if random.random() < 0.25:
        text = text[0].upper() + text[1:] + "."
    return text


def _head(
    target_class: str | None, words: Mapping[str, str], values: Mapping[str, str], random: Random
) -> tuple[str, set[str]]:
    """Returns the noun with what precedes it, and the words and attributes that it uses."""
    adjectives = [word for word, form in words.items() if form == "adjective" and random.random() < 0.8]
    words_used = set(adjectives)
    colour = values.get("colour")
    if colour is not None and random.random() < 0.7:
        adjectives.append(colour)
        words_used.add("colour")
    nouns = [word for word, form in words.items() if form != "adjective"]
    if target_class is not None:
        noun = target_class
    elif nouns:
        noun = random.choice(nouns)
        words_used.add(noun)
    elif random.random() < 0.5:
        return " ".join(["something", *adjectives]), words_used
    else:
        noun = "object"
    return with_article(" ".join([*adjectives, noun])), words_used


def _after(word: str, form: str, random: Random) -> str:
    return random.choice(FORMS[form]).format(word, a=with_article(word))


def phrase(name: str, value: str, random: Random) -> str:
    """Words a value as it follows a noun; never "on a clear day", which names the lighting as well."""
    options = [option for option in PHRASES[name][value] if name == "lighting" or not option.endswith(" day")]
    return random.choice(options)
