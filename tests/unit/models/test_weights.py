"""Weights of files: what is refused, how tensors are read and loaded, and modules built without random weights."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import open_clip
import pytest
import timm
import torch
import torchvision
from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import save_file
from torch import nn

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import weights
from c2b_ray.models.weights import built


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    save_file({"a": torch.arange(3.0), "b": torch.zeros(0, dtype=torch.int64)}, tmp_path / "w.safetensors")
    found = weights.read_safetensors(tmp_path / "w.safetensors")
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].dtype == torch.int64


def test_pickles_are_refused_by_name_and_by_content(tmp_path: Path) -> None:
    for name in ("w.pt", "w.pth", "w.bin", "w.pkl", "w.CKPT", "w.pth.tar"):
        with pytest.raises(WeightsError, match=r"are pickles.*convert it once"):
            weights.read_safetensors(tmp_path / name)
    torch.save({"a": torch.zeros(1)}, tmp_path / "zip.safetensors")
    (tmp_path / "old.safetensors").write_bytes(pickle.dumps({"a": 1}))
    for name in ("zip.safetensors", "old.safetensors"):
        with pytest.raises(WeightsError, match="holds a pickle"):
            weights.read_safetensors(tmp_path / name)


def test_files_of_keras_and_a_trainings_folder_say_what_to_give_instead(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"\.h5 files are TensorFlow's; export the model to ONNX .* onnx:FILE"):
        weights.checked(tmp_path / "w.h5")
    with pytest.raises(WeightsError, match=r"holds no \.safetensors.*write it with save_pretrained"):
        weights.directory(str(tmp_path), "hf:x", None, [])
    (tmp_path / "checkpoint-500").mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "checkpoint-500" / "model.safetensors")
    with pytest.raises(WeightsError, match=r"its subfolders do: name one, such as .*checkpoint-500"):
        weights.directory(str(tmp_path), "hf:x", None, [])


def test_a_header_whose_length_looks_like_a_pickle_is_none(tmp_path: Path) -> None:
    # A header of 0x280 bytes begins with 80 02, as a pickle of protocol 2 does.
    path = tmp_path / "w.safetensors"
    for padding in range(1000):
        save_file({"a": torch.zeros(1)}, path, metadata={"x": "y" * padding})
        if path.read_bytes().startswith(b"\x80\x02"):
            break
    else:
        pytest.fail("no header of that length")
    assert list(weights.read_safetensors(path)) == ["a"]


def test_what_is_no_whole_file_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(100)}, whole)
    data = whole.read_bytes()
    for cut in (0, 4, 40, len(data) - 1):
        (tmp_path / "cut.safetensors").write_bytes(data[:cut])
        with pytest.raises(WeightsError, match="damaged"):
            weights.read_safetensors(tmp_path / "cut.safetensors")
    (tmp_path / "w.weights").write_bytes(data)
    for name, reason in [
        ("no.safetensors", "no such file"),
        ("", "directory"),
        ("w.weights", r"ends in \.safetensors"),
    ]:
        with pytest.raises(WeightsError, match=reason):
            weights.read_safetensors(tmp_path / name)


def test_half_precision_becomes_the_modules_own_and_counters_may_lack() -> None:
    saved = {n: t.half() if t.is_floating_point() else t for n, t in net().state_dict().items()}
    del saved["1.num_batches_tracked"]
    module = net()
    nn.init.zeros_(module[3].weight)
    weights.load_into(module, saved, "w")
    assert module[3].weight.dtype == torch.float32
    torch.testing.assert_close(module[3].weight, saved["3.weight"].float())


def test_what_does_not_fit_is_named() -> None:
    tensors = net().state_dict()
    for change, reason in [
        ({"3.weight": None}, r"w does not fit Sequential: 1 missing \(3\.weight\)"),
        ({"head.weight": torch.zeros(1)}, r"1 unexpected \(head\.weight\)"),
        ({"3.weight": torch.zeros(5, 4)}, r"of another shape \(3\.weight \(5, 4\) for \(2, 4\)\)"),
        (
            {"3.weight": torch.zeros(2, 4, dtype=torch.int8)},
            r"of another kind \(3\.weight whole numbers for floating-point\)\. Likeliest cause: quantised",
        ),
        ({f"x{i}": torch.zeros(1) for i in range(5)}, r"5 unexpected \(x0, x1, x2, …\)"),
    ]:
        changed = {n: t for n, t in {**tensors, **change}.items() if t is not None}
        with pytest.raises(WeightsError, match=reason):
            weights.load_into(net(), changed, "w")


def test_the_revision_is_of_the_bytes(tmp_path: Path) -> None:
    for name, data in [("a", b"1"), ("b", b"1"), ("c", b"2")]:
        (tmp_path / name).write_bytes(data)
    a, b, c = (tmp_path / name for name in "abc")
    assert weights.file_revision(a) == weights.file_revision(b) != weights.file_revision(c)
    assert weights.file_revision(a, c) != weights.file_revision(c, a)
    assert len(weights.file_revision(a)) == 20


def test_a_file_is_read_once_for_its_revision_until_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "a", []
    file.write_bytes(b"weights")
    hashed = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda stream, name: read.append(name) or hashed(stream, name))
    before = weights.file_revision(file)
    assert weights.file_revision(file) == before
    assert len(read) == 1
    state = file.stat()
    time.sleep(0.02)  # longer than a file system's clock stands still
    file.write_bytes(b"WEIGHTS")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))  # as a copy that keeps its times
    assert weights.file_revision(file) != before
    (other := tmp_path / "b").write_bytes(b"weights")
    assert weights.file_revision(other) == before
    other.replace(file)
    assert weights.file_revision(file) == before


def test_what_the_hub_cannot_give_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    request = httpx.Request("HEAD", "https://hub.example/x")
    none, closed = (httpx.Response(status, request=request) for status in (404, 401))
    for error, kind, reason in [
        (LocalEntryNotFoundError("offline"), SpecError, "cannot be reached; download it beforehand"),
        (
            RemoteEntryNotFoundError("404", response=none),
            WeightsError,
            "pickles are not read",
        ),
        (RepositoryNotFoundError("401", response=closed), SpecError, "cannot be fetched"),
        (OSError("disk"), SpecError, "disk"),
    ]:

        def hub(*_: object, error: Exception = error, **__: object) -> str:
            raise error

        monkeypatch.setattr(weights, "hf_hub_download", hub)
        with pytest.raises(kind, match=rf"spec: .*{reason}.*\?weights=PATH"):
            weights.from_hub("org/name", "model.safetensors", "spec")


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": partial(timm.create_model, "resnet18"),
    "swin_tiny_patch4_window7_224": partial(timm.create_model, "swin_tiny_patch4_window7_224"),
    "mobilenetv3_small_100": partial(timm.create_model, "mobilenetv3_small_100"),
    "eva02_tiny_patch14_224": partial(timm.create_model, "eva02_tiny_patch14_224"),  # rotary positions
    "torchvision swin_t": partial(torchvision.models.get_model, "swin_t"),
    "open_clip RN50": partial(open_clip.create_model, "RN50"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_buffers_and_answers_are_those_of_a_module_built_as_always(name: str) -> None:
    torch.manual_seed(0)
    expected, module = MODELS[name]().eval(), built(MODELS[name]).eval()
    persistent = set(expected.state_dict())
    other = [key for key, _ in expected.named_buffers() if key not in persistent]
    buffers = dict(module.named_buffers())
    assert all(torch.equal(buffers[key], value) for key, value in expected.named_buffers() if key in other)
    module.load_state_dict(expected.state_dict())
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        call = ("encode_image",) if name.startswith("open_clip") else ("forward",)
        assert torch.equal(getattr(module, call[0])(image), getattr(expected, call[0])(image))


def test_weights_are_not_drawn_inside_and_are_outside() -> None:
    def layer_of_draws() -> nn.Module:
        layer = nn.Linear(64, 64)
        nn.init.trunc_normal_(layer.weight, std=0.02)
        nn.init.trunc_normal_(layer.bias, mean=0.0, std=1.0, a=0.2, b=5.0)  # drawn until it lies between the bounds
        return layer

    assert len(built(layer_of_draws).weight.unique()) == 1  # type: ignore[operator, arg-type]
    assert len(layer_of_draws().weight.unique()) > 1000  # type: ignore[operator, arg-type]
