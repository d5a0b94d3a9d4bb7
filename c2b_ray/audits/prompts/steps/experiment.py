"""The experiment on words: families of words that can replace each other, their contexts, and two looks.

    block = (context, seeds)    treatments = words of a family, and the context without any

In a block the rest of the prompt, and the seeds, are the same for all words, so that no word benefits from its
neighbours. The first look puts every word into a few contexts; the second puts the words that it leaves open into more
contexts, none of which the first has used. It knows prompts and counts, and no model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.audits.prompts.steps.words import Occurrence, Slot, by_slot
from c2b_ray.tables import seed_of

LEAST_CONTEXTS = 4
"""The fewest contexts of a look: the error of a mean of fewer cannot be estimated."""
OF_FIRST = 3
"""Before a second look, the first uses at most one in this many of a family's contexts."""
LEAST_OTHERS = 3
"""The fewest other words of a family that a word is compared with."""
REFERENCES = 2
"""How many words the tested ones are compared with in each context of the second look: in turn, all words of the family
that the first look left out."""
_INDEFINITE = ("~", "^")
"""Slots after another content word, and at the beginning: what may stand there differs from prompt to prompt."""


@dataclass(frozen=True)
class Block:
    """A context and its seeds: the prompt with each word, and without any, or None where it would lose its noun."""

    with_word: Mapping[str, str]
    without: str | None
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class SlotDesign:
    """`words` are tested, in the blocks that hold them. `references`: words that they are compared with; empty: they
    are compared with one another."""

    slot: Slot
    words: tuple[str, ...]
    blocks: tuple[Block, ...]
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Words of one form, each tested only in this family, and the contexts in which each of them can stand.

    `contexts`: each once, in an order by hash, so that the choice of contexts does not depend on what the words do.
    `noun`: a context without any of the words would lose its subject.
    """

    slot: Slot
    words: tuple[str, ...]
    contexts: tuple[Occurrence, ...]
    noun: bool


def families(prompts: Iterable[str], words: Sequence[str], kept: Sequence[str], least: int, seed: int) -> list[Family]:
    """Returns families of the words; a word is assigned to the largest family in which it is tested.

    `kept`: nouns that prompts are about, which no context can do without. `least`: the fewest contexts of a family;
    words with fewer in every slot are in none.
    """
    slots = by_slot(prompts)
    remaining, result = list(words), []
    while remaining and slots:
        tested = {slot: _at_home(slot, remaining, slots) for slot in slots}
        slot = max(slots, key=lambda candidate: sum(len(slots[candidate][word]) for word in tested[candidate]))
        contexts = _contexts(_alike(slot, tested[slot], slots), slots, seed)
        if not tested[slot]:
            break
        if len(contexts) >= least:
            noun = any(word in kept for word in tested[slot])
            result.append(Family(slot, tuple(tested[slot]), contexts, noun))
            remaining = [word for word in remaining if word not in tested[slot]]
        del slots[slot]
    return result


Slots = dict[Slot, dict[str, list[Occurrence]]]


def _at_home(slot: Slot, words: Iterable[str], slots: Slots) -> list[str]:
    """Returns the words that stand in the slot at least half as often as in any other: "fence" is no adjective because
    one prompt has "fence posts"."""
    occurrences = slots[slot]
    return [
        w
        for w in words
        if w in occurrences and 2 * len(occurrences[w]) >= max(len(s[w]) for s in slots.values() if w in s)
    ]


def _alike(slot: Slot, words: Collection[str], slots: Slots) -> list[Slot]:
    """Returns the slot, and those in which at least half of its words stand too: "near a", "beside a"."""
    if slot[0] in _INDEFINITE:
        return [slot]
    similar = [s for s in slots if s != slot and s[1] == slot[1] and s[0] not in _INDEFINITE]
    return [slot, *(s for s in similar if 2 * sum(word in slots[s] for word in words) >= len(words))]


def _contexts(chosen_slots: Iterable[Slot], slots: Slots, seed: int) -> tuple[Occurrence, ...]:
    contexts: dict[tuple[str, ...], Occurrence] = {}
    for slot in chosen_slots:
        for of_word in slots[slot].values():
            for occurrence in of_word:
                contexts.setdefault(_rest(occurrence), occurrence)
    return tuple(
        contexts[key] for key in sorted(contexts, key=lambda key_words: seed_of("context", seed, list(key_words)))
    )


def _rest(occurrence: Occurrence) -> tuple[str, ...]:
    """Returns the context of an occurrence: its prompt without the word."""
    other_tokens = (*occurrence.tokens[: occurrence.at], "", *occurrence.tokens[occurrence.at + 1 :])
    return tuple(token.lower() for token in other_tokens)


def first_look(family: Family, kept: Collection[str], sizes: tuple[int, int], share: int, seed: int) -> SlotDesign:
    """Puts every word of the family into the same contexts.

    `sizes`: the most contexts, and the images of each. `share`: at most one in `share` of the family's contexts is
    used.
    """
    count = min(sizes[0], len(family.contexts) // share)
    contexts = family.contexts[:count]
    blocks = tuple(_block(occurrence, family, family.words, kept, (sizes[1], seed)) for occurrence in contexts)
    return SlotDesign(family.slot, family.words, blocks)


def second_look(
    family: Family, counts: Mapping[str, int], kept: Collection[str], sizes: tuple[int, int], seed: int
) -> SlotDesign | None:
    """Puts the family's words of `counts` each into as many contexts as stated there, beside other words of the family;
    None without such words.

    `sizes`: contexts that the first look has used, and the images of each context.
    """
    tested = tuple(word for word in family.words if counts.get(word))
    if not tested:
        return None
    most = max(counts[word] for word in tested)
    references = tuple(word for word in family.words if word not in tested)
    if len(references) < LEAST_OTHERS:
        tested, references = family.words, ()
    blocks = []
    for number, occurrence in enumerate(family.contexts[sizes[0] :][:most]):
        present = [word for word in tested if counts.get(word, most) > number]
        compared = [
            references[(REFERENCES * number + k) % len(references)] for k in range(REFERENCES if references else 0)
        ]
        blocks.append(_block(occurrence, family, [*present, *compared], kept, (sizes[1], seed)))
    return SlotDesign(family.slot, tested, tuple(blocks), references)


def _block(
    occurrence: Occurrence, family: Family, words: Iterable[str], kept: Collection[str], draw: tuple[int, int]
) -> Block:
    """`draw`: images, and the run's seed."""
    seeds = tuple(seed_of("association", draw[1], list(_rest(occurrence)), n) for n in range(draw[0]))
    prompt_without = None if family.noun or occurrence.word in kept else occurrence.without() or None
    return Block({word: occurrence.with_word(word) for word in words}, prompt_without, seeds)


def wanted(designs: Iterable[SlotDesign]) -> list[tuple[str, Sequence[int]]]:
    """Returns every prompt and its seeds in the experiment."""
    return [
        (prompt, block.seeds)
        for design in designs
        for block in design.blocks
        for prompt in (*block.with_word.values(), *([block.without] if block.without else []))
    ]
