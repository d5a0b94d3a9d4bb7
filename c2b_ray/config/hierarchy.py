"""The field `hierarchy` of a config: reads which labels have a parent in common.

    world        a hierarchy of the embedded world's classes
    imagenet     ImageNet-1k's synsets, with their parents in WordNet 3.0
    FILE.yaml    label: parent, or label: [parents]; null for a label without one
    FILE.csv     columns label and parent, a row per pair
    DIRECTORY    a WordNet dict folder (data.noun, index.noun), such as Debian's /usr/share/wordnet

It reads and checks; `steps/discovery/hierarchy.py` matches its entries to the labels of a classifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from c2b_ray.config.wordnet import commonest, prompt_name, read_wordnet
from c2b_ray.errors import ConfigError, InputError
from c2b_ray.names import normalise
from c2b_ray.storage.documents import read_lines, read_table, read_yaml

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
    return _named(source, ((label, parent) for label, value in data.items() for parent in _listed(value)))


def _listed(value: Any) -> list[Any]:
    return (value or [None]) if isinstance(value, list) else [value]


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
    _refuse_circles(source, {normalise(name): [normalise(p) for p in above] for name, above in parents.items()})
    entries = (
        Entry((name,), tuple(dict.fromkeys(map(normalise, above))), " ".join(above[0].split()) if above else None)
        for name, above in parents.items()
    )
    return Ancestry(source, tuple(entries))


def _refuse_twice(source: str, names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(normalise(name), name)) != name:
            raise ConfigError("hierarchy", f"{source}: {other!r} and {name!r} are compared as one label; keep one")


def _refuse_circles(source: str, above: dict[str, list[str]]) -> None:
    try:
        TopologicalSorter(above).prepare()
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
    at = {number: position for position, number in enumerate(synsets)}
    first = {normalise(name): at[number] for name, number in commonest(folder).items() if number in at}
    return Ancestry(folder, entries, commonest=first)


def _imagenet(path: Path) -> Ancestry:
    """Reads lines of: synset, its names (separated by `, `), its parents' synsets (by spaces), the text in prompts."""
    entries = []
    for line in read_lines(path, "TSV"):
        if not line.startswith("#"):
            number, names, parents, shown = line.split("\t")
            entries.append(Entry((*names.split(", "), number), tuple(parents.split()), shown))
    return Ancestry("imagenet", tuple(entries), ordered=True)
