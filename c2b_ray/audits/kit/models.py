"""The models that a config names: classifiers by name or as objects, and tables of predictions that stand for them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.named import MODELS, Names, texts_of
from c2b_ray.errors import Argument, C2BError, ConfigError, InputError, RunError, SourceError, nearest
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.report.redact import names_of
from c2b_ray.roles import Description, ModelFact
from c2b_ray.steps.classify import LabelMap, classification
from c2b_ray.storage import files, is_remote
from c2b_ray.storage.confined import cause_of, located, paths
from c2b_ray.storage.run import Run

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, MemoryClassifier, Model


def one_of(classifiers: Sequence[str], name: str | None, option: Argument, path: str) -> str:
    """Returns the classifier of the run at `path` that the user names: by its name, by a spec with paths relative to
    the working directory, or by its name on report pages. Without a name it returns the only classifier."""
    if name is None:
        if len(classifiers) != 1:
            raise ConfigError(option, f"{path} has predictions of {listed(classifiers)}; name one")
        return classifiers[0]
    on_pages = {name: spec for spec, name in names_of(classifiers).items()}
    for spec in (name, located(name, Path.cwd()), on_pages.get(name)):
        if spec in classifiers:
            return str(spec)
    raise ConfigError(option, f"{path} has no predictions of {name!r}; {nearest(name, classifiers)}")


def two_of(classifiers: Sequence[str], name_a: str | None, name_b: str | None, path: str) -> tuple[str, str]:
    """Returns two classifiers of one run, resolved as by `one_of`; a run's only two need not be named."""
    a = None if name_a is None else one_of(classifiers, name_a, Argument.CLASSIFIER_A, path)
    b = None if name_b is None else one_of(classifiers, name_b, Argument.CLASSIFIER_B, path)
    if a is not None and a == b:
        raise ConfigError(Argument.CLASSIFIER_B, f"{b} is compared with itself; name two classifiers, or two runs")
    if a is not None and b is not None:
        return a, b
    if len(classifiers) != 2:
        raise ConfigError(
            (Argument.CLASSIFIER_A, Argument.CLASSIFIER_B),
            f"{path} has predictions of {listed(classifiers)}; name the two to compare, or a second run",
        )
    remaining = [spec for spec in classifiers if spec not in (a, b)]
    return a or remaining.pop(0), b or remaining.pop(0)


def listed(specs: Sequence[str]) -> str:
    return ", ".join(specs) or "no classifier"


# A model's settings and where each was read: noted in a run, and warned of where nothing states them.


def model_row(spec: str, description: Description) -> dict[str, Any]:
    """Returns the manifest's entry of a model: its spec and revision, and its settings where it tells them."""
    facts = [asdict(fact) for fact in description.facts]
    return {"spec": spec, "revision": description.revision, **({"facts": facts} if facts else {})}


def warn_of_assumptions(steps: Steps, name: str, description: Description) -> None:
    """Sends a warning for each setting that no file of a model states. `name`: of the model, for people."""
    for fact in description.facts:
        if fact.assumed:
            steps.warn(assumption(name, fact))


def fact_line(fact: ModelFact) -> str:
    """Returns a setting, where it was read, and for an assumed one the option that states it."""
    if not fact.assumed:
        return f"{fact.name}: {fact.value} ({fact.source})"
    hint = f"; state it with {fact.option}= in the spec" if fact.option else ""
    return f"{fact.name}: {fact.value}, which is ASSUMED ({fact.source}){hint}"


def assumption(name: str, fact: ModelFact) -> str:
    hint = f"; `{fact.option}=` in its spec states it" if fact.option else ""
    return f"{name}: {fact.name} is assumed to be {fact.value} ({fact.source}){hint}"


# The models of a run: noted in its manifest when it begins, and compared with the notes when it resumes.


def language_model_row(models: Backend, spec: str) -> dict[str, str]:
    """Returns the manifest's entry of a language model."""
    return {"spec": spec, "revision": models.describe("language_model", spec).revision}


def note_models(run: Run, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Notes models by name: each with its spec and revision. Raises RunError where the run has noted another revision.

    Use it for models whose results a run writes once, or reads without asking which revision made them.
    """
    before = run.manifest.get("models") or {}
    for name, row in rows.items():
        _check(run, name, before.get(name), row["revision"])
    run.update({"models": rows})


def check_language_model(run: Run, name: str, spec: str) -> None:
    """Raises RunError where the files of a language model, if they are on this machine, are not those that the run
    noted under `name`. No model is loaded or called."""
    try:
        description = catalog.describe("language_model", spec)
    except InputError:  # its files are elsewhere
        return
    if description is not None:
        _check(run, name, (run.manifest.get("models") or {}).get(name), description.revision)


def _check(run: Run, name: str, recorded: Mapping[str, str] | None, revision: str) -> None:
    recorded_revision = (recorded or {}).get("revision")
    if recorded_revision is not None and recorded_revision != revision:
        raise RunError(
            f"{run.path} was begun with another {name}: its revision was {recorded_revision}, and is {revision} now; "
            "give another --out, or put the former files (and precision) back",
            run=run.path,
        )


# The models and files that a config names, checked before anything loads: schemes are known, and files exist.


def check_spec(field: str, role: str, spec: str) -> None:
    """Raises ConfigError for `field` where the spec cannot be of that role, or names files or models that do
    not exist."""
    scheme = catalog.parse(spec).scheme
    schemes = catalog.schemes()[role]
    if scheme not in schemes:
        raise ConfigError(field, f"{spec}: no {role} has the scheme {scheme!r}; {nearest(scheme, schemes)}")
    for part, path in paths(spec):
        if not (files.exists(path) if is_remote(path) else Path(path).expanduser().exists()):
            raise ConfigError(field, f"{spec}: no such file or directory: {path} ({part})")
    if scheme == "scripted":  # it loads at once, and its document may be wrong
        model = catalog.parse(spec)
        catalog.loader(role, model)(model)
    if scheme == "world" and role != "classifier":  # a classifier is loaded for its labels
        from c2b_ray.world.zoo import names  # here, with the renderer that it imports: few audits name one

        name, model_names = catalog.parse(spec).name, names(role)
        if name not in model_names:
            raise ConfigError(field, f"{spec}: the world has no {role} {name!r}; {nearest(name, model_names)}")


def named_models(config: BaseModel) -> list[tuple[str, str, str]]:
    """Returns (field, role, spec) of each model."""
    return [
        (named_text.field, named_text.names.value, named_text.text)
        for named_text in texts_of(config)
        if named_text.names in MODELS
    ]


def check_specs(config: BaseModel) -> None:
    """Checks each spec's scheme and the files that it names. Group guessers have specs of their own kind."""
    for field, role, spec in named_models(config):
        if role != Names.GUESSER.value:
            check_spec(field, role, spec)


def paths_read(config: BaseModel, in_driver: Container[Names] = (Names.LANGUAGE_MODEL,)) -> dict[str, str]:
    """Returns the files and folders that stages read → the fields that name them. On a cluster every node needs them.

    `in_driver`: the models that no stage calls.
    """
    read: dict[str, str] = {}
    for named_text in texts_of(config):
        if named_text.names in MODELS and named_text.names not in in_driver:
            read |= {path: named_text.field for _, path in paths(named_text.text)}
        elif named_text.names in (Names.TABLE, Names.ROOT, Names.CAPTIONED):
            read[named_text.text] = named_text.field
        elif named_text.names is Names.INDEX:
            read[index_folder(named_text.text)] = named_text.field
    return read


def index_folder(index: str) -> str:
    """Returns the folder of an index, whether it is named by its path or by a spec."""
    return index.removeprefix("faiss:").partition("?")[0] if index.startswith("faiss:") else index


# Classifiers that the caller of an audit passes as objects: they answer in this process, and nowhere else.


HERE = "here"


def held_in_memory(
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None, labels: Sequence[str] | None, via: str
) -> dict[str, MemoryClassifier]:
    """Returns the classifiers by name, usable while the caller keeps them; empty where none was passed.

    Raises ConfigError where they would have to answer outside this process, or do not answer as classifiers do.
    """
    if classifier is None:
        if labels is not None:
            raise ConfigError("labels", "are for a classifier in memory; pass it as classifier=, or leave them out")
        return {}
    if via not in (AUTO, HERE):
        raise ConfigError("via", f"{via!r}: a classifier in memory answers in this process alone; leave via out")
    from c2b_ray.models.memory_classifier import hold

    return hold(classifier, labels)


def held_or_named(
    classifier: str | Model | InMemory | Mapping[str, str | Model | InMemory] | None,
    labels: Sequence[str] | None,
    via: str,
) -> tuple[dict[str, MemoryClassifier], str | dict[str, str] | None]:
    """Returns the classifiers that were passed as objects, as `held_in_memory` does, and the value of the config's
    `classifier`: that of the specs or objects that were passed; None where the config names its classifiers itself."""
    if isinstance(classifier, str) or (
        isinstance(classifier, Mapping) and classifier and all(isinstance(model, str) for model in classifier.values())
    ):
        held_in_memory(None, labels, via)  # refuses `labels`: a spec has its own
        return {}, classifier if isinstance(classifier, str) else {
            name: str(model) for name, model in classifier.items()
        }
    in_memory = held_in_memory(classifier, labels, via)  # type: ignore[arg-type]  # models alone
    return in_memory, specs_of(in_memory)


def specs_of(in_memory: Mapping[str, MemoryClassifier]) -> dict[str, str] | None:
    """Returns the value of the config's `classifier`: name → spec; None where the config names its classifiers
    itself."""
    return {name: classifier.spec for name, classifier in in_memory.items()} or None


# Compares tables of predictions with the images that they are to answer for: which of them they list, and whether
# their answers are the truth itself.


SCHEME = "table"


def is_table(spec: str) -> bool:
    return spec.partition(":")[0] == SCHEME


def compared_with(
    specs: Mapping[str, str],
    keys: Sequence[str],
    truth: Sequence[str | None] | None = None,
    classes: Sequence[str] = (),
    label_map: LabelMap | None = None,
) -> list[str]:
    """Returns in words what is odd about the tables among `specs` (name → spec): images that they do not list, and
    answers that are right without exception.

    `keys`: the names of the images. `truth`: their classes, as the images' source spells them, where they are known.
    Raises SourceError where a table lists none of the images, with the commonest cause.
    """
    sentences = []
    for spec in specs.values():
        if is_table(spec) and keys:
            table: Any = catalog.classifier(spec)
            rows = np.array([-1 if (row := table.row_of(key)) is None else row for key in keys], np.int64)
            sentences += _unlisted(spec, table, keys, rows)
            if truth is not None:
                sentences += _always_right(spec, table, rows, truth, _groups(spec, table, classes, label_map))
    return sentences


def said_of_tables(specs: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """Like `compared_with`, of images that are known by their names alone; it also reports a table of other images."""
    try:
        return compared_with(specs, keys)
    except SourceError as error:
        return [str(error)]


def _unlisted(spec: str, table: Any, keys: Sequence[str], rows: NDArray[np.int64]) -> list[str]:
    unlisted = [keys[i] for i in np.flatnonzero(rows < 0).tolist()]
    if not unlisted:
        return []
    cause = cause_of(table.files, unlisted)
    if len(unlisted) == len(keys):
        why = cause or f"it lists {next(iter(table.files))!r}, and an image is called {keys[0]!r}"
        raise SourceError(
            f"{spec}: the table lists none of the {len(keys):,} images; {why}. Write the files as the images are "
            "called, or name the column that does: ?file=COLUMN in the spec, or `key` among the columns of the images' "
            "table"
        )
    hint = f"; {cause}" if cause else ""
    images = "image is" if len(unlisted) == 1 else "images are"
    return [f"{spec}: {len(unlisted):,} of {len(keys):,} {images} not in the table, such as {unlisted[0]!r}{hint}"]


def _groups(spec: str, table: Any, classes: Sequence[str], label_map: LabelMap | None) -> dict[str, set[int]]:
    """Returns the labels' positions by class, as classes are compared; nothing where classes and labels do not fit,
    which another check reports."""
    try:
        groups = classification(spec, table, classes, label_map).labels_of_class
    except C2BError:
        return {}
    return {normalise(name): set(group) for name, group in zip(classes, groups, strict=True)}


def _always_right(
    spec: str, table: Any, rows: NDArray[np.int64], truth: Sequence[str | None], groups: Mapping[str, set[int]]
) -> list[str]:
    """Returns a remark where every answer is right: then the table's column may be the truth."""
    answers, count = table.likeliest(), 0
    for row, name in zip(rows.tolist(), truth, strict=True):
        if row >= 0 and name is not None and (group := groups.get(normalise(name))) is not None:
            if int(answers[row]) not in group:
                return []
            count += 1
    if count < 2:
        return []
    column = next((fact.value for fact in table.facts if fact.name == "answers"), "the answer")
    return [
        f"{spec}: all {count:,} answers are right. If {column} of the table is the truth and not the classifier's "
        "answer, nothing is measured: name the answers' column, ?prediction=COLUMN"
    ]
