"""Tests which words of a run's prompts raise a value: a separate experiment, on fresh seeds.

A first look at all words decides which of them a second look tests, on new prompts and seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from c2b_ray.audits.prompts.config import Associations, Attribute
from c2b_ray.audits.prompts.run import LeastEffect, PromptsState, WordSearch
from c2b_ray.audits.prompts.search import neutral_prompts
from c2b_ray.audits.prompts.steps.experiment import (
    LEAST_CONTEXTS,
    OF_FIRST,
    POWER,
    Finding,
    LooksMade,
    Pair,
    SlotDesign,
    analysed,
    contexts_of_second,
    families,
    first_look,
    least_effects,
    left_open,
    pair,
    q_values,
    second_look,
    wanted,
)
from c2b_ray.audits.prompts.steps.words import LeakWords, distinctive, frequent_words, leaks_of, words_of
from c2b_ray.report import words
from c2b_ray.tables.prompts import ASSOCIATIONS

NOT_PLACED = "too few prompts hold them in one kind of place; more `associations.prompts` may help"
NOT_COMPARED = "too few of their contexts have anything to compare them with; more `associations.prompts` may help"


def associate(work: PromptsState) -> None:
    """Writes associations.parquet."""
    config = work.config.associations
    if config is None:
        return
    rows, searches = [], []
    for name in config.generators or [next(iter(work.config.generators))]:
        of_generator, search = _rows(work, name)
        rows += of_generator
        searches.append(search)
        work.notes.append(_reach_note(search))
    work.run.write("associations", pa.Table.from_pylist(rows, schema=ASSOCIATIONS))
    work.run.update({"words": [word_search.model_dump() for word_search in searches]})


@dataclass(frozen=True)
class _Looks:
    """The findings of both looks at one generator's words. `open_pairs`: those that the second decides; None without
    one."""

    first: Sequence[Finding]
    second: Sequence[Finding] = ()
    open_pairs: frozenset[Pair] | None = None
    untested: Mapping[str, str] = field(default_factory=dict)


def _rows(work: PromptsState, generator: str) -> tuple[list[dict[str, object]], WordSearch]:
    looks = _looks(work, generator)
    second_by_pair = {pair(finding): finding for finding in looks.second}
    decided = None if looks.open_pairs is None else looks.open_pairs & set(second_by_pair)
    findings = [second_by_pair.get(pair(finding), finding) for finding in looks.first]
    used = {pair(finding): finding.images for finding in looks.first}
    q = q_values(findings, decided)
    search = _search(work, generator, looks, len(findings) if decided is None else len(decided), q)
    return [
        {
            **vars(word_finding),
            "q_value": of_one,
            "generator": generator,
            "raises": of_one <= work.config.alpha,
            "look": 2 if pair(word_finding) in second_by_pair else 1,
            "images_used": used[pair(word_finding)]
            + (word_finding.images if pair(word_finding) in second_by_pair else 0),
        }
        for word_finding, of_one in zip(findings, q, strict=True)
    ], search


def _search(work: PromptsState, generator: str, looks: _Looks, decided: int, q: Sequence[float]) -> WordSearch:
    """Returns what was tested, and the least effects that these looks would have found. The second look has as many
    contexts of a word as there were fresh ones, if these were fewer than the config allows."""
    section, alpha = work.config.associations, work.config.alpha
    assert section is not None
    most = max((finding.contexts for finding in looks.second), default=section.most_followed)
    look_settings = LooksMade(decided, sum(q_value <= alpha for q_value in q), section.least_effect, alpha, most)
    return WordSearch(
        generator=generator,
        words=len({finding.word for finding in looks.first}),
        decided=decided,
        power=POWER,
        least=[
            LeastEffect(attribute=attribute, value=value, effect=effect)
            for (attribute, value), effect in least_effects(looks.first, look_settings).items()
        ],
        untested=dict(looks.untested),
    )


def _reach_note(search: WordSearch) -> str:
    """Returns in words which effect would have been found."""
    with_effect = sorted(
        (least_effect for least_effect in search.least if least_effect.effect is not None),
        key=lambda least_effect: least_effect.effect or 0.0,
    )
    where = f"Words on {search.generator}: of {words.plural(search.words, 'word')}"
    if not with_effect:
        return f"{where}, no effect would have been found 4 times in 5: more `associations.contexts` would help."
    easy, hard = with_effect[0], with_effect[-1]
    line = f"{where}, a link would have been found 4 times in 5, at best, if the word adds at least "
    line += f"{words.signed(hard.effect or 0.0)} to {hard.attribute} {hard.value}"
    if easy.effect != hard.effect:
        least = words.signed(easy.effect or 0.0)
        line += f", the hardest to see, and {least} to {easy.attribute} {easy.value}, the easiest"
    return f"{line}. Weaker links may be there."


def _looks(work: PromptsState, generator: str) -> _Looks:
    config = work.config.associations
    assert config is not None
    pool = _pool(work, generator, config)
    subject_words = [word for subject in work.config.subjects for word in words_of(subject)]
    frequent = [word for word in frequent_words(pool, ()) if not _names_a_value(work, word)]
    candidates = frequent[: config.words]
    share = OF_FIRST if config.most_followed else 1
    word_families = families(pool, candidates, subject_words, share * LEAST_CONTEXTS, work.config.seed)
    sizes = (config.contexts, config.images)
    designs = [first_look(family, subject_words, sizes, share, work.config.seed) for family in word_families]
    first = _findings(work, generator, designs, "words")
    placed = {word for family in word_families for word in family.words}
    tested = {word_finding.word for word_finding in first}
    untested = {word: NOT_PLACED if word not in placed else NOT_COMPARED for word in candidates if word not in tested}
    _tell_untested(work, generator, untested, frequent[config.words :])
    if not config.most_followed:
        return _Looks(first, untested=untested)
    counts = contexts_of_second(first, config.most_followed)
    used = {design.slot: len(design.blocks) for design in designs}
    second_designs = [
        second_look(family, counts, subject_words, (used[family.slot], config.images), work.config.seed)
        for family in word_families
    ]
    usable_designs = [design for design in second_designs if design is not None]
    second = _findings(work, generator, usable_designs, "words again")
    work.notes.append(
        f"Words on {generator}: {_images(designs)} images in the first look; {_images(usable_designs)} in the second, "
        f"which decides of {len(counts)} words."
    )
    return _Looks(first, second, frozenset(pair(finding) for finding in left_open(first)), untested)


def _images(designs: Sequence[SlotDesign]) -> str:
    return f"{sum(len(seeds) for _, seeds in wanted(designs)):,}"


def _tell_untested(work: PromptsState, generator: str, untested: Mapping[str, str], rarer: Sequence[str]) -> None:
    """`untested`: word → why; `rarer`: words beyond those that the config lets be tested."""
    for why in dict.fromkeys(untested.values()):
        listed = ", ".join(word for word, of_word in untested.items() if of_word == why)
        work.notes.append(f"Words on {generator} that are not tested: {listed} ({why}).")
    if rarer:
        most = work.config.associations.words if work.config.associations else 0
        work.notes.append(
            f"Words on {generator} that are not tested, because rarer than the {most} of "
            f"`associations.words`: {words.plural(len(rarer), 'word')}, the most frequent {', '.join(rarer[:5])}."
        )


def _findings(work: PromptsState, generator: str, designs: Sequence[SlotDesign], step: str) -> list[Finding]:
    section = work.config.associations
    assert section is not None
    frequencies = work.judged(step, {generator: wanted(designs)})
    findings: list[Finding] = []
    for attribute, of_attribute in work.config.attributes.items():
        values = {v: partial(frequencies.shows, generator, target={attribute: v}) for v in of_attribute.values}
        findings += analysed(designs, attribute, values, section.least_effect, work.config.alpha)
    return findings


def _pool(work: PromptsState, generator: str, config: Associations) -> list[str]:
    """Returns prompts without a value's name: those that searches found for the generator, then neutral ones."""
    found_prompts = [
        prompt
        for row in work.run.read("searches", ["search_id", "generator", "prompts"]).sort_by("search_id").to_pylist()
        if row["generator"] == generator
        for prompt in row["prompts"]
    ]
    leaks = [leaks_of(attribute.values, attribute.synonyms) for attribute in work.config.attributes.values()]
    prompts = dict.fromkeys([*neutral_prompts(work, config.prompts), *found_prompts])
    return [prompt for prompt in prompts if not any(leak.word(prompt) for leak in leaks)]


def _names_a_value(work: PromptsState, word: str) -> bool:
    return any(describes(attribute).word(word) for attribute in work.config.attributes.values())


def describes(attribute: Attribute) -> LeakWords:
    """Returns the words that name a value, or that the config uses to describe one value and no other.

    That such a word raises the value is no association.
    """
    texts = {value: [text] for value, text in (attribute.texts or {}).items()}
    phrases = {
        value: [text for text in (value, *attribute.synonyms.get(value, ())) if " " in text]
        for value in attribute.values
    }
    described = [
        word for texts_of_value in (texts, phrases) for words in distinctive(texts_of_value).values() for word in words
    ]
    return leaks_of([*attribute.values, *described], attribute.synonyms)
