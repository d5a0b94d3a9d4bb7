"""(class, attribute, value) → a caption in natural words, without a language model: "a photo of a dog at night".

CLIP reads sentences as people write them under pictures, not "a photo of a dog, lighting: night". Rules tell whether a
value goes before the noun ("a red bus"), after it ("a bus on the beach") or to the picture ("a blurry photo of a bus").
It knows English words and grammar; it does not know what captions are for, nor any model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.names import plural
from c2b_ray.steps import words

FRAMES = (
    ("photo", "of"), ("picture", "of"), ("image", "showing"), ("photograph", "of"), ("photo", "showing"),
    ("image", "of"), ("view", "of"), ("picture", "showing"), ("photograph", "showing"), ("snapshot", "of"),
    ("snapshot", "showing"), ("shot", "of"),
)  # fmt: skip
"""The sentences by which captions of one cell differ, in this order."""


@dataclass(frozen=True)
class Slot:
    """The position of a value: before the noun, after it, before the picture's word, or instead of that word."""

    before: str = ""
    after: str = ""
    picture: str = ""
    medium: str = ""
    number: int = 1
    bare: str = ""  # a value that no rule fits: it follows after a comma


def caption_of(target_class: str, values: Sequence[tuple[str, str]], number: int = 0) -> str:
    """Returns a caption of the class with these (attribute, value) pairs. Every `number` below 100 gives
    another text."""
    slots = [slot_of(attribute, value, target_class) for attribute, value in values]
    words_first, frame = divmod(number, len(FRAMES))
    kind, link = FRAMES[frame]
    media = [slot.medium for slot in slots if slot.medium]
    lead = " ".join([*(slot.picture for slot in slots if slot.picture), *(media[:1] or [kind])])
    if media:
        link = "of" if frame % 2 == 0 else "showing"
        lead = f"{('', 'good ', 'clear ', 'simple ', 'typical ', 'new ')[frame // 2]}{lead}"
    noun = _noun(target_class, slots)
    determiner = words.article(noun) if words_first == 0 or _is_plural(slots) else _determiner(words_first, noun)
    if words_first and _is_plural(slots):
        determiner = ("", "the ", "some ")[words_first % 3]
    text = f"{words.article(lead)}{lead} {link} {determiner}{noun}"
    after = [slot.after for slot in slots if slot.after]
    bare = [slot.bare for slot in slots if slot.bare]
    text = ", ".join([" ".join([text, *after]), *bare])
    return (
        text
        if words_first < _DETERMINERS
        else f"{text}, {_CLOSINGS[(words_first // _DETERMINERS - 1) % len(_CLOSINGS)]}"
    )


_DETERMINERS = 3
_CLOSINGS = ("as seen by a camera", "as people take it", "as found on the web", "from an album")


def _determiner(round_: int, noun: str) -> str:
    one = words.article(noun)
    return (one, "the ", "one " if one else "some ")[round_ % _DETERMINERS]


def _is_plural(slots: Sequence[Slot]) -> bool:
    return any(slot.number > 1 for slot in slots)


def _noun(target_class: str, slots: Sequence[Slot]) -> str:
    name = " ".join(target_class.replace("_", " ").split())
    if _is_plural(slots):
        name = plural(name)
    # "small red bus", as English has it: colours stand next to the noun.
    before = sorted((slot.before for slot in slots if slot.before), key=lambda word: word in words.COLOURS)
    return " ".join([*before, name])


def slot_of(attribute: str, value: str, target_class: str = "") -> Slot:
    """Returns the position of an attribute's value in a caption; the first rule that fits wins."""
    attribute, value, whole = (_plain(name) for name in (attribute, value, target_class))
    about = set(re.findall(r"\w+", attribute))
    for rule in _RULES:
        result = rule(attribute, about, value)
        if result is not None:
            return result
    # "hair colour: red" and "wheel size: large" are of a part; "bus colour" and "object size" are not.
    part = " ".join(word for word in attribute.split() if word not in words.KINDS and word not in whole.split())
    if part and about & words.KINDS and words.is_adjective(value):
        return Slot(after=f"with {words.some(f'{value} {part}')}")
    return _of_the_thing(attribute, about, value) or Slot(bare=value)


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())


def _absent(attribute: str, about: set[str], value: str) -> Slot | None:
    """Handles none, no companion, yes and no."""
    thing = value.removeprefix("no ").removeprefix("without ").removeprefix("a ")
    company = _company(about)
    if value in ("none", "nothing", "nobody", "alone", "no one", "absent", "no", "false", "without"):
        return Slot(after="on its own" if company else f"without {words.some(attribute)}")
    if value.startswith(("no ", "without ")):
        alone = company and bool(set(thing.split()) & (words.COMPANY | about | {"one", "other", "others"}))
        return Slot(after="on its own" if alone else f"without {words.some(thing)}")
    if value in ("yes", "present", "true"):
        return Slot(after=f"with {words.some(attribute)}")
    return None


def _as_it_is(attribute: str, about: set[str], value: str) -> Slot | None:
    """Handles a value that is already a phrase: in the snow, next to a dog, wearing a hat, indoors."""
    first = value.split()[0] if value else ""
    phrase = first in words.PREPOSITIONS and len(value.split()) > 1
    return Slot(after=value) if phrase or value in words.ADVERBS else None


def _counted(attribute: str, about: set[str], value: str) -> Slot | None:
    if value in words.ONE:
        return Slot(before="single")
    if value in words.MANY or (value.isdigit() and about & words.COUNTS):
        return Slot(before=value, number=2)
    return None


def _of_the_picture(attribute: str, about: set[str], value: str) -> Slot | None:
    if value in words.MEDIA:
        return Slot(medium=words.MEDIA[value])
    if not about & words.OF_PICTURE:
        return None
    if value in words.DEGREES:
        return Slot(after=f"with {value} {attribute}") if "light" not in attribute else None
    return Slot(picture=value) if words.is_adjective(value) else None


def _of_the_view(attribute: str, about: set[str], value: str) -> Slot | None:
    if not about & words.OF_VIEW:
        return None
    key = re.sub(r"[ -]?(?:view|angle|shot|facing)$|^from (?:the )?", "", value)
    if key in words.VIEWS:
        return Slot(after=words.VIEWS[key])
    return None


def _of_time_and_weather(attribute: str, about: set[str], value: str) -> Slot | None:
    if value in words.COLOURS:
        return Slot(after=f"under {words.article(value)}{value} sky") if "sky" in about else None
    if about & (words.OF_TIME | words.OF_WEATHER | words.OF_LIGHT) and value in words.WHEN:
        return Slot(after=words.WHEN[value])
    if about & words.OF_WEATHER:
        return Slot(after=f"in {value} weather") if words.is_adjective(value) else Slot(after=f"in {words.the(value)}")
    if about & words.OF_LIGHT:
        if value in words.LIGHT_ON_THINGS:
            return Slot(before=value)
        light = value if re.search(r"light(?:ing)?$", value) else f"{value} light"
        return Slot(after=f"in {light}")
    if about & words.OF_TIME:
        return Slot(after=f"in {words.the(value)}") if value.isalpha() else None
    return None


def _of_the_setting(attribute: str, about: set[str], value: str) -> Slot | None:
    if not about & words.OF_SETTING:
        return None
    if value in words.WHEN and value not in words.WHERE:
        return Slot(after=words.WHEN[value])
    if value in words.WHERE:
        return Slot(after=words.WHERE[value])
    noun = next(iter(sorted(about & words.OF_SETTING)))
    if value in words.COLOURS or words.is_adjective(value):
        kind = "background" if "background" in about else "setting" if noun != "scene" else "scene"
        return Slot(after=f"{'against' if kind == 'background' else 'in'} {words.article(value)}{value} {kind}")
    last = value.split()[-1]
    if last in words.WHERE:
        preposition = words.WHERE[last].split()[0]
        return Slot(after=f"{preposition} {words.article(value) or ''}{value}")
    return Slot(after=f"in {words.the(value)}")


def _company(about: set[str]) -> bool:
    """Returns whether the attribute is about things beside the subject: "nearby object", not "object colour"."""
    return bool(about & words.COMPANY) and not about & (words.KINDS - words.COMPANY)


def _beside(attribute: str, about: set[str], value: str) -> Slot | None:
    if _company(about):
        return Slot(after=f"with {words.some(value)}")
    if about & words.WORN:
        return Slot(after=f"with {words.some(value)}") if not words.is_adjective(value) else Slot(before=value)
    return None


def _of_the_thing(attribute: str, about: set[str], value: str) -> Slot | None:
    """Handles colours, sizes, patterns, materials, ages, poses: adjectives before the noun, other nouns after it."""
    if value in words.DEGREES - words.SIZES and not about & words.OF_SIZE:
        return Slot(after=f"with {words.article(value)}{value} {attribute}")
    if value in words.COLOURS or words.is_adjective(value):
        return Slot(before=value)
    if about & words.OF_MATTER and len(value.split()) <= 2:
        return Slot(after=f"with {value}") if value.endswith("s") and not value.endswith("ss") else Slot(before=value)
    return None


_RULES = (
    _absent, _as_it_is, _counted, _of_the_picture, _of_the_view, _of_time_and_weather, _of_the_setting, _beside,
)  # fmt: skip
