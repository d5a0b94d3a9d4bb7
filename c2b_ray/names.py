"""When two names of classes, attributes or values are the same one. It knows characters, not what the names are of."""

from __future__ import annotations


def folded(name: str) -> str:
    """Lower case, single spaces: what differs in nothing more is spelled alike."""
    return " ".join(name.lower().split())


def normalise(name: str) -> str:
    """`folded`, without underscores, quotes and closing punctuation: the form in which names are compared."""
    return folded(name.replace("_", " ").strip(" .,;:'\""))
