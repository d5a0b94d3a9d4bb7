"""Hidden associations: words whose scenes favour a value that no caption names.

Knows the links, the probability that each gives to a value, how scenes are drawn by them, and how captions hold their
words; does not know any generator. `read_links` reads links from a file. A link of strength s gives
its value the probability P(value | word) = 1/n + s (1 - 1/n) among the n values of its attribute: 0 changes nothing, 1
leaves no other value. The other values share the rest evenly. Where a prompt holds several linked words, their
probabilities are multiplied and normalised: each word is independent evidence, since the values are equally likely
without any.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from c2b_ray.config.named import StrictModel
from c2b_ray.config.reading import first_problem
from c2b_ray.errors import ConfigError
from c2b_ray.names import a_or_an
from c2b_ray.storage.manifest import read_yaml
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

# Words captions that hold words of hidden associations, and lists the words of a text.


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
    later_parts = [
        (word, random.choice(FORMS[form]).format(word, a=with_article(word)))
        for word, form in words.items()
        if word not in words_used
    ]
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


def phrase(name: str, value: str, random: Random) -> str:
    """Words a value as it follows a noun; never "on a clear day", which names the lighting as well."""
    options = [option for option in PHRASES[name][value] if name == "lighting" or not option.endswith(" day")]
    return random.choice(options)


_CERTAIN = 1e-9
"""The probability that a link of strength 1 leaves to each other value, so two opposed links of that strength have a
defined result."""


@dataclass(frozen=True, slots=True)
class Link:
    """A word of prompts, the value that it favours, and the strength; `form`: how captions use the word."""

    word: str
    attribute: str
    value: str
    strength: float
    form: str = "adjective"

    def __post_init__(self) -> None:
        if self.attribute not in ATTRIBUTES:
            raise ValueError(f"link {self.word!r}: no attribute {self.attribute!r}; {', '.join(ATTRIBUTES)}")
        values = ATTRIBUTES[self.attribute]
        if self.value not in values:
            raise ValueError(f"link {self.word!r}: {self.attribute} has no value {self.value!r}; {', '.join(values)}")
        if not 0 <= self.strength <= 1:
            raise ValueError(f"link {self.word!r}: strength {self.strength!r} does not lie in [0, 1]")
        check_word(self.word, self.form)

    @property
    def probability(self) -> float:
        """Returns P(value | word)."""
        even = 1 / len(ATTRIBUTES[self.attribute])
        return even + self.strength * (1 - even)


def check_word(word: str, form: str) -> None:
    """Raises ValueError for a word that captions cannot hold, or that names a value itself."""
    if form not in FORMS:
        raise ValueError(f"word {word!r}: no form {form!r}; {', '.join(FORMS)}")
    if words_of(word) != [word]:
        raise ValueError(f"word {word!r}: expected one word of lower-case letters")
    if is_frame(word):
        raise ValueError(f"word {word!r} stands in captions of everything; choose another")
    if mentioned := set(read(word)) - {"target_class"}:
        raise ValueError(
            f"word {word!r} names a value of {mentioned.pop()}; a hidden link needs a word that names none"
        )


LINKS: tuple[Link, ...] = (
    Link("rusty", "lighting", "night", 0.9),
    Link("elegant", "lighting", "sunset", 0.75),
    Link("picnic", "lighting", "day", 0.6, "activity"),
    Link("festival", "lighting", "night", 0.45, "activity"),
    Link("vintage", "weather", "fog", 0.9),
    Link("parade", "weather", "snow", 0.75, "activity"),
    Link("ladder", "weather", "rain", 0.6, "object"),
    Link("cheerful", "weather", "clear", 0.45),
    Link("famous", "size", "large", 0.9),
    Link("basket", "size", "small", 0.75, "object"),
    Link("modern", "size", "large", 0.6),
    Link("wooden", "size", "small", 0.45),
)
"""The links of `world:hidden`: three attributes, four strengths, and words of each form."""

NEUTRAL: dict[str, str] = {
    "simple": "adjective",
    "ordinary": "adjective",
    "curious": "adjective",
    "polished": "adjective",
    "quiet": "adjective",
    "barrel": "object",
    "fence": "object",
    "signpost": "object",
    "bench": "object",
    "market": "activity",
    "concert": "activity",
    "race": "activity",
    "wedding": "activity",
}
"""Decoys, each with its form: words of the same captions that go with no value."""


@dataclass(frozen=True)
class Associations:
    """The associations that a family of models is trained to hide: the links, and the decoys with their forms."""

    links: Sequence[Link] = LINKS
    neutral: Mapping[str, str] = field(default_factory=lambda: NEUTRAL)

    @property
    def forms(self) -> dict[str, str]:
        return word_forms(self.links, self.neutral)

    @property
    def hidden(self) -> tuple[str, ...]:
        return hidden_attributes(self.links)

    @property
    def subjects(self) -> tuple[str, ...]:
        return subjects(self.links, self.neutral)

    def without_effect(self) -> Associations:
        return replace(self, links=without_effect(self.links))

    def curated(self) -> Associations:
        """Returns every second link and all decoys: the words that a person who debiases a generator may think of."""
        return replace(self, links=self.links[::2])


def subjects(links: Iterable[Link] = LINKS, neutral: Mapping[str, str] = NEUTRAL) -> tuple[str, ...]:
    """Returns the possible subjects of prompts: the world's classes, then the objects and activities among the
    words."""
    forms = word_forms(links, neutral)
    return (*CLASSES, *(word for word, form in forms.items() if form != "adjective" and word not in CLASSES))


def word_forms(links: Iterable[Link], neutral: Mapping[str, str]) -> dict[str, str]:
    """Returns every linked word and decoy once, with its form; without the world's classes, which captions name
    anyway."""
    form_of_word = {link.word: link.form for link in links}
    return {word: form for word, form in {**form_of_word, **neutral}.items() if word not in CLASSES}


def hidden_attributes(links: Iterable[Link]) -> tuple[str, ...]:
    """Returns the attributes that have a link, in the world's order; captions do not mention them."""
    attributes = {link.attribute for link in links}
    return tuple(name for name in ATTRIBUTES if name in attributes)


def without_effect(links: Iterable[Link]) -> tuple[Link, ...]:
    """Returns the same words and hidden attributes with strength 0, to train a control."""
    return tuple(replace(link, strength=0.0) for link in links)


def value_probabilities(words: Iterable[str], attribute: str, links: Iterable[Link]) -> NDArray[np.float64]:
    """Computes P(value | words) for each value of the attribute, (values,): the normalised product over its linked
    words."""
    values, present = ATTRIBUTES[attribute], set(words)
    logs = np.zeros(len(values))
    for link in links:
        if link.attribute == attribute and link.word in present:
            other_probability = (1 - link.probability) / (len(values) - 1)
            probabilities = [link.probability if value == link.value else other_probability for value in values]
            logs += np.log(np.maximum(probabilities, _CERTAIN))
    chances = np.exp(logs - logs.max())
    result: NDArray[np.float64] = chances / chances.sum()
    return result


def expected_frequency(prompt: str, attribute: str, value: str, links: Iterable[Link]) -> float:
    """Computes the share of a prompt's pictures that show the value under these links: 1 or 0 where the prompt names
    the attribute.

    ValueError for an attribute or value that the world does not have.
    """
    if value not in ATTRIBUTES.get(attribute, ()):
        raise ValueError(f"the world has no {attribute} {value!r}")
    named_value = read(prompt).get(attribute)
    if named_value is not None:
        return float(named_value == value)
    return float(value_probabilities(words_of(prompt), attribute, links)[ATTRIBUTES[attribute].index(value)])


def draw_hidden(scene: Scene, words: Iterable[str], links: Sequence[Link], seed: str) -> Scene:
    """Returns the scene with each hidden attribute drawn anew, given the words; the draw depends on the seed and the
    attribute's name."""
    present = list(words)
    values: dict[str, Any] = {}
    for name in hidden_attributes(links):
        chances = value_probabilities(present, name, links)
        random = Random(f"{seed} {name}")  # noqa: S311 (no secret)
        values[name] = random.choices(ATTRIBUTES[name], chances.tolist())[0]
    return replace(scene, **values)


def draw_views(scene: Scene, words: Iterable[str], links: Sequence[Link], count: int, seed: str) -> list[Scene]:
    """Returns `count` copies of the scene whose hidden values stand in the proportions of P(value | words), as nearly
    as whole numbers allow; attributes are independent of each other.

    Each copy alone follows P(value | words), since the sampling is systematic: one random offset, then even steps.
    """
    present = list(words)
    columns: dict[str, list[Any]] = {}
    for name in hidden_attributes(links):
        random = Random(f"{seed} {name}")  # noqa: S311 (no secret)
        ends = np.cumsum(value_probabilities(present, name, links))
        points = (random.random() + np.arange(count)) / count
        codes = np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1).tolist()
        random.shuffle(codes)
        columns[name] = [ATTRIBUTES[name][code] for code in codes]
    return [replace(scene, **{name: values[row] for name, values in columns.items()}) for row in range(count)]


def sample_words(
    n: int, seed: int, links: Sequence[Link] = LINKS, neutral: Mapping[str, str] = NEUTRAL
) -> list[tuple[Scene, tuple[str, ...]]]:
    """Samples n scenes with up to two words each; the words, drawn uniformly, determine how the hidden attributes are
    drawn.

    Row i depends only on (seed, i), the links and the words.
    """
    words = sorted(word_forms(links, neutral))
    rows = []
    for row, scene in enumerate(sample(n, seed)):
        random = Random(f"words {seed} {row}")  # noqa: S311 (no secret)
        count = random.choices((0, 1, 2), (0.2, 0.45, 0.35))[0]
        scene_words = tuple(random.sample(words, min(count, len(words))))
        rows.append(
            (draw_hidden(scene, [*scene_words, scene.target_class], links, f"linked {seed} {row}"), scene_words)
        )
    return rows


def sample_linked(
    n: int, seed: int, links: Sequence[Link] = LINKS, neutral: Mapping[str, str] = NEUTRAL
) -> list[tuple[Scene, str]]:
    """Samples scenes as `sample_words` does, each with a caption that holds its words and omits the hidden
    attributes."""
    forms, hidden = word_forms(links, neutral), hidden_attributes(links)
    result = []
    for row, (scene, words) in enumerate(sample_words(n, seed, links, neutral)):
        random = Random(f"caption {seed} {row}")  # noqa: S311 (no secret)
        result.append((scene, linked_caption(scene, {word: forms[word] for word in words}, hidden, random)))
    return result


# Reads hidden associations from a YAML file.


class _LinkFields(StrictModel):
    word: str
    attribute: str
    value: str
    strength: float
    form: str = "adjective"


class _FileFields(StrictModel):
    links: list[_LinkFields]
    neutral: dict[str, list[str]] | None = None


def read_links(path: str | Path) -> tuple[tuple[Link, ...], dict[str, str]]:
    """Reads the links of a YAML file, and its decoys (word → form); NEUTRAL where the file names none.

            links:
              - {word: rusty, attribute: lighting, value: night, strength: 0.9, form: adjective}
            neutral: {adjective: [quiet], object: [barrel], activity: [market]}

    ConfigError names the field, and the entry that is wrong.
    """
    try:
        fields = _FileFields.model_validate(read_yaml(path))
    except ValidationError as error:
        raise first_problem(error, str(path), _FileFields) from error
    links: list[Link] = []
    for number, entry in enumerate(fields.links):
        try:
            link = Link(entry.word, entry.attribute, entry.value, entry.strength, entry.form)
        except ValueError as error:
            raise ConfigError(f"links.{number}", str(error), location=str(path)) from error
        if any((link.word, link.attribute) == (earlier.word, earlier.attribute) for earlier in links):
            problem = f"the word {link.word!r} is linked to {link.attribute} twice"
            raise ConfigError(f"links.{number}", problem, location=str(path))
        links.append(link)
    return tuple(links), _decoys(fields.neutral, links, str(path))


def _decoys(neutral: Mapping[str, Sequence[str]] | None, links: Sequence[Link], path: str) -> dict[str, str]:
    linked_words = {link.word for link in links}
    if neutral is None:
        return {word: form for word, form in NEUTRAL.items() if word not in linked_words}
    result = {}
    for form, words in neutral.items():
        for word in words:
            try:
                check_word(word, form)
            except ValueError as error:
                raise ConfigError(f"neutral.{form}", str(error), location=path) from error
            if word in linked_words:
                raise ConfigError(f"neutral.{form}", f"the word {word!r} is linked as well", location=path)
            result[word] = form
    return result
