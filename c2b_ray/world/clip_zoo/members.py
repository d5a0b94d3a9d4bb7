"""The zoo of skewed CLIP models: the shipped ones, and a format that describes others.

    0.4                                            words and captions of this strength
    words=0.4,captions=0,size=l,pairs=8000,seed=7  each strength, and the model's size, number of pairs and seed
    captions=0.5,attribute=lighting,values=day/night,where=setting/beach

Knows skews and names; trains nothing and needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.world.clip_zoo.skew import Skew

SIZE_NAMES = ("s", "m", "l")
FEWEST_PAIRS = 1000
_FIRST_SEED = 30  # seeds below it chose the recipe
_KNOWN = ("words", "captions", "missing", "attribute", "values", "where", "size", "pairs", "seed")


@dataclass(frozen=True)
class ZooMember:
    """A model's size, the number of its training pairs, their skew, and the seed."""

    name: str
    size: str
    pairs: int
    skew: Skew
    seed: int


def _zoo() -> dict[str, ZooMember]:
    rows = (
        ("m", 8_000, 0.0), ("s", 4_000, 0.0), ("m", 4_000, 0.12), ("m", 8_000, 0.25), ("m", 4_000, 0.35),
        ("m", 8_000, 0.45), ("m", 8_000, 0.45), ("m", 4_000, 0.55), ("m", 8_000, 0.7), ("m", 8_000, 0.7),
        ("m", 8_000, 0.85), ("m", 4_000, 1.0),
    )  # fmt: skip
    members = (
        ZooMember(f"clip-{k:02d}", *row[:2], Skew.of(row[2]), seed=_FIRST_SEED + k) for k, row in enumerate(rows)
    )
    return {member.name: member for member in members}


MEMBERS = _zoo()
"""The shipped models: clip-00 and clip-01 have no skew; 05 and 06, and 08 and 09, differ only in their seed."""


def described(text: str, seed: int = 0) -> ZooMember:
    """Parses one `--skew`; `seed` is used where the text names none. ConfigError names the part that is wrong."""
    settings = _settings(text)
    size = settings.get("size", "m")
    if size not in SIZE_NAMES:
        raise ConfigError("skew", f"{text!r}: there is no size {size!r}; {nearest(size, SIZE_NAMES)}")
    pairs = int(_number(text, settings, "pairs", 8_000))
    if pairs < FEWEST_PAIRS:
        raise ConfigError("skew", f"{text!r}: {pairs} pairs are too few to learn from; {FEWEST_PAIRS} or more")
    skew = Skew(
        attribute=settings.get("attribute", "companion"),
        values=tuple(settings.get("values", "dog/person").split("/")),
        words=_number(text, settings, "words", 0),
        captions=_number(text, settings, "captions", 0),
        missing=_number(text, settings, "missing", 0),
        where=_pair(settings["where"]) if "where" in settings else None,
    )
    return ZooMember(_name(text), size, pairs, skew, int(_number(text, settings, "seed", seed)))


def _number(text: str, settings: dict[str, str], name: str, default: float) -> float:
    try:
        return float(settings.get(name, default))
    except ValueError as error:
        raise ConfigError("skew", f"{text!r}: {name}={settings[name]!r} is not a number") from error


def _settings(text: str) -> dict[str, str]:
    if "=" not in text:
        return {"words": text, "captions": text}
    result = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name.strip() not in _KNOWN or not equals:
            raise ConfigError("skew", f"{text!r}: {name.strip()!r} is not a setting of a skew; {nearest(name, _KNOWN)}")
        result[name.strip()] = value.strip()
    return result


def _pair(text: str) -> tuple[str, str]:
    factor, slash, value = text.partition("/")
    if not slash:
        raise ConfigError("skew", f"where={text!r}: expected ATTRIBUTE/VALUE, such as setting/beach")
    return factor, value


def _name(text: str) -> str:
    """Returns a directory name that differs for each model of one command."""
    return "clip-" + "".join(letter if letter.isalnum() or letter in ".=-" else "-" for letter in text)
