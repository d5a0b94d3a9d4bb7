"""How classes, labels and nouns belong together: label maps, and WordNet's names and hypernyms.

A label map says class → labels of the classifier, from a file or within an audit file. The nouns of a WordNet dict
folder (`data.noun`, `index.noun`) are read strictly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from c2b_ray.config.named import ClassifierSpec, Name, Names, distinct
from c2b_ray.errors import ConfigError, InputError, SourceError
from c2b_ray.names import folded, normalise
from c2b_ray.storage.manifest import read_json, read_lines, read_table, read_yaml


def no_label(label_map: dict[Any, Any]) -> str | None:
    """Returns the error in a label map with a label that is neither a name nor an index (`true` is not 1); None if
    there is none."""
    for name, labels in label_map.items():
        for label in labels if isinstance(labels, list) else ():
            if isinstance(label, bool) or not isinstance(label, int | str):
                return f"{name}: {label!r} is neither a label's name nor its index"
    return None


def read_label_map(path: str, classes: list[str]) -> dict[str, list[int | str]]:
    try:
        data = read_json(path)
    except InputError as error:
        raise ConfigError("label_map", str(error)) from error
    if not isinstance(data, dict) or not all(isinstance(v, list) and v for v in data.values()):
        raise ConfigError("label_map", f"{path}: expected an object of class → list of label indices or names")
    if (problem := no_label(data)) is not None:
        raise ConfigError("label_map", f"{path}: {problem}")
    # A map of a whole label space may hold more classes than this task.
    class_names = set(map(normalise, classes))
    return {name: labels for name, labels in data.items() if not classes or normalise(name) in class_names}


# The classifiers that a file names, and their label map, as types of fields. It knows names, not models.


_Names = str | list[str] | dict[str, str]


def _checked(classifier: _Names) -> _Names:
    """Raises ValueError for no classifier, or for a name or a spec that occurs twice."""
    if not classifier:
        raise ValueError("name at least one classifier")
    if isinstance(classifier, dict):
        distinct(list(classifier), "classifier", folded)
    if not isinstance(classifier, str):
        specs = list(classifier.values()) if isinstance(classifier, dict) else classifier
        repeated = next((spec for number, spec in enumerate(specs) if spec in specs[:number]), None)
        if repeated is not None:
            raise ValueError(f"classifier {repeated!r} is given twice")
    return classifier


def _labels_alone(label_map: Any) -> Any:
    """Raises ValueError for a label that is neither a name nor an index: as a number, `true` would be 1."""
    if isinstance(label_map, dict) and (problem := no_label(label_map)) is not None:
        raise ValueError(problem)
    return label_map


Classifiers = Annotated[ClassifierSpec | list[ClassifierSpec] | dict[Name, ClassifierSpec], AfterValidator(_checked)]
"""One spec, a list of specs, or user-chosen names → specs."""
LabelMap = Annotated[str | dict[Name, list[int | str]], BeforeValidator(_labels_alone), Names.LABEL_MAP]
"""A file, or class → labels of the classifier."""


def specs_by_name(classifier: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Returns the spec of each classifier by its name, in their order; a spec without a name is its own name."""
    if isinstance(classifier, Mapping):
        return dict(classifier)
    specs = [classifier] if isinstance(classifier, str) else classifier
    return {spec: spec for spec in specs}


# WordNet's nouns: names and hypernyms of each synset. The format is wndb(5WN) of WordNet 3.0; a synset is identified by
# its offset, `n02190166`, which is ImageNet's wnid.


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
    ancestors = [grand for parent in synset.parents for grand in synsets[parent].parents] or list(synset.parents)
    words = {word for name in synset.names for word in name.lower().split()}
    names = [synsets[parent].names[0] for parent in ancestors]
    return next((name for name in names if not set(name.lower().split()) <= words), names[0] if names else None)


def _synset(line: str) -> tuple[str, Synset]:
    """Parses: offset lex_filenum ss_type w_cnt (word lex_id)… p_cnt (symbol offset pos source/target)… | gloss"""
    cells = line.partition(" | ")[0].split()
    offset, kind, words = cells[0], cells[2], int(cells[3], 16)
    position = 4 + 2 * words
    pointers = int(cells[position])
    if (
        not (offset.isdigit() and len(offset) == 8 and kind == "n" and words)
        or len(cells) < position + 1 + 4 * pointers
    ):
        raise ValueError(line)
    pointer_cells = [cells[position + 1 + 4 * i : position + 5 + 4 * i] for i in range(pointers)]
    parents = [f"n{target}" for symbol, target, part, _ in pointer_cells if symbol in _HYPERNYMS and part == "n"]
    return f"n{offset}", Synset(tuple(word.replace("_", " ") for word in cells[4:position:2]), tuple(parents))


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


# The field `hierarchy` of a config: reads which labels have a parent in common.


KINDS = "imagenet_kinds.tsv"
PACKAGED = {"world": ("c2b_ray.world", "hierarchy.yaml"), "imagenet": ("c2b_ray.config", "imagenet_parents.tsv")}


@dataclass(frozen=True)
class Entry:
    """A thing that a label may name. `parents` are compared; `shown` is the text in prompts."""

    names: tuple[str, ...]
    parents: tuple[str, ...]
    shown: str | None


@dataclass(frozen=True)
class Ancestry:
    """The content of a hierarchy.

    `ordered`: whether its entries are in the order of a known label space, ImageNet-1k's. `commonest`: for a name of
    several entries, the number of the one that it usually means.
    """

    source: str
    entries: tuple[Entry, ...]
    ordered: bool = False
    commonest: Mapping[str, int] = field(default_factory=dict)


def read_hierarchy(source: str) -> Ancestry:
    """Returns the hierarchy of a config's field. Raises ConfigError where it cannot be read or has a cycle."""
    try:
        if source in PACKAGED:
            package, name = PACKAGED[source]
            with as_file(files(package).joinpath(name)) as path:
                return _imagenet(path) if source == "imagenet" else _of_yaml(path, source)
        if Path(source).is_dir():
            return _of_wordnet(source)
        if source.lower().endswith(".csv"):
            return _of_csv(source)
        return _of_yaml(source, source)
    except InputError as error:
        if isinstance(error, ConfigError) and error.field == "hierarchy":
            raise
        hint = "" if Path(source).exists() else "; expected world, imagenet, a YAML or CSV file, or a WordNet folder"
        raise ConfigError("hierarchy", f"{error}{hint}") from error


@dataclass(frozen=True)
class Kind:
    """A synset above some of ImageNet-1k's classes. `names`: those that mean it before any other such synset;
    `positions`: of the classes below it, at any distance."""

    names: tuple[str, ...]
    positions: tuple[int, ...]


def imagenet_kinds() -> tuple[Kind, ...]:
    """Returns what lies above ImageNet-1k's classes in WordNet 3.0, such as `bird` and `vehicle`."""
    kinds = []
    with as_file(files("c2b_ray.config").joinpath(KINDS)) as path:
        for line in read_lines(path, "TSV"):
            if not line.startswith("#"):
                number, names, positions = line.split("\t")
                kinds.append(Kind((*filter(None, names.split(", ")), number), tuple(map(int, positions.split()))))
    return tuple(kinds)


def _of_yaml(path: str | Path, source: str) -> Ancestry:
    data = read_yaml(path)
    if not isinstance(data, dict) or not data:
        raise ConfigError("hierarchy", f"{source}: expected a mapping of label: parent, or label: [parents]")
    parents = {label: (value or [None]) if isinstance(value, list) else [value] for label, value in data.items()}
    return _named(source, ((label, parent) for label, values in parents.items() for parent in values))


def _of_csv(path: str) -> Ancestry:
    return _named(path, ((row["label"], row["parent"] or None) for row in read_table(path, ("label", "parent"))))


def _named(source: str, pairs: Iterable[tuple[Any, Any]]) -> Ancestry:
    """Returns a hierarchy of labels and parents that are identified by their names."""
    parents: dict[str, list[str]] = {}
    for label, parent in pairs:
        for name in (label, parent):
            if name is not None and (not isinstance(name, str) or not normalise(name)):
                raise ConfigError(
                    "hierarchy", f"{source}: {label!r}: {parent!r} are not both names; quote them if they are"
                )
        if label is None:
            raise ConfigError("hierarchy", f"{source}: a row with the parent {parent!r} has no label")
        parents.setdefault(label, []).extend([] if parent is None else [parent])
    _refuse_twice(source, parents)
    _refuse_circles(
        source, {normalise(name): [normalise(p) for p in parents_of_name] for name, parents_of_name in parents.items()}
    )
    entries = (
        Entry(
            (name,),
            tuple(dict.fromkeys(map(normalise, parents_of_name))),
            " ".join(parents_of_name[0].split()) if parents_of_name else None,
        )
        for name, parents_of_name in parents.items()
    )
    return Ancestry(source, tuple(entries))


def _refuse_twice(source: str, names: Iterable[str]) -> None:
    first_spelling: dict[str, str] = {}
    for name in names:
        if (earlier := first_spelling.setdefault(normalise(name), name)) != name:
            raise ConfigError("hierarchy", f"{source}: {earlier!r} and {name!r} are compared as one label; keep one")


def _refuse_circles(source: str, parents: dict[str, list[str]]) -> None:
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        circle = " → ".join(map(repr, reversed(error.args[1])))
        raise ConfigError("hierarchy", f"{source}: a label is its own ancestor: {circle}") from error


def _of_wordnet(folder: str) -> Ancestry:
    synsets = read_wordnet(folder)
    _refuse_circles(folder, {number: list(synset.parents) for number, synset in synsets.items()})
    entries = tuple(
        Entry((*synset.names, number), synset.parents, prompt_name(number, synsets))
        for number, synset in synsets.items()
    )
    position_of = {number: position for position, number in enumerate(synsets)}
    first = {
        normalise(name): position_of[number] for name, number in commonest(folder).items() if number in position_of
    }
    return Ancestry(folder, entries, commonest=first)


def _imagenet(path: Path) -> Ancestry:
    """Reads lines of: synset, its names (separated by `, `), its parents' synsets (by spaces), the text in prompts."""
    entries = []
    for line in read_lines(path, "TSV"):
        if not line.startswith("#"):
            number, names, parents, prompt_text = line.split("\t")
            entries.append(Entry((*names.split(", "), number), tuple(parents.split()), prompt_text))
    return Ancestry("imagenet", tuple(entries), ordered=True)
