"""Labels and probabilities of ONNX graphs are the graph's own, whatever nodes it ends in; or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tailed_graphs import HEADS, TAILS, Recipe, outcome

FORM = ("Mul 1", "Add 0", "Clip 0 1", "transposes", "reshapes", "halves", "Gather")
SOFTMAX = ("softmax", "exp of log-softmax", "softmax written out", "average of two", "softmax in half")


@pytest.mark.parametrize("head", SOFTMAX)
@pytest.mark.parametrize("tail", FORM)
def test_probabilities_are_known_behind_any_node_that_keeps_them(tmp_path: Path, head: str, tail: str) -> None:
    assert outcome(Recipe(head, (tail,)), tmp_path / "m.onnx") == ("right", "probabilities")


@pytest.mark.parametrize(
    ("head", "tail", "kind"),
    [
        ("softmax", ("percent",), "percent"),
        ("softmax", ("round 3",), "probabilities"),
        ("softmax", ("Log",), "log-probabilities"),
        ("one-hot", (), "probabilities"),
        ("logits", ("Div 8",), "no distribution: the label alone"),
        ("logits", ("Add 1", "Mul 1"), "no distribution: the label alone"),
    ],
)
def test_each_kind_is_read_as_what_it_is(tmp_path: Path, head: str, tail: tuple[str, ...], kind: str) -> None:
    assert outcome(Recipe(head, tail), tmp_path / "m.onnx") == ("right", kind)


@pytest.mark.parametrize(
    ("head", "tail", "reason"),
    [
        ("logits", ("Sigmoid", "Mul 1"), "scores of each label on its own"),
        ("softmax", ("Concat",), "all sum to 2, as those of several heads do"),
        ("softmax", ("Slice",), "do not sum to 1"),
        ("softmax", ("Mul 2",), "probabilities times a factor|between 0 and 1"),
        ("softmax", ("Log", "Neg"), "−log p"),
        ("softmax", ("Softmax of the batch",), "pictures change each other's answers"),
        ("softmax", ("Transpose",), "answered 1 images with shape"),
        ("softmax", ("ArgMax",), "the label alone"),
    ],
)
def test_what_is_neither_is_refused_with_its_reason(
    tmp_path: Path, head: str, tail: tuple[str, ...], reason: str
) -> None:
    kind, message = outcome(Recipe(head, tail), tmp_path / "m.onnx")
    assert kind == "refused"
    assert any(part in message for part in reason.split("|")), message


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.builds(
        Recipe,
        st.sampled_from(sorted(HEADS)),
        st.lists(st.sampled_from(sorted(TAILS)), min_size=1, max_size=3).map(tuple),
        st.sampled_from([2, 3, 5, 10, 200]),
        st.sampled_from([0.01, 0.3, 3.0, 10.0, 100.0]),
        st.integers(0, 1000),
    ).filter(lambda recipe: "ArgMax" not in recipe.tail[:-1])
)
def test_no_tail_gives_a_wrong_number(tmp_path: Path, recipe: Recipe) -> None:
    kind, reason = outcome(recipe, tmp_path / "m.onnx")
    assert kind != "wrong", reason


def test_logarithms_of_zero_are_probabilities_of_zero(tmp_path: Path) -> None:
    assert outcome(Recipe("one-hot", ("Log",)), tmp_path / "m.onnx") == ("right", "log-probabilities")
