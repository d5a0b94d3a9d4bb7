"""A classifier behind HTTP whose service fails in every way that services do."""

import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from http_service import Service, serving_over_http

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.http_classifier import KEY_VARIABLE, PATIENCE, HttpClassifier

LABELS = ("cat", "dog", "owl", "rat", "yak")
IMAGES = [np.full((4, 5, 3), 40 * i, np.uint8) for i in range(3)]
KEYS = ["a", "b", "c"]


@pytest.fixture
def served() -> Iterator[tuple[str, Service]]:
    with serving_over_http(LABELS) as found:
        yield found


def asked(url: str, **options: float) -> HttpClassifier:
    return HttpClassifier(url, replace(PATIENCE, first_wait_s=0.01, **options))


def test_many_images_go_in_batches_and_come_back_in_order(served: tuple[str, Service]) -> None:
    url, service = served
    images = [np.full((3, 3, 3), i, np.uint8) for i in range(70)]
    found = asked(url).logits(images, [str(i) for i in range(70)])
    assert sorted(service.posts) == [6, 32, 32]
    brightness = found[:, 0] / found[-1, 0]
    np.testing.assert_allclose(brightness, np.arange(70) / 69, atol=1e-5)


def test_failures_that_pass_are_waited_out(served: tuple[str, Service]) -> None:
    url, service = served
    service.failures = 2
    assert asked(url).logits(IMAGES, KEYS).shape == (3, 5)
    assert len(service.posts) == 3


def test_failures_that_stay_say_what_the_service_said(served: tuple[str, Service]) -> None:
    url, service = served
    classifier = asked(url, attempts=2)
    service.failures = 9
    with pytest.raises(ServiceError, match=r"failed 2 times: HTTP 500 .*out of memory"):
        classifier.logits(IMAGES, KEYS)
    service.failures, service.delay_s = 0, 0.5
    slow = asked(url, attempts=1, timeout_s=0.1)
    with pytest.raises(ServiceError, match=r"no answer within 0\.1 s"):
        slow.logits(IMAGES, KEYS)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"logits": [[0] * 5] * 2}, "3 images were sent, and 2 rows"),
        ({"logits": [[0] * 4] * 3}, "row 0 of logits is not a list of 5 numbers"),
        ({"logits": [["x"] * 5] * 3}, "not made of numbers"),
        ({"labels": ["dog", "cat"]}, "its labels changed"),
        ({"revision": "2"}, "its revision changed"),
        ({"logits": None}, "NoneType rows"),
    ],
)
def test_answers_that_are_none(served: tuple[str, Service], answer: dict, words: str) -> None:
    url, service = served
    service.answer = answer
    with pytest.raises(ServiceError, match=words):
        asked(url).logits(IMAGES, KEYS)


def test_a_row_without_an_answer_is_nan(served: tuple[str, Service]) -> None:
    url, service = served
    service.answer = {"logits": [[1] * 5, None, [None, 1, 1, 1, 1]]}
    found = asked(url).logits(IMAGES, KEYS)
    assert np.isnan(found).sum(axis=1).tolist() == [0, 5, 1]


def test_probabilities_become_their_logarithms(served: tuple[str, Service]) -> None:
    url, service = served
    service.answer = {"probabilities": [[0.5, 0.25, 0.25, 0, 0]] * 3}
    np.testing.assert_allclose(np.exp(asked(url).logits(IMAGES, KEYS)), service.answer["probabilities"])
    service.answer = {"probabilities": [[-0.5, 1, 0.5, 0, 0]] * 3}
    with pytest.raises(ServiceError, match="below 0"):
        asked(url).logits(IMAGES, KEYS)


def test_a_service_that_names_no_labels(served: tuple[str, Service]) -> None:
    url, service = served
    service.about = {"classes": 5}
    with pytest.raises(SpecError, match="GET must answer"):
        asked(url)


def test_nobody_there() -> None:
    with pytest.raises(ServiceError, match="ConnectError"):
        asked("http://127.0.0.1:9/classify", attempts=2)


def test_the_token_is_sent_and_neither_shown_nor_pickled(
    served: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, service = served
    monkeypatch.setenv(KEY_VARIABLE, "hush-hush")
    classifier = asked(url)
    assert service.tokens == ["Bearer hush-hush"]
    assert b"hush-hush" not in pickle.dumps(classifier)
    assert pickle.loads(pickle.dumps(classifier)).labels == LABELS
    with pytest.raises(SpecError, match="put no password into the URL"):
        catalog.classifier("http://me:hush-hush@127.0.0.1:9/x")
