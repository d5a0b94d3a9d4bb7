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
    with pytest.raises(ServiceError, match=r"no answer within 0\.1 s.* The request had 3 images: .* answers 413"):
        slow.logits(IMAGES, KEYS)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"logits": [[0] * 5] * 2}, "3 images were sent, and 2 rows"),
        ({"logits": [[0] * 4] * 3}, "row 0 of logits is not a list of 5 numbers"),
        ({"logits": [["x"] * 5] * 3}, "not made of numbers"),
        ({"logits": [["0.5", "1", "0", "0", "0"]] * 3}, "not made of numbers: \\['0.5'"),
        ({"logits": [[True, 0, 0, 0, 0]] * 3}, "not made of numbers"),
        ({"logits": [[10**400, 0, 0, 0, 0]] * 3}, "not made of numbers"),
        ({"labels": ["dog", "cat"]}, "its labels changed between two requests, from 5 to 2 of them"),
        ({"labels": ["cat", "dog", "owl", "rat", "cow"]}, "from number 4, 'yak', to 'cow'"),
        ({"revision": "2"}, "its revision changed"),
        ({"logits": None}, "NoneType rows"),
        ({"keys": ["c", "b", "a"]}, "its rows are in another order than the images .* from number 0, 'a', to 'c'"),
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


def test_numbers_that_are_too_large_are_infinite(served: tuple[str, Service]) -> None:
    url, service = served
    service.answer = {"logits": [[1e300, -1e300, 0, 2**70, 0]] * 3}
    np.testing.assert_array_equal(asked(url).logits(IMAGES, KEYS)[0], np.float32([np.inf, -np.inf, 0, 2.0**70, 0]))


def test_an_image_that_is_refused_is_a_row_without_an_answer(served: tuple[str, Service]) -> None:
    url, service = served
    classifier = asked(url)
    images, keys = [IMAGES[1]] * 8, list("abcdefgh")
    service.refuses = ["c", "h"]
    found = classifier.logits(images, keys)
    assert np.flatnonzero(np.isnan(found).all(axis=1)).tolist() == [2, 7]
    assert np.isfinite(found).all(axis=1).sum() == 6
    assert np.isnan(classifier.logits(images[:1], ["c"])).all()


def test_a_service_that_refuses_every_image_ends_the_run(served: tuple[str, Service]) -> None:
    url, service = served
    service.refuses = KEYS
    for count in (1, 3):
        with pytest.raises(
            ServiceError, match=rf"refused, {count} of {count}: .*HTTP 422 .*no such image.*message says why"
        ):
            asked(url).logits(IMAGES[:count], KEYS[:count])


def test_a_redirect_names_where_to(served: tuple[str, Service]) -> None:
    url, service = served
    service.raw = (307, {"Location": "https://elsewhere.test/classify"}, b"")
    with pytest.raises(ServiceError, match=r"HTTP 307.*redirects to https://elsewhere\.test/classify; name that URL"):
        asked(url).logits(IMAGES, KEYS)


def test_a_body_that_does_not_unpack_is_tried_again(served: tuple[str, Service]) -> None:
    url, service = served
    service.raw = (200, {"Content-Encoding": "gzip"}, b"no gzip")
    with pytest.raises(ServiceError, match="failed 2 times: DecodingError"):
        asked(url, attempts=2).logits(IMAGES, KEYS)
    assert service.posts == [3, 3]


def test_probabilities_become_their_logarithms(served: tuple[str, Service]) -> None:
    url, service = served
    service.answer = {"probabilities": [[0.5, 0.25, 0.25, 0, 0]] * 3}
    np.testing.assert_allclose(np.exp(asked(url).logits(IMAGES, KEYS)), service.answer["probabilities"])
    service.answer = {"probabilities": [[0.2, 0.2, 0.2, 0.2, 0.2], None, [0.3332, 0.3332, 0.3332, 0, 0]]}
    assert np.isnan(asked(url).logits(IMAGES, KEYS)).any(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([-0.5, 1, 0.5, 0, 0], "row 1 of probabilities: -0.5 is no probability"),
        ([1.5, 0, 0, 0, 0], "1.5 is no probability"),
        ([0.9, 0.8, 0.1, 0, 0], "sums to 1.8, expected 1"),
        ([0.2, 0.2, 0, 0, 0], "sums to 0.4"),
        ([0, 0, 0, 0, 0], "sums to 0"),
    ],
)
def test_what_is_no_distribution_is_refused(served: tuple[str, Service], row: list[float], words: str) -> None:
    url, service = served
    service.answer = {"probabilities": [[1, 0, 0, 0, 0], row, [1, 0, 0, 0, 0]]}
    with pytest.raises(ServiceError, match=words):
        asked(url).logits(IMAGES, KEYS)


def test_a_service_that_names_no_labels(served: tuple[str, Service]) -> None:
    url, service = served
    service.about = {"classes": 5}
    with pytest.raises(SpecError, match="GET must answer"):
        asked(url)


def test_nobody_there() -> None:
    with pytest.raises(ServiceError, match="ConnectError"):
        asked("http://127.0.0.1:9/classify", attempts=2)


@pytest.mark.parametrize("spec", ["http:x", "http:/x", "http:///x", "http://h:port/x", "http:me:pw@h"])
def test_what_is_no_url_is_refused(spec: str) -> None:
    with pytest.raises(SpecError, match=r"no URL|without a host|no password") as raised:
        catalog.classifier(spec)
    assert "pw" not in str(raised.value)


def test_a_key_is_stripped_and_one_that_no_header_carries_never_shown(
    served: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, service = served
    monkeypatch.setenv(KEY_VARIABLE, "hush-hush\r\n")
    asked(url)
    assert service.tokens == ["Bearer hush-hush"]
    for bad in ("hush\nhush", "hush\x7f", "hüsh"):
        monkeypatch.setenv(KEY_VARIABLE, bad)
        with pytest.raises(SpecError, match=f"{KEY_VARIABLE} holds characters") as raised:
            asked(url)
        assert bad not in str(raised.value)


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


def test_probabilities_called_logits_are_refused_however_few_come_at_once(served: tuple[str, Service]) -> None:
    url, service = served
    rows = np.round(np.random.default_rng(0).dirichlet(np.ones(5), 3), 4)
    service.answer = {"logits": rows.tolist()}
    with pytest.raises(ServiceError, match=r'rows of "logits" are probabilities: .* answer "probabilities"'):
        asked(url).logits(IMAGES, KEYS)
    classifier = asked(url)
    service.answer = {"logits": rows[:1].tolist()}
    classifier.logits(IMAGES[:1], KEYS[:1])
    service.answer = {"logits": rows[1:2].tolist()}
    with pytest.raises(ServiceError, match='answer "probabilities"'):
        classifier.logits(IMAGES[1:2], KEYS[1:2])


def test_logits_between_0_and_1_are_logits_where_the_service_says_so(served: tuple[str, Service]) -> None:
    url, service = served
    service.answer = {"logits": [[0.1, 0.2, 0.3, 0.0, 0.5], [0.9, 0.1, 0.0, 0.3, 0.5], [0.4, 0.2, 0.4, 0.0, 0.5]]}
    np.testing.assert_allclose(asked(url).logits(IMAGES, KEYS), service.answer["logits"], rtol=1e-6)
