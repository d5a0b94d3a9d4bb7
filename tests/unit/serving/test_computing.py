"""How a placement has models compute reaches the replicas that load them, and what cannot be met is said at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ray import serve
from test_roundtrip import files

from c2b_ray.audits.kit.loaders import load
from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ConfigError, ServiceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.roles import Floats, Pixels
from c2b_ray.serving.app import LAPTOP, ManyModels, OneModel, classifiers, computing_of, encoder, placements, targets
from c2b_ray.serving.channel import CannotStart, Channel, from_text
from c2b_ray.serving.classifier import ClassifierServer
from c2b_ray.serving.encoder import EncoderServer
from c2b_ray.serving.ensure import _App, _app_name, _declared_for
from c2b_ray.serving.handles import ServedEncoder
from c2b_ray.serving.pictures import pack, pack_files

SPEC = "world:clip"
COMPILED = Computing(compile=True)


def served(spec: str, how: Computing = UNSAID, wanted: Computing = UNSAID) -> ServedEncoder:
    """An encoder's app in this process, which computes like `how`, for a run that wants it to compute like `wanted`."""
    handle = serve.run(EncoderServer.bind(spec, computing=how), name="encoder", _local_testing_mode=True)
    return ServedEncoder(spec, Channel("encoder", handle=handle), computing=wanted)


def test_a_replica_compiles_the_model_and_it_answers_as_one_that_the_stage_compiles() -> None:
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (64, 64, 3), np.uint8) for _ in range(3)]
    spec = "world:resnet-control-0?batch=4"
    server = ClassifierServer.func_or_class(computing=COMPILED)  # Serve's multiplexing needs a replica
    there, here = server._load(spec).classifier, load("classifier", COMPILED, spec)
    [(logits, _)] = asyncio.run(server._answer(there, [(pack(images), [""] * 3)]))
    server._model_threads.close()
    assert there.revision == here.revision != catalog.load("classifier", spec).revision
    np.testing.assert_allclose(logits, here.logits(images, [""] * 3), atol=1e-5)


@pytest.mark.parametrize("how", [Computing(decode="gpu"), Computing(decode="gpu", compile=True)])
def test_a_gpu_that_is_to_decode_and_is_not_there_is_an_error_before_the_first_image(how: Computing) -> None:
    with pytest.raises(CannotStart) as raised:
        EncoderServer.func_or_class(SPEC, computing=how)
    error = from_text(str(raised.value))
    assert isinstance(error, SpecError)
    assert "decode: gpu` needs a GPU" in str(error)
    server = ClassifierServer.func_or_class(computing=how)
    with pytest.raises(SpecError, match="decode: gpu` needs a GPU"):
        server._load("world:resnet-control-0")
    server._model_threads.close()


class OfFiles:
    """A classifier and encoder that decode files themselves, as those on a GPU do; notes how many it got at once."""

    labels, dimension, revision = ("short", "long"), 2, "1"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        return np.array([[1, 0]] * len(images), np.float32)

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        return self.logits(images, [])

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        return np.array([[1, 0]] * len(texts), np.float32)

    def embeddings_of_files(self, some: Sequence[bytes | None]) -> tuple[Floats, list[str | None]]:
        self.batches.append(len(some))
        errors = ["no picture" if data in (None, b"cut off") else None for data in some]
        angles = np.array([len(data or b"") for data in some]) / 100
        rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
        rows[[error is not None for error in errors]] = np.nan
        return rows, errors

    def logits_of_files(self, some: Sequence[bytes | None], keys: Sequence[str]) -> tuple[Floats, list[str | None]]:
        assert len(keys) == len(some)
        return self.embeddings_of_files(some)


def test_a_model_that_decodes_files_gets_them_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    model = OfFiles()
    monkeypatch.setattr(catalog, "load", lambda role, spec: model)
    some = files(27)
    expected, reasons = OfFiles().embeddings_of_files(some)
    there = served("toy:x").embeddings_of_files(some)
    server = ClassifierServer.func_or_class()
    packs = [pack_files(some[:9]), pack_files(some[9:])]
    of_classifier = asyncio.run(
        server._answer(server._load("toy:x").classifier, [(one, [""] * len(one)) for one in packs])
    )
    server._model_threads.close()
    together = np.concatenate([rows for rows, _ in of_classifier]), [error for _, of in of_classifier for error in of]
    for found, errors in (there, together):
        np.testing.assert_array_equal(found, expected)
        assert errors == reasons
    assert sum(model.batches) == 54


def test_an_app_that_computes_in_another_way_than_the_placement_says_is_refused() -> None:
    message = "placement says compile: True, and the app 'encoder' does not say: set compile in the app's `args`"
    with pytest.raises(ServiceError, match=message):
        _ = served(SPEC, UNSAID, COMPILED).dimension


@pytest.mark.parametrize(
    ("wanted", "there", "field"),
    [
        (UNSAID, Computing("bf16", "gpu", compile=True), None),  # left open: the app's choice
        (Computing(decode="cpu", compile=False), UNSAID, None),  # what is not said is the default
        (Computing(decode="gpu"), UNSAID, "decode"),
        (Computing("fp32"), UNSAID, "precision"),  # the default depends on the device
        (Computing("bf16", compile=False), Computing("bf16", compile=True), "compile"),
    ],
)
def test_what_a_placement_leaves_open_contradicts_nothing(
    wanted: Computing, there: Computing, field: str | None
) -> None:
    assert wanted.contradicts(there) == field


def test_args_say_how_models_compute_and_the_placement_goes_over_them() -> None:
    args = OneModel(model="world:clip", compile=True, precision="bf16")
    assert encoder(args)._bound_deployment.init_kwargs["computing"] == Computing("bf16", compile=True)
    assert "computing" not in classifiers(ManyModels())._bound_deployment.init_kwargs
    placed = placements(LAPTOP)
    placed["encoder"].args = {**placed["encoder"].args, "compile": False, "precision": "bf16"}
    assert computing_of(placed["encoder"]) == Computing("bf16", compile=False)
    (made,) = targets({"encoder": "encoder-1"}, {"encoder": "world:clip"}, placed, {"encoder": COMPILED})
    kwargs = made.target._bound_deployment.init_kwargs
    assert (kwargs["model"], kwargs["computing"]) == ("world:clip", Computing("bf16", compile=True))


@pytest.mark.parametrize(
    ("kind", "said", "field"),
    [
        ("captioner", {"decode": "gpu"}, "args.decode"),
        ("image_generator", {"compile": True}, "args.compile"),
        ("language_model", {"precision": "bf16"}, "args.precision"),
    ],
)
def test_an_argument_that_an_app_knows_nothing_of_is_refused(kind: str, said: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        targets({kind: kind}, {kind: "world:clip"}, placements(LAPTOP), {kind: Computing(**said)})
    assert raised.value.field == field


def test_runs_share_an_app_of_one_model_that_computes_in_one_way() -> None:
    assert _app_name("classifiers", None, UNSAID) == "classifiers"
    names = [_app_name("encoder", "world:clip", how) for how in (UNSAID, COMPILED, Computing("bf16"))]
    assert len({*names, _app_name("encoder", "world:clip-1", COMPILED)}) == 4
    assert _app_name("classifiers", None, COMPILED).startswith("classifiers-")


def test_the_declared_app_that_fits_best_is_used() -> None:
    there = {
        "encoder": _App("encoder", "world:clip", UNSAID),
        "encoder-fast": _App("encoder", "world:clip", COMPILED),
        "classifiers": _App("classifiers"),
        "classifiers-0a1b": _App("classifiers"),
    }
    assert _declared_for("encoder", "world:clip", UNSAID, there) == "encoder"
    assert _declared_for("encoder", "world:clip", COMPILED, there) == "encoder-fast"
    assert _declared_for("encoder", "world:clip", Computing("bf16"), there) == "encoder"  # whose handle refuses
    assert _declared_for("encoder", "world:other", UNSAID, there) is None
    assert _declared_for("classifiers", None, COMPILED, there) == "classifiers"
