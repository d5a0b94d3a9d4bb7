"""Says why the files that a table lists are not those that are there: the commonest cause, with an example.

It knows names of files, and opens none.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

SAMPLE = 2_000
"""The most images whose names are compared with those of the table."""


def same_form(name: str) -> str:
    """Returns the name of a file below a folder in the form in which names are one: accents in one of Unicode's forms,
    slashes, no `./` and no doubled slash."""
    return posixpath.normpath(unicodedata.normalize("NFC", name).replace("\\", "/"))


def path_of(key: str) -> str:
    """Returns a name as a path, whatever its separators, without the scheme of a URI."""
    return posixpath.normpath(key.strip().replace("\\", "/").partition("://")[2] or key.strip().replace("\\", "/"))


def _base(key: str) -> str:
    return posixpath.basename(path_of(key))


def _stem(key: str) -> str:
    return posixpath.splitext(path_of(key))[0].lstrip("/")


CAUSES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("spaces around the name, or a scheme before it", lambda key: path_of(key).lstrip("/")),
    ("upper and lower case", lambda key: path_of(key).lstrip("/").casefold()),
    ("signs that are written as %20 and the like", lambda key: unquote(path_of(key)).lstrip("/")),
    ("the folder", _base),
    ("the ending", _stem),
    ("the folder, and upper and lower case", lambda key: _base(key).casefold()),
    ("the folder and the ending", lambda key: posixpath.basename(_stem(key))),
    ("the folder, the ending, and upper and lower case", lambda key: posixpath.basename(_stem(key)).casefold()),
    ("zeros before a number", lambda key: posixpath.basename(_stem(key)).lstrip("0").casefold()),
)
"""What names may differ in → the form in which they are equal, the smallest difference first."""


@dataclass(frozen=True)
class Cause:
    """`what`: in which the names differ. `listed`, `called`: one name of the table, and the image's own."""

    what: str
    listed: str
    called: str

    def __str__(self) -> str:
        return f"the table lists {self.listed!r}, the image is called {self.called!r}: they differ in {self.what}"


def cause_of(files: Iterable[str], keys: Sequence[str]) -> Cause | None:
    """Returns the smallest difference that explains most of the images `keys` that are not among `files`; None where
    no difference in `CAUSES` explains any."""
    some, names = list(keys)[:SAMPLE], list(files)
    found: Counter[int] = Counter()
    examples: dict[int, Cause] = {}
    for number, (what, form) in enumerate(CAUSES):
        of_form = {form(name): name for name in names}
        of_form.pop("", None)
        for key in some:
            if (listed := of_form.get(form(key))) is not None:
                found[number] += 1
                examples.setdefault(number, Cause(what, listed, key))
    if not found:
        return None
    most = max(found.values())
    return examples[min(number for number, count in found.items() if count >= 0.9 * most)]
