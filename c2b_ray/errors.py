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
(outage), `FencedError` and `IdempotencyConflictError` (job), `Denied` (quotas).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class C2BError(Exception):
    """Base of all errors of this project. The message says what was expected and what to do.

    Its subject is also available as data, where it is known: `location`, a path or URI; `run`, a run directory; `app`,
    an app of Ray Serve. A `ConfigError` also has a `field`. All of it survives the way between processes.
    """

    def __init__(
        self, message: str | None = "", *, location: str | None = None, run: str | None = None, app: str | None = None
    ) -> None:
        super().__init__(message or "")
        self.location, self.run, self.app = location, run, app

    def __reduce__(self) -> tuple[object, ...]:
        return again, (type(self), str(self), vars(self))


class InputError(C2BError):
    """The user's input is wrong."""


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
