"""Finds names that mean the same: by spelling, or by an encoder's similarity together with a second reason, never by
similarity alone.

Antonyms are close together in the space of an image-text encoder (day and night, small and large): so similarity only
proposes pairs, and a shared head word or a language model decides. It knows names, not what they are used for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.roles import ChatRequest, Floats, LanguageModel, TextEncoder
from c2b_ray.steps.replies import SAME_SCHEMA, parse_reply
from c2b_ray.tables import seed_of

THRESHOLD = 0.9
PROMPT = "same"
Words = tuple[str, ...]

# British and American spellings, and forms whose stems the endings below do not reach.
_SPELLED = {
    "color": "colour", "gray": "grey", "center": "centre", "harbor": "harbour", "mold": "mould", "tire": "tyre",
    "nighttime": "night", "daytime": "day", "sunny": "sun", "foggy": "fog",
}  # fmt: skip
_LEADING = frozenset({"a", "an", "the", "in", "on", "at", "by", "during", "of", "with"})
_FILLERS = frozenset({"condition", "type", "kind", "level", "status", "category", "value", "scene", "environment"})
_NIGHT_OR_DAY = frozenset({"night", "day"})
# Words that set names apart whatever else they share, each line a set of alternatives.
_CONTRASTS = tuple(
    frozenset(line.split())
    for line in """
    day night dawn dusk sunrise sunset noon morning evening
    light dark bright dim
    small large big tiny huge little medium
    near far close distant
    left right centre
    front back rear side top bottom
    above below over under
    indoor outdoor inside outside
    old young new
    male female man woman boy girl
    high low
    hot cold warm cool
    wet dry
    empty full crowded
    open closed
    on off
    yes no
    with without
    heavy light slight
    sharp blurry blurred
    plain striped dotted
    clear cloudy
    summer winter spring autumn
    red blue green yellow orange purple pink black white grey brown
    zero one two three four five six seven eight nine ten many few single several none
    first second third
    """.strip().splitlines()
)
_NEGATIONS = frozenset({"no", "not", "non", "without", "never", "none", "un", "isnt", "lacking", "less"})


@dataclass(frozen=True)
class SynonymPair:
    """Two names that mean the same, their similarity by an encoder (None: not compared), and the rule."""

    a: str
    b: str
    similarity: float | None
    rule: str


def key(name: str) -> Words:
    """Returns the name's words without leading articles and prepositions, in one spelling and in the singular."""
    spelled = re.findall(r"[^\W_]+", name.lower().replace("'", "").replace("’", ""))
    words = [_stem(word) for word in spelled]
    while len(words) > 1 and spelled[len(spelled) - len(words)] in _LEADING:
        words = words[1:]
    if len(words) == 2 and words[0] in _NIGHT_OR_DAY and words[1] == "time":  # night time, as nighttime
        words = words[:1]
    return tuple(words)


def head(name: str) -> Words:
    """Returns the key without words that add no meaning: "weather conditions" is "weather"."""
    return tuple(word for word in key(name) if word not in _FILLERS)


def apart(a: str, b: str) -> bool:
    """Returns whether words are known to distinguish the two names: antonyms, numbers, colours, or a negation
    of one."""
    words_a, words_b = set(key(a)), set(key(b))
    left, right = words_a - words_b, words_b - words_a
    if bool(words_a & _NEGATIONS) != bool(words_b & _NEGATIONS):
        return True
    contrasts = any(left & group and right & group for group in _CONTRASTS)
    return contrasts or {w for w in left if w.isdigit()} != {w for w in right if w.isdigit()}


def _stem(word: str) -> str:
    word = _SPELLED.get(word, word)
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    word = _SPELLED.get(word, word)
    # snowy, rainy and windy are what has snow, rain and wind.
    return word[:-1] if word in {"snowy", "rainy", "windy", "misty", "cloudy", "stormy", "rocky"} else word


@dataclass
class Judge:
    """Decides which names mean the same, with the models that it has: both may be None. Answers are kept."""

    encoder: TextEncoder | None = None
    language_model: LanguageModel | None = None
    seed: int = 0
    _embedded: dict[str, Floats] = field(default_factory=dict)
    _said: dict[frozenset[str], bool] = field(default_factory=dict)

    def same(
        self, lists: Sequence[Sequence[str]], companions: Mapping[str, set[str]] | None = None
    ) -> list[list[SynonymPair]]:
        """For each list of names, the pairs in it that mean the same, earlier name first.

        spelling        the keys are equal
        head word       the heads are equal, and the encoder holds the two to be each other's nearest in the list, at
                        `THRESHOLD` or more
        language model  nearest and as near, and the language model says twice, in either order, that they mean
                        the same; with `companions` (of an attribute its values) only where the two share one
        Never where `apart` says no.
        """
        self._embed(name for names in lists for name in names)
        near = [list(self._nearest(names)) for names in lists]
        open_pairs = [
            (a, b)
            for pairs in near
            for a, b, _ in pairs
            if key(a) != key(b) and head(a) != head(b) and _related(a, b, companions)
        ]
        self._ask(open_pairs)
        return [self._of_list(names, pairs) for names, pairs in zip(lists, near, strict=True)]

    def _of_list(self, names: Sequence[str], near: Sequence[tuple[str, str, float]]) -> list[SynonymPair]:
        result = [
            SynonymPair(a, b, self._similarity(a, b), "spelling")
            for a, b in combinations(names, 2)
            if a != b and key(a) == key(b)
        ]
        for a, b, similarity in near:
            if key(a) == key(b):
                continue
            if head(a) and head(a) == head(b):
                result.append(SynonymPair(a, b, similarity, "head word"))
            elif self._said.get(frozenset((a, b))):
                result.append(SynonymPair(a, b, similarity, "language model"))
        return result

    def _embed(self, names: Iterable[str]) -> None:
        new = [name for name in dict.fromkeys(names) if name not in self._embedded]
        if self.encoder is not None and new:
            self._embedded.update(zip(new, self.encoder.encode_texts(new), strict=True))

    def _similarity(self, a: str, b: str) -> float | None:
        if self.encoder is None:
            return None
        return float(self._embedded[a] @ self._embedded[b])

    def _nearest(self, names: Sequence[str]) -> Iterable[tuple[str, str, float]]:
        """Yields pairs that are each other's nearest, similar enough, and not known to be apart."""
        if self.encoder is None or len(names) < 2:
            return
        vectors = np.stack([self._embedded[name] for name in names])
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -np.inf)
        nearest = similarity.argmax(axis=1)
        for i, j in enumerate(nearest.tolist()):
            if i < j and nearest[j] == i and similarity[i, j] >= THRESHOLD and not apart(names[i], names[j]):
                yield names[i], names[j], float(similarity[i, j])

    def _ask(self, pairs: Sequence[tuple[str, str]]) -> None:
        new = [pair for pair in dict.fromkeys(pairs) if frozenset(pair) not in self._said]
        if self.language_model is None or not new:
            return
        orders = [order for a, b in new for order in ((a, b), (b, a))]
        requests = [
            ChatRequest(
                prompts.messages(PROMPT, first=first, second=second),
                schema=SAME_SCHEMA,
                max_tokens=32,
                seed=seed_of(PROMPT, prompts.text(PROMPT), first, second, self.seed),
            )
            for first, second in orders
        ]
        answers = []
        for reply in self.language_model.chat(requests):
            try:
                answers.append(bool(parse_reply(reply, SAME_SCHEMA)["same"]))
            except ReplyError:
                answers.append(False)  # what is not understood does not confirm
        for number, pair in enumerate(new):
            self._said[frozenset(pair)] = answers[2 * number] and answers[2 * number + 1]


def _related(a: str, b: str, companions: Mapping[str, set[str]] | None) -> bool:
    if companions is None:
        return True
    return bool({key(v) for v in companions[a]} & {key(v) for v in companions[b]})
