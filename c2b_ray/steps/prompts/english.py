"""English inflections: the forms of a word, and the words that a form may come from.

Endings are rules; irregular forms, and words that only look inflected, are lists. snowballstemmer, simplemma and
lemminflect were tried: to them "rainy" is no form of "rain". It knows words, and neither prompts nor values.
"""

from __future__ import annotations

import re


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOWELS = "aeiou"
_BEFORE_VOWELS = ("ed", "ing", "er", "ers", "est", "y", "ish", "en", "ens", "ened", "ening")
"""Endings that take away an e ("white", "whiter") and double a consonant ("red", "redder")."""
_SHORT = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")
"""Words whose last letter these endings double always: "hated" is no form of "hat"."""
_SIBILANTS = ("s", "x", "z", "ch", "sh", "o")

_PARADIGMS = """
begin began begun|bend bent|bite bitten|blow blew blown|break broke broken|bring brought|build built|
burn burnt|buy bought|catch caught|child children|cling clung|creep crept|dig dug|draw drew drawn|dream dreamt|
drink drank drunk drunken|drive drove driven|eat ate eaten|fall fell fallen|far farther farthest further furthest|
feed fed|fight fought|fling flung|fly flew flown|foot feet|forget forgot forgotten|freeze froze frozen|
give gave given|goose geese|grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept|kneel knelt|
lean leant|leap leapt|lie lay lain|light lit|melt molten|mouse mice|ox oxen|person people|ride rode ridden|
ring rang rung|rise rose risen|rot rotten|run ran|shake shook shaken|shave shaven|shine shone|
shrink shrank shrunk shrunken|sing sang sung|sink sank sunk sunken|sit sat|sleep slept|slide slid|speak spoke spoken|
spin spun|stand stood|steal stole stolen|stick stuck|sting stung|strike struck stricken|sweep swept|swell swollen|
swim swam swum|swing swung|take took taken|teach taught|tear tore torn|tell told|think thought|
throw threw thrown|tooth teeth|wake woke woken|wear wore worn|weave wove woven|weep wept|win won|write wrote written
"""
_IRREGULAR = {words[0]: tuple(words[1:]) for words in (one.split() for one in _PARADIGMS.split("|")) if words}
_FIXED = frozenset(["he", "him", "his", "himself", "she", "her", "hers", "herself", "mr", "mrs", "ms", "sir", "madam"])
_OTHER_WORDS = _set(
    """
many manner manners sony ladder ladders lady mister teeny finish army early tally belly bully jelly county flower
flowers shower showers tower towers corner corners offer offers offered butter letter letters banner banners dinner
dinners summer summers penny master masters poster posters porter porters pasty tier tiers matter batter battery pity
charter quarter winter fully country copper rubber ribbed bitten better bitter litter kitten sitten mitten button
hammer robber silly number lumber timber gutter pillow potty putty buggy manned hearty party parting ironed irony
eyed been beer beers cower inner news ballet bunny funny honey money heady tinny canny nanny woody
candy handed handing handling backing baring
"""
)
"""What the endings would make of other words: "manner" of man, "lady" of lad, "army" of arm, "tally" of tall."""
_NOT_INFLECTED = _set(
    """
evening herring news party army county story factory early holy every fairy bunny penny body baby city wicked rugged
chicken kitten kitchen garden series species shorts busy tidy tiny silly happy pretty ugly heavy ready easy empty angry
navy ivory cherry berry ruby lily ivy daisy jelly belly pony ferry lobby copy study country honey tabby
linen raven maiden heaven seven even oven alien queen green open listen tired naked sacred hundred speed seed weed
morning ceiling spring string king ring wing thing pudding darling
"""
)
"""Words that end like an inflection of another word, which they do not name: "party" is not "part"."""
_COMPARED = _set(
    """
old young dark light bright dim small large big tiny little near close far tall short long high low wide narrow thin
thick fat slim heavy slow fast new clean dirty warm cold cool hot dry wet soft hard rough smooth rich poor strong weak
pale sharp loud quiet calm happy sad angry deep shallow full empty busy pretty plain simple fair curly
"""
)
"""Adjectives that a comparative may come from; of other words "-er" makes something else, or nothing."""


def inflections(word: str) -> frozenset[str]:
    """Returns the word with the English endings of nouns, verbs and adjectives, whether or not it takes them; without
    other words that only look so ("many" is no form of "man"). Pronouns and titles have no forms."""
    if word in _FIXED:
        return frozenset({word})
    forms = {word + ending for ending in ("s", "ly", "ness")}
    if not _SHORT.fullmatch(word):
        forms |= {word + ending for ending in _BEFORE_VOWELS}
    if len(word) > 2 and word[-1] not in "aeiouwxy" and word[-2] in _VOWELS and word[-3] not in _VOWELS:
        forms |= {word + word[-1] + ending for ending in _BEFORE_VOWELS}
    if word.endswith(_SIBILANTS):
        forms.add(word + "es")
    if word.endswith("e"):
        forms |= {word + ending for ending in ("d", "r", "rs", "st")}
        forms |= {word[:-1] + ending for ending in _BEFORE_VOWELS}
    if word.endswith("ie"):
        forms.add(word[:-2] + "ying")
    if word.endswith("y") and len(word) > 2 and word[-2] not in _VOWELS:
        forms |= {word[:-1] + "i" + ending for ending in ("es", "er", "ers", "est", "ed", "ness", "ly")}
    if word.endswith(("f", "ife")):
        forms.add(word.removesuffix("e")[:-1] + "ves")
    if word.endswith("man"):
        forms |= {word[:-2] + "en", word[:-2] + "ens"}
    others = frozenset() if word in _OTHER_WORDS else _OTHER_WORDS
    return frozenset({word, *(forms - others), *_IRREGULAR.get(word, ())})


def bases(word: str) -> tuple[str, ...]:
    """Returns the words of which this one may be an inflection: "rain" of "rainy", "smile" of "smiling", "dog" of
    "dogs", "old" of "older"; none for a word that is none, or for one too short to say."""
    found = [base for base, forms in _IRREGULAR.items() if word in forms]
    if word in _FIXED | _NOT_INFLECTED:
        return tuple(found)
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        found += [word[:-1], *([word[:-2]] if word.endswith(("ses", "xes", "zes", "ches", "shes")) else [])]
        found += [word[:-3] + ending for ending in ("f", "fe") if word.endswith("ves")]
        found += [word[:-3] + "y"] if word.endswith("ies") else []
    if word.endswith("ying"):
        found.append(word[:-4] + "ie")
    for ending in ("ing", "ed", "y", "en"):
        stem = word.removesuffix(ending)
        if stem != word and (stem[-1:] not in ("", *_VOWELS) or stem.endswith("oo")):
            found += _with_ending_restored(stem)
    found += [adjective for adjective in sorted(_COMPARED) if word in _compared(adjective)]
    return tuple(
        base for base in dict.fromkeys(found) if len(base) > 2 and any(letter in base for letter in _VOWELS + "y")
    )


def _compared(adjective: str) -> frozenset[str]:
    return frozenset(form for form in inflections(adjective) if form.endswith(("er", "est"))) - {adjective}


def _with_ending_restored(stem: str) -> list[str]:
    """Undoes what an ending that begins with a vowel does: "runn" was "run", "strip" was "stripe"."""
    if len(stem) > 2 and stem[-1] == stem[-2]:
        return [stem, stem[:-1]]
    if _SHORT.fullmatch(stem):  # else its last letter would be doubled
        return [stem + "e"]
    return [stem, stem + "e"]
