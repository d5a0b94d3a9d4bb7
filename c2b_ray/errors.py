"""The exception tree: every error that c2b-ray raises on purpose, and its meaning.

It does not know where errors are shown; the command line turns an `InputError` into exit status 2.

    C2BError
    ├── InputError              the user's input is wrong: correct it and run again (exit status 2)
    │   ├── ConfigError         a field of a config file, or a command's option
    │   ├── SpecError           a model spec that names nothing; the message offers the nearest names
    │   ├── AddressError        a URL that an endpoint's policy does not allow
    │   ├── WeightsError        weights that are refused (pickle), absent or of another shape
    │   ├── SourceError         a folder, table, shard or index of images that cannot be read, or holds none
    │   ├── ImageError          one image that cannot be used; a row's `error`, never the end of a run
    │   └── RunError            a run directory that belongs to another run
    │       └── BusyRunError    … that another process writes: try again later
    ├── StorageError            the file system refused: full disk, no permission (exit status 2)
    ├── ReplyError              a language model's reply that cannot be used; kept with the run
    └── ServiceError            a model service that is dead or answers nonsense: the run stops and can be resumed

The endpoint's errors are in endpoint.ledger, in the modules that raise them: `DatabaseDownError` and `SchemaError`
(`database`), `FencedError` and `IdempotencyConflictError` (`tables`), `QuotaDenial` (`quotas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Literal, get_args

Surface = Literal["terminal", "request"]
"""Where an error is read: after a command, also in Python; or in the answer to a request, also on the endpoint's pages
and in a job's record."""


class Argument(Enum):
    """What is said beside a config: its option or place in a command, and its field in a request."""

    A = "A", "a"
    B = "B", "b"
    RUN = "RUN", "job_id"
    SENTENCE = "SENTENCE", "sentence"
    ALLOW_UNDETERMINED = "--allow-undetermined", "allow_unchecked"
    CLASS = "--class", "target_class"
    CLASSIFIER = "--classifier", "classifier"
    CLASSIFIER_A = "--classifier-a", "classifier_a"
    CLASSIFIER_B = "--classifier-b", "classifier_b"
    FAIL_ON = "--fail-on", "fail_on"
    FORMAT = "--format", "form"
    TARGET = "--target", "target"

    def named(self, surface: Surface) -> str:
        """Returns what the argument is called."""
        return self.value[0 if surface == "terminal" else 1]


@dataclass(frozen=True)
class Remedy:
    """What to do about an error, which is another thing at a terminal than in a request."""

    terminal: str
    request: str

    def worded(self, surface: Surface) -> str:
        return self.terminal if surface == "terminal" else self.request


def naming(before: str, *arguments: Argument, after: str = "") -> Remedy:
    """Returns a remedy that names arguments: `naming("name one with ", Argument.CLASS)`."""
    at_terminal, in_request = (" and ".join(one.named(surface) for one in arguments) for surface in get_args(Surface))
    return Remedy(f"{before}{at_terminal}{after}", f"{before}{in_request}{after}")


def another_run(purpose: str = "", instead: str = "") -> Remedy:
    """Returns the remedy of a run that cannot go on: another one. `purpose`: what for; `instead`: what helps too."""
    ending = f"{f' {purpose}' if purpose else ''}{f', or {instead}' if instead else ''}"
    return Remedy(f"give another --out{ending}", f"submit it again{ending}")


def resuming(first: str) -> Remedy:
    """Returns the remedy of a run that goes on once something is done `first`."""
    return Remedy(f"{first} and run the same command again, it resumes", f"{first} and submit it again, it resumes")


class C2BError(Exception):
    """Base of all errors of this project. The message says what was expected and what to do.

    Its subject is also available as data, where it is known: `location`, a path or URI; `run`, a run directory; `app`,
    an app of Ray Serve; `remedy`, what to do, where that depends on where the error is read. A `ConfigError` also has a
    `field`. All of it survives the way between processes. `str(error)` is what a terminal shows.
    """

    def __init__(
        self,
        message: str | None = "",
        *,
        location: str | None = None,
        run: str | None = None,
        app: str | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        super().__init__(f"{message or ''}; {remedy.terminal}" if remedy else message or "")
        self.location, self.run, self.app, self.remedy = location, run, app, remedy

    def worded(self, surface: Surface) -> str:
        """Returns the message as it is read there."""
        text, remedy = str(self), self.remedy
        return text if remedy is None else text.replace(remedy.terminal, remedy.worded(surface))

    def __reduce__(self) -> tuple[object, ...]:
        return again, (type(self), str(self), vars(self))


class InputError(C2BError):
    """The user's input is wrong."""


class ConfigError(InputError):
    """A field of a configuration, or an argument of a command or request, is wrong.

    `field` is the dotted path of the field, such as `images.index`; of an argument, its name in a command.
    """

    def __init__(
        self,
        field: str | Argument | Sequence[Argument],
        message: str,
        *,
        location: str | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        """`location`: the file that holds the field."""
        arguments = () if isinstance(field, str) else (field,) if isinstance(field, Argument) else tuple(field)
        self.field = field if isinstance(field, str) else _names(arguments, "terminal")
        text = f"{self.field}: {message}" if self.field else message
        super().__init__(f"{location}: {text}" if location else text, location=location, remedy=remedy)
        self.arguments = arguments

    def fields(self, surface: Surface) -> list[str]:
        """Returns what is wrong, by its names there; one empty text where the error names no field."""
        return [one.named(surface) for one in self.arguments] or [self.field]

    def reason(self, surface: Surface) -> str:
        """Returns the message without the field and the file in front of it."""
        text = super().worded(surface).removeprefix(f"{self.location}: " if self.location else "")
        return text.removeprefix(f"{self.field}: " if self.field else "")

    def worded(self, surface: Surface) -> str:
        where = [self.location or "", ", ".join(self.fields(surface))]
        return ": ".join([*filter(None, where), self.reason(surface)])


class SpecError(InputError):
    """A model spec that names nothing that can be loaded."""


class AddressError(InputError):
    """A URL, or the address behind it, that requests may not use."""


class WeightsError(InputError):
    """Weights that are refused, absent, or of another shape than the model."""


class SourceError(InputError):
    """A source of images or rows that cannot be read, or that is empty."""


class ImageError(InputError):
    """One image that cannot be used. Becomes the `error` of its row."""


class RunError(InputError):
    """A run directory that belongs to another run, or that another process writes."""


class BusyRunError(RunError):
    """A run directory that another process writes; the same call may succeed after that process has ended."""


class StorageError(C2BError):
    """The file system refused: full disk, no write permission, gone."""


class ReplyError(C2BError):
    """A language model's reply that cannot be used. `reply`: the whole text."""

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(message)
        self.reply = reply


class ServiceError(C2BError):
    """A model service that does not answer, or gives an answer of the wrong form."""


def _names(arguments: Sequence[Argument], surface: Surface) -> str:
    return ", ".join(one.named(surface) for one in arguments)


def again(kind: type[C2BError], message: str, data: dict[str, object]) -> C2BError:
    """Rebuilds an error that was raised in another process, whatever arguments its class takes."""
    error = kind.__new__(kind, message)
    Exception.__init__(error, message)
    vars(error).update(data)
    return error


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the known names nearest to `name`, or all of them if they are few."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(repr(c) for c in close)}?"
    return f"known: {', '.join(names[:20])}{' …' if len(names) > 20 else ''}"


@contextmanager
def about_model(spec: str) -> Iterator[None]:
    """Puts the spec of a model, one of several, before the message of what it raises where that does not name it."""
    try:
        yield
    except (WeightsError, ServiceError) as error:
        if spec not in str(error):
            error.args = (f"{spec}: {error}", *error.args[1:])
        raise
