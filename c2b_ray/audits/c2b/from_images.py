"""An audit file for labelled images and a classifier, where nobody wrote one: what `c2b audit photos/` runs.

The classes of the images are matched to the classifier's labels by their names.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pyarrow import fs

from c2b_ray.audits.kit.models import check_spec, fact_line
from c2b_ray.config.classifiers import imagenet_kinds, read_hierarchy, specs_by_name
from c2b_ray.config.named import LONGEST_NAME
from c2b_ray.errors import ConfigError, InputError, SourceError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.spec_options import UnstatedPreprocessingError
from c2b_ray.names import normalise
from c2b_ray.roles import Description
from c2b_ray.steps.classify import NAME_LABELS, is_unnamed
from c2b_ray.steps.labels import spellings
from c2b_ray.steps.synonyms import Words, key
from c2b_ray.storage import files, is_remote, resolve
from c2b_ray.storage.confined import located, path_below
from c2b_ray.storage.folders import is_image
from c2b_ray.storage.labelled import (
    IMAGE,
    SAMPLE,
    TARGET,
    UNCERTAIN,
    LabelledTable,
    are_marks,
    class_names,
    labels_in,
    numbers_of,
)
from c2b_ray.storage.labelled_rows import LABEL, SPLITS, TABLES, FilesByName, Rows, open_rows
from c2b_ray.storage.manifest import read_yaml
from c2b_ray.storage.s3 import file_info
from c2b_ray.tables import content_id

# Matches the classes of labelled images to the labels of a classifier, by their names.


IMAGENET = 1_000
_OF_THE_SPACE = 0.5
"""Labels are ImageNet's, in its order, if there are 1,000 and more than this share have a name of their position's."""
_HOW = ("name", "number", "spelling", "numbered name", "kind", "synonym")
"""The rules, the surest first."""
_NEAREST = 3
_NUMBERED = re.compile(r"(?:n\d{8}|\d{1,4})[\s._-]+(?=\D)")
"""What folders may have before a class's name: `001.Black_footed_Albatross` (CUB), `n02085620-Chihuahua` (dogs)."""
_COUNTER = re.compile(r"^[\d\W_]+|[\d\W_]+$")
"""What the name of a file may have around that of a class: `cat.0`, `dog_12`, `0007-frog`."""
_SYNSET = re.compile(r"n\d{8}")
_SPLITS = SPLITS | {"training", "testing"}
_NO_LABEL = "no label is called so"


@dataclass(frozen=True)
class Match:
    """The labels that stand for a class, by their positions, and the rule that found them."""

    target_class: str
    labels: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class Unmatched:
    """A class without a label of its own. `nearest`: labels with similar names, or those of equal right."""

    target_class: str
    why: str
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelMatches:
    """`matches` and `unmatched` together are all classes. `assumed`: what was taken for granted about labels that the
    classifier does not name, else ""."""

    matches: tuple[Match, ...]
    unmatched: tuple[Unmatched, ...]
    assumed: str = ""
    shown: Mapping[int, str] = field(default_factory=dict)
    """Names for labels that the classifier does not name, by position."""

    def needs_map(self, labels: Sequence[str]) -> bool:
        """Returns whether an audit needs a label map: not where each class is called like its one label, all of it:
        `tench` is a name of `tench, Tinca tinca`, and not that label."""
        return bool(self.assumed) or any(
            class_match.how != "name"
            or len(class_match.labels) > 1
            or normalise(labels[class_match.labels[0]]) != normalise(class_match.target_class)
            for class_match in self.matches
        )

    def label_map(self, labels: Sequence[str]) -> dict[str, list[int | str]]:
        """Returns class → its labels, by name where it is unique among the labels and no number, else by position."""
        if is_unnamed(labels):
            return {class_match.target_class: list(class_match.labels) for class_match in self.matches}
        of_name: dict[str, int] = defaultdict(int)
        for label in labels:
            of_name[normalise(label)] += 1
        return {
            class_match.target_class: [
                labels[i] if of_name[normalise(labels[i])] == 1 and not _is_number(labels[i]) else i
                for i in class_match.labels
            ]
            for class_match in self.matches
        }


def match_classes(classes: Sequence[str], labels: Sequence[str], in_order: Sequence[str] | None = None) -> LabelMatches:
    """Returns which labels stand for each class.

    `in_order`: the classes in the order of their numbers, where the table has these (a Hugging Face ClassLabel's, or
    whole numbers themselves); None: sorted by name, as libraries number folders. Only outputs without names are matched
    by it.
    """
    if not is_unnamed(labels):
        names = [_names_of(label) for label in labels]
        if _is_imagenet(labels):
            names = [
                [*label_names, *imagenet_names]
                for label_names, imagenet_names in zip(names, _imagenet_names(), strict=True)
            ]
            return _with_numbers_told(_match_of(classes, labels, names, imagenet=True), labels)
        return _with_numbers_told(_match_of(classes, labels, names), labels)
    if len(labels) == IMAGENET:
        space = _imagenet_names()
        result = _match_of(classes, [label_names[0] for label_names in space], space, imagenet=True)
        if len(labels) != len(classes) or len(result.matches) > len(classes) / 2:
            assumed = "the classifier does not name its 1,000 outputs: they are taken to be ImageNet's, in its order"
            return replace(result, assumed=assumed, shown=dict(enumerate(label_names[0] for label_names in space)))
    if len(labels) == len(classes):
        numbered = list(in_order) if in_order is not None else sorted(classes)
        why = "the order of the table's class numbers" if in_order is not None else "the order of the sorted names"
        matches = tuple(Match(name, (i,), "order") for i, name in enumerate(numbered))
        assumed = f"the classifier does not name its {len(labels):,} outputs: they are taken to be in {why}"
        return LabelMatches(matches, (), assumed, dict(enumerate(numbered)))
    why = f"the classifier does not name its {len(labels):,} outputs"
    return LabelMatches((), tuple(Unmatched(name, why) for name in classes))


def _with_numbers_told(matching: LabelMatches, labels: Sequence[str]) -> LabelMatches:
    """Returns `matching` with the assumption that classes which are numbers count the outputs: nothing tells a table
    that was numbered in another order."""
    pairs = [
        f"{class_match.target_class} {labels[class_match.labels[0]]}"
        for class_match in matching.matches
        if class_match.how == "number"
    ]
    if not pairs:
        return matching
    return replace(matching, assumed=f"classes are taken to be the numbers of the classifier's outputs: {_few(pairs)}")


def _match_of(
    classes: Sequence[str], labels: Sequence[str], names: Sequence[Sequence[str]], imagenet: bool = False
) -> LabelMatches:
    by_class: dict[str, Match] = {}
    unmatched: dict[str, Unmatched] = {}
    rules = _rules(classes, names, imagenet)
    of_whole_label = _positions((i, [label]) for i, label in enumerate(labels))
    for name in classes:
        for rule in _HOW:
            positions = rules[rule](name)
            if rule == "name" and len(of_whole_label.get(normalise(name), ())) == 1:  # "crane" before "crane, bird"
                positions = of_whole_label[normalise(name)]
            if len(positions) == 1 or (positions and rule == "kind"):
                by_class[name] = Match(name, tuple(positions), rule)
                break
            if positions:
                listed = tuple(f"{labels[i]} (index {i})" for i in positions[:_NEAREST])
                unmatched[name] = Unmatched(name, f"{len(positions)} labels are called so", listed)
                break
        else:
            unmatched[name] = Unmatched(name, _NO_LABEL, _nearest(name, names))
    matches, ambiguous = _apart(by_class, labels)
    reasons = [ambiguous.get(name) or unmatched.get(name) for name in classes]
    return LabelMatches(matches, tuple(left_over for left_over in reasons if left_over is not None))


def _rules(
    classes: Sequence[str], names: Sequence[Sequence[str]], imagenet: bool
) -> dict[str, Callable[[str], list[int]]]:
    """Returns the rules, each from a class to positions of labels."""
    by_name = _positions(enumerate(names))
    by_key: dict[Words, set[int]] = defaultdict(set)
    for i, label_names in enumerate(names):
        for name in label_names:
            by_key[key(name)].add(i)
    numbered = _are_positions(classes, len(names)) and not any(
        _is_number(name) for label_names in names for name in label_names
    )
    kinds = imagenet_kinds()
    below = {normalise(name): list(kind.positions) for kind in kinds for name in kind.names} if imagenet else {}
    groups: dict[str, set[str]] = defaultdict(set)
    for kind in kinds:
        for name in kind.names:
            groups[normalise(name)] |= set(map(normalise, kind.names))

    def of_number(name: str) -> list[int]:
        return [_number(name)] if numbered and _number(name) < len(names) else []

    def of_numbered(name: str) -> list[int]:
        plain = _NUMBERED.sub("", name, count=1)
        return [] if plain == name else by_name.get(normalise(plain)) or sorted(by_key.get(key(plain), ()))

    def of_synonym(name: str) -> list[int]:
        synonyms = groups.get(normalise(name), set()) - {normalise(name)}
        if _SYNSET.fullmatch(name):  # of ImageNet's folders
            synonyms |= {normalise(other) for names in _imagenet_names() if name in names for other in names}
        return sorted({i for other in synonyms for i in by_name.get(other, ())})

    return {
        "name": lambda name: by_name.get(normalise(name), []),
        "number": of_number,
        "spelling": lambda name: sorted(by_key.get(key(name), ())) if key(name) else [],
        "numbered name": of_numbered,
        "synonym": of_synonym,
        "kind": lambda name: below.get(normalise(name)) or below.get(" ".join(key(name)), []),
    }


def _are_positions(classes: Sequence[str], outputs: int) -> bool:
    """Returns whether classes are numbers of outputs, which begin at 0.

    Numbers without a 0 of which one is beyond the last output begin elsewhere, most often at 1: each would stand for
    its neighbour.
    """
    if not all(map(_is_number, classes)):
        return False
    numbers = [_number(name) for name in classes]
    return 0 in numbers or max(numbers, default=0) < outputs


def _positions(names_by_position: Iterable[tuple[int, Iterable[str]]]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = defaultdict(list)
    for i, names in names_by_position:
        for name in dict.fromkeys(map(normalise, names)):
            result[name].append(i)
    return result


def _apart(by_class: Mapping[str, Match], labels: Sequence[str]) -> tuple[tuple[Match, ...], dict[str, Unmatched]]:
    """Gives each label to one class: to that of the surest rule, then to that with the fewest labels."""
    owner: dict[int, str] = {}
    order = sorted(by_class.values(), key=lambda class_match: (_HOW.index(class_match.how), len(class_match.labels)))
    with_labels: dict[str, Match] = {}
    without_labels: dict[str, Unmatched] = {}
    for class_match in order:
        free_labels = tuple(i for i in class_match.labels if i not in owner)
        owner.update(dict.fromkeys(free_labels, class_match.target_class))
        if free_labels:
            with_labels[class_match.target_class] = replace(class_match, labels=free_labels)
        else:
            label = class_match.labels[0]
            why = f"its label {labels[label]!r} stands for the class {owner[label]!r}"
            without_labels[class_match.target_class] = Unmatched(class_match.target_class, why)
    return tuple(with_labels[name] for name in by_class if name in with_labels), without_labels


def _nearest(name: str, names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    forms = dict.fromkeys(normalise(text) for label_names in names for text in label_names)
    return tuple(get_close_matches(normalise(name), forms, n=_NEAREST, cutoff=0.6))


def _names_of(label: str) -> list[str]:
    return [label, *(part for part in label.split(",") if "," in label and part.strip())]


def _imagenet_names() -> list[list[str]]:
    """Returns the names of each of ImageNet's classes in their order, the synset's number last."""
    return [list(entry.names) for entry in read_hierarchy("imagenet").entries]


def _is_imagenet(labels: Sequence[str]) -> bool:
    if len(labels) != IMAGENET:
        return False
    pairs = zip(labels, _imagenet_names(), strict=True)
    equal_names = sum(
        not {*map(normalise, _names_of(label))}.isdisjoint(map(normalise, names)) for label, names in pairs
    )
    return equal_names > _OF_THE_SPACE * len(labels)


def _is_number(name: str) -> bool:
    """Returns whether a name is a whole number; pandas writes `1.0` where a column lacks some."""
    whole = name.removesuffix(".0")
    return whole.isascii() and whole.isdecimal()


def _number(name: str) -> int:
    return int(name.removesuffix(".0"))


AUDIT_FILES = (".yaml", ".yml", ".json")
FIELD = "images.table"
IMAGE_NAMES = (
    "image", "img", "file", "filename", "filepath", "path", "imagepath", "imgpath", "imagefile", "imagename", "imgname",
    "jpg", "png", "picture", "photo",
)  # fmt: skip
CLASS_NAMES = (
    "targetclass", "label", "class", "classname", "labelname", "target", "category", "categoryname", "species", "y",
    "groundtruth", "truth", "gt", "classid", "labelid", "categoryid",
)  # fmt: skip
"""Usual names of the columns of images and classes, without case and separators; the likelier first."""
MOST_FOLDERS = 50
MOST_CLASSES = 5_000
"""Distinct values of a column that is compared with the classifier's labels."""
ID_LENGTH = 8
"""Letters of an audit's id in the name of its file, where another audit's file has the shorter name."""
_LISTED = 8
_WIDTH = 110


@dataclass(frozen=True)
class DraftedAudit:
    """An audit's fields, and what a reader should know. `notes`: field → comment lines. `summary`: what was found, for
    a terminal; `warnings`: what will not be audited, or was taken for granted."""

    fields: dict[str, Any]
    notes: Mapping[str, Sequence[str]]
    summary: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """The audit file."""
        lines = ["# c2b audit FILE runs it; c2b check FILE shows what the classifier answers on three pictures.", ""]
        for name, value in self.fields.items():
            lines += [f"# {note}" for note in self.notes.get(name, ())]
            flow = None if isinstance(value, list | dict) else False  # lists in one line each
            lines += [
                yaml.safe_dump(
                    {name: value}, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=_WIDTH
                )
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Choices:
    """What a person chose instead of what is inferred. `image`, `target_class`: names of the table's columns; `root`:
    the folder below which its images lie."""

    task: str | None = None
    image: str | None = None
    target_class: str | None = None
    root: str | None = None
    language_model: str | None = None


def are_images(source: object) -> bool:
    """Returns whether what is to be audited is a folder or table of images, and not an audit file."""
    if not isinstance(source, str | Path):
        return False
    if str(source).lower().endswith(TABLES):
        return True
    if str(source).lower().endswith(AUDIT_FILES):
        return False
    try:
        filesystem, path = resolve(source)
        return bool(file_info(filesystem, path.rstrip("/")).type == fs.FileType.Directory)
    except (OSError, InputError):
        return False


def drafted(
    source: str | Path, classifier: str | Sequence[str] | Mapping[str, str], choices: Choices | None = None
) -> DraftedAudit:
    """Returns the audit of labelled images, with paths absolute.

    Raises ConfigError where columns, or any class's label, cannot be told; SourceError where there are no images.
    """
    choices = choices or Choices()
    location = str(source) if is_remote(str(source)) else str(Path(source).expanduser().absolute())
    specs = {name: located(spec, Path.cwd()) for name, spec in specs_by_name(classifier).items()}
    for name, spec in specs.items():
        check_spec(f"classifier.{name}" if len(specs) > 1 else "classifier", "classifier", spec)
    descriptions = {name: described(spec) for name, spec in specs.items()}
    first = next(iter(descriptions.values()))
    labels = first.labels
    table, columns = _table(location, choices, first)
    counts = _counts(table, labels)
    matching = match_classes(list(counts), labels, _numbered(table, counts, location))
    _refuse_other_labels(descriptions, matching, list(counts))
    if not matching.matches:
        raise _no_class(matching, labels, table)
    classes = [class_match.target_class for class_match in matching.matches]
    images: dict[str, Any] = {"source": "labelled", "table": location}
    images |= {"columns": columns} if columns else {}
    images |= {"root": table.root} if table.root else {}
    fields: dict[str, Any] = {
        "task": choices.task or default_task(classes),
        "classes": classes,
        "classifier": next(iter(specs.values())) if list(specs) == list(specs.values())[:1] else dict(specs),
        **({"label_map": matching.label_map(labels)} if matching.needs_map(labels) else {}),
        "images": images,
        **({"language_model": choices.language_model} if choices.language_model else {}),
    }
    assumed = [matching.assumed] if matching.assumed else []
    lists_answers = any(fact.name == "probabilities" for one in descriptions.values() for fact in one.facts)
    warnings = (*_left_out(matching, counts, lists_answers), *assumed, *_of_splits(table))
    sentences = [_of_images(location, table, counts), *_of_columns(columns, table), _of_labels(matching)]
    notes = {
        "classes": [_counted(counts, classes), *warnings[: len(matching.unmatched)]],
        "classifier": model_notes(descriptions),
        "label_map": [_of_labels(matching), *assumed],
        "images": [_of_images(location, table, counts), *_of_columns(columns, table)],
    }
    return DraftedAudit(fields, notes, tuple(sentences), warnings)


def written(draft: DraftedAudit, location: str) -> str:
    """Writes the audit file to `location` and returns its path.

    A file that holds the same audit is kept as it is, whatever its comments. So is one of another audit: the new file's
    name then ends in the audit's id, so that the same command names the same file each time.
    """
    stem, dot, ending = location.rpartition(".")
    number, path = 1, location
    while files.exists(path) and not _holds(path, draft.fields):
        named = f"{stem}-{content_id('audit file', draft.fields)[:ID_LENGTH]}"
        path = f"{named}{'' if number == 1 else f'-{number}'}{dot}{ending}"
        number += 1
    if not files.exists(path):
        files.make_directory(posixpath.dirname(path) or ".")
        files.write_bytes(path, draft.text.encode())
    return path


def _holds(path: str, fields: Mapping[str, Any]) -> bool:
    """Returns whether a file holds the audit of these fields."""
    try:
        return bool(read_yaml(path) == fields)
    except InputError:
        return False


def place_of(source: str | Path, out: str | Path | None, runs: str) -> str:
    """Returns where the audit file of these images is written: beside the run."""
    if out is not None and not is_remote(str(out)):
        return f"{str(out).rstrip('/')}.yaml"
    name = posixpath.basename(str(source).rstrip("/"))
    return f"{runs}/{Path(name).stem or 'audit'}.yaml"


def described(spec: str) -> Description:
    """Returns a classifier's description, its labels in any case: they do not depend on how pictures are prepared."""
    try:
        return catalog.described("classifier", spec)
    except UnstatedPreprocessingError:
        description = catalog.described("classifier", f"{spec}{'&' if '?' in spec else '?'}preprocess=unit")
        return Description(revision=description.revision, labels=description.labels, head=description.head)


Columns = dict[str, str | list[str]]
"""`image` and `target_class` → what the table calls them; for classes that have a column each, these."""


def _table(location: str, choices: Choices, classifier: Description) -> tuple[LabelledTable, Columns]:
    """Returns the labelled table with its columns and its root, and the columns that have to be named."""
    rows = open_rows(location, FIELD)
    choice_of_role = {IMAGE: choices.image, TARGET: choices.target_class}
    column_of_role = {role: _named(role, name, rows) for role, name in choice_of_role.items() if name is not None}
    image = column_of_role.get(IMAGE) or _image_column(rows, location)
    if (chosen := column_of_role.get(TARGET)) is not None:
        target = _of_one_label(rows, chosen, classifier)
    else:
        target = _class_column(rows, location, image, classifier.labels)
    columns: Columns = {role: name for role, name in ((IMAGE, image), (TARGET, target)) if role != name}
    if rows.folder == resolve(location)[1].rstrip("/") and target == LABEL:  # a folder's own name for its classes
        del columns[TARGET]
    open_table = partial(LabelledTable, location, FIELD, columns, several=isinstance(target, list))
    table = open_table()
    if choices.root is None:
        root = _root(table, location, rows.folder)
    else:
        root = choices.root if is_remote(choices.root) else str(Path(choices.root).expanduser().absolute())
    return (table if root is None else open_table(root=root)), columns


def _named(role: str, name: str, rows: Rows) -> str:
    if name not in rows.schema.names:
        option = "--image-column" if role == IMAGE else "--class-column"
        raise ConfigError(option, f"the table has no column {name!r}; {nearest(name, rows.schema.names)}")
    return name


def _of_one_label(rows: Rows, column: str, classifier: Description) -> str | list[str]:
    """Returns a column of classes, in a list where it says with 0 and 1 whether an image shows the label that it is
    called like. Raises ConfigError where its numbers would be taken for those of outputs that they are not."""
    forms = list(map(normalise, classifier.labels))
    if normalise(column) not in forms or not are_marks(marks := rows.columns([column])[column]):
        return column
    if classifier.head == "sigmoid":
        return [column.strip()]
    if len(forms) == 2 and forms[1] == normalise(column):  # 0 and 1 are the numbers of the outputs
        if UNCERTAIN in numbers_of(marks.unique()):
            raise ConfigError(
                "--class-column",
                f"{column!r} holds -1, and the classifier's labels ({_few(classifier.labels)}) exclude each other: 0 "
                "and 1 stand for them. Leave the field blank where it is not known; write 0 where -1 says that an "
                "image does not show it",
            )
        return column
    raise ConfigError(
        "--class-column",
        f"{column!r} says with 0 and 1 whether an image shows {column.strip()}, and the classifier's labels "
        f"({_few(classifier.labels)}) exclude each other: 0 would stand for {classifier.labels[0]}. Write a column "
        "with the label of each image; or add ?head=sigmoid to the classifier's spec if each output is a label of its "
        "own",
    )


def _bare(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _is_text(kind: pa.DataType) -> bool:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values))


def _usual(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Returns the columns of usual names, the likelier first."""
    matching = [name for name in names if _bare(name) in usual]
    return sorted(matching, key=lambda name: usual.index(_bare(name)))


def _image_column(rows: Rows, location: str) -> str:
    pictures = [
        field.name
        for field in rows.schema
        if pa.types.is_binary(field.type)
        or pa.types.is_large_binary(field.type)
        or (pa.types.is_struct(field.type) and {"bytes", "path"} <= {part.name for part in field.type})
    ]
    texts = [name for name in rows.schema.names if name not in pictures and _is_text(rows.schema.field(name).type)]
    candidates = _usual(pictures, IMAGE_NAMES) or pictures or _usual(texts, IMAGE_NAMES)
    if not candidates:
        if any(is_image(name) for name in rows.schema.names):
            raise SourceError(
                f"{location}: its first line names an image ({', '.join(rows.schema.names[:3])}), where the names of "
                "the columns are expected; write a line such as file,label above it"
            )
        candidates = _columns_of_files(rows, location, texts)
        if len(candidates) != 1:
            problem = (
                f"several columns of {location} name images ({', '.join(candidates)}); say which"
                if candidates
                else f"no column of {location} is called as columns of images are; name it: "
                f"{', '.join(rows.schema.names[:20])}"
            )
            raise ConfigError("--image-column", problem)
    return candidates[0]


def _columns_of_files(rows: Rows, location: str, texts: Sequence[str]) -> list[str]:
    """Returns the columns whose first values are all names of images below the table's folder, each of another one:
    those of texts, else those of whole numbers."""
    numbers = [field.name for field in rows.schema if pa.types.is_integer(field.type)]
    by_name = FilesByName(resolve(location)[0], rows.folder)

    def name_files(column: pa.ChunkedArray) -> bool:
        values = column.drop_null()[:SAMPLE].cast(pa.string()).to_pylist()
        paths = {by_name.path_of(value) for value in values}
        return bool(values) and None not in paths and len(paths) == len(set(values)) > len(values) / 2

    for columns in filter(None, (texts, numbers)):
        sample = next(iter(rows.each(list(columns))), pa.table({}))
        if result := [name for name in sample.column_names if name_files(sample[name])]:
            return result
    return []


def _class_column(rows: Rows, location: str, image: str, labels: Sequence[str]) -> str | list[str]:
    """Returns the column of a usual name, or with names for its numbers, whose values are most often labels of the
    classifier; or the columns of 0 and 1 that are called like labels."""
    names = [name for name in rows.schema.names if name != image]
    numbered = [name for name in names if class_names(rows.schema, name) is not None]
    candidates = _usual(names, CLASS_NAMES) or numbered or _columns_of_labels(rows, names, labels)
    label_forms = set(map(normalise, labels))
    if not candidates:
        called_so = [name for name in names if normalise(name) in label_forms]
        marks = [name for name in called_so if are_marks(rows.columns([name])[name])]
        if len(marks) > 1:
            _refuse_other_marks(rows, location, [name for name in called_so if name not in marks])
            return [name.strip() for name in marks]
        raise ConfigError(
            "--class-column",
            f"no column of {location} is called as columns of classes are; name it: {', '.join(names[:20]) or 'none'}. "
            "Classes that have a column of 0 and 1 each are named in an audit file: `columns: {target_class: "
            "[red, green]}` under `images`",
        )
    if len(candidates) == 1 or TARGET in candidates:
        target = TARGET if TARGET in candidates else candidates[0]
        other = [] if _labels_in(rows, target, labels) else _columns_of_labels(rows, names, labels)
        return other[0] if other else target
    shares = []
    for name in candidates:
        values = class_names(rows.schema, name) or rows.columns([name])[name].unique().drop_null().to_pylist()
        shares.append(sum(normalise(str(value)) in label_forms for value in values) / max(1, len(values)))
    return candidates[shares.index(max(shares))]


def _refuse_other_marks(rows: Rows, location: str, columns: Sequence[str]) -> None:
    """Raises ConfigError for a column that is called like a label, beside columns of 0 and 1, and holds other values:
    its label would not be audited, and nobody would be told."""
    for name in columns:
        values = [str(one).strip() for one in rows.columns([name])[name].unique().drop_null().to_pylist()]
        if other := next((one for one in values if one not in ("", "0", "1", "-1", "0.0", "1.0", "-1.0")), None):
            raise ConfigError(
                "--class-column",
                f"{location}: column {name!r} is called like a label, and holds {other!r}; expected 0 and 1, as in the "
                "columns of other labels. Correct or rename it, or name the columns of classes in an audit file: "
                "`columns: {target_class: [red, green]}` under `images`",
            )


def _columns_of_labels(rows: Rows, columns: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Returns the column whose values are labels of the classifier, or most of them are; none where two are such. A
    column of predictions is no column of classes."""
    if is_unnamed(labels):
        return []
    result = []
    for name in columns:
        if _is_text(rows.schema.field(name).type) and not _bare(name).startswith("pred"):
            values = rows.columns([name])[name].unique().drop_null().to_pylist()
            if 2 <= len(values) <= MOST_CLASSES and not all(map(_is_number, values)):
                result += [name] if len(match_classes(values, labels).matches) > len(values) / 2 else []
    return result if len(result) == 1 else []


def _labels_in(rows: Rows, column: str, labels: Sequence[str]) -> int:
    """Returns how many values of a column of texts stand for labels; 1 of any other column, which is not looked at."""
    if is_unnamed(labels) or not _is_text(rows.schema.field(column).type):
        return 1
    values = rows.columns([column])[column].unique().drop_null().to_pylist()
    return len(match_classes(values, labels).matches) if len(values) <= MOST_CLASSES else 1


def _root(table: LabelledTable, location: str, folder: str) -> str | None:
    """Returns the folder below which the images lie, where that is not the table's folder; None where it is."""
    if outside := table.leading_out():
        root = table.root_of(list(dict.fromkeys([*outside, *islice(table.paths(), SAMPLE)])))
        if not root:
            raise ConfigError(
                "--root", f"the images of {location} share no folder, such as {outside[0]!r}; name one above them all"
            )
        return f"s3://{root}" if is_remote(location) else root
    sample = list(islice(table.paths(), SAMPLE))
    filesystem = resolve(location)[0]
    if (
        not sample
        or not isinstance(filesystem, fs.LocalFileSystem)
        or any(Path(folder, name).exists() for name in sample)
    ):
        return None
    below = sorted(path for path in Path(folder).iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in below[:MOST_FOLDERS]:
        if all((inside := path_below(str(path), folder, name)) and (path / inside).is_file() for name in sample):
            return str(path)
    if table.is_looked_up:
        return None
    raise SourceError(
        f"{location}: none of its first {len(sample)} images is there, such as {sample[0]!r}, neither beside the table "
        "nor in a folder beside it; name the folder that the paths are relative to with --root"
    )


def _counts(table: LabelledTable, labels: Sequence[str]) -> dict[str, int]:
    """Returns class → images, in the most frequent spelling of each class, sorted.

    `labels`: the classifier's, which files may be named after. Raises SourceError where no image has a class.
    """
    column = table.labels[TARGET].cast(pa.string())
    if table.has_several:
        column = pa.array([name for text in column.to_pylist() for name in labels_in(text)], pa.string())
    spelt = spellings(column)
    counts = dict.fromkeys(sorted(spelt.values()), 0)
    for row in pc.value_counts(column.drop_null()).to_pylist():
        counts[spelt[normalise(row["values"])]] += row["counts"]
    if not counts:
        remedy = f"{_tables_named(table.location)}put each class's images into a folder of its name, or "
        remedy += _table_of_names(table, labels) or "write a table with a row for each image: its file and its class"
        raise SourceError(f"{table.location}: no image has a class; {remedy}")
    return counts


def _table_of_names(table: LabelledTable, labels: Sequence[str]) -> str:
    """Returns the remedy of images in whose names most classes are labels, such as cat.0.jpg; "" for any others. Images
    get no class by it: a file may be named after what it shows, or after what it was taken for."""
    if is_unnamed(labels):
        return ""
    files_of_class: dict[str, str] = {}
    for path in table.paths():
        stem = posixpath.splitext(posixpath.basename(path))[0]
        files_of_class.setdefault(_COUNTER.sub("", stem), path)
    files_of_class.pop("", None)
    if not 2 <= len(files_of_class) <= MOST_CLASSES:
        return ""
    matches = match_classes(list(files_of_class), labels).matches
    if len(matches) < max(2, len(files_of_class) / 2):
        return ""
    rows = [f"{files_of_class[one.target_class]},{one.target_class}" for one in matches[:2]]
    return (
        "write a table with a row for each image, since the names of the files seem to hold the classes: a text file "
        f"that ends in .csv, with the line file,label and then lines such as {rows[0]} and {rows[1]}"
    )


def _tables_named(location: str) -> str:
    """Returns the remedy of a folder that holds a table, up to the next remedy; an empty text where it holds none."""
    names = files.entries(location) if files.is_directory(location) else []
    tables = [name for name in names if name.lower().endswith((".csv", ".tsv", ".jsonl"))]
    return f"audit a table that names them, such as {location.rstrip('/')}/{tables[0]}; or " if tables else ""


def _numbered(table: LabelledTable, counts: Mapping[str, int], location: str) -> list[str] | None:
    """Returns the classes in the order of their numbers, where the table has numbers for them."""
    if table.has_several:
        return None
    classes = table.numbered_classes
    if classes is not None:
        return classes
    of_table = location.lower().endswith(TABLES)
    return sorted(counts, key=_number) if of_table and all(map(_is_number, counts)) else None


def _refuse_other_labels(
    descriptions: Mapping[str, Description], matching: LabelMatches, classes: Sequence[str]
) -> None:
    """Raises ConfigError where another classifier's labels would stand for other classes: a label map serves all."""
    first, *further = descriptions
    for name in further:
        if descriptions[name].labels != descriptions[first].labels:
            raise ConfigError(
                "classifier", f"{first} and {name} have different labels; audit them one by one and compare the runs"
            )


def _no_class(matching: LabelMatches, labels: Sequence[str], table: LabelledTable) -> ConfigError:
    location = table.location
    if is_unnamed(labels):
        count = f"it has {len(labels):,} outputs, and {location} {len(matching.unmatched):,} classes"
        return ConfigError("classifier", f"{count}; {NAME_LABELS}")
    examples = ", ".join(repr(class_match.target_class) for class_match in matching.unmatched[:_LISTED])
    numbers = [one.target_class for one in matching.unmatched]
    if all(map(_is_number, numbers)) and not _are_positions(numbers, len(labels)):
        low, high = min(map(_number, numbers)), max(map(_number, numbers))
        return ConfigError(
            "classes",
            f"the classes of {location} are numbers from {low} to {high}, and the classifier's outputs are numbered "
            f"from 0 to {len(labels) - 1} ({_few(labels)}); write an audit file with `label_map`, which says what each "
            "number stands for",
        )
    close = [name for class_match in matching.unmatched for name in class_match.nearest]
    hint = f"the nearest labels: {', '.join(dict.fromkeys(close))}" if close else f"its labels: {_few(labels)}"
    map_or_rename = "write an audit file with `label_map`, or rename the classes"
    remedy = f"{_tables_named(location)}{_table_of_names(table, labels) or map_or_rename}"
    return ConfigError(
        "classes",
        f"no class of {location} is a label of the classifier ({examples}); {hint}. {remedy[0].upper()}{remedy[1:]}",
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (" …" if len(names) > _LISTED else "")


def default_task(classes: Sequence[str]) -> str:
    """Returns a task for a classifier of these classes, which names as many of them as a config's `task` has room
    for."""
    for listed in range(min(len(classes), _LISTED), 0, -1):
        unlisted = len(classes) - listed
        remainder = f" and {unlisted:,} other {'class' if unlisted == 1 else 'classes'}" if unlisted else ""
        task = f"Tell what a picture shows: {', '.join(classes[:listed])}{remainder}."
        if len(task) <= LONGEST_NAME:
            return task
    return f"Tell which of {len(classes):,} {'class' if len(classes) == 1 else 'classes'} a picture shows."


def _left_out(matching: LabelMatches, counts: Mapping[str, int], lists_answers: bool) -> list[str]:
    """`lists_answers`: whether the labels are those of the answers of a table: others are not known from it."""
    lines = []
    for absent in matching.unmatched:
        hint = f"; the nearest: {', '.join(absent.nearest)}" if absent.nearest else ""
        if lists_answers and absent.why == _NO_LABEL:
            hint += (
                ". If the classifier has the label and never gave it, all these answers are wrong, and shares of right "
                "answers leave them out: list its labels in a file, one a line, and write `?labels=FILE` behind the "
                "table's name"
            )
        lines.append(
            f"{absent.target_class} ({_images(counts[absent.target_class])}) is not audited: {absent.why}{hint}"
        )
    return lines


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"


def _of_images(location: str, table: LabelledTable, counts: Mapping[str, int]) -> str:
    read = f", read below {table.root}" if table.root else ""
    return f"{location}: {_images(len(table))}, {len(counts):,} {'class' if len(counts) == 1 else 'classes'}{read}"


def _of_columns(columns: Columns, table: LabelledTable) -> list[str]:
    if not columns:
        return []
    options = {IMAGE: "--image-column", TARGET: "--class-column"}
    columns_read = [
        f"{role.replace('_', ' ')} from the column {name!r} ({options[role]})"
        if isinstance(name, str)
        else f"{role.replace('_', ' ')} from the columns of 0 and 1 {_few(name)}"
        for role, name in columns.items()
    ]
    return [f"columns: {', '.join(columns_read)}"]


def _of_splits(table: LabelledTable) -> list[str]:
    """Returns a warning where a column says that images of the training are among the others."""
    lines = []
    for name in (one for one in table.labels.column_names if one != TARGET):  # a class may be a train
        values = pc.value_counts(table.labels[name].drop_null().cast(pa.string())).to_pylist()
        counts = {row["values"]: row["counts"] for row in values}
        splits = {split.casefold() for split in counts}
        if splits & {"train", "training"} and splits <= _SPLITS:
            listed = ", ".join(f"{split} {count:,}" for split, count in sorted(counts.items()))
            lines.append(
                f"images of the training are among these ({name}: {listed}), and a classifier that has seen them looks "
                "better than it is; audit a table of the others"
            )
    return lines


def _counted(counts: Mapping[str, int], classes: Sequence[str]) -> str:
    listed = ", ".join(f"{name} {counts[name]:,}" for name in classes[:_LISTED])
    return f"images: {listed}" + (f" and so on for {len(classes) - _LISTED:,} more" if len(classes) > _LISTED else "")


def _of_labels(matching: LabelMatches) -> str:
    """Returns how classes were matched to labels, the sure ones as a count and the others one by one."""
    plain = [class_match for class_match in matching.matches if class_match.how in ("name", "order")]
    special = [class_match for class_match in matching.matches if class_match.how not in ("name", "order")]
    listed = [_matched(class_match) for class_match in special[:_LISTED]]
    remainder = [f"and {len(special) - _LISTED:,} more"] if len(special) > _LISTED else []
    rule = "in order" if plain and plain[0].how == "order" else "by name"
    return f"labels: {', '.join([*([f'{len(plain):,} {rule}'] if plain else []), *listed, *remainder])}"


def _matched(class_match: Match) -> str:
    count = f"{len(class_match.labels):,} labels" if len(class_match.labels) > 1 else "1 label"
    return f"{class_match.target_class} by {class_match.how} ({count})"


def model_notes(descriptions: Mapping[str, Description]) -> list[str]:
    """Returns each classifier's labels and settings, and where each was read. `descriptions`: by the classifiers'
    names."""
    lines = []
    for name, description in descriptions.items():
        prefix = f"{name}: " if len(descriptions) > 1 else ""
        labels = f"{len(description.labels):,} labels: {_few(description.labels)}"
        lines += [f"{prefix}{line}" for line in (labels, *map(fact_line, description.facts))]
    return lines
