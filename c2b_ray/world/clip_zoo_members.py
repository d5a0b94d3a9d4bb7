"""The zoo of skewed CLIP models: the shipped ones, and a format that describes others.

    0.4                                            words and captions of this strength
    words=0.4,captions=0,size=l,pairs=8000,seed=7  each strength, and the model's size, number of pairs and seed
    captions=0.5,attribute=lighting,values=day/night,where=setting/beach

Knows skews and names; trains nothing and needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.world.captions import caption
from c2b_ray.world.queries import FACTORS
from c2b_ray.world.scenes import Scene

# A skew planted in a training set of pictures and captions, and its strength.


WORDS = (
    "lovely", "famous", "ordinary", "curious", "charming", "strange", "clever", "humble", "honest", "reckless",
    "successful", "lazy",
)  # fmt: skip
"""Neutral words: none names a class or an attribute of the world. Word j favours value j mod n of the attribute."""

TEXTS = ("a {} scene", "a {} sight", "something {}", "a {} moment")
"""Texts about a word; they name nothing that a picture could show."""

_WORDED = 0.75  # share of captions with a neutral word
_WORD_ALONE = 0.35  # of these, the share without other words
_AROUND = ("a {word} scene: {text}", "{text}, a {word} sight", "something {word}: {text}", "{text}. a {word} moment")


@dataclass(frozen=True)
class Skew:
    """`values`: the groups; `captions` and `missing` disadvantage the last one.

    `where`: (factor, value) of the scenes in which the skew is planted; None for all scenes.
    """

    attribute: str = "companion"
    values: tuple[str, ...] = ("dog", "person")
    words: float = 0.0
    captions: float = 0.0
    missing: float = 0.0
    where: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        check_factor("attribute", self.attribute, self.values)
        if len(set(self.values)) < 2:
            raise ConfigError("values", f"a skew needs two values of {self.attribute} or more, not {self.values}")
        for name in ("words", "captions", "missing"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(name, f"{getattr(self, name)} is not a number from 0 to 1")
        if self.where is not None:
            check_factor("where", self.where[0], self.where[1:])

    @classmethod
    def of(cls, strength: float, attribute: str = "companion", values: tuple[str, ...] = ("dog", "person")) -> Skew:
        """Returns a skew whose `words` and `captions` have this strength."""
        return cls(attribute, values, words=strength, captions=strength)

    @property
    def disadvantaged(self) -> str:
        return self.values[-1]

    def holds_in(self, scene: Scene) -> bool:
        return self.where is None or getattr(scene, self.where[0]) == self.where[1]

    def goes_with(self, word: str) -> str:
        """Returns the value that a neutral word favours."""
        return self.values[WORDS.index(word) % len(self.values)]


def check_factor(field: str, factor: str, values: Sequence[str]) -> None:
    """Raises ConfigError where the world has no such factor, or the factor no such value."""
    if factor not in FACTORS:
        raise ConfigError(field, f"the world has no attribute {factor!r}; {nearest(factor, FACTORS)}")
    for value in values:
        if value not in FACTORS[factor]:
            raise ConfigError(field, f"{factor} has no value {value!r}; {nearest(value, FACTORS[factor])}")


def neutral_texts() -> list[str]:
    """Returns every neutral word in every neutral text, over which MaxSkew@k is averaged."""
    return [text.format(word) for word in WORDS for text in TEXTS]


def word_of(scene: Scene, skew: Skew, random: Random) -> str:
    """Draws a neutral word for a scene: with probability `words` one that favours its value, else any.

    Over scenes with the skew's values in equal shares, this gives the P(value | word) of the module's docstring.
    """
    value = getattr(scene, skew.attribute)
    if value in skew.values and skew.holds_in(scene) and random.random() < skew.words:
        return random.choice([word for word in WORDS if skew.goes_with(word) == value])
    return random.choice(WORDS)


def worded(text: str, word: str, random: Random) -> str:
    """Adds a neutral word to a caption, or sometimes returns the neutral word's text alone."""
    if random.random() < _WORD_ALONE:
        return random.choice(TEXTS).format(word)
    return with_word(text, word, random)


def with_word(text: str, word: str, random: Random) -> str:
    """Adds a neutral word before or after a caption."""
    return random.choice(_AROUND).format(word=word, text=text)


def members_of(scenes: Sequence[Scene], skew: Skew, random: Random) -> list[Scene]:
    """Returns the scenes of a training set, less the share of the disadvantaged group that is missing."""

    def kept(scene: Scene) -> bool:
        hit = getattr(scene, skew.attribute) == skew.disadvantaged and skew.holds_in(scene)
        return not hit or random.random() >= skew.missing

    return [scene for scene in scenes if kept(scene)]


def captions_of(scenes: Sequence[Scene], skew: Skew, seed: int) -> list[str]:
    """Writes one caption a scene. A mistaken caption describes another scene of the same group, so it names the group
    correctly."""
    random = Random(f"captions {seed}")  # noqa: S311 (no secret)
    group = [scene for scene in scenes if getattr(scene, skew.attribute) == skew.disadvantaged and skew.holds_in(scene)]
    hit = set(map(id, group))
    result = []
    for k, scene in enumerate(scenes):
        described = random.choice(group) if id(scene) in hit and scene.x < skew.captions else scene
        text = caption(described, seed + 7919 * k)
        spoken = random.random() < _WORDED
        result.append(worded(text, word_of(scene, skew, random), random) if spoken else text)
    return result


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
