"""Which tensor of a file is which of a module: prefixes, copies, and what a misfit is likely to come from."""

from __future__ import annotations

import pytest

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.tensor_names import Selection, TensorKind, check_fit, naming, selection_of, twins

TEXT = [f"transformer.resblocks.{i}.{part}" for i in range(6) for part in ("ln_1.weight", "mlp.weight")]
CLIP = [*TEXT, *(f"visual.{name}" for name in TEXT), "visual.proj", "logit_scale"]
"""As in CLIP, the names of the text model are those of the image model behind `visual.`."""


def kinds(*names: str, shape: tuple[int, ...] = (2, 3)) -> dict[str, TensorKind]:
    return {name: TensorKind(shape, True) for name in names}


@pytest.mark.parametrize("prefix", ["", "module.", "model.module._orig_mod.", "a_b."])
def test_a_prefix_of_all_names_is_found_also_where_names_are_alike_within(prefix: str) -> None:
    found = naming(CLIP, [prefix + name for name in CLIP], "w", Selection())
    assert found.prefix == prefix
    assert found.names == {name: prefix + name for name in CLIP}
    assert found.rest == ()


def test_a_prefix_is_found_where_some_tensors_are_missing_and_others_have_none() -> None:
    held = ["model." + name for name in CLIP[3:]]
    found = naming(CLIP, [*held, "epoch"], "w", Selection())
    assert (found.prefix, found.rest, len(found.names)) == ("model.", ("epoch",), len(CLIP) - 3)


def test_names_without_a_prefix_stay_where_few_of_them_are_known() -> None:
    found = naming(CLIP, ["visual.proj", "other.visual.proj"], "w", Selection())
    assert found.names == {"visual.proj": "visual.proj", "other.visual.proj": "other.visual.proj"}


@pytest.mark.parametrize("first", ["", "model."])
@pytest.mark.parametrize("second", ["ema.", "model_ema.module.", "state_dict_ema."])
def test_two_copies_are_a_question_that_the_spec_answers(first: str, second: str) -> None:
    both = [*(first + name for name in CLIP), *(second + name for name in CLIP), f"{second}decay"]
    with pytest.raises(WeightsError, match=rf"2 copies(?=.*\?tensors={first or 'unprefixed'})(?=.*\?tensors={second})"):
        naming(CLIP, both, "w", Selection())
    for option, prefix in ((first or "unprefixed", first), (second, second), (second.rstrip("."), second)):
        spec = catalog.parse(f"timm:x?tensors={option}&unused={second}decay")
        assert naming(CLIP, both, "w", selection_of(spec)).names == {name: prefix + name for name in CLIP}
    with pytest.raises(SpecError, match=r"no tensor begins with tensors='emo'"):
        naming(CLIP, both, "w", Selection("emo"))


def test_twins_are_groups_of_equal_names() -> None:
    assert twins(["a.x", "a.y", "b.x", "b.y", "c.x"]) == ["a.", "b."]
    assert twins(["x.w", "y.w", "ema.x.w", "ema.y.w"]) == ["", "ema."]
    assert twins(["a.x", "a.y", "b.z", "b.u"]) == []


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (kinds("a.w", "a.b"), "1 missing .fc.weight.*backbone without its classification head"),
        (kinds("a.w", "fc.weight"), "1 missing .a.b.*cut, or a shard"),
        (kinds("a.w", "a.b", "fc.weight", "z.w"), r"1 unexpected .z.w.*write \?unused=z\."),
        ({**kinds("a.w", "a.b"), **kinds("fc.weight", shape=(7, 3))}, "7 outputs, its config says 2; let"),
        ({**kinds("a.b", "fc.weight"), **kinds("a.w", shape=(9, 3))}, "another size or version of the architecture"),
        ({**kinds("a.w", "a.b"), "fc.weight": TensorKind((2, 3), False)}, "1 of another kind.*quantised"),
        (
            kinds("a.w", "a.b", "fc.weight", "own.weight"),
            r"if own.weight gives the answers, export .* onnx:FILE; where",
        ),
        (
            kinds("a.w", "a.b", "fc.weight", "pixel_mean"),
            r"if pixel_mean normalise pixels, state them as mean= and std=",
        ),
        (kinds("base_model.model.a.w", "base_model.model.a.lora_A.w"), r"adapter that is not merged.*merge_and_unload"),
        (kinds("x", "y", "z"), r"named by another library.*torch\.onnx\.export.* onnx:FILE"),
        (kinds("x", "y", "z"), "weights of another architecture, or named by another library"),
    ],
)
def test_a_misfit_names_tensors_cause_and_remedy(found: dict[str, TensorKind], cause: str) -> None:
    with pytest.raises(WeightsError, match=f"^w does not fit net: .*{cause}"):
        check_fit(kinds("a.w", "a.b", "fc.weight"), found, "w", "net", ["fc"])


def test_position_embeddings_of_another_size_ask_for_the_size_of_the_pictures() -> None:
    with pytest.raises(WeightsError, match="pictures of another size; state the size of its training"):
        check_fit(kinds("pos_embed", "a"), {**kinds("a"), **kinds("pos_embed", shape=(9, 3))}, "w", "net")


def test_counters_that_inference_does_not_read_may_lack() -> None:
    check_fit(kinds("a.w", "a.num_batches_tracked"), kinds("a.w"), "w", "net")
