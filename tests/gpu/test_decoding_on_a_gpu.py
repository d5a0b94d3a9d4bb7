"""Files that a GPU decodes: pixels near Pillow's, the same errors, batches that are not mixed up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_model

from c2b_ray.audits.kit.loaders import described, load
from c2b_ray.config.placement import Computing
from c2b_ray.models.pixels import gpu_decode
from c2b_ray.models.pixels.gpu_decode import GpuPreparation, decoder, resized
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Pixels, Shape
from c2b_ray.steps.decode import decode, decoded
from c2b_ray.world import render, sample

DEVICE = torch.device("cuda:0")
ON_THE_GPU = Computing(decode="gpu")
SHAPES = (Shape(256, "bilinear", (224, 224)), Shape(224, "bicubic", (224, 224)), Shape((64, 80), "bilinear", None))


def pictures(n: int) -> list[Pixels]:
    scenes = [render(scene) for scene in sample(n, 7)]
    return [np.ascontiguousarray(scene[: len(scene) - 3 * (i % 5)]) for i, scene in enumerate(scenes)]


def jpeg(pixels: Pixels, mode: str = "RGB", **options: object) -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", **options)
    return stream.getvalue()


def files() -> list[bytes | None]:
    """Of many kinds: those for the GPU, those for the CPU, and those that are no pictures."""
    some = pictures(24)
    exif = Image.Exif()
    exif[0x112] = 6
    png = BytesIO()
    Image.fromarray(some[0]).save(png, "PNG")
    plain = [jpeg(one, quality=90, subsampling=i % 3) for i, one in enumerate(some)]
    others = [jpeg(some[0], "CMYK"), jpeg(some[1], progressive=True), jpeg(some[2], "L"), jpeg(some[3], exif=exif)]
    bad = [None, b"", b"no picture", plain[0][:500], plain[1][:-300]]
    return [*plain[:9], *bad, *others, png.getvalue(), *plain[9:]]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    save_model(timm.create_model("resnet18", num_classes=50), str(file))
    return f"timm:resnet18?weights={file}"


@pytest.mark.parametrize("shape", SHAPES)
def test_pictures_of_many_sizes_are_resized_as_pillow_does(shape: Shape) -> None:
    some = pictures(20)
    flat = torch.from_numpy(np.concatenate([one.ravel() for one in some])).to(DEVICE)
    there = resized(flat, [one.shape[:2] for one in some], shape)
    np.testing.assert_array_equal(there.cpu().numpy(), np.stack([shaped(one, shape) for one in some]))


def test_a_gpu_decodes_nearly_the_pixels_of_pillow() -> None:
    data = [jpeg(one, quality=92, subsampling=0) for one in pictures(12)]
    for one, there in zip(data, decoder(DEVICE)(data, DEVICE), strict=True):
        apart = np.abs(there.permute(1, 2, 0).cpu().numpy().astype(int) - decode(one).astype(int))
        assert apart.mean() < 1
        assert apart.max() <= 8


def test_what_a_gpu_cannot_decode_goes_the_way_of_the_cpu_with_its_errors() -> None:
    prepare = GpuPreparation(SHAPES[0], DEVICE, decoded)
    block, errors = prepare.prepared(files())
    assert errors == [decoded(data)[1] for data in files()]
    assert block is not None
    for data, picture in zip(files(), block.cpu().numpy(), strict=True):
        pixels, error = decoded(data)
        if error is None and pixels is not None:
            assert np.abs(picture.astype(int) - shaped(pixels, SHAPES[0]).astype(int)).mean() < 4
        else:
            assert not picture.any()


def test_a_file_that_the_gpu_refuses_is_found_among_others() -> None:
    good = [jpeg(one) for one in pictures(8)]
    broken = bytearray(good[3])
    scan = broken.index(b"\xff\xda")
    broken[scan + 4 : scan + 10] = b"\xff" * 6  # tables that do not exist
    block, errors = GpuPreparation(SHAPES[0], DEVICE, decoded).prepared([*good[:3], bytes(broken), *good[4:]])
    assert block is not None
    assert [i for i, error in enumerate(errors) if error] == ([3] if decoded(bytes(broken))[1] else [])


def test_answers_to_files_are_those_to_their_pixels(spec: str) -> None:
    classifier = load("classifier", ON_THE_GPU, f"{spec}&precision=fp32&batch=8")
    some = files() * 6
    answers, errors = classifier.logits_of_files(some, [""] * len(some))
    assert errors == [decoded(data)[1] for data in some]
    good = [i for i, error in enumerate(errors) if error is None]
    expected = classifier.logits([decoded(some[i])[0] for i in good], [""] * len(good))
    assert np.abs(answers[good] - expected).max() < 0.2 * expected.std()
    assert np.isnan(answers[[i for i, error in enumerate(errors) if error]]).all()
    with ThreadPoolExecutor(4) as pool:  # as a stage's threads ask
        for again, _ in pool.map(lambda _: classifier.logits_of_files(some, [""] * len(some)), range(4)):
            np.testing.assert_allclose(again, answers, atol=1e-3)


def test_the_decoder_is_part_of_the_revision(spec: str) -> None:
    there = load("classifier", ON_THE_GPU, spec)
    assert there.revision == described("classifier", ON_THE_GPU, spec).revision
    assert there.revision != load("classifier", Computing(), spec).revision
    assert any(fact.name == "decoding" and gpu_decode.decoder_name() in fact.value for fact in there.facts)


def test_an_encoder_decodes_too(tmp_path: Path) -> None:
    there = load("encoder", ON_THE_GPU, "world:clip")
    some = files()
    embeddings, errors = there.embeddings_of_files(some)
    good = [i for i, error in enumerate(errors) if error is None]
    expected = there.encode_images([decoded(some[i])[0] for i in good])
    assert float((embeddings[good] * expected).sum(axis=1).min()) > 0.98
    assert np.isnan(embeddings[[i for i, error in enumerate(errors) if error]]).all()
