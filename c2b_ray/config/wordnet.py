"""Reads the nouns of a WordNet dict folder (`data.noun`, `index.noun`) strictly: names and hypernyms of each synset.

The format is wndb(5WN) of WordNet 3.0. A synset is identified by its offset, `n02190166`: ImageNet's wnid. It knows
WordNet's files, not classifiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage.documents import read_lines

_HYPERNYMS = ("@", "@i")  # hypernym, and hypernym of an instance


@dataclass(frozen=True)
class Synset:
    """`names`: its lemmas, the most common first. `parents`: the synsets directly above it."""

    names: tuple[str, ...]
    parents: tuple[str, ...]


def read_wordnet(folder: str | Path) -> dict[str, Synset]:
    """Returns synset → its names and parents.

    Raises SourceError where there is no data.noun; ConfigError, which names the line that is invalid.
    """
    data = Path(folder) / "data.noun"
    if not data.is_file():
        raise SourceError(f"{folder}: not a WordNet dict folder: it has no data.noun", location=str(folder))
    synsets: dict[str, Synset] = {}
    for number, line in enumerate(read_lines(data, "WordNet"), 1):
        if line.strip() and not line.startswith("  "):  # the licence is indented
            try:
                offset, synset = _synset(line)
            except (ValueError, IndexError) as error:
                problem = f"line {number} is no synset of WordNet's nouns: {line[:60]!r}"
                raise ConfigError("hierarchy", problem, location=str(data)) from error
            synsets[offset] = synset
    for offset, synset in synsets.items():
        if unknown := [parent for parent in synset.parents if parent not in synsets]:
            problem = f"the parent {unknown[0]} of {offset} ({synset.names[0]}) is not in it"
            raise ConfigError("hierarchy", problem, location=str(data))
    return synsets


def prompt_name(number: str, synsets: Mapping[str, Synset]) -> str | None:
    """Returns the text in brackets in the paper's prompts: "insect" in "fly (insect)", though a fly's parent is
    `dipterous insect`.

    It is the name of a parent's parent, else of a parent; of several, the first whose words are not all in the label:
    for a Persian cat "domestic animal" rather than "cat". All 39 prompts that Wiles et al. print (Tables 1 and 3)
    follow this rule.
    """
    synset = synsets[number]
    above = [grand for parent in synset.parents for grand in synsets[parent].parents] or list(synset.parents)
    words = {word for name in synset.names for word in name.lower().split()}
    names = [synsets[parent].names[0] for parent in above]
    return next((name for name in names if not set(name.lower().split()) <= words), names[0] if names else None)


def _synset(line: str) -> tuple[str, Synset]:
    """Parses: offset lex_filenum ss_type w_cnt (word lex_id)… p_cnt (symbol offset pos source/target)… | gloss"""
    cells = line.partition(" | ")[0].split()
    offset, kind, words = cells[0], cells[2], int(cells[3], 16)
    at = 4 + 2 * words
    pointers = int(cells[at])
    if not (offset.isdigit() and len(offset) == 8 and kind == "n" and words) or len(cells) < at + 1 + 4 * pointers:
        raise ValueError(line)
    each = [cells[at + 1 + 4 * i : at + 5 + 4 * i] for i in range(pointers)]
    parents = [f"n{target}" for symbol, target, part, _ in each if symbol in _HYPERNYMS and part == "n"]
    return f"n{offset}", Synset(tuple(word.replace("_", " ") for word in cells[4:at:2]), tuple(parents))


def commonest(folder: str | Path) -> dict[str, str]:
    """Returns name → the synset of its most common sense, from index.noun; empty where the folder has none."""
    index = Path(folder) / "index.noun"
    result: dict[str, str] = {}
    for number, line in enumerate(read_lines(index, "WordNet") if index.is_file() else [], 1):
        if line.strip() and not line.startswith("  "):
            cells = line.split()
            try:
                result[cells[0].replace("_", " ")] = f"n{cells[len(cells) - int(cells[2])]}"
            except (ValueError, IndexError) as error:
                problem = f"line {number} is no line of WordNet's index: {line[:60]!r}"
                raise ConfigError("hierarchy", problem, location=str(index)) from error
    return result
