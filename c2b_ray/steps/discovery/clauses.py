"""Splits a captioner's description into short sentences about the image: "a photo of a bus, in red" → "it is in red".

It covers the grammar of captions and no more: a lead ("a photo of"), a noun with adjectives before it, phrases behind
it, commas and "and" between them. A phrase keeps its words, so that a model that reads captions understands the
sentence as it understood the phrase. It knows English; `sentences` decides which sentences may be used.
"""

from __future__ import annotations

import re

from c2b_ray.steps import words
from c2b_ray.steps.discovery.sentences import name_pattern, split, uncapitalised

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
# A model that repeats itself without end says more; a person does not.
_MOST_LETTERS, _MOST_SENTENCES, _MOST_WORDS = 8000, 40, 60
_PREPOSITION = "|".join(sorted((*words.PREPOSITIONS, "to", "of", "as"), key=len, reverse=True))
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
    return [said for sentence in sentences for said in _of_sentence(sentence, label)]


def _of_sentence(sentence: str, label: str) -> list[str]:
    if len(sentence.split()) > _MOST_WORDS:
        return [sentence]
    while len(rest := _LEAD.sub("", sentence, count=1)) < len(sentence) and _LEAD.match(rest):
        sentence = rest  # "this is a photograph of a"
    match = name_pattern(label).search(sentence)
    if match is None:
        whole = _SUBJECT.match(sentence) is not None and _VERB.search(sentence) is not None
        return [sentence] if whole else [said for piece in _pieces(sentence) for said in _phrase(piece)]
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
        text = f"there {'are' if text.partition(' ')[0].lower() in words.MANY else 'is'} {text}"
    return [text, *(f"it is {adjective}" for adjective in adjectives)]


def _before(head: str) -> list[str]:
    """Returns the sentences in "at night, a small red": the opening of the sentence, the kind of picture, the
    adjectives."""
    if opening := _OPENING.match(head):
        head = f"{opening.group(1)}, {opening.group(2)}"
    *openings, last = re.split(r"\s*[,:;]\s*", head)
    result = [said for opening in openings if not _LEAD.match(f"{opening} ") for said in _phrase(opening)]
    lead = _LEAD.match(f"{last} ")
    if lead and (kind := (lead.group(1) or "").strip()).lower() not in _PLAIN_KINDS:
        result.append(f"the picture is {kind}")
    modifiers = _DETERMINER.sub("", f"{last} "[lead.end() :] if lead else last).strip()
    if modifiers.lower() in words.MANY:
        return [*result, f"there are {modifiers}"]
    return result + [f"it is {modifier}" for modifier in _adjectives(modifiers)]


def _adjectives(modifiers: str) -> list[str]:
    """ "small red" → small, red. "light blue" stays together; "school", of a bus, is left out: it names another kind of
    thing."""
    parts = [part for part in modifiers.split() if _is_adjective(part)]
    together = any(part.lower() in _INTENSIFIERS for part in parts[:-1])
    return [" ".join(parts)] if together else parts


def _is_adjective(word: str) -> bool:
    return word.lower() in _ADJECTIVES or words.is_adjective(word.lower())


def _after(tail: str, label: str) -> list[str]:
    tail = re.sub(r"^\s*\([^)]*\)", "", tail)  # "(insect)"
    result: list[str] = []
    for piece in _pieces(tail):
        if name_pattern(label).search(piece):
            result += _of_sentence(piece, label)
        elif _SUBJECT.match(piece) and _VERB.search(piece):
            result.append(piece)
        else:
            first, *rest = _parts(piece)
            verb = first.partition(" ")[0].lower()
            is_verb = tail.startswith(f" {piece}") and verb.endswith("s") and verb not in _NO_VERBS and verb.isalpha()
            result += [f"it {first}"] if is_verb else _phrase(first)
            result += [said for part in rest for said in _phrase(part)]
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
    if lower in words.WHEN or lower in words.WHERE:
        return [f"it is {words.WHEN.get(lower) or words.WHERE[lower]}"]
    if lower.startswith(_WHILE):
        return [f"it is seen {text}"]
    if verb := _VERB_FIRST.match(text):
        return [f"it {_SINGULAR.get(verb[1].lower(), verb[1])}{text[verb.end(1) :]}"]
    if lower.startswith(("its ", "their ")):
        return [f"it is with {text}"]
    if _DETERMINER.match(text):
        return [f"there is {text}"]
    return [f"it is {text.removeprefix('that ')}"]
