"""Checks whether a caption names what it must: its class, and the value of its attribute.

Words are compared by their stems (rain, rainy, raining) and by a small list of words with the same meaning. A caption
passes if it uses a word of the value; the verifier decides whether a picture shows it. It knows words, not models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from c2b_ray.names import normalise


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SMALL = _set("a an the in on at by of with is are it its and or to that this from very being as for into next other")
_ABSENT = _set("no none not without nothing nobody alone lone solitary single own itself lacking free")
_ENDINGS = ("iest", "ness", "ing", "ies", "ish", "ous", "est", "ed", "es", "en", "er", "ly", "y", "s")
_JOINED = "light|lit|time|fall|storm|shine|ing|like|side|scape|coloured|colored|ness"

_SAME = (
    "night nighttime midnight moon moonlit moonlight dark",
    "day daytime daylight sunlight noon midday",
    "sunset dusk sundown twilight evening",
    "sunrise dawn daybreak",
    "rain downpour drizzle wet shower",
    "snow blizzard",
    "fog mist haze",
    "clear cloudless fine dry sunny",
    "sun sunny sunlit",
    "street road town city urban",
    "beach sea sand shore coast seaside",
    "forest wood woods tree trees woodland",
    "mountain mountains peak alpine hill",
    "small tiny little miniature distant distance",
    "large big huge giant close-up closeup filling fills",
    "striped stripe stripes stripy",
    "dotted dot dots spotted polka",
    "plain uniform unpatterned solid",
    "person man woman people human somebody someone",
    "indoor indoors inside interior",
    "outdoor outdoors outside",
    "dark dim dimly unlit shadow",
    "bright brightly lit sunlit",
    "grey gray",
    "purple violet",
    "blurry blurred blur",
    "old aged ancient elderly",
)


def names_class(text: str, target_class: str) -> bool:
    """Returns whether the text holds the class's name as whole words, in singular or plural."""
    return _holds(normalise(text), normalise(target_class))


def names_value(text: str, attribute: str, value: str, others: Iterable[str] = (), same: Iterable[str] = ()) -> bool:
    """Returns whether the text names the value of the attribute.

    `others`: the attribute's other values; words that the value shares with them do not count. `same`: other names of
    the value, one of which suffices.
    """
    said = normalise(text)
    return any(_says(said, normalise(attribute), normalise(name), others) for name in (value, *same))


def _says(said: str, attribute: str, value: str, others: Iterable[str]) -> bool:
    if not re.search(r"\w", value):
        return True  # nothing can be looked for
    stems = _stems(said)
    if value in ("yes", "true", "present", "no", "false", "none", "absent", "nothing", "nobody"):
        denied = bool(stems & _stems(" ".join(_ABSENT))) or "un" in {word[:2] for word in said.split()}
        return denied if value not in ("yes", "true", "present") else bool(stems & _stems(attribute)) and not denied
    if _holds(said, value):
        return True
    content = _content(value)
    common = {_stem(word) for other in others for word in _content(normalise(other))}
    telling = [word for word in content if _stem(word) not in common and word not in attribute.split()]
    return all(_meant(word, stems, said) for word in telling or content or [value])


def _content(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text) if word not in _SMALL]


def _meant(word: str, stems: frozenset[str] | set[str], said: str) -> bool:
    if word in _ABSENT:
        return bool(stems & _stems(" ".join(_ABSENT)))
    alike = {_stem(word)} | _ALIKE.get(_stem(word), frozenset())
    if alike & stems:
        return True
    return any(re.search(rf"(?<!\w){re.escape(one)}(?:{_JOINED})(?!\w)", said) for one in (word, _stem(word)))


def _holds(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?:e?s)?(?!\w)", text) is not None


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"\w+", text)}


def _stem(word: str) -> str:
    """Removes the ending, a doubled consonant, a last e: foggy → fog, stripes and striped → strip."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us")):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] in "ei" else word


def _alike() -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    for line in _SAME:
        group = frozenset(map(_stem, line.split()))
        for stem in group:
            result[stem] = result.get(stem, frozenset()) | group
    return result


_ALIKE = _alike()
