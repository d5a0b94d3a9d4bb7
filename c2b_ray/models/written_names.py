"""Label names as files write them: a JSON or Python list, or a mapping from numbers to names or from names to numbers.

Every number from 0 on must have its name: with one too few, all labels after it would be another's. It knows neither
the model nor how many outputs it has.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from c2b_ray.errors import WeightsError
from c2b_ray.filesystems.documents import parse_json

KEYS = ("labels", "names", "classes", "class_names", "label_names", "id2label", "categories", "class_to_idx")
"""The keys under which exporters put label names into a file's metadata."""
LONGEST = 4 * 2**20
"""The most characters that are parsed; the names of 21,841 labels take one million."""
REMEDY = "give the names with ?labels=PATH"


def names_in(metadata: Mapping[str, str], where: str) -> tuple[list[str] | None, str]:
    """Returns the label names of a file's metadata, and their key; (None, "") where no key of `KEYS` has any.

    Raises WeightsError where names cannot be read, or where two keys name the labels differently.
    """
    spelt = {key.casefold(): (key, value) for key, value in metadata.items() if value.strip()}
    found = [
        (spelt[key][0], names_of(spelt[key][1], f"{where}: its `{spelt[key][0]}`")) for key in KEYS if key in spelt
    ]
    if not found:
        return None, ""
    first, names = found[0]
    for key, others in found[1:]:
        if others != names:
            raise WeightsError(
                f"{where}: its metadata names labels twice, differently: `{first}` and `{key}`; {REMEDY}"
            )
    return names, first


def names_of(text: str, where: str) -> list[str]:
    """Parses names from a text. Raises WeightsError where it is neither a list nor a mapping of names."""
    if len(text) > LONGEST:
        raise WeightsError(f"{where} has {len(text)} characters; {REMEDY}")
    value: Any = text
    if text.lstrip()[:1] in "[{(":
        try:
            value = parse_json(text)
        except ValueError:
            try:
                value = ast.literal_eval(text.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
                raise WeightsError(
                    f"{where} is neither JSON nor a Python list or dict: {_short(text)}; {REMEDY}"
                ) from error
    if isinstance(value, str):
        value = value.strip().splitlines() if "\n" in value.strip() else value.split(",")
    if isinstance(value, Mapping):
        return by_number(value, where)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str | int) for name in value):
        return [str(name).strip() for name in value]
    raise WeightsError(
        f"{where} is neither a list of names nor a mapping from numbers to names: {_short(text)}; {REMEDY}"
    )


def by_number(mapping: Mapping[Any, Any], where: str) -> list[str]:
    """Returns the names in a mapping from numbers to names, or from names to numbers, in the order of numbers.

    Raises WeightsError where the numbers are not 0, 1, 2, … without a gap.
    """
    keys, values = ([_number(part) for part in parts] for parts in (mapping.keys(), mapping.values()))
    if None not in keys:
        numbered = dict(zip(keys, (str(value).strip() for value in mapping.values()), strict=True))
    else:  # class_to_idx: the names come first
        numbered = dict(zip(values, (str(key).strip() for key in mapping), strict=True))
    if not mapping or None in numbered or len(numbered) < len(mapping):
        raise WeightsError(f"{where} is no mapping from numbers to names: {_short(str(dict(mapping)))}; {REMEDY}")
    if None not in keys and keys != values and set(keys) == set(values):
        raise WeightsError(f"{where} maps numbers to numbers, in two ways: {_short(str(dict(mapping)))}; {REMEDY}")
    numbers = sorted(number for number in numbered if number is not None)
    if numbers != list(range(len(numbers))):
        absent = next(i for i in range(len(numbers) + 1) if i not in numbered)
        begins = f"begins at {numbers[0]}" if numbers[0] else f"has no number {absent}"
        raise WeightsError(
            f"{where} {begins}, and names {len(numbers)} labels up to number {numbers[-1]}; the model's outputs are "
            f"numbered from 0 without a gap: {REMEDY}, a name a line, in the order of the outputs"
        )
    return [numbered[number] for number in numbers]


def _number(key: Any) -> int | None:
    text = str(key).strip()
    return int(text) if not isinstance(key, bool) and text.isdecimal() and text.isascii() and len(text) < 10 else None


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"
