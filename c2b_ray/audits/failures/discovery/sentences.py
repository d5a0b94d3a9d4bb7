"""Captions as a baseline prompt and sentences behind it: "a realistic photograph of a fly (insect). it is on a flower."

A caption is split into its sentences, which are recombined (Wiles et al. 2022, section 3). `statements` turns a
captioner's free text into such sentences. It knows texts, not images or models.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from string import Formatter

from c2b_ray.errors import ConfigError
from c2b_ray.names import mention, mentions, normalise
from c2b_ray.steps import synonyms

MOST_WORDS = 25
"""The most words of a sentence: a longer one describes one image rather than a kind of images (footnote 4)."""

_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
_ABBREVIATED = re.compile(r"(?:^|[\s(])(?:[A-Za-z]|e\.g|i\.e|mr|mrs|dr|st|no|vs|approx|etc)\.$", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+", re.MULTILINE)
_LITTLE = frozenset(re.findall(r"\w+", "a an the it its is are was were be been there this that these those"))
_SAYS_NOTHING = _LITTLE | frozenset(
    re.findall(r"\w+", "of in on at by with and or to for as one has have seen shown image photo photograph picture")
)


@dataclass(frozen=True)
class DroppedSentence:
    """`reason`: names_label, names_class, repeated, too_long, says_nothing."""

    sentence: str
    reason: str


def noun(label: str) -> str:
    """Returns a label's name in a text: "tench" for "tench, Tinca tinca", "traffic light" for "traffic_light"."""
    return " ".join(label.partition(",")[0].replace("_", " ").split())


def name_pattern(label: str) -> re.Pattern[str]:
    """Returns a pattern that finds the label's name in a text."""
    return mention(noun(label))


def check_prompt(template: str) -> None:
    """Raises ConfigError for the field `prompt` where it has no {label}, or a placeholder that is neither {label} nor
    {parent}."""
    try:
        placeholders = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError("prompt", f"{template!r} is no template: {error}") from error
    if "label" not in placeholders or not set(placeholders) <= {"label", "parent"}:
        raise ConfigError(
            "prompt", f"{template!r} must hold {{label}}, and may hold {{parent}}; nothing else in braces"
        )


def baseline(template: str, label: str, parent: str | None) -> str:
    """Returns the prompt of a label. "a" and "an" fit the word behind them; without a parent " ({parent})" is
    removed."""
    check_prompt(template)
    text = template.replace("{parent}", parent) if parent else re.sub(r"\s*\(\{parent\}\)|\{parent\}", "", template)
    name = noun(label)

    def filled(match: re.Match[str]) -> str:
        article = match.group(1)
        new_article = synonyms.article(name) if article else ""
        return f"{new_article.capitalize() if article and article[0] == 'A' else new_article}{name}"

    return finished(" ".join(re.sub(r"(\b[Aa]n?\s+)?\{label\}", filled, text).split()))


def caption(prompt: str, sentences: Iterable[str]) -> str:
    """Returns the prompt with the sentences behind it, each with its full stop."""
    return " ".join([finished(prompt), *map(finished, sentences)])


def finished(sentence: str) -> str:
    text = " ".join(sentence.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def split(text: str) -> list[str]:
    """Returns the sentences of a text, without full stops. "e.g." and initials end no sentence; bullets are removed."""
    parts: list[str] = []
    for part in (" ".join(piece.split()) for piece in _END.split(_BULLET.sub("", text)) if piece.strip()):
        if parts and _ABBREVIATED.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {part}"
        else:
            parts.append(part)
    return [bare for part in parts if (bare := part.strip(" \"'“”.!?;,"))]


def behind(text: str, label: str) -> tuple[str, list[str]]:
    """Returns the prompt that a caption begins with and the sentences behind it. The prompt ends with the sentence that
    names the label."""
    parts = split(text)
    position = next((i for i, part in enumerate(parts) if mentions(part, label)), 0)
    return finished(". ".join(parts[: position + 1])), parts[position + 1 :]


def usable(
    sentences: Iterable[str], label: str, others: Collection[str] = ()
) -> tuple[list[str], list[DroppedSentence]]:
    """Returns the sentences that may stand behind a prompt, and why each other one may not.

    `others`: classes that none may name, such as the one that the images were taken for: "a fly that looks like a bee"
    would ask the generator for a bee. A sentence whose subject is the label is rewritten with "it".
    """
    usable_sentences: list[str] = []
    dropped: list[DroppedSentence] = []
    for sentence in sentences:
        shortened = _about_it(sentence, label)
        if reason := _refused(shortened, label, others):
            dropped.append(DroppedSentence(sentence, reason))
        else:
            usable_sentences.append(shortened)
    once = without_repeats(usable_sentences)
    repeated = [DroppedSentence(sentence, "repeated") for sentence in usable_sentences]
    for sentence in once:
        repeated.remove(DroppedSentence(sentence, "repeated"))
    return once, dropped + repeated


def without_repeats(sentences: Sequence[str]) -> list[str]:
    """Removes sentences that say nothing beyond the others: "it is on a flower" beside "it is on a yellow flower"."""
    result: list[str] = []
    for sentence in sentences:
        if not contained(sentence, result):
            result = [other for other in result if not contained(other, [sentence])]
            result.append(sentence)
    return result


def contained(sentence: str, others: Iterable[str]) -> bool:
    """Returns whether one of the others says everything that the sentence says."""
    content_words = _words(sentence) - _LITTLE  # prepositions count: "by day" is not in "on a rainy day"
    return any(content_words <= _words(other) for other in others)


def _words(sentence: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'-]+", sentence.casefold()))


def _about_it(sentence: str, label: str) -> str:
    """ "the fly is in focus" → "it is in focus". The first letter becomes small, so that equal sentences have equal
    spelling."""
    text = " ".join(sentence.split()).strip(" .")
    subject = re.compile(
        rf"^(?:the|this|that|an?) {name_pattern(label).pattern}(?=\s+(?:is|has|was|looks|stands|sits)\b)"
    )
    text = re.compile(subject.pattern, re.IGNORECASE).sub("it", text)
    return uncapitalised(text)


def uncapitalised(text: str) -> str:
    """Returns the text with a small first letter, unless its first word is "I" or all in capitals."""
    first = text.partition(" ")[0]
    return text if first != first.capitalize() or first == "I" else f"{text[:1].lower()}{text[1:]}"


def _refused(sentence: str, label: str, others: Collection[str]) -> str | None:
    if any(mentions(sentence, other) for other in others if normalise(other) != normalise(label)):
        return "names_class"
    if mentions(sentence, label):
        return "names_label"
    if _words(sentence) <= _SAYS_NOTHING:
        return "says_nothing"
    return "too_long" if len(sentence.split()) > MOST_WORDS else None


# Splits a captioner's description into short sentences about the image: "a photo of a bus, in red" → "it is in
# red".


_KIND = r"(?:photo(?:graph)?|picture|image|snapshot|drawing|painting|view|shot|scene|close-up|rendering)"
_LEAD = re.compile(
    rf"^(?:(?:this|it|here) (?:is|shows)|there (?:is|are)|we (?:can )?see|(?:the|this) {_KIND} (?:shows|depicts|is of)"
    rf"|(?:(?:an?|the|one) )?((?:[\w-]+ )*?){_KIND} (?:of|showing|with|taken of|featuring))\b[\s:]*",
    re.IGNORECASE,
)
_PLAIN_KINDS = {"", "realistic", "single", "real", "detailed"}
_DETERMINER = re.compile(r"^(?:an?|the|one|this|that|another|its|some)\b\s*", re.IGNORECASE)
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|looks?|stands?|sits?|lies|hangs?|appears?|seems?|shows?|holds?|wears?|flies|falls|"
    r"goes|faces|fills|covers|contains?)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"^(?:it|its|he|she|they|there|this|these|those|the|an?|some|two|three|many|several|no)\b", re.I)
_VERB_FIRST = re.compile(rf"^(?:which |that |who )?({_VERB.pattern})", re.IGNORECASE)
_WHILE = ("while ", "as ", "when ", "where ", "and ")
# A phrase may begin here. "of" and "behind it" belong to what stands before them.
_STARTS = (
    "next to|in front of|on top of|surrounded by|accompanied by|covered (?:in|with)|shrouded in|"
    "and (?:an?|with|in|on|at) |on|in|at|by|under|above|below|near|beside|behind|against|inside|outside|during|while|"
    "with|without|among|through|from"
)
_NEXT = re.compile(rf"\s+(?=(?:{_STARTS})\s+(?!it\b|them\b|each\b))", re.IGNORECASE)
# Only a model that repeats itself without end says more.
_MOST_LETTERS, _MOST_SENTENCES, _MOST_WORDS = 8000, 40, 60
_PREPOSITION = "|".join(sorted((*synonyms.PREPOSITIONS, "to", "of", "as"), key=len, reverse=True))
_ABOUT_ELSE = re.compile(rf"^[^,:;]*(?:{_VERB.pattern}|\b(?:{_PREPOSITION})\b)[^,:;]*$", re.IGNORECASE)
# "in the woods (there is) a red", before the noun
_OPENING = re.compile(
    rf"^((?:{_PREPOSITION})\s[^,:;]*?)\s+(?:there is\s+|we see\s+)?((?:an?|the|one)(?:\s[\w-]+)*)$", re.I
)
_LAST_NOUN = re.compile(r"^(.*)\s*\b(?:an?|the|one|this|that|its|his|her|their)((?:\s+[\w-]+)*)$", re.IGNORECASE)
_SINGULAR = {"are": "is", "were": "was", "have": "has"}
_PARTICIPLE = re.compile(r"(?:ed|en|ing)$")
_NO_VERBS = frozenset({"as", "its", "his", "this", "towards", "across", "besides", "plus", "is", "was", "has"})
_INTENSIFIERS = frozenset({"very", "light", "dark", "bright", "pale", "deep", "mostly", "partly", "slightly", "black"})
_ADJECTIVES = _INTENSIFIERS | {"and", "distant", "close-up", "stripy", "nearby"}  # beside those of `words`


def statements(text: str, label: str) -> list[str]:
    """Returns the sentences about the image that a caption holds, in its order; none for a caption of only the
    label."""
    owned = re.compile(rf"(?:\b(?:an?|the|this)\s+)?{name_pattern(label).pattern}['’]s?(?=\s)", re.IGNORECASE)
    sentences = (
        uncapitalised(owned.sub("its", sentence)) for sentence in split(text[:_MOST_LETTERS])[:_MOST_SENTENCES]
    )
    return [statement for sentence in sentences for statement in _of_sentence(sentence, label)]


def _of_sentence(sentence: str, label: str) -> list[str]:
    if len(sentence.split()) > _MOST_WORDS:
        return [sentence]
    while len(remainder := _LEAD.sub("", sentence, count=1)) < len(sentence) and _LEAD.match(remainder):
        sentence = remainder  # "this is a photograph of a"
    match = name_pattern(label).search(sentence)
    if match is None:
        is_clause = _SUBJECT.match(sentence) is not None and _VERB.search(sentence) is not None
        return [sentence] if is_clause else [statement for piece in _pieces(sentence) for statement in _phrase(piece)]
    head, tail = sentence[: match.start()].strip(), sentence[match.end() :]
    if _ABOUT_ELSE.search(_LEAD.sub("", f"{head} ")) and not _OPENING.match(head):
        return _about_else(head, tail)
    return [*_before(head), *_after(tail, label)]


def _about_else(head: str, tail: str) -> list[str]:
    """ "a dog next to the red bus" → "a dog is next to it", "it is red"."""
    noun = _LAST_NOUN.match(head)
    adjectives = _adjectives(noun[2]) if noun else []
    text = f"{(noun[1] if noun and len(adjectives) == len(noun[2].split()) else head).strip()} it{tail}"
    if not _VERB.search(text):
        text = f"there {'are' if text.partition(' ')[0].lower() in synonyms.MANY else 'is'} {text}"
    return [text, *(f"it is {adjective}" for adjective in adjectives)]


def _before(head: str) -> list[str]:
    """Returns the sentences in "at night, a small red": the opening of the sentence, the kind of picture, the
    adjectives."""
    if opening := _OPENING.match(head):
        head = f"{opening.group(1)}, {opening.group(2)}"
    *openings, last = re.split(r"\s*[,:;]\s*", head)
    result = [statement for opening in openings if not _LEAD.match(f"{opening} ") for statement in _phrase(opening)]
    lead = _LEAD.match(f"{last} ")
    if lead and (kind := (lead.group(1) or "").strip()).lower() not in _PLAIN_KINDS:
        result.append(f"the picture is {kind}")
    modifiers = _DETERMINER.sub("", f"{last} "[lead.end() :] if lead else last).strip()
    if modifiers.lower() in synonyms.MANY:
        return [*result, f"there are {modifiers}"]
    return result + [f"it is {modifier}" for modifier in _adjectives(modifiers)]


def _adjectives(modifiers: str) -> list[str]:
    """ "small red" → small, red. "light blue" stays together; "school", of a bus, is left out: it names another kind of
    thing."""
    parts = [part for part in modifiers.split() if _is_adjective(part)]
    stays_together = any(part.lower() in _INTENSIFIERS for part in parts[:-1])
    return [" ".join(parts)] if stays_together else parts


def _is_adjective(word: str) -> bool:
    return word.lower() in _ADJECTIVES or synonyms.is_adjective(word.lower())


def _after(tail: str, label: str) -> list[str]:
    tail = re.sub(r"^\s*\([^)]*\)", "", tail)  # "(insect)"
    result: list[str] = []
    for piece in _pieces(tail):
        if name_pattern(label).search(piece):
            result += _of_sentence(piece, label)
        elif _SUBJECT.match(piece) and _VERB.search(piece):
            result.append(piece)
        else:
            first, *further = _parts(piece)
            verb = first.partition(" ")[0].lower()
            is_verb = tail.startswith(f" {piece}") and verb.endswith("s") and verb not in _NO_VERBS and verb.isalpha()
            result += [f"it {first}"] if is_verb else _phrase(first)
            result += [statement for part in further for statement in _phrase(part)]
    return result


def _pieces(text: str) -> list[str]:
    return [piece for part in re.split(r"\s*[,;]\s*|\s+-\s+", text) if (piece := part.strip(" .()\"'"))]


def _parts(phrase: str) -> list[str]:
    """ "on a street at night" → on a street, at night. A single first word is not split off: "small in the frame"."""
    parts: list[str] = []
    for part in _NEXT.split(phrase):
        joined = part.startswith("by ") and parts and _PARTICIPLE.search(parts[-1])
        if parts and (joined or len(parts[-1].split()) < 2):
            parts[-1] = f"{parts[-1]} {part}"
        else:
            parts.append(part)
    return parts


def _phrase(phrase: str) -> list[str]:
    """Returns one phrase as a sentence."""
    text = phrase.strip()
    lower = text.lower()
    if lower.startswith("and "):
        text, lower = text[4:], lower[4:]
    if not lower:
        return []
    name, colon, value = text.partition(":")
    if colon:
        return [f"its {name.strip()} is {value.strip()}"]
    if lower in synonyms.WHEN or lower in synonyms.WHERE:
        return [f"it is {synonyms.WHEN.get(lower) or synonyms.WHERE[lower]}"]
    if lower.startswith(_WHILE):
        return [f"it is seen {text}"]
    if verb := _VERB_FIRST.match(text):
        return [f"it {_SINGULAR.get(verb[1].lower(), verb[1])}{text[verb.end(1) :]}"]
    if lower.startswith(("its ", "their ")):
        return [f"it is with {text}"]
    if _DETERMINER.match(text):
        return [f"there is {text}"]
    return [f"it is {text.removeprefix('that ')}"]
