"""A classifier at a URL, by a small JSON contract that a few lines of any web framework fulfil.

    GET  URL    → {"labels": ["bus", …], "revision": "2026-11"}         revision: changes whenever the answers may
    POST URL    {"images": ["<base64 of a PNG>", …], "keys": ["photos/1.jpg", …]}
                → {"logits": [[…], …]}  or  {"probabilities": [[…], …]}  a row per image, a number per label; null for a
                  row without an answer; "labels" and "revision" may be given again, and must then be the same

Requests are batched, sent several at a time, timed out and tried again. The bearer token is read from the environment
variable C2B_HTTP_KEY and goes into one header: no message holds it. It knows nothing of what is behind the URL.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import httpx
import numpy as np
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import batches, to_pil
from c2b_ray.roles import Floats, Pixels
from c2b_ray.schemas import content_id

KEY_VARIABLE = "C2B_HTTP_KEY"
BATCH = 32
CONCURRENCY = 4
TIMEOUT_S = 60.0
ATTEMPTS = 4


def load(spec: Spec) -> HttpClassifier:
    """The classifier at a URL. ServiceError where it does not answer, SpecError where it says nothing of its labels."""
    if "@" in spec.text.split("/")[2]:
        raise SpecError(f"put no password into the URL of a model; its token belongs into {KEY_VARIABLE}")
    return HttpClassifier(spec.text)


class _Transient(Exception):
    """A failure that may pass."""


class HttpClassifier:
    """Implements `roles.Classifier`. Safe to call from several threads."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, attempts: int = ATTEMPTS, first_wait_s: float = 0.5):
        key = os.environ.get(KEY_VARIABLE, "")
        self._url, self._timeout_s = url, timeout_s
        self._attempts, self._first_wait_s = attempts, first_wait_s
        self._key = key
        self._client = httpx.Client(timeout=timeout_s, headers={"Authorization": f"Bearer {key}"} if key else {})
        about = self._ask("GET")
        labels = about.get("labels") if isinstance(about, dict) else None
        if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
            raise SpecError(f'{url}: GET must answer {{"labels": [names], "revision": text}}, got {str(about)[:200]}')
        self._labels = tuple(labels)
        self._stated = about.get("revision")
        self._revision = content_id("http", url, list(labels), str(self._stated))

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    @property
    def revision(self) -> str:
        return self._revision

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels); of probabilities, their logarithms; NaN for a row that is null.

        ServiceError: no answer after all attempts, another number of rows or columns, other labels, another revision.
        """
        if not len(images):
            return np.zeros((0, len(self._labels)), np.float32)
        rows = list(zip(images, keys, strict=True))
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            return np.concatenate(list(pool.map(self._batch, batches(rows, BATCH))))

    def _batch(self, rows: Sequence[tuple[Pixels, str]]) -> Floats:
        body = {"images": [_png(image) for image, _ in rows], "keys": [key for _, key in rows]}
        answer = self._ask("POST", body)
        if not isinstance(answer, dict) or not ({"logits", "probabilities"} & answer.keys()):
            raise ServiceError(f'{self._url}: POST must answer "logits" or "probabilities", got {str(answer)[:200]}')
        for name, expected in (("labels", list(self._labels)), ("revision", self._stated)):
            if name in answer and answer[name] != expected:
                raise ServiceError(
                    f"{self._url}: its {name} changed while it was asked, from {str(expected)[:200]} to "
                    f"{str(answer[name])[:200]}; start the audit anew with another --out"
                )
        return self._numbers(answer, len(rows))

    def _numbers(self, answer: dict[str, Any], rows: int) -> Floats:
        kind = "logits" if "logits" in answer else "probabilities"
        given, width = answer[kind], len(self._labels)
        if not isinstance(given, list) or len(given) != rows:
            count = len(given) if isinstance(given, list) else type(given).__name__
            raise ServiceError(f"{self._url}: {rows} images were sent, and {count} rows of {kind} came back")
        found = np.full((rows, width), np.nan, np.float32)
        for i, row in enumerate(given):
            if row is None:
                continue
            if not isinstance(row, list) or len(row) != width:
                raise ServiceError(f"{self._url}: row {i} of {kind} is not a list of {width} numbers: {str(row)[:100]}")
            try:
                found[i] = np.array([np.nan if value is None else value for value in row], np.float32)
            except (TypeError, ValueError) as error:
                raise ServiceError(
                    f"{self._url}: row {i} of {kind} is not made of numbers: {str(row)[:100]}"
                ) from error
        if kind == "probabilities":
            if (found < 0).any():
                raise ServiceError(f"{self._url}: a probability below 0")
            with np.errstate(divide="ignore"):
                found = np.log(found)
        return found

    def _ask(self, method: str, body: dict[str, Any] | None = None) -> Any:
        tries = Retrying(
            retry=retry_if_exception_type(_Transient),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=self._first_wait_s, max=20),
            reraise=True,
        )
        try:
            return tries(self._once, method, body)
        except _Transient as failure:
            raise ServiceError(
                f"{self._url} failed {self._attempts} times: {failure}; see that it runs, then run again: what is done "
                "is kept"
            ) from None

    def _once(self, method: str, body: dict[str, Any] | None) -> Any:
        try:
            response = self._client.request(method, self._url, json=body)
        except httpx.TimeoutException:
            raise _Transient(f"no answer within {self._timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise _Transient(f"{type(error).__name__}: {self._clean(str(error))}") from None
        if response.status_code == 429 or response.status_code >= 500:
            raise _Transient(f"HTTP {response.status_code} {self._clean(response.text)[:200]}")
        if not response.is_success:
            hint = f"set {KEY_VARIABLE}" if response.status_code in (401, 403) else "check the URL"
            said = self._clean(response.text)[:200]
            raise ServiceError(f"{self._url}: HTTP {response.status_code} ({said}); {hint}")
        try:
            return response.json()
        except ValueError:
            raise _Transient(f"its answer is not JSON: {self._clean(response.text)[:80]!r}") from None

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text

    def __getstate__(self) -> dict[str, Any]:
        # The key stays in the environment: it must not travel inside a pickled model.
        return {"url": self._url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["url"])  # type: ignore[misc]


def _png(image: Pixels) -> str:
    buffer = BytesIO()
    to_pil(image).save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode()
