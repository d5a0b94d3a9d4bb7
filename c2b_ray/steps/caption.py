"""Writes captions for proposals: a template for the task, then a caption for each class and bias class (C2B, Eq. 3 and
4).

`caption_of` words the captions where there is no language model or its reply cannot be used. A user's template of an
attribute replaces both. The captions of one attribute are all different, because the same sentence draws the same
images twice. It does not know which model answers, nor what the captions are for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.names import normalise, plural
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.steps import synonyms
from c2b_ray.steps.cells import ATTRIBUTE
from c2b_ray.steps.labels import names_class, names_value
from c2b_ray.steps.propose import TEMPERATURE, TOP_P, described
from c2b_ray.steps.replies import CAPTION_SCHEMA, TEMPLATE_SCHEMA, parse_reply
from c2b_ray.tables import CAPTIONS, REJECTED, content_id, seed_of

# (class, attribute, value) → a caption in natural words, without a language model: "a photo of a dog at night".


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
    determiner = synonyms.article(noun) if words_first == 0 or _is_plural(slots) else _determiner(words_first, noun)
    if words_first and _is_plural(slots):
        determiner = ("", "the ", "some ")[words_first % 3]
    text = f"{synonyms.article(lead)}{lead} {link} {determiner}{noun}"
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
    article = synonyms.article(noun)
    return (article, "the ", "one " if article else "some ")[round_ % _DETERMINERS]


def _is_plural(slots: Sequence[Slot]) -> bool:
    return any(slot.number > 1 for slot in slots)


def _noun(target_class: str, slots: Sequence[Slot]) -> str:
    name = " ".join(target_class.replace("_", " ").split())
    if _is_plural(slots):
        name = plural(name)
    # "small red bus", as English has it: colours stand next to the noun.
    before = sorted((slot.before for slot in slots if slot.before), key=lambda word: word in synonyms.COLOURS)
    return " ".join([*before, name])


def slot_of(attribute: str, value: str, target_class: str = "") -> Slot:
    """Returns the position of an attribute's value in a caption; the first rule that fits wins."""
    attribute, value, class_name = (_plain(name) for name in (attribute, value, target_class))
    words = set(re.findall(r"\w+", attribute))
    for rule in _RULES:
        result = rule(attribute, words, value)
        if result is not None:
            return result
    # "hair colour: red" and "wheel size: large" are of a part; "bus colour" and "object size" are not.
    part = " ".join(word for word in attribute.split() if word not in synonyms.KINDS and word not in class_name.split())
    if part and words & synonyms.KINDS and synonyms.is_adjective(value):
        return Slot(after=f"with {synonyms.some(f'{value} {part}')}")
    return _of_the_thing(attribute, words, value) or Slot(bare=value)


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())


def _absent(attribute: str, words: set[str], value: str) -> Slot | None:
    """Handles none, no companion, yes and no."""
    thing = value.removeprefix("no ").removeprefix("without ").removeprefix("a ")
    company = _company(words)
    if value in ("none", "nothing", "nobody", "alone", "no one", "absent", "no", "false", "without"):
        return Slot(after="on its own" if company else f"without {synonyms.some(attribute)}")
    if value.startswith(("no ", "without ")):
        generic = company and bool(set(thing.split()) & (synonyms.COMPANY | words | {"one", "other", "others"}))
        return Slot(after="on its own" if generic else f"without {synonyms.some(thing)}")
    if value in ("yes", "present", "true"):
        return Slot(after=f"with {synonyms.some(attribute)}")
    return None


def _as_it_is(attribute: str, words: set[str], value: str) -> Slot | None:
    """Handles a value that is already a phrase: in the snow, next to a dog, wearing a hat, indoors."""
    first = value.split()[0] if value else ""
    phrase = first in synonyms.PREPOSITIONS and len(value.split()) > 1
    return Slot(after=value) if phrase or value in synonyms.ADVERBS else None


def _counted(attribute: str, words: set[str], value: str) -> Slot | None:
    if value in synonyms.ONE:
        return Slot(before="single")
    if value in synonyms.MANY or (value.isdigit() and words & synonyms.COUNTS):
        return Slot(before=value, number=2)
    return None


def _of_the_picture(attribute: str, words: set[str], value: str) -> Slot | None:
    if value in synonyms.MEDIA:
        return Slot(medium=synonyms.MEDIA[value])
    if not words & synonyms.OF_PICTURE:
        return None
    if value in synonyms.DEGREES:
        return Slot(after=f"with {value} {attribute}") if "light" not in attribute else None
    return Slot(picture=value) if synonyms.is_adjective(value) else None


def _of_the_view(attribute: str, words: set[str], value: str) -> Slot | None:
    if not words & synonyms.OF_VIEW:
        return None
    key = re.sub(r"[ -]?(?:view|angle|shot|facing)$|^from (?:the )?", "", value)
    if key in synonyms.VIEWS:
        return Slot(after=synonyms.VIEWS[key])
    return None


def _of_time_and_weather(attribute: str, words: set[str], value: str) -> Slot | None:
    if value in synonyms.COLOURS:
        return Slot(after=f"under {synonyms.article(value)}{value} sky") if "sky" in words else None
    if words & (synonyms.OF_TIME | synonyms.OF_WEATHER | synonyms.OF_LIGHT) and value in synonyms.WHEN:
        return Slot(after=synonyms.WHEN[value])
    if words & synonyms.OF_WEATHER:
        return (
            Slot(after=f"in {value} weather")
            if synonyms.is_adjective(value)
            else Slot(after=f"in {synonyms.the(value)}")
        )
    if words & synonyms.OF_LIGHT:
        if value in synonyms.LIGHT_ON_THINGS:
            return Slot(before=value)
        light = value if re.search(r"light(?:ing)?$", value) else f"{value} light"
        return Slot(after=f"in {light}")
    if words & synonyms.OF_TIME:
        return Slot(after=f"in {synonyms.the(value)}") if value.isalpha() else None
    return None


def _of_the_setting(attribute: str, words: set[str], value: str) -> Slot | None:
    if not words & synonyms.OF_SETTING:
        return None
    if value in synonyms.WHEN and value not in synonyms.WHERE:
        return Slot(after=synonyms.WHEN[value])
    if value in synonyms.WHERE:
        return Slot(after=synonyms.WHERE[value])
    noun = next(iter(sorted(words & synonyms.OF_SETTING)))
    if value in synonyms.COLOURS or synonyms.is_adjective(value):
        kind = "background" if "background" in words else "setting" if noun != "scene" else "scene"
        return Slot(after=f"{'against' if kind == 'background' else 'in'} {synonyms.article(value)}{value} {kind}")
    last = value.split()[-1]
    if last in synonyms.WHERE:
        preposition = synonyms.WHERE[last].split()[0]
        return Slot(after=f"{preposition} {synonyms.article(value) or ''}{value}")
    return Slot(after=f"in {synonyms.the(value)}")


def _company(words: set[str]) -> bool:
    """Returns whether the attribute is about things beside the subject: "nearby object", not "object colour"."""
    return bool(words & synonyms.COMPANY) and not words & (synonyms.KINDS - synonyms.COMPANY)


def _beside_noun(attribute: str, words: set[str], value: str) -> Slot | None:
    if _company(words):
        return Slot(after=f"with {synonyms.some(value)}")
    if words & synonyms.WORN:
        return Slot(after=f"with {synonyms.some(value)}") if not synonyms.is_adjective(value) else Slot(before=value)
    return None


def _of_the_thing(attribute: str, words: set[str], value: str) -> Slot | None:
    """Handles colours, sizes, patterns, materials, ages, poses: adjectives before the noun, other nouns after it."""
    if value in synonyms.DEGREES - synonyms.SIZES and not words & synonyms.OF_SIZE:
        return Slot(after=f"with {synonyms.article(value)}{value} {attribute}")
    if value in synonyms.COLOURS or synonyms.is_adjective(value):
        return Slot(before=value)
    if words & synonyms.OF_MATTER and len(value.split()) <= 2:
        return Slot(after=f"with {value}") if value.endswith("s") and not value.endswith("ss") else Slot(before=value)
    return None


_RULES = (
    _absent, _as_it_is, _counted, _of_the_picture, _of_the_view, _of_time_and_weather, _of_the_setting, _beside_noun,
)  # fmt: skip


TRIES = 100  # wordings of one content
MAX_TOKENS = 96
IDENTITY = ("proposal_id", "bias_class", "number")
GENERAL = "a photo of a [CLASS] [VALUE]"
_KEPT = ("proposal_id", "target_class", "attribute", "bias_class", "number")
_OPENING = re.compile(r"^an? (?:photo|picture|image|snapshot|photograph|shot|view)(?: of| showing) ", re.IGNORECASE)
Cell = dict[str, Any]


def cells(proposals: pa.Table, captions_per_cell: int) -> list[Cell]:
    """Returns a row per caption to be written: class, attribute, bias class and its number within the cell.

    `same` and `others` decide whether a caption names the value: names that were merged into it, and the attribute's
    other values.
    """
    return [
        {
            "proposal_id": row["proposal_id"],
            "target_class": row["target_class"],
            "attribute": row["attribute"],
            "bias_class": bias_class,
            "number": number,
            "same": [m["from"] for m in row["merged"] or () if m["kind"] == "value" and m["into"] == bias_class],
            "others": [other for other in row["bias_classes"] if other != bias_class],
        }
        for row in proposals.to_pylist()
        for bias_class in row["bias_classes"]
        for number in range(captions_per_cell)
    ]


def caption(
    task: str,
    proposals: pa.Table,
    language_model: LanguageModel | None,
    captions_per_cell: int,
    seed: int,
    templates: Mapping[str, str] | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Returns tables of `tables.CAPTIONS` (one row per cell and number, whatever was rejected) and `tables.REJECTED`.

    `templates`: attribute → a template with the slots [CLASS] and [VALUE]. The language model writes no captions for
    these attributes.
    """
    rows = cells(proposals, captions_per_cell)
    user_templates = {normalise(attribute): template for attribute, template in (templates or {}).items()}
    replies: dict[int, str] = {}
    template: str | None = None
    rejected: list[dict[str, str]] = []
    without_template = [k for k, row in enumerate(rows) if normalise(row["attribute"]) not in user_templates]
    if language_model is not None and without_template:
        classes = proposals["target_class"].unique().to_pylist()
        template, rejected = _template(described(task, classes), language_model, seed)
        texts, template_rejections = _texts(
            template or GENERAL, [rows[k] for k in without_template], language_model, seed
        )
        replies = {k: text for k, text in zip(without_template, texts, strict=True) if text is not None}
        rejected += template_rejections
    used_texts: dict[str, set[str]] = defaultdict(set)
    captions = []
    for k, row in enumerate(rows):
        earlier = used_texts[row["proposal_id"]]
        if k in replies and normalise(replies[k]) in earlier:
            reason = ReplyError("another caption of this attribute says the same", replies[k])
            rejected.append(_rejection("caption", _about(row), reason))
            del replies[k]
        wordings = _wordings(user_templates.get(normalise(row["attribute"])) or template, row)
        text = replies.get(k) or next(wording for wording in wordings if normalise(wording) not in earlier)
        earlier.add(normalise(text))
        caption_id = content_id("caption", row["proposal_id"], row["bias_class"], row["number"], text)
        captions.append(
            {**{name: row[name] for name in _KEPT}, "kind": ATTRIBUTE, "text": text, "caption_id": caption_id}
        )
    return pa.Table.from_pylist(captions, CAPTIONS), pa.Table.from_pylist(rejected, REJECTED)


def _wordings(template: str | None, row: Cell) -> Iterator[str]:
    """Yields different captions of a cell, beginning at its number: from the template first, then in general
    wording."""
    values = [(row["attribute"], row["bias_class"])]
    general = (caption_of(row["target_class"], values, number) for number in range(TRIES))
    of_template = () if template is None else (fill(reworded(template, n), row) for n in range(len(FRAMES)))
    numbered = (f"{caption_of(row['target_class'], values)}, number {number}" for number in range(1, 10**6))
    return chain(of_template, general, numbered)


def reworded(template: str, number: int) -> str:
    """Returns the template with its opening, such as "a photo of", in other words; unchanged for number 0."""
    if number == 0:
        return template
    kind, link = FRAMES[number]
    opening = f"{synonyms.article(kind)}{kind} {link} "
    body = _OPENING.sub("", template, count=1)
    return f"{opening}{body[:1].lower()}{body[1:]}" if body != template else f"{opening}{template}"


def fill(template: str, row: Cell) -> str:
    """Returns the template with its slots filled; `a` and `an` before a slot fit the word that fills it.

    Where nothing stands between class and value, `wording` phrases the value.
    """
    name = " ".join(row["target_class"].replace("_", " ").split())
    caption_text = caption_of(row["target_class"], [(row["attribute"], row["bias_class"])])
    prefix = f"{synonyms.article('photo')}photo of "
    if "[CLASS] [VALUE]" in template and caption_text.startswith(prefix):
        phrase = caption_text.removeprefix(prefix)
        noun_phrase = phrase.removeprefix(synonyms.article(phrase.removeprefix("a ").removeprefix("an ")))
        return _filled(template, "[CLASS] [VALUE]", noun_phrase)
    for slot, text in (("[CLASS]", name), ("[ATTRIBUTE]", row["attribute"]), ("[VALUE]", row["bias_class"])):
        template = _filled(template, slot, text)
    return template


def _filled(template: str, slot: str, text: str) -> str:
    def with_article(match: re.Match[str]) -> str:
        article = synonyms.article(text)
        return f"{article.capitalize() if match[1][0] == 'A' else article}{text}"

    return re.sub(rf"\b([Aa]n?) {re.escape(slot)}", with_article, template).replace(slot, text)


def _template(task: str, language_model: LanguageModel, seed: int) -> tuple[str | None, list[dict[str, str]]]:
    request = ChatRequest(
        prompts.messages("template", task=task),
        schema=TEMPLATE_SCHEMA,
        temperature=TEMPERATURE,
        top_p=TOP_P,
        max_tokens=MAX_TOKENS,
        seed=seed_of("template", prompts.text("template"), task, seed),
    )
    reply = language_model.chat([request])[0]
    try:
        template = str(parse_reply(reply, TEMPLATE_SCHEMA)["template"])
        if "[CLASS]" not in template or "[VALUE]" not in template:
            raise ReplyError("the template lacks the slot [CLASS] or [VALUE]", reply.text)
    except ReplyError as error:
        return None, [_rejection("template", task, error)]
    return template, []


def _texts(
    template: str, rows: Sequence[Cell], language_model: LanguageModel, seed: int
) -> tuple[list[str | None], list[dict[str, str]]]:
    """Returns the model's caption of each row, None where it cannot be used; and the rejected replies."""
    requests = [
        ChatRequest(
            prompts.messages(
                "caption",
                template=template,
                target_class=row["target_class"],
                attribute=row["attribute"],
                bias_class=row["bias_class"],
                number=str(row["number"] + 1),
            ),
            schema=CAPTION_SCHEMA,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            max_tokens=MAX_TOKENS,
            seed=seed_of("caption", prompts.text("caption"), [row[name] for name in IDENTITY], seed),
        )
        for row in rows
    ]
    texts: list[str | None] = []
    rejected = []
    for row, reply in zip(rows, language_model.chat(requests), strict=True):
        try:
            texts.append(
                _checked(" ".join(str(parse_reply(reply, CAPTION_SCHEMA)["caption"]).split()), row, reply.text)
            )
        except ReplyError as error:
            texts.append(None)
            rejected.append(_rejection("caption", _about(row), error))
    return texts, rejected


def _checked(text: str, row: Cell, reply: str) -> str:
    if not names_class(text, row["target_class"]):
        raise ReplyError("the caption does not name the class", reply)
    if not names_value(text, row["attribute"], row["bias_class"], row["others"], row["same"]):
        raise ReplyError(f"the caption does not say that {row['attribute']} is {row['bias_class']}", reply)
    return text


def _about(row: Cell) -> str:
    return f"{row['target_class']}/{row['attribute']}/{row['bias_class']}"


def _rejection(step: str, subject: str, error: ReplyError) -> dict[str, str]:
    return {"step": step, "about": subject, "reply": error.reply, "reason": str(error)}
