"""A classifier at a URL, by a small JSON contract that a few lines of any web framework fulfil.

    GET  URL    → {"labels": ["bus", …], "revision": "2026-11"}         revision: changes whenever the answers may
    POST URL    {"images": ["<base64 of a PNG>", …], "keys": ["photos/1.jpg", …]}
                → {"logits": [[…], …]}  or  {"probabilities": [[…], …]}  a row per image, a number per label; null for a
                  row without an answer; "labels", "revision" and "keys" may be given again, and must then be the same

Requests are batched and sent several at a time; a batch that is refused (400, 413, 422) is halved until the image that
is refused stands alone, whose row has then no answer: a service that takes fewer than 32 images at once, or is too slow
for them, answers 413 to more. The bearer token is read from the environment variable C2B_HTTP_KEY. Rows called logits
that are probabilities are refused. It does not know what is behind the URL.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models.catalog import Spec, description_of
from c2b_ray.models.json_service import JsonService, RequestLimits, RequestRefused, check_url
from c2b_ray.models.output_kinds import looks_like_probabilities
from c2b_ray.models.spec_options import batches, label_fact, to_pil
from c2b_ray.roles import Description, Floats, ModelFact, Pixels
from c2b_ray.tables import content_id

KEY_VARIABLE = "C2B_HTTP_KEY"
BATCH = 32
BEYOND, OFF = 1e-4, 1e-2
"""Tolerances for probabilities rounded to four decimals: by how much one may exceed 1, and how far the sum of a
thousand may be from 1."""
CHECKED = 64
"""So many of the first rows of logits are checked for being probabilities."""
_ADVICE = "The request had {} images: a service that is too slow for them, or takes fewer, answers 413 and gets half"
PATIENCE = RequestLimits(timeout_s=60, attempts=4, in_flight=4)


def load(spec: Spec) -> HttpClassifier:
    """Connects to the classifier at a URL. Raises ServiceError where it does not answer, SpecError where its answer has
    no labels."""
    check_url(spec.text, KEY_VARIABLE)
    return HttpClassifier(spec.text)


def describe(spec: Spec) -> Description:
    """Returns the description that the service gives of itself."""
    return description_of(load(spec))


class HttpClassifier:
    """Implements `roles.Classifier`. Safe to call from several threads."""

    def __init__(self, url: str, patience: RequestLimits = PATIENCE) -> None:
        self._url, self._patience, self._answered = url, patience, False
        self._first: Floats | None = np.zeros((0, 0), np.float32)  # None once the rows are known to be logits
        self._service = JsonService(url, KEY_VARIABLE, patience)
        description = self._service.ask("GET")
        labels = description.get("labels") if isinstance(description, dict) else None
        if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
            raise SpecError(
                f'{url}: GET must answer {{"labels": [names], "revision": text}}, got {str(description)[:200]}'
            )
        self.labels = tuple(labels)
        self._stated = description.get("revision")
        self.revision = content_id("http", url, list(labels), str(self._stated))
        self.facts = (
            label_fact(None, self.labels, "the service's answer to GET"),
            ModelFact("output", "logits or probabilities, as each answer calls them", "the service's answers to POST"),
        )

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Returns logits, float32 (images, labels); for probabilities, their logarithms; NaN for a row that is null or
        refused.

        Raises ServiceError where there is no answer after all attempts, where every image is refused, or where the
        number of rows or columns, the labels or the revision differ.
        """
        if not len(images):
            return np.zeros((0, len(self.labels)), np.float32)
        rows = list(zip(images, keys, strict=True))
        parts = [part for logits in self._service.each(self._halved, list(batches(rows, BATCH))) for part in logits]
        refused = [part for part in parts if isinstance(part, RequestRefused)]
        # One image alone may be the last of many: it ends nothing where the service has answered before.
        if len(refused) == len(parts) and (len(parts) > 1 or not self._answered):
            raise ServiceError(f"every image was refused, {len(parts)} of {len(parts)}: {refused[0]}") from refused[0]
        no_answer = np.full((1, len(self.labels)), np.nan, np.float32)
        return np.concatenate([no_answer if isinstance(part, RequestRefused) else part for part in parts])

    def _halved(self, rows: Sequence[tuple[Pixels, str]]) -> list[Floats | RequestRefused]:
        """Returns the rows' numbers in parts, in order; an image that is refused on its own is a `RequestRefused`
        part."""
        try:
            return [self._batch(rows)]
        except RequestRefused as refused:
            if len(rows) == 1:
                return [refused]
            half = len(rows) // 2
            return [*self._halved(rows[:half]), *self._halved(rows[half:])]

    def _batch(self, rows: Sequence[tuple[Pixels, str]]) -> Floats:
        body = {"images": [_png(image) for image, _ in rows], "keys": [key for _, key in rows]}
        answer = self._service.ask("POST", body=body, advice=_ADVICE.format(len(rows)) if len(rows) > 1 else "")
        if not isinstance(answer, dict) or not ({"logits", "probabilities"} & answer.keys()):
            raise ServiceError(f'{self._url}: POST must answer "logits" or "probabilities", got {str(answer)[:200]}')
        for name, expected in (("labels", list(self.labels)), ("revision", self._stated)):
            if name in answer and answer[name] != expected:
                raise ServiceError(
                    f"{self._url}: its {name} changed between two requests, {_change(expected, answer[name])}; "
                    "start the audit anew with another --out"
                )
        keys = answer.get("keys")
        if isinstance(keys, list) and keys != body["keys"] and sorted(map(str, keys)) == sorted(body["keys"]):
            raise ServiceError(
                f"{self._url}: its rows are in another order than the images that were sent, by their keys "
                f"{_change(body['keys'], keys)}; answer in the order of the images"
            )
        logits = self._numbers(answer, len(rows))
        self._answered = True
        return logits

    def _numbers(self, answer: dict[str, Any], rows: int) -> Floats:
        kind = "logits" if "logits" in answer else "probabilities"
        rows_of_answer, width = answer[kind], len(self.labels)
        if not isinstance(rows_of_answer, list) or len(rows_of_answer) != rows:
            count = len(rows_of_answer) if isinstance(rows_of_answer, list) else type(rows_of_answer).__name__
            raise ServiceError(f"{self._url}: {rows} images were sent, and {count} rows of {kind} came back")
        logits = np.full((rows, width), np.nan, np.float32)
        for i, row in enumerate(rows_of_answer):
            if row is None:
                continue
            if not isinstance(row, list) or len(row) != width:
                raise ServiceError(f"{self._url}: row {i} of {kind} is not a list of {width} numbers: {str(row)[:100]}")
            numbers = _as_floats(row)
            if numbers is None:
                raise ServiceError(f"{self._url}: row {i} of {kind} is not made of numbers: {repr(row)[:100]}")
            logits[i] = numbers
        if kind == "probabilities":
            self._check_probabilities(logits)
            with np.errstate(divide="ignore"):
                logits = np.log(logits)
        else:
            self._check_logits(logits)
        return logits

    def _check_logits(self, rows: Floats) -> None:
        """Raises ServiceError where the first rows that the service calls logits are probabilities."""
        if self._first is None:
            return
        first = np.concatenate([self._first, rows]) if len(self._first) else rows
        if looks_like_probabilities(first):
            raise ServiceError(
                f'{self._url}: the rows of "logits" are probabilities: none is below 0, and each sums to 1, as in '
                f'{first[-1][:5].tolist()}; answer "probabilities", or the logits before the softmax'
            )
        self._first = None if len(first) >= CHECKED else first

    def _check_probabilities(self, rows: Floats) -> None:
        """Raises ServiceError for logits or independent scores sent as probabilities: rows with a number outside [0,
        1], or that do not sum to one. Rows without an answer are skipped."""
        for i, row in enumerate(rows):
            invalid = row[(row < 0) | (row > 1 + BEYOND)]
            if len(invalid):
                raise ServiceError(
                    f"{self._url}: row {i} of probabilities: {invalid[0]:g} is no probability (if these are logits, "
                    'answer "logits")'
                )
            total = float(row.sum(dtype=np.float64))
            if abs(total - 1) > OFF:
                raise ServiceError(
                    f"{self._url}: row {i} of probabilities sums to {total:g}, expected 1 (of logits, give their "
                    'softmax, or answer "logits")'
                )

    def __getstate__(self) -> dict[str, Any]:
        # The key stays in the environment: it must not travel inside a pickled model.
        return {"url": self._url, "patience": self._patience}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _as_floats(row: list[Any]) -> Floats | None:
    """Converts a row to float32; None where a value is neither a number nor null. Values beyond the range of float32
    become infinite."""
    # A text that reads as a number is none: JSON has numbers, and what sends texts may send others that read as none.
    if not all(value is None or type(value) in (int, float) for value in row):
        return None
    try:
        values = np.array([np.nan if value is None else float(value) for value in row], np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return None
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _change(old: Any, now: Any) -> str:
    """Describes a change from one value to another; for two lists, from their first difference, as they often begin
    alike."""
    if isinstance(old, list) and isinstance(now, list):
        if len(old) != len(now):
            return f"from {len(old)} to {len(now)} of them"
        position = next(i for i, (old_item, new_item) in enumerate(zip(old, now, strict=True)) if old_item != new_item)
        old, now = f"number {position}, {old[position]!r},", repr(now[position])
    return f"from {str(old)[:200]} to {str(now)[:200]}"


def _png(image: Pixels) -> str:
    buffer = BytesIO()
    to_pil(image).save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode()
