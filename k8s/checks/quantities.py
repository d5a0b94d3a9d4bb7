"""Amounts as Kubernetes writes them, and names of accelerators: two spellings of one amount are equal."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{prefix}i": 2 ** (10 * power) for power, prefix in enumerate("KMGTPE", 1)}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[A-Za-z]{0,2})")
_SLICE_OF_A_GPU = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb")


def quantity(value: str | int | float) -> float:
    """The number that a quantity such as 4Gi, 500m, 2e9 or 3 stands for; ValueError where it is none."""
    match = _QUANTITY.fullmatch(str(value))
    if match is not None and re.match(r"[eE][+-]?\d", match[2]):
        return float(match[0])
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{value!r} is no quantity such as 4Gi, 500m or 3")
    return round(float(match[1]) * _UNITS[match[2]], 9)


def same(one: str | int | None, other: str | int | None) -> bool:
    """Whether both are there and stand for one number."""
    return one is not None and other is not None and quantity(one) == quantity(other)


def gpus(names: Iterable[str]) -> list[str]:
    """Those resources that KubeRay counts as GPUs: whatever ends with gpu, and slices of NVIDIA's."""
    return [name for name in names if name.endswith("gpu") or _SLICE_OF_A_GPU.fullmatch(name)]


def surviving(budget: dict[str, str | int], replicas: int) -> int:
    """How many of the replicas a PodDisruptionBudget keeps, where an eviction may begin."""
    if (most := budget.get("maxUnavailable")) is not None:
        return replicas - _share(most, replicas)
    return _share(budget.get("minAvailable", 0), replicas)


def _share(value: str | int, replicas: int) -> int:
    """A count, or a percentage of the replicas, rounded up as Kubernetes does."""
    text = str(value)
    return -(-int(text[:-1]) * replicas // 100) if text.endswith("%") else int(text)
