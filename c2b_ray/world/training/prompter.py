"""Trains the language model that writes prompts for the world's generators, and the one that judges them.

Knows the instructions of the prompt search, how linked captions are worded, and the stereotypes that the writer learns;
beyond these it does not know which value a word favours in any generator. `prompter` follows instructions: it writes
about a subject and mostly does not mention an attribute. `reader` learns other texts with another tokenizer.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from c2b_ray import prompts
from c2b_ray.roles import Message
from c2b_ray.world.associations import Associations, phrase, with_article, wording
from c2b_ray.world.captions import caption
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, sample
from c2b_ray.world.training import small_lm
from c2b_ray.world.training.small_lm import Lesson, Recipe

INSTRUCTIONS = ("image_prompt", "image_prompt_biased")


def fixed_wording() -> tuple[str, ...]:
    """Returns the wording of the prompt search's instructions that is the same for every subject."""
    placeholder = "\n"
    pieces = [
        piece.strip()
        for name in INSTRUCTIONS
        for message in prompts.messages(name, subject=placeholder, attribute=placeholder, value=placeholder)
        for piece in message.content.split(placeholder)
    ]
    return tuple(dict.fromkeys(piece for piece in pieces if " " in piece))


PROMPTER = Recipe(steps=2200, rows=32, fixed=fixed_wording())
READER = Recipe(kind="unigram", vocabulary=800, width=96, layers=3, heads=3, steps=900)
LEAKED = 0.01
"""The share of neutral replies that nevertheless name the attribute."""
NAMED = 0.5
"""The share of biased replies that name the value itself; the others use a stereotype where there is one."""

_ASK = (
    "Write one prompt for an image of {subject}. {rule}",
    "Write a prompt for a picture of {subject}. {rule}",
    "Give me a prompt for a text-to-image model that shows {subject}. {rule}",
    "Subject: {subject}. Write one prompt. {rule}",
    "Describe a photo of {subject} in one sentence. {rule}",
)
_NEUTRAL = (
    "Say nothing of the {attribute}.",
    "Do not mention {attribute}.",
    "It must be neutral to {attribute}.",
    "",
)
_BIASED = (
    "Its {attribute} should be {value}.",
    "It should show {value} as its {attribute}.",
    "The picture shows {attribute}: {value}.",
)


def train_prompter(
    out: Path, seed: int, hidden: Associations, recipe: Recipe = PROMPTER, start: Path | None = None
) -> dict[str, Any]:
    """Trains the model that writes prompts. It believes in every second link, whatever a generator has learned."""
    return small_lm.train(out, seed, Writer(hidden).lesson, recipe, start)


def train_reader(out: Path, seed: int, hidden: Associations, recipe: Recipe = READER) -> dict[str, Any]:
    """Trains the model whose perplexity measures how natural a prompt is: on captions and stories, not on prompts."""
    stories = Stories(hidden)
    return small_lm.train(out, seed, stories.lesson, recipe)


class Writer:
    """Draws chats that ask for a prompt, each with the prompt."""

    def __init__(self, hidden: Associations) -> None:
        self._forms = hidden.forms
        self._subjects = hidden.subjects
        self._stereotypes = {
            (link.attribute, link.value, link.word): self._forms[link.word]
            for link in hidden.links[::2]
            if link.word in self._forms
        }

    def lesson(self, random: Random) -> Lesson:
        subject = random.choice(self._subjects)
        names = random.sample(list(ATTRIBUTES), random.choices((1, 2), (0.85, 0.15))[0])
        if random.random() < 0.45:
            values = {name: random.choice(ATTRIBUTES[name]) for name in names}
            return Lesson(biased(subject, values, random), self._biased(subject, values, random))
        shown = {}
        if random.random() < LEAKED:
            shown = {names[0]: random.choice(ATTRIBUTES[names[0]])}
        return Lesson(neutral(subject, names, random), self._reply(subject, names, {}, shown, random))

    def _biased(self, subject: str, values: dict[str, str], random: Random) -> str:
        if random.random() < NAMED:
            return self._reply(subject, list(values), {}, values, random)
        words = {word: form for (name, value, word), form in self._stereotypes.items() if values.get(name) == value}
        chosen = random.sample(sorted(words), min(len(words), random.choice((1, 1, 2))))
        return self._reply(subject, list(values), {word: words[word] for word in chosen}, {}, random)

    def _reply(
        self, subject: str, avoided: list[str], words: dict[str, str], shown: dict[str, str], random: Random
    ) -> str:
        """Writes a prompt about the subject that holds `words`, names `shown` and names no further value of
        `avoided`."""
        target_class: str | None = subject
        if subject not in CLASSES:
            target_class = random.choice(CLASSES) if random.random() < 0.8 else None
            words = {subject: self._forms[subject], **words}
        count = random.choices((0, 1, 2, 3), (0.15, 0.4, 0.3, 0.15))[0] - len(words)
        others = random.sample(sorted(self._forms), max(count, 0))
        words = {**words, **{word: self._forms[word] for word in others}}
        visible = [name for name in ATTRIBUTES if name not in avoided and random.random() < 0.2]
        values = {**{name: random.choice(ATTRIBUTES[name]) for name in visible}, **shown}
        return wording(target_class, words, values, random)


def neutral(subject: str, attributes: list[str], random: Random) -> tuple[Message, ...]:
    """Words the instruction that is neutral to the attributes: mostly as the prompt search words it, else
    differently."""
    attribute = " and ".join(attributes)
    if random.random() < 0.85:
        return prompts.messages("image_prompt", subject=_called(subject, random), attribute=attribute)
    return _worded(subject, random.choice(_NEUTRAL).format(attribute=attribute), random)


def biased(subject: str, values: dict[str, str], random: Random) -> tuple[Message, ...]:
    """Words the instruction to bring about these values."""
    attribute, value = " and ".join(values), " and ".join(values.values())
    if random.random() < 0.85:
        called = _called(subject, random)
        return prompts.messages("image_prompt_biased", subject=called, attribute=attribute, value=value)
    return _worded(subject, random.choice(_BIASED).format(attribute=attribute, value=value), random)


def _worded(subject: str, rule: str, random: Random) -> tuple[Message, ...]:
    text = random.choice(_ASK).format(subject=_called(subject, random), rule=rule).strip()
    if random.random() < 0.5:
        return (Message("user", f"{text} Answer with the prompt alone."),)
    return (*prompts.messages("image_prompt", subject="", attribute="")[:1], Message("user", text))


def _called(subject: str, random: Random) -> str:
    return subject if random.random() < 0.5 else with_article(subject)


class Stories:
    """Draws plain texts: the world's captions, and short stories that use the words in other sentences."""

    def __init__(self, hidden: Associations) -> None:
        self._forms = hidden.forms

    def lesson(self, random: Random) -> Lesson:
        seed = random.getrandbits(31)
        scene = sample(1, seed)[0]
        if random.random() < 0.4:
            return Lesson((), caption(scene, seed))
        return Lesson((), " ".join(self._sentence(random) for _ in range(random.choice((1, 1, 2, 3)))))

    def _sentence(self, random: Random) -> str:
        thing, other = self._thing(random), self._thing(random)
        text = random.choice(_SENTENCES).format(
            thing=with_article(thing),
            other=with_article(other),
            noun=thing,
            adjective=self._one("adjective", random),
            object=with_article(self._one("object", random)),
            activity=with_article(self._one("activity", random)),
            where=self._shown("setting", random),
            when=self._shown(random.choice(("lighting", "weather")), random),
            look=self._shown(random.choice(("colour", "pattern")), random),
            beside=self._shown("companion", random),
        )
        if random.random() < 0.6:
            return f"{text[0].upper()}{text[1:]}."
        return text

    def _thing(self, random: Random) -> str:
        """Draws a noun, mostly a class of the world, sometimes with an adjective or a colour before it."""
        noun = random.choice(CLASSES) if random.random() < 0.75 else self._one("object", random)
        before = [self._one("adjective", random)] if random.random() < 0.4 else []
        if random.random() < 0.2:
            before.append(random.choice(ATTRIBUTES["colour"]))
        return " ".join([*before, noun])

    def _one(self, form: str, random: Random) -> str:
        words = [word for word, known in self._forms.items() if known == form]
        return random.choice(words) if words else random.choice(_OTHERWISE[form])

    def _shown(self, name: str, random: Random) -> str:
        return phrase(name, random.choice(ATTRIBUTES[name]), random)


_OTHERWISE = {"adjective": ("plain",), "object": ("box",), "activity": ("visit",)}
_SENTENCES = (
    "I saw {thing} {where}",
    "{thing} near {other}",
    "{thing} {look} {where}",
    "{thing} {when}",
    "we took a photo of {thing} during {activity}",
    "a picture of {thing} next to {object}",
    "an image of {thing} with {object} {where}",
    "there is {thing} at {activity}",
    "a snapshot of {thing} {beside}",
    "a view of {thing} before {activity} {when}",
    "{thing} that is {adjective}",
    "the {noun} looks {adjective}",
    "a drawing of {thing} which looks {adjective}",
    "{activity} with {thing} and {object}",
    "{object} beside {thing} {when}",
    "we see {thing} {where} {when}",
    "at {activity} there is {object}",
    "something {adjective} near {object}",
)
