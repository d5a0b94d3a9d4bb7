"""Words of prompts: where they stand, prompts without them or with others, their inflections, and which name a value.

It knows the English that captions are made of: articles, prepositions, "that is". It knows no model.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.names import a_or_an
from c2b_ray.steps import synonyms as words

ARTICLES = frozenset({"a", "an", "the", "one", "some"})
JOINTS = words.PREPOSITIONS | frozenset(
    {"of", "and", "or", "that", "which", "who", "is", "are", "was", "were", "looks", "seems", "to", "as", "while"}
    | {"before", "after", "beyond", "his", "her", "its", "their", "this", "there", "we", "see", "it", "for", "very"}
)
LEADS = frozenset(
    {"photo", "picture", "image", "snapshot", "photograph", "drawing", "view", "scene", "painting", "portrait", "shot"}
)
_FUNCTION = ARTICLES | JOINTS
_TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")

Slot = tuple[str, str]
"""What stands before a word, function words alone, and what kind of word comes after it: words of one slot are of one
form, and each can replace the other."""


@dataclass(frozen=True)
class Occurrence:
    """A content word in a prompt: the prompt as tokens, and the position of the word."""

    tokens: tuple[str, ...]
    at: int

    @property
    def word(self) -> str:
        return self.tokens[self.at].lower()

    @property
    def slot(self) -> Slot:
        words_before: list[str] = []
        for token in reversed(self.tokens[: self.at]):
            if token.lower() not in _FUNCTION or len(words_before) == 3:
                break
            words_before.append("a" if token.lower() in ARTICLES else token.lower())
        word_after = self.tokens[self.at + 1].lower() if self.at + 1 < len(self.tokens) else ""
        begins = not words_before and self.at == 0
        first = "^" if begins else " ".join(reversed(words_before)) or "~"
        return first, "word" if word_after and word_after not in _FUNCTION and word_after[0].isalnum() else "end"

    def with_word(self, word: str) -> str:
        """Returns the prompt with another word instead of this one, with a matching article."""
        return text_of([*self.tokens[: self.at], word, *self.tokens[self.at + 1 :]])

    def without(self) -> str:
        """Returns the prompt without the word and without what only leads up to it: its article, its preposition, its
        comma."""
        return text_of([*self.tokens[: self._from], *self.tokens[self.at + 1 :]])

    @property
    def part(self) -> str:
        """The part that `without` lacks."""
        return text_of(self.tokens[self._from : self.at + 1])

    @property
    def _from(self) -> int:
        """The first token that only leads up to the word."""
        position = self.at
        while (
            self.slot[1] == "end"
            and position
            and (self.tokens[position - 1].lower() in _FUNCTION or not self.tokens[position - 1][0].isalnum())
        ):
            position -= 1
        return position


def occurrences(prompt: str) -> list[Occurrence]:
    """Returns every content word of the prompt."""
    tokens = tuple(_TOKEN.findall(prompt))
    return [
        Occurrence(tokens, position)
        for position, token in enumerate(tokens)
        if token[0].isalpha() and len(token) > 1 and token.lower() not in _FUNCTION | LEADS
    ]


def text_of(tokens: Sequence[str]) -> str:
    """Returns the tokens as text, with `a` or `an` by the sound that follows."""
    fixed = list(tokens)
    for position, token in enumerate(fixed[:-1]):
        if token.lower() in ("a", "an") and fixed[position + 1][0].isalpha():
            right = a_or_an(fixed[position + 1])
            fixed[position] = right.capitalize() if token[0].isupper() else right
    text = re.sub(r"\s+([,.;:!?])", r"\1", " ".join(fixed))
    return re.sub(r"^[\s,;:]+|[\s,;:]+$", "", text)


def parts(prompt: str) -> list[tuple[str, str]]:
    """Returns (part, prompt without it) for each adjective and each phrase that can be left out; the head noun
    is kept."""
    result: dict[str, str] = {}
    for occurrence in occurrences(prompt):
        prompt_without = occurrence.without()
        if not prompt_without or (occurrence.slot[0] in ("^", "a", "~", "of a") and occurrence.slot[1] == "end"):
            continue  # the noun that the prompt is about
        result.setdefault(occurrence.part, prompt_without)
    return list(result.items())


def by_slot(prompts: Iterable[str]) -> dict[Slot, dict[str, list[Occurrence]]]:
    """Returns every slot with its words, each with its occurrences, in the order of the prompts."""
    result: dict[Slot, dict[str, list[Occurrence]]] = defaultdict(lambda: defaultdict(list))
    for prompt in prompts:
        for occurrence in occurrences(prompt):
            result[occurrence.slot][occurrence.word].append(occurrence)
    return result


def frequent_words(prompts: Iterable[str], excluded: Collection[str]) -> list[str]:
    """Returns content words by the number of prompts that hold them, most first, without the excluded ones."""
    counts = Counter(
        word for prompt in prompts for word in dict.fromkeys(occurrence.word for occurrence in occurrences(prompt))
    )
    return [word for word, _ in counts.most_common() if word not in excluded]


def distinctive(wordings: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Returns value → the content words of its wordings that no other value's have: they name it or describe it."""
    words_by_value = {
        value: list(dict.fromkeys(occurrence.word for text in texts for occurrence in occurrences(text)))
        for value, texts in wordings.items()
    }
    counts = Counter(word for listed in words_by_value.values() for word in listed)
    return {value: [word for word in listed if counts[word] == 1] for value, listed in words_by_value.items()}


# English inflections: the forms of a word, and the words that a form may come from.


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
    unrelated = frozenset() if word in _OTHER_WORDS else _OTHER_WORDS
    return frozenset({word, *(forms - unrelated), *_IRREGULAR.get(word, ())})


def bases(word: str) -> tuple[str, ...]:
    """Returns the words of which this one may be an inflection: "rain" of "rainy", "smile" of "smiling", "dog" of
    "dogs", "old" of "older"; none for a word that is none, or for one too short to say."""
    result = [base for base, forms in _IRREGULAR.items() if word in forms]
    if word in _FIXED | _NOT_INFLECTED:
        return tuple(result)
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        result += [word[:-1], *([word[:-2]] if word.endswith(("ses", "xes", "zes", "ches", "shes")) else [])]
        result += [word[:-3] + ending for ending in ("f", "fe") if word.endswith("ves")]
        result += [word[:-3] + "y"] if word.endswith("ies") else []
    if word.endswith("ying"):
        result.append(word[:-4] + "ie")
    for ending in ("ing", "ed", "y", "en"):
        stem = word.removesuffix(ending)
        if stem != word and (stem[-1:] not in ("", *_VOWELS) or stem.endswith("oo")):
            result += _with_ending_restored(stem)
    result += [adjective for adjective in sorted(_COMPARED) if word in _compared(adjective)]
    return tuple(
        base for base in dict.fromkeys(result) if len(base) > 2 and any(letter in base for letter in _VOWELS + "y")
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


# Checks whether a prompt names the value that it should bring about without naming it: by whole words, inflections,
# synonyms.


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HYPHENS = re.compile(r"(?<=\w)[-\u2010-\u2015](?=\w)")

SYNONYMS: dict[str, str] = {
    "man": "man male guy gentleman boy father dad husband boyfriend son brother uncle nephew grandfather he him his "
    "himself masculine sir mr king prince groom lad bearded businessman policeman fireman salesman chairman cameraman "
    "craftsman fisherman handyman spokesman workman waiter actor",
    "woman": "woman female lady girl mother mum mom wife housewife girlfriend daughter sister aunt niece grandmother "
    "she her hers herself feminine madam mrs ms queen princess bride lass businesswoman policewoman chairwoman "
    "saleswoman spokeswoman waitress actress",
    "young": "young youth youthful youngster teen teenager child kid adolescent juvenile toddler baby",
    "old": "old elder elderly aged senior grandparent pensioner retiree retired geriatric",
    "white": "white caucasian european pale-skinned",
    "black": "black african dark-skinned",
    "asian": "asian chinese japanese korean indian vietnamese thai",
    "day": "day daytime daylight noon midday sunlit sunny sunlight",
    "night": "night nighttime nightfall overnight tonight midnight nocturnal moonlit moonlight moon dark darkness",
    "sunset": "sunset dusk sundown twilight evening",
    "rain": "rain rainfall rainstorm raindrop rainwater drizzle downpour shower umbrella-weather",
    "snow": "snow snowfall snowstorm snowflake snowdrift snowman snowcapped blizzard",
    "fog": "fog mist haze murk",
    "clear": "clear cloudless fine dry",
    "small": "small little tiny miniature petite distant distance far faraway",
    "sun": "sun sunshine sunlight sunlit sunbeam sunray",
    "storm": "storm thunderstorm thunder",
    "cloud": "cloud overcast",
    "grey": "grey gray",
    "blond": "blond blonde",
    "colourful": "colourful colorful",
    "moustache": "moustache mustache",
    "glasses": "glasses eyeglasses spectacles",
    "angry": "angry anger furious",
    "large": "large big huge giant enormous gigantic massive close-up",
}
_ALIASES = {
    "male": "man", "men": "man", "boy": "man", "female": "woman", "women": "woman", "girl": "woman",
    "elderly": "old", "senior": "old", "daytime": "day", "nighttime": "night", "dusk": "sunset", "misty": "fog",
    "mist": "fog", "big": "large", "huge": "large", "gray": "grey", "blonde": "blond", "colorful": "colourful",
    "mustache": "moustache", "overcast": "cloud", "little": "small", "tiny": "small",
}  # fmt: skip
_EMPTY = words.PREPOSITIONS | {"a", "an", "the", "of", "with", "very", "quite", "rather"}
"""Words of a value's name that name nothing by themselves: "at night" is night, "very large" is large."""
_DETERMINERS = frozenset(
    ["a", "an", "the", "this", "that", "these", "those", "my", "your", "his", "her", "its", "our", "their"]
)
"""Words that may stand between those of a name: "riding his bike" names "riding a bike"."""


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in lower case, without their possessive ending.

    Accents are removed, and look-alike spellings (full width, invisible signs between letters) become plain ones.
    """
    return [re.sub(r"['’]s?$", "", word) for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text)
    base_letters = (letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf"))
    return "".join(base_letters).casefold()


@dataclass(frozen=True)
class LeakWords:
    """`phrases`: sequences of words, each word with all its forms. A prompt that holds one of them leaks."""

    phrases: tuple[tuple[frozenset[str], ...], ...]

    def word(self, text: str) -> str | None:
        """Returns the first word or phrase of the text that names a value, "sun-set" as well as "sunset"; None where
        nothing does."""
        return self._first(words_of(text)) or self._first(words_of(_HYPHENS.sub("", text)))

    def _first(self, words: Sequence[str]) -> str | None:
        for start in range(len(words)):
            for phrase in self.phrases:
                if end := _end(words, start, phrase):
                    return " ".join(words[start:end])
        return None


def _end(words: Sequence[str], position: int, phrase: Sequence[frozenset[str]]) -> int | None:
    """Returns where the phrase that begins at `position` ends; None where none begins there."""
    for number, forms in enumerate(phrase):
        while number and position < len(words) and words[position] in _DETERMINERS - forms:
            position += 1
        if position == len(words) or words[position] not in forms:
            return None
        position += 1
    return position


def leaks_of(names: Iterable[str], synonyms: Mapping[str, Sequence[str]]) -> LeakWords:
    """Returns the words that name these values: the values themselves, known synonyms, and those of the config (value →
    texts)."""
    texts = []
    for name in names:
        plain = words_of(name.replace("_", " "))
        core = " ".join(word for word in plain if word not in _EMPTY) or " ".join(plain)
        stems = bases(core) if " " not in core else ()
        synonyms_known = [
            word for form in (core, *stems) for word in SYNONYMS.get(_ALIASES.get(form, form), "").split()
        ]
        whole_name = [name] if " " in core else []  # "cup of coffee" beside "cup coffee"
        texts += [core, *whole_name, *stems, *synonyms_known, *synonyms.get(name, ())]
    phrases = dict.fromkeys(_named_by(text) for text in texts)
    phrases |= {("".join(phrase),): None for phrase in phrases if len(phrase) > 1}  # "ice cream" and "icecream"
    return LeakWords(tuple(_forms(phrase) for phrase in phrases if phrase))


def _named_by(text: str) -> tuple[str, ...]:
    """Returns the words of a name without determiners, unless it is one."""
    words = words_of(text.replace("_", " "))
    return tuple(word for word in words if word not in _DETERMINERS) or tuple(words)


def _forms(phrase: Sequence[str]) -> tuple[frozenset[str], ...]:
    """Returns all forms of each word; among several, also of the word that it may come from: "rides a bike"."""
    if len(phrase) == 1:
        return (inflections(phrase[0]),)
    return tuple(frozenset().union(*map(inflections, (word, *bases(word)))) for word in phrase)
