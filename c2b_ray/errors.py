"""The exception tree: every error that c2b-ray raises on purpose, and what each one is about.

It does not know where errors are shown; the command line turns an `InputError` into exit status 2.

    C2BError
    ├── InputError              what the user gave is wrong: mend it and run again (exit status 2)
    │   ├── ConfigError         a field of an audit file, or a command's option
    │   ├── SpecError           a model spec that names nothing; the nearest names are offered
    │   ├── AddressError        a URL that the policy of an endpoint does not let it ask
    │   ├── WeightsError        weights that are refused (pickle), absent or of another shape
    │   ├── SourceError         a folder, table, shard or index of images that cannot be read, or holds none
    │   ├── ImageError          one image that cannot be used; a row's `error`, never the end of a run
    │   └── RunError            a run directory that belongs to another run
    │       └── BusyRunError    … that another process writes: a moment later it may not
    ├── StorageError            the file system said no: full disk, no permission (exit status 2)
    ├── ReplyError              a language model's reply that cannot be used; kept beside the run
    └── ServiceError            a model service that is dead or answers nonsense: the run stops and can be resumed

The endpoint's own are beside what raises them, in endpoint.ledger: `DatabaseDownError` and `SchemaError` (outage),
`FencedError` and `IdempotencyConflictError` (job), `Denied` (quotas).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class C2BError(Exception):
    """Base of all errors of this project. The message says what was expected and what to do.

    What an error is about is there as data too, where it is known: `location`, a path or URI; `run`, a run directory;
    `app`, an app of Ray Serve. A `ConfigError` has its `field` besides. All of it travels between processes.
    """

    def __init__(
        self, message: str | None = "", *, location: str | None = None, run: str | None = None, app: str | None = None
    ) -> None:
        super().__init__(message or "")
        self.location, self.run, self.app = location, run, app

    def __reduce__(self) -> tuple[object, ...]:
        return again, (type(self), str(self), vars(self))


class InputError(C2BError):
    """What the user gave is wrong."""


class ConfigError(InputError):
    """A field of a configuration is wrong.

    `field` is the dotted path of the field, such as `images.index`.
    """

    def __init__(self, field: str, message: str, *, location: str | None = None) -> None:
        """`location`: the file that holds the field."""
        text = f"{field}: {message}" if field else message
        super().__init__(f"{location}: {text}" if location else text, location=location)
        self.field = field


class SpecError(InputError):
    """A model spec that names nothing that can be loaded."""


class AddressError(InputError):
    """A URL, or the address behind it, that may not be asked."""


class WeightsError(InputError):
    """Weights that are refused, absent, or of another shape than the model."""


class SourceError(InputError):
    """A source of images or rows that cannot be read, or that is empty."""


class ImageError(InputError):
    """One image that cannot be used. Becomes the `error` of its row."""


class RunError(InputError):
    """A run directory that belongs to another run, or that another process writes."""


class BusyRunError(RunError):
    """A run directory that another process writes: the same call may do once that has ended."""


class StorageError(C2BError):
    """The file system refused: full disk, no write permission, gone."""


class ReplyError(C2BError):
    """A language model's reply that cannot be used. `reply` is the text, whole."""

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(message)
        self.reply = reply


class ServiceError(C2BError):
    """A model service that does not answer, or answers with something else than was asked for."""


def again(kind: type[C2BError], message: str, data: dict[str, object]) -> C2BError:
    """The error as it was raised in another process, whatever arguments its class takes."""
    error = kind.__new__(kind, message)
    Exception.__init__(error, message)
    vars(error).update(data)
    return error


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names nearest to `name`, or all of them where few."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(repr(c) for c in close)}?"
    return f"known: {', '.join(names[:20])}{' …' if len(names) > 20 else ''}"
