"""What numbers are, by themselves: each kind, what leaves it open, and statements that contradict them."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models.output_kinds import OutputKind, judged, looks_like_probabilities
from c2b_ray.roles import Floats


def logits(labels: int = 5, size: float = 3.0) -> Floats:
    return np.random.default_rng(0).normal(size=(14, labels), scale=size).astype(np.float32)


def softmax(rows: Floats) -> Floats:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


P = softmax(logits())
MANY = softmax(logits(1000, 2.0))


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (logits(), "logits"),
        (P, "probabilities"),
        (MANY, "probabilities"),
        (MANY.astype(np.float16).astype(np.float32), "probabilities"),
        (np.round(P, 3), "probabilities"),
        (np.round(MANY, 3), "probabilities"),
        (np.round(P, 2), "probabilities"),
        (np.eye(5, dtype=np.float32)[np.arange(14) % 5], "probabilities"),
        (np.stack([P[:, 0], 1 - P[:, 0]], axis=1), "probabilities"),
        (100 * P, "percent"),
        (np.round(100 * P, 1), "percent"),
        (np.log(P), "log-probabilities"),
        (9 * np.eye(5, dtype=np.float32)[np.arange(14) % 5], "logits"),
        (np.where(np.arange(14)[:, None] < 2, np.nan, P), "probabilities"),
    ],
)
def test_each_kind_is_known_and_softmax_gives_the_probabilities_back(rows: Floats, kind: str) -> None:
    found = judged(rows, "m")
    assert found.kind == kind
    again = softmax(found.as_logits(rows))
    own = {"logits": softmax, "log-probabilities": np.exp}.get(kind, lambda given: given / given.sum(1, keepdims=True))
    np.testing.assert_allclose(again, own(rows), atol=2e-6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (1 / (1 + np.exp(-logits())), r"scores of each label on its own .*\?head=sigmoid; .*\?output=logits"),
        (np.concatenate([P, P], axis=1), "all sum to 2, as those of several heads do"),
        (np.full((14, 4), 0.25, np.float32), r"hardly differ between pictures, so state .*\?output=logits, prob"),
        (P * 1.015, r"sum to 1 but for 0\.015"),
        (P * 3, "as probabilities times a factor do"),
        (-np.log(P), "−log p of probabilities"),
        (np.log2(P), "log2 p"),
        (np.log10(P), "log10 p"),
        (np.full((14, 3), np.nan, np.float32), "gives no number on any of the trial pictures"),
    ],
)
def test_what_is_no_kind_or_leaves_it_open_is_asked_about(rows: Floats, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        judged(rows.astype(np.float32), "m")


def test_the_last_node_settles_what_numbers_leave_open_and_nothing_else() -> None:
    constant = np.full((14, 4), 0.25, np.float32)
    assert judged(constant, "m", hint="softmax").kind == "probabilities"
    with pytest.raises(SpecError, match="its last node is Softmax, but the rows sum to 2"):
        judged(np.concatenate([P, P], axis=1), "m", hint="softmax")
    assert judged(P, "m", hint="sigmoid").kind == "probabilities"


def test_a_statement_is_taken_where_the_numbers_allow_it() -> None:
    constant, small = np.full((14, 2), 0.5, np.float32), np.abs(logits()) / 20
    assert judged(constant, "m", "logits").kind == "logits"
    assert judged(constant, "m", "probabilities").kind == "probabilities"
    assert judged(small, "m", "logits").kind == "logits"
    assert judged(P * 1.015, "m", "probabilities").kind == "probabilities"
    contradictions = ((P, "logits"), (100 * P, "logits"), (100 * P, "probabilities"), (logits(), "probabilities"))
    more = ((P, "percent"), (logits(), "log-probabilities"), (np.log(P), "probabilities"))
    for rows, stated in (*contradictions, *more):
        with pytest.raises(SpecError, match=f"output={stated}, but"):
            judged(rows, "m", stated)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="scores of each label on its own"):
        judged(small, "m", "logits", "sigmoid")


def test_a_constant_may_be_assumed_and_says_so() -> None:
    for row, kind in (([0.0, 1.0], "probabilities"), ([0.2, 0.3], "logits"), ([9.0, 0.0], "logits")):
        found = judged(np.array([row] * 14, np.float32), "m", assuming=True)
        assert (found.kind, found.assumed) == (kind, True)


def test_real_rows_of_another_kind_than_the_trials_end_the_run_and_nan_stays() -> None:
    kind = judged(P, "m")
    with pytest.raises(ServiceError, match=r"its numbers are probabilities, .* it gives 3, -1, 0, …"):
        kind.as_logits(np.array([[3, -1, 0]], np.float32))
    assert np.isnan(kind.as_logits(np.array([[np.nan] * 3], np.float32))).all()
    np.testing.assert_allclose(kind.as_logits(np.array([[1, 0]], np.float32)), [[0, -87.3]], atol=0.1)
    least = OutputKind("log-probabilities", "").as_logits(np.array([[0, -np.inf]], np.float32))
    assert np.isfinite(least).all()


def test_looking_like_probabilities_takes_two_rows_that_differ() -> None:
    assert looks_like_probabilities(P)
    assert not looks_like_probabilities(P[:1])
    assert not looks_like_probabilities(logits())
    assert not looks_like_probabilities(np.full((9, 2), 0.5, np.float32))
