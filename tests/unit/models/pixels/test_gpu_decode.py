"""Which files a GPU gets and what becomes of the others, with torchvision's decoder for CPUs in the GPU's place."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pytest
import torch
import torchvision.io  # noqa: F401  (registers the decoder)
from PIL import Image
from torch import nn
from torchvision.transforms._presets import ImageClassification

from c2b_ray.errors import SpecError
from c2b_ray.jpeg_header import read_header
from c2b_ray.models.batched_run import Runtime
from c2b_ray.models.gpu_files import FilesOnGpu, GpuFileClassifier, decoding_files
from c2b_ray.models.pixels.gpu_decode import GpuPreparation, decoder
from c2b_ray.models.pixels.preprocess import OnArrays
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.models.torch_runtime import TorchClassifier
from c2b_ray.roles import Pixels, Shape
from c2b_ray.steps.decode import decoded

CPU = torch.device("cpu")
SHAPE = Shape(24, "bilinear", (20, 20))


def picture(seed: int, height: int = 40, width: int = 56) -> Pixels:
    coarse = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return np.kron(coarse, np.ones((8, 8, 1), np.uint8))


def jpeg(pixels: Pixels, mode: str = "RGB", **options: object) -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", **options)
    return stream.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x112] = orientation
    return jpeg(picture(3), exif=exif)


class Decoding:
    """Decodes as a GPU would, refuses a batch with one of `refused`, and remembers what it was given."""

    def __init__(self, *refused: bytes) -> None:
        self.refused, self.given = refused, list[bytes]()

    def __call__(self, files: Sequence[bytes], device: torch.device) -> list[torch.Tensor]:
        if set(files) & set(self.refused):
            raise RuntimeError("Error while decoding JPEG images")
        self.given += files
        raw = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in files]
        return [torch.ops.image.decode_jpeg(data, 3, False) for data in raw]


def test_only_plain_whole_jpegs_are_for_a_gpu() -> None:
    plain = {"colour": jpeg(picture(0)), "grey": jpeg(picture(1), "L"), "upright": turned(1)}
    for name, data in plain.items():
        header = read_header(data)
        assert header is not None, name
        assert header.plain, name
        assert (header.height, header.width) == (40, 56)
    others = {
        "turned": turned(6),
        "CMYK": jpeg(picture(0), "CMYK"),
        "progressive": jpeg(picture(0), progressive=True),
        "red, green and blue": jpeg(picture(0), keep_rgb=True),
        "12 bits": plain["colour"].replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"),
        "cut short": plain["colour"][:-2],
        "no end of a segment": plain["colour"][:30] + b"\xff\xd9",
        "nothing": b"",
        "text": b"\xff\xd8 no picture \xff\xd9",
    }
    for name, data in others.items():
        header = read_header(data)
        assert header is None or not header.plain, name


def test_files_that_a_gpu_cannot_decode_have_the_pixels_and_errors_of_the_cpu() -> None:
    png = BytesIO()
    Image.fromarray(picture(5)).save(png, "PNG")
    plain = [jpeg(picture(seed, 40 + 8 * seed), quality=95) for seed in range(6)]
    rest = [turned(6), jpeg(picture(7), "CMYK"), jpeg(picture(8), progressive=True), png.getvalue()]
    files = [plain[0], None, *rest[:2], b"none", *plain[1:4], plain[2][:200], *rest[2:], *plain[4:]]
    decode = Decoding(plain[3])
    block, errors = GpuPreparation(SHAPE, CPU, decoded, decode).prepared(files)
    assert errors == [decoded(data)[1] for data in files]
    assert sorted(decode.given) == sorted(data for data in plain if data != plain[3])  # which it refused
    assert block is not None
    for data, got in zip(files, block.numpy(), strict=True):
        pixels, error = decoded(data)
        if pixels is None:
            assert error
            assert not got.any()
        else:
            allowed = 12 if data in plain else 0  # the decoders interpolate colours differently
            assert int(np.abs(got.astype(int) - shaped(pixels, SHAPE).astype(int)).max()) <= allowed


def test_no_picture_at_all() -> None:
    assert GpuPreparation(SHAPE, CPU, decoded, Decoding()).prepared([None, b"none"]) == (
        None,
        ["no bytes", decoded(b"none")[1]],
    )


def model(transform: object) -> TorchClassifier:
    torch.manual_seed(0)
    module = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 3))
    return TorchClassifier(module, transform, ("a", "b", "c"), "r", Runtime(CPU, 4))  # type: ignore[arg-type]


def test_answers_of_files_are_those_of_their_pixels_in_their_rows() -> None:
    classifier = model(ImageClassification(crop_size=20, resize_size=24))
    assert isinstance(classifier.preparation, OnArrays)
    files = [jpeg(picture(seed), quality=95, subsampling=0) for seed in range(13)]
    some: list[bytes | None] = [*files[:5], None, b"none", b"x", None, b"y", *files[5:], turned(3)]
    there = GpuFileClassifier(
        classifier, FilesOnGpu(classifier.preparation, GpuPreparation(SHAPE, CPU, decoded, Decoding()))
    )
    answers, errors = there.logits_of_files(some, [""] * len(some))
    pixels = [decoded(data)[0] for data in some]
    good = [i for i, one in enumerate(pixels) if one is not None]
    expected = classifier.logits([one for one in pixels if one is not None], [""] * len(good))
    assert [i for i, error in enumerate(errors) if error is None] == good
    np.testing.assert_allclose(answers[good], expected, atol=2e-3)
    assert np.isnan(np.delete(answers, good, axis=0)).all()
    none, reasons = there.logits_of_files([None], [""])
    assert (none.shape, reasons) == ((1, 3), ["no bytes"])


def test_preprocessing_that_is_not_known_is_refused() -> None:
    with pytest.raises(SpecError, match="timm:x: the placement's `decode: gpu` is for torch models whose prepro"):
        decoding_files(model(lambda image: torch.zeros(3, 20, 20)), "timm:x", decoded)


def test_an_installation_without_a_decoder_says_so() -> None:
    with pytest.raises(SpecError, match=r"decodes nothing on cuda:0 .*write decode: cpu"):
        decoder(torch.device("cuda:0"))
