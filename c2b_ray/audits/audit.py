"""What an audit is: one declaration, from which commands, the endpoint and all that people do with a run derive.

`AUDITS` names the audits of this package. Others add theirs by an entry point in the group `c2b_ray.audits`, whose name
is the audit's and which points at an `Audit`:

    [project.entry-points."c2b_ray.audits"]
    dark-images = "my_package.audit:AUDIT"

A declaration refers to functions as "module:name"; each is imported when it is first called, so that a list of audits
needs neither their models nor their pages. This module knows no audit and neither Ray nor a model.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import pyarrow as pa
from pydantic import BaseModel

from c2b_ray.audits import gate as gates
from c2b_ray.config.named import Names, names_by_field
from c2b_ray.errors import Argument, ConfigError, nearest
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run

if TYPE_CHECKING:
    from c2b_ray.audits.kit.progress import Listener
    from c2b_ray.config.reading import ConfigFile

ENTRY_POINTS = "c2b_ray.audits"
AUDITS: Mapping[str, str] = MappingProxyType(
    {
        "c2b": "c2b_ray.audits.c2b.kind:AUDIT",
        "failures": "c2b_ray.audits.failures.kind:AUDIT",
        "dataset": "c2b_ray.audits.dataset.kind:AUDIT",
        "prompts": "c2b_ray.audits.prompts.kind:AUDIT",
        "clip-bias": "c2b_ray.audits.clip_bias.kind:AUDIT",
        "latent": "c2b_ray.audits.latent.kind:AUDIT",
        "evaluate": "c2b_ray.audits.evaluate.kind:AUDIT",
    }
)
"""The name of each audit of this package, in manifests and requests → "module:attribute" of its declaration."""
QUESTION = "question"
"""A job of the endpoint that asks a finished run; no audit may have its name."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class FormField:
    """A field of the form in which a browser's user submits an audit.

    `name`: the config's field, with dots. `type`: `words`: names with commas between them; `mapping`: a line for each
    name with its words; `specs`: a line for each name with its spec; `model`: a text with suggestions. `options`: the
    values of a choice, or the name of the suggestions (`endpoint.web.submit`). `only`: a field and the value that it
    must have for this field to be used.
    """

    name: str
    label: str
    hint: str = ""
    type: Literal["text", "words", "number", "choice", "mapping", "specs", "model"] = "text"
    options: tuple[str, ...] | str = ()
    default: str = ""
    only: tuple[str, str] | None = None


CLASSIFIER_FIELD = FormField(
    "classifier",
    "Classifier",
    "A spec such as world:resnet-planted-0 or onnx:upload:…; an upload's is in the list.",
    "model",
    "classifiers",
)


@dataclass(frozen=True)
class Questions:
    """How finished runs answer questions.

    `check`: (run, QuestionConfig) raises ConfigError for a question that the run cannot answer. `answer`: (run,
    QuestionConfig, out, via, listener) → the answer as JSON values with its `lines` for people, and how many images
    models answered about, 0 where the listener was told. `fields`: those of classifier, target_class and target that a
    question may name. `images`: of a question that names no number. `of_each_classifier`: whether each classifier of
    the run answers about each image.
    """

    check: str
    answer: str
    fields: tuple[str, ...]
    images: int
    of_each_classifier: bool = False


@dataclass(frozen=True)
class Option:
    """A text that an audit's function takes besides what all take, as `--name` of its command."""

    name: str
    metavar: str
    help: str


def names_in(config: Mapping[str, Any], field_name: str) -> list[str]:
    """Returns the names in a field that holds one name, a list, or a mapping from names; none if it is left out."""
    value = config.get(field_name) or []
    return [value] if isinstance(value, str) else [str(name) for name in value]


@dataclass(frozen=True)
class Audit:
    """An audit. References have the form "module:name".

    What it is:
      `name`: in manifests, requests and commands: lower-case words with hyphens between them. `question`: what it
      answers, a sentence for pages. `about`: what its command does, for the command's help. `config`: the pydantic
      model of its file; fields that name models or files have the types of `config.named`. `config_reader`: the
      `config.reading.ConfigFile` of its file, where that says more than the model.
      `run`: (config, out, via, listener, placement) → the run; `config` is a file's path, a mapping of its fields or an
      object of the model, `out` the run's directory, or None for the default. The same call again resumes it.
      `options`: texts that it takes besides, by name.

    What a run holds:
      `tables`: the schema of each; empty where the audit makes no run directory. `in_parts`: tables that are
      directories of Parquet parts. `needed`: tables that every finished run has. `run_class`, `manifest_class`: of its
      runs.

    What people do with a run:
      `findings`: (run, classifier or None) → `gate.GateCell`s: what gates check, and what summary, page, exports and
      comparisons show where the audit brings none of its own, from the columns `verdict`, `value` (larger is worse),
      `value_low`, `value_high`, `n` and `doubt`. `same`: fields of the config that must be equal in two
      runs for their findings to mean the same. `compare`: (run A, run B, classifier of A, classifier of B) → a
      `runs.Comparison`. `compared_by`: the config's field with the names that these classifiers have, where it is not
      `models`. `summary`: (run) → `report.words.Summary`. `report`: (run) writes report.html, → its path.
      `exports`: by format, (run, classifier or None) → bytes. `images`: (run, classifier or None) →
      `report.formats.folder.RunImages`, from which formats of images and notebooks follow; empty where runs hold none.
      `main_table`: the table that notebooks show, by default the first. `questions`: None where runs answer none.

    What is known before a run:
      `estimate`: (file, via) → a `Summary` or `kit.session.Cost`s. `estimates_first`: the command shows the estimate
      before it starts, and passes it on as `costs`. `most_images`: (config) → the most images that models answer about,
      None where the config does not say. `check`: (config) raises ConfigError for what the config's types allow and the
      audit refuses; it loads no model. `models`: the config's field with the models that use is booked on. `served`:
      whether its models may run behind Ray Serve. `form`: the browser's form; where it is empty, it follows from the
      config. `command_name`: the words of its command, where these are not its name.
    """

    name: str
    question: str
    about: str
    config: str
    run: str
    tables: Mapping[str, pa.Schema] = field(default_factory=dict)
    in_parts: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    run_class: str = "c2b_ray.storage.run:Run"
    manifest_class: str = "c2b_ray.storage.manifest:Manifest"
    findings: str = ""
    same: tuple[str, ...] = ()
    compare: str = ""
    compared_by: str = ""
    summary: str = ""
    report: str = ""
    exports: Mapping[str, str] = field(default_factory=dict)
    images: str = ""
    main_table: str = ""
    questions: Questions | None = None
    estimate: str = ""
    estimates_first: bool = False
    most_images: str = ""
    check: str = ""
    models: str = "classifier"
    served: bool = True
    form: tuple[FormField, ...] = ()
    options: tuple[Option, ...] = ()
    command_name: str = ""
    config_reader: str = ""

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError("name", f"{self.name!r} names no audit: use lower-case words with hyphens between them")
        if unknown := sorted((self.needed | self.in_parts) - set(self.tables)):
            raise ConfigError("tables", f"the audit {self.name} declares no table {unknown[0]!r}, which it needs")
        if self.tables and not self.findings and not (self.summary and self.report):
            raise ConfigError("findings", f"the audit {self.name} needs `findings`, or both a `summary` and a `report`")

    @property
    def command(self) -> str:
        """The command that makes its runs, such as "c2b failures"."""
        return f"c2b {self.command_name or self.name}"

    @property
    def config_class(self) -> type[BaseModel]:
        loaded: type[BaseModel] = resolve_name(self.config)
        return loaded

    @property
    def config_file(self) -> ConfigFile[Any]:
        """What reads its file."""
        from c2b_ray.config.reading import ConfigFile  # with all models of configs, which most commands do not need

        reader: ConfigFile[Any] = (
            resolve_name(self.config_reader) if self.config_reader else ConfigFile(self.config_class, self.command)
        )
        return reader

    @property
    def manifest(self) -> type[Manifest]:
        loaded: type[Manifest] = resolve_name(self.manifest_class)
        return loaded

    @property
    def function(self) -> Callable[..., Any]:
        """The function that does the audit, as `c2b_ray` offers it."""
        function: Callable[..., Any] = resolve_name(self.run)
        return function

    @property
    def has_estimate(self) -> bool:
        """Whether the cost of a run can be estimated before it."""
        return bool(self.estimate or self.most_images)

    @property
    def is_compared(self) -> bool:
        """Whether two of its runs can be compared."""
        return bool(self.compare or self.findings)

    @property
    def export_names(self) -> list[str]:
        """The formats of exports."""
        return list(self.exports or (self._default.EXPORTS if self.findings else ()))

    @property
    def form_fields(self) -> tuple[FormField, ...]:
        """The browser's form."""
        return self.form or tuple(_fields_of(self.config_class))

    @property
    def _default(self) -> Any:
        """The functions of an audit that brings only its findings."""
        return import_module("c2b_ray.audits.from_findings")

    def new(self, path: str) -> Any:
        """Returns the run at `path`, of the audit's class. It need not exist yet."""
        return resolve_name(self.run_class)(path, self)

    def work(self, config: Mapping[str, Any], out: str, via: str, listener: Listener | None, placement: Any) -> None:
        """Does the audit, or what is left of it, at `out`. Raises what its function raises."""
        self.function(dict(config), out, via, listener, placement)

    def models_of(self, config: Mapping[str, Any]) -> list[str]:
        """Returns the models that use is booked on, each once; none if the config names none."""
        value = config.get(self.models)
        if isinstance(value, Mapping):
            value = list(value.values())
        specs = value if isinstance(value, list | tuple) else [value]
        return list(dict.fromkeys(spec for spec in specs if isinstance(spec, str) and spec))

    def compared_names(self, config: Mapping[str, Any]) -> list[str]:
        """Returns the names of the classifiers, or of what else a run of this config compares with another's."""
        return names_in(config, self.compared_by or self.models)

    def images_at_most(self, config: Mapping[str, Any]) -> int | None:
        """Returns the most images that models answer about, without reading any file; None if the config does not
        say."""
        if not self.most_images:
            return None
        images: int | None = resolve_name(self.most_images)(self.config_class.model_validate(config))
        return images

    def estimate_of(self, file: str, via: str) -> Any:
        """Returns the estimate of the cost of a run of this file: a `Summary` or `kit.session.Cost`s."""
        return resolve_name(self.estimate)(file, via) if self.estimate else self._default.estimate(self, file)

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Raises ConfigError for what the config's types allow and the audit refuses."""
        if self.check:
            resolve_name(self.check)(self.config_class.model_validate(config))

    def write_report(self, run: Run) -> str:
        """Writes the run's report again; returns its path."""
        return str(resolve_name(self.report)(run) if self.report else self._default.write_report(run))

    def summarise(self, run: Run) -> Any:
        return resolve_name(self.summary)(run) if self.summary else self._default.summary(run)

    def headline(self, run: Run) -> dict[str, Any]:
        """Returns a finished run's `headline` as its manifest has it."""
        shown_summary = self.summarise(run)
        doubt = "in doubt, as its report says: " if shown_summary.first else ""
        return {"text": f"{doubt}{shown_summary.headline}", "findings": dict(shown_summary.findings)}

    def export(self, run: Run, form: str, classifier: str | None) -> bytes:
        """Exports a run. Raises ConfigError if the audit has no such format."""
        if form not in self.export_names:
            raise ConfigError(
                Argument.FORMAT, f"{form!r} is not a format of {self.name} runs; {nearest(form, self.export_names)}"
            )
        function = resolve_name(self.exports[form]) if self.exports else self._default.EXPORTS[form]
        data: bytes = function(run, classifier)
        return data

    def findings_of(self, run: Run, classifier: str | None = None) -> list[gates.GateCell]:
        """Returns the findings of a run, of all its classifiers or of one."""
        cells: list[gates.GateCell] = resolve_name(self.findings)(run, classifier)
        return cells

    def check_gates(
        self, run: Run, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
    ) -> list[gates.Check]:
        """Checks gates on the findings of a run. Raises ConfigError if the audit has none."""
        if not self.findings:
            raise ConfigError(Argument.RUN, f"{run.path} is a run of {self.command}, which has no gates")
        return gates.check(fail_on, self.findings_of(run, classifier), allow_unchecked)

    def comparison(self, a: Run, b: Run, classifier_a: str | None, classifier_b: str | None) -> Any:
        """Compares two runs. Raises ConfigError if such runs cannot be compared, or are of different audits."""
        if not self.is_compared:
            raise ConfigError(Argument.A, f"{a.path} is a run of {self.command}, and such runs cannot be compared")
        if b.kind.name != self.name:
            raise ConfigError(
                Argument.B,
                f"{b.path} is a run of {b.kind.command}, {a.path} one of {self.command}: name two of one kind",
            )
        compare = resolve_name(self.compare) if self.compare else self._default.compare
        return compare(a, b, classifier_a, classifier_b)


def _fields_of(config: type[BaseModel]) -> Iterator[FormField]:
    """Yields the fields of the form of a config: those of its fields that one line can hold."""
    for name, info in config.model_fields.items():
        kind = info.annotation
        label, hint = name.replace("_", " ").capitalize(), info.description or ""
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        value = None if info.is_required() else info.get_default(call_default_factory=True)
        default = "" if value is None else str(value)
        if choices:
            yield FormField(name, label, hint, "choice", tuple(map(str, choices)), default)
        elif kind is int:
            yield FormField(name, label, hint, "number", (), default)
        elif kind == list[str]:
            yield FormField(name, label, hint, "words")
        elif kind in (str, str | None):
            kind_of_name = names_by_field(config)[name]
            suggestions = None if kind_of_name is None else _SUGGESTIONS.get(kind_of_name)
            yield FormField(name, label, hint, "model" if suggestions else "text", suggestions or (), default)


_SUGGESTIONS = {
    Names.CLASSIFIER: "classifiers",
    Names.GENERATOR: "generators",
    Names.LATENT_GENERATOR: "latent_generators",
    Names.LANGUAGE_MODEL: "language_models",
    Names.CAPTIONER: "captioners",
    Names.ENCODER: "encoders",
    Names.TABLE: "tables",
    Names.CAPTIONED: "captioned",
}
"""The browser's suggestions for a field, by what its type says that it names."""


def audit_named(name: str) -> Audit:
    """Returns the audit of this name. Raises ConfigError if there is none, or if the package that declares it cannot be
    loaded."""
    if name in AUDITS:
        audit: Audit = resolve_name(AUDITS[name])
        return audit
    if name not in _installed():
        raise ConfigError("kind", f"there is no kind {name!r}; {nearest(name, names())}")
    return _loaded(_installed()[name])


def names() -> list[str]:
    """Returns the names of all audits, those of other packages last."""
    return [*AUDITS, *_installed()]


def names_of_other_packages() -> list[str]:
    """Returns the names of the audits that other packages declare."""
    return list(_installed())


def audits() -> dict[str, Audit]:
    """Returns all audits by name. One of another package that cannot be loaded is left out, with a warning."""
    result = {name: audit_named(name) for name in AUDITS}
    for name in _installed():
        try:
            result[name] = audit_named(name)
        except ConfigError as error:
            warnings.warn(str(error), stacklevel=2)
    return result


def audit_of(run: Run) -> Audit:
    """Returns the audit that made a run."""
    assert isinstance(run.kind, Audit)
    return run.kind


@cache
def _installed() -> dict[str, EntryPoint]:
    """Returns the audits of other packages by name. The first of two of one name counts, and none replaces ours."""
    others: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda candidate: (candidate.name, candidate.value)):
        if entry.name in (*AUDITS, QUESTION, *others):
            warnings.warn(
                f"{entry.value}: there is an audit {entry.name!r} already; this one is left out", stacklevel=2
            )
        else:
            others[entry.name] = entry
    return others


@cache
def _loaded(entry: EntryPoint) -> Audit:
    where = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
    try:
        audit = entry.load()
    except Exception as error:  # whatever another package raises when it is imported
        raise ConfigError(
            "kind", f"the audit {entry.name!r} of {where} cannot be loaded: {error}; mend or remove that package"
        ) from error
    if not isinstance(audit, Audit) or audit.name != entry.name:
        raise ConfigError("kind", f"{entry.value} of {where} is no `Audit` named {entry.name!r}; remove that package")
    return audit
