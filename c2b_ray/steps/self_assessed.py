"""Estimates how often a verifier is right from its own certainty, where there is no image of known content."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.schemas import CALIBRATION
from c2b_ray.steps.image_ids import Ints, codes, counted, numbered, vocabulary

SELF_TRUST = 20.0
"""Without a calibration table, a verifier's certainty counts as this many labelled images of each value."""

Floats = NDArray[np.float64]


def self_assessed(verifications: pa.Table) -> pa.Table:
    """Returns what the verifier's certainty implies for its answers: a table of `schemas.CALIBRATION`, counted in
    images.

    An image answered w with certainty p counts p for w and divides 1 - p among the other values that were answered for
    its class. Each value's row is scaled to at most SELF_TRUST images: a model's assessment of itself is weak evidence.
    """
    names, values, certainties = (
        pc.list_flatten(verifications[column]) for column in ("attributes", "values", "certainties")
    )
    known = np.flatnonzero(pc.and_(values.is_valid(), certainties.is_valid()).to_numpy())
    names, values, certainties = (column.take(pa.array(known)) for column in (names, values, certainties))
    words = vocabulary(names, values)
    text = words.to_pylist()
    name, value, certainty = codes(names, words), codes(values, words), certainties.to_numpy().astype(np.float64)
    promised: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for rows in _by_class(name, _targets(verifications)[known]):
        _add(promised[text[name[rows[0]]]], value[rows], certainty[rows], text)
    table = [row for attribute, images in sorted(promised.items()) for row in _rows(attribute, images)]
    return pa.Table.from_pylist(table, CALIBRATION)


def _targets(verifications: pa.Table) -> Ints:
    """Returns the class, as a number, of each value of all rows."""
    _, target = numbered(verifications["target_class"])
    return np.repeat(target, pc.list_value_length(verifications["attributes"]).to_numpy())


def _by_class(name: Ints, target: Ints) -> list[Ints]:
    """Returns the positions of the answers about each attribute of each class, in the order of their first answers."""
    keys = name * (np.int64(target.max(initial=0)) + 1) + target
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.r_[True, keys[order][1:] != keys[order][:-1]][: len(keys)])
    return sorted(np.split(order, starts[1:]), key=lambda rows: int(rows[0])) if len(keys) else []


def _add(promised: dict[tuple[str, str], float], said: Ints, certainty: Floats, text: list[str]) -> None:
    """Adds the images, by value and answer, of one attribute of one class."""
    numbers, _ = counted(said)
    values = sorted(text[number] for number in numbers)
    for number in sorted(numbers.tolist(), key=lambda number: int(np.argmax(said == number))):
        answer, sure = text[number], certainty[said == number]
        for value in values:
            images = sure if value == answer else (1 - sure) / max(1, len(values) - 1)
            # One after the other, so that parts of a table add up to what the whole does.
            before = promised.get((value, answer), 0.0)
            promised[value, answer] = float(np.cumsum(np.append(before, images))[-1])


def _rows(attribute: str, promised: dict[tuple[str, str], float]) -> list[dict[str, object]]:
    whole: dict[str, float] = defaultdict(float)
    for (value, _), images in promised.items():
        whole[value] += images
    return [
        {"attribute": attribute, "value": value, "answer": answer, "source": "self"}
        | {"images": images * min(1.0, SELF_TRUST / whole[value]) if whole[value] else 0.0}
        for (value, answer), images in sorted(promised.items())
    ]
