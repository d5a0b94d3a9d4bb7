"""From spec strings to loaders, and what a wrong spec is told."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog


def test_a_spec_is_taken_apart() -> None:
    spec = catalog.parse("torchvision:mobilenet_v2?weights=/a/b.safetensors&mean=0.5,0.4,0.3&labels=")
    assert (spec.scheme, spec.name) == ("torchvision", "mobilenet_v2")
    assert spec.options == {"weights": "/a/b.safetensors", "mean": "0.5,0.4,0.3", "labels": ""}
    assert catalog.parse("openai:http://host/v1?x=1#model").name == "http://host/v1?x=1#model"
    assert catalog.parse("timm:local-dir:/a").name == "local-dir:/a"
    assert catalog.parse("timm:x?weights=a+b%20c.safetensors").options == {"weights": "a+b c.safetensors"}


@pytest.mark.parametrize("text", ["", "resnet50", ":resnet50", "timm:", "timm:?labels=x"])
def test_what_is_no_spec_says_so(text: str) -> None:
    with pytest.raises(SpecError):
        catalog.parse(text)


def test_an_unknown_scheme_offers_the_nearest() -> None:
    with pytest.raises(SpecError, match="no classifier has the scheme 'torchvison'; did you mean 'torchvision'"):
        catalog.classifier("torchvison:resnet50")
    with pytest.raises(SpecError, match="no encoder has the scheme 'timm'"):
        catalog.encoder("timm:resnet50")


@pytest.mark.parametrize(
    ("role", "text", "hint"),
    [
        ("classifier", "models/net.onnx", "write onnx:models/net.onnx"),
        ("classifier", "answers.csv", "write table:answers.csv"),
        ("classifier", "net.safetensors", r"write timm:ARCHITECTURE\?weights=net.safetensors"),
        ("classifier", "net.pth", "safetensors"),
        ("classifier", "resnet50", "such as timm:resnet50"),
        ("classifier", "huggingface:org/name", "write hf:org/name"),
        ("captioner", "huggingface:org/name", "write hf-vlm:org/name"),
        ("encoder", "openclip:ViT-B-32/x", "write open_clip:ViT-B-32/x"),
    ],
)
def test_what_is_no_spec_is_answered_with_what_to_write(role: str, text: str, hint: str) -> None:
    with pytest.raises(SpecError, match=hint):
        catalog.load(role, text)


@pytest.mark.parametrize(("role", "scheme"), sorted(catalog.CATALOG))
def test_every_model_of_ours_has_a_function_that_describes_it_without_loading_it(role: str, scheme: str) -> None:
    module, _, name = str(catalog.describer(role, scheme)).partition(":")
    source = Path(catalog.__file__).parents[2] / f"{module.replace('.', '/')}.py"  # not imported: it may need a library
    assert re.search(rf"^def {name}\(", source.read_text(), re.MULTILINE)


def test_a_model_without_a_describer_has_to_be_loaded_and_one_without_a_loader_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "third_parties", lambda: {("classifier", "theirs"): "json:loads"})
    assert catalog.describe("classifier", "theirs:net") is None
    with pytest.raises(SpecError, match="did you mean 'torchvision'"):
        catalog.describe("classifier", "torchvison:resnet50")


@pytest.mark.parametrize("target", sorted(set(catalog.CATALOG.values())))
def test_targets_are_written_as_module_and_name(target: str) -> None:
    module, _, name = target.partition(":")
    assert module.startswith("c2b_ray.")
    assert name.isidentifier()


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError("No module named 'open_clip.factory'", name="open_clip.factory")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SpecError, match="needs the package 'open_clip': pip install open_clip_torch"):
        catalog.encoder("open_clip:ViT-B-32/openai")


def test_a_fault_in_this_package_is_not_taken_for_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError("No module named 'c2b_ray.nowhere'", name="c2b_ray.nowhere")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        catalog.classifier("onnx:x")


@pytest.fixture
def newly_read() -> Iterator[None]:
    """The entry points are read anew within the test, and again after it."""
    catalog.third_parties.cache_clear()
    yield
    catalog.third_parties.cache_clear()


def test_third_parties_add_theirs(monkeypatch: pytest.MonkeyPatch, newly_read: None) -> None:
    entries = [
        EntryPoint("classifier.acme", "types:SimpleNamespace", catalog.ENTRY_POINTS),
        EntryPoint("encoder.timm", "types:SimpleNamespace", catalog.ENTRY_POINTS),
    ]
    monkeypatch.setattr(catalog, "entry_points", lambda group: entries if group == catalog.ENTRY_POINTS else [])
    made = catalog.loader("classifier", catalog.parse("acme:x"))
    assert made.__name__ == "SimpleNamespace"
    with pytest.raises(SpecError, match="did you mean 'acme'"):
        catalog.classifier("acmee:x")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_vllm_that_is_not_installed_is_said_with_what_to_do() -> None:
    with pytest.raises(
        SpecError, match=r"vllm:org/name needs the package 'vllm': .*c2b-ray\[vllm\].*deployments/README"
    ):
        catalog.language_model("vllm:org/name")
