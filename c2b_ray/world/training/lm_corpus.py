"""The training data of the world's language model: chats with the project's prompts, each with the right reply.

It knows the prompts, the world's attributes and how captions are worded; it does not know tokens, models or training.
Replies are compact JSON (no space after `,` or `:`), which any grammar that allows optional white space accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from c2b_ray import prompts
from c2b_ray.names import a_or_an
from c2b_ray.roles import Message
from c2b_ray.world.captions import PHRASES, caption
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, sample
from c2b_ray.world.training import lm_tasks

_LEADS = lm_tasks.words(
    "a picture of|an image of|a snapshot of|a photograph of|a picture showing|a photograph showing|a view of|"
    "a colour photo of|a scene with|one photo of|this is|there is|we see|a good photo of|a phone picture of"
)
_PLACEHOLDERS = ("task", "target_class", "template", "attribute", "bias_class", "number")
_TEMPLATE = "a photo of a [CLASS] [VALUE]"

# Other names of the world's attributes; their values are worded as the world words them.
_OTHER_NAMES = {
    "colour": ("color", "object colour", "main color", "paint"),
    "setting": ("background", "location", "place", "scene", "environment"),
    "lighting": ("time of day", "light", "time", "illumination", "lighting conditions"),
    "weather": ("weather conditions", "climate", "sky"),
    "size": ("object size", "scale", "apparent size"),
    "pattern": ("surface pattern", "print", "texture pattern"),
    "companion": ("nearby object", "company", "context object"),
}
ATTRIBUTE_NAMES = lm_tasks.words(
    "texture|material|viewpoint|pose|age|number of objects|blur|style|season|shape|camera angle|crop|occlusion|breed|"
    "brand|facial expression|gender|clothing|orientation|resolution|noise level|contrast|distance|action|medium|genre"
)
_VALUE_NAMES = lm_tasks.words(
    "wooden|metal|plastic|glass|leather|side view|front view|top-down|sitting|standing|running|young|old|one|two|"
    "many|sharp|blurred|oil painting|sketch|summer|winter|spring|autumn|round|square|close|far away|hidden|visible|"
    "male|female|grassy|desert|indoors|outdoors|underwater|hail|storm|dawn|noon|orange|black|pink|grey|brown|knife|"
    "kitchen|none|other|yes|no|medium|tiny|huge|checked|floral|cat|child|crowd|low|high|left|right|broken|new|wet|"
    "dry|furry|smooth"
)


@dataclass(frozen=True)
class Example:
    """One chat and its reply; without `messages`, a plain text to continue."""

    kind: str
    messages: tuple[Message, ...]
    reply: str


def phrases(attribute: str, value: str) -> tuple[str, ...]:
    """Returns the phrases by which a caption may show a value; a value that the world does not know is named as it is,
    with its attribute."""
    known = PHRASES.get(attribute, {}).get(value)
    if known is None:
        return (f"with {attribute} {value}", f"with {value} {attribute}", f"showing {value} {attribute}")
    # "on a rainy day" would name the lighting as well
    return tuple(p for p in known if attribute == "lighting" or not p.endswith(" day"))


def fill(template: str, target_class: str, phrase: str) -> str:
    """Fills the template's placeholders; "a" before a vowel becomes "an". A phrase without a placeholder goes last."""
    if a_or_an(target_class) == "an":
        template = re.sub(r"\b([Aa]) \[CLASS\]", r"\1n [CLASS]", template)
    if "[VALUE]" not in template:
        template = f"{template} [VALUE]"
    return template.replace("[CLASS]", target_class).replace("[VALUE]", phrase)


def propose(rng: Random, pieces: Sequence[str] = (), held_out: bool = False) -> Example:
    """Draws a proposal of all seven attributes, whatever the task and class; mostly in the world's order, so that
    greedy decoding has one."""
    target_class = rng.choice(CLASSES) if rng.random() < 0.6 else lm_tasks.noun(rng, pieces, held_out)
    names = list(ATTRIBUTES)
    if rng.random() < 0.4:
        first = rng.randrange(len(names))
        names = names[first:] + names[:first]
        if rng.random() < 0.5:
            rng.shuffle(names)
    reply = {"attributes": [{"name": name, "values": list(ATTRIBUTES[name])} for name in names]}
    task = lm_tasks.task(rng, CLASSES, held_out)
    return Example("propose", prompts.messages("propose", task=task, target_class=target_class), compact(reply))


def a_template(rng: Random, p_default: float = 0.45) -> str:
    if rng.random() < p_default:
        return _TEMPLATE
    lead, article = rng.choice(_LEADS), rng.choice(("a", "a", "a", "the", "one"))
    text = f"{lead} {article} [CLASS] [VALUE]" if rng.random() < 0.9 else f"{article} [CLASS] [VALUE]"
    return text[0].upper() + text[1:] if rng.random() < 0.1 else text


def template(rng: Random, pieces: Sequence[str] = (), held_out: bool = False) -> Example:
    messages = prompts.messages("template", task=lm_tasks.task(rng, CLASSES, held_out))
    return Example("template", messages, compact({"template": a_template(rng)}))


def _odd_template(rng: Random, pieces: Sequence[str]) -> str:
    """Draws a template as users write it: other words around the placeholders, another order, no [VALUE], a
    full stop."""
    words = [lm_tasks.noun(rng, pieces) for _ in range(3)]
    return rng.choice(
        (
            f"a {words[0]} photo of a [CLASS] [VALUE]",
            f"a photo of a [CLASS] [VALUE] by {words[0]}",
            f"{words[0]} of the [CLASS], [VALUE]",
            "A photo of a [CLASS] [VALUE].",
            "a photo of a [CLASS]",
            "[CLASS] [VALUE]",
            "a [CLASS], [VALUE], photo",
            f"{words[0]} {words[1]} [CLASS] {words[2]} [VALUE]",
            f"a [CLASS] [VALUE] and {words[0]}",
        )
    )


def _attribute_and_value(rng: Random, pieces: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """Draws an attribute, a value and its phrases: the world's, the world's under another name, or made up."""
    attribute = rng.choice(tuple(ATTRIBUTES))
    value = rng.choice(ATTRIBUTES[attribute])
    draw = rng.random()
    if draw < 0.55:
        return attribute, value, phrases(attribute, value)
    if draw < 0.62:
        return rng.choice(_OTHER_NAMES[attribute]), value, phrases(attribute, value)
    # A made-up value of a known attribute, a known value of a made-up one: neither is the world's.
    if rng.random() < 0.75:
        attribute = rng.choice(ATTRIBUTE_NAMES) if rng.random() < 0.6 else lm_tasks.noun(rng, pieces)
    if rng.random() < 0.85 or attribute in ATTRIBUTES:
        value = rng.choice(_VALUE_NAMES) if rng.random() < 0.4 else lm_tasks.noun(rng, pieces)
    return attribute, value, phrases(attribute, value)


def captioned(rng: Random, pieces: Sequence[str] = (), held_out: bool = False) -> Example:
    """Draws a caption of class and value alone. Its number mostly picks the phrase, so that different numbers give
    different captions."""
    target_class = rng.choice(CLASSES) if rng.random() < 0.55 else lm_tasks.noun(rng, pieces, held_out)
    attribute, value, options = _attribute_and_value(rng, pieces)
    number = rng.randint(1, 10) if rng.random() < 0.8 else rng.randint(1, 60)
    wording = a_template(rng, 0.35) if rng.random() < 0.85 else _odd_template(rng, pieces)
    return caption_example(rng, wording, target_class, (attribute, value), number, options)


def caption_example(
    rng: Random, wording: str, target_class: str, value: tuple[str, str], number: int, options: Sequence[str]
) -> Example:
    phrase = options[(number - 1) % len(options)] if rng.random() < 0.8 else rng.choice(options)
    messages = prompts.messages(
        "caption",
        template=wording,
        target_class=target_class,
        attribute=value[0],
        bias_class=value[1],
        number=str(number),
    )
    return Example("caption", messages, compact({"caption": fill(wording, target_class, phrase)}))


def plain(rng: Random) -> Example:
    """Draws a caption without a chat, for `next_tokens` and `log_likelihood`."""
    if rng.random() < 0.5:
        return Example("plain", (), caption(sample(1, rng.getrandbits(31))[0], rng.getrandbits(31)))
    attribute = rng.choice(tuple(ATTRIBUTES))
    phrase = rng.choice(phrases(attribute, rng.choice(ATTRIBUTES[attribute])))
    return Example("plain", (), fill(a_template(rng), rng.choice(CLASSES), phrase))


def example(rng: Random, pieces: Sequence[str] = ()) -> Example:
    """Draws one example of the training mixture. `pieces`: the tokenizer's words, for `lm_tasks.made_up_word`."""
    draw = rng.random()
    if draw < 0.14:
        return propose(rng, pieces)
    if draw < 0.22:
        return template(rng, pieces)
    return plain(rng) if draw < 0.32 else captioned(rng, pieces)


def exercise(rng: Random, pieces: Sequence[str] = ()) -> Example:
    """Draws a short chat that needs nothing but copying: a caption from the values of fields."""
    names = rng.sample(("Class", "Attribute", "Value"), rng.randint(1, 3))
    values = [lm_tasks.noun(rng, pieces) if rng.random() < 0.9 else rng.choice(CLASSES) for _ in names]
    names_and_values = "".join(f"\n{name}: {value}" for name, value in zip(names, values, strict=True))
    return Example("exercise", (Message("user", names_and_values),), compact({"caption": " ".join(["a", *values])}))


def fixed_wording() -> list[str]:
    """Returns the prompts' fixed wording, which no task changes, in pieces of three words or more."""
    result = []
    for name in ("propose", "template", "caption"):
        for message in prompts.messages(name, **dict.fromkeys(_PLACEHOLDERS, "\n")):
            result += [text.strip() for text in message.content.split("\n") if len(text.split()) > 2]
    return list(dict.fromkeys(result))


def texts(example: Example) -> list[str]:
    """Returns all texts of an example, which a tokenizer is trained on."""
    return [message.content for message in example.messages] + [example.reply]


def compact(reply: object) -> str:
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))
