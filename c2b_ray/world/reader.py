"""Reads a text about the world: which class and which attribute values it names.

Knows the wordings of `captions`, a few synonyms and plain denials; does not know pictures. The first mention counts: "a
mug beside a chair" is about a mug. Unknown words are ignored.
"""

from __future__ import annotations

import re
from functools import lru_cache

from c2b_ray.world.captions import ADJECTIVES, PHRASES
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

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
