"""Names the picture on which a model fails, by asking about each picture of the failed batch alone.

A model in memory is a stranger's code: one picture that it cannot take would otherwise end its audit at every attempt,
and no message would say which. It knows neither the model nor what its answer means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from c2b_ray.roles import Pixels

LONGEST = 500  # characters of the message of what a model raises


def failure_of(
    answer: Callable[[list[Pixels]], Any], images: Sequence[Pixels], keys: Sequence[str], error: Exception
) -> str:
    """Returns which of the pictures the model fails on and why, and what to do; `error` is what it raised for all of
    them together."""
    if len(images) < 2:
        return f"failed on {len(images)} pictures: {_said(error)}"
    failed: list[tuple[str, Exception]] = []
    for key, image in zip(keys, images, strict=True):
        try:
            answer([image])
        except Exception as alone:  # whatever a stranger's code raises
            failed.append((key, alone))
    if not failed:
        return f"failed on {len(images)} pictures together, and on none of them alone: {_said(error)}"
    if len(failed) == len(images):
        return f"failed on {len(images)} pictures: {_said(error)}"
    key, first = failed[0]
    return (
        f"failed on {len(failed)} of {len(images)} pictures, the first of them {key}: {_said(first)}. Answer with a "
        "row of NaN for a picture that the model cannot take: it counts as an error, and the audit goes on"
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:LONGEST]}{'…' if len(str(error)) > LONGEST else ''}"
