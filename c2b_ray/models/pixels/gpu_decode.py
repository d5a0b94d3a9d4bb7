"""Encoded images to a model's batch on its GPU: which files it may decode, their decoding, and Pillow's resizing there.

Which files a GPU may decode is told by a JPEG's header. It knows the GPU's decoders, and no model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.errors import SpecError
from c2b_ray.jpeg_header import read_header
from c2b_ray.models.pixels.filters import BITS, Filter, weights
from c2b_ray.models.pixels.resize import goes_down_first, resized_size, shaped
from c2b_ray.roles import Pixels, Shape

# The pixels of `resize`, computed by PyTorch on the device of a model: those of Pillow, bit for bit.


Size = tuple[int, int]
"""Height and width in pixels."""


def can_resize(size: Size, shape: Shape) -> bool:
    """Tells whether `resized` serves a picture of this size: not where Pillow would go down before it goes across, nor
    where the crop is larger than the picture, nor where the result's size depends on the picture."""
    if shape.crop is None and not isinstance(shape.size, tuple):
        return False
    height, width = resized_size(shape.size, *size)
    crop_height, crop_width = shape.crop or (height, width)
    return crop_height <= height and crop_width <= width and not goes_down_first(size, (height, width))


def resized(pixels: torch.Tensor, sizes: Sequence[Size], shape: Shape) -> torch.Tensor:
    """Returns `models.pixels.resize.shaped` of every picture, uint8 (pictures, height, width, 3), on the device of
    `pixels`.

    `pixels`: uint8, flat, the pictures of these `sizes` one after another, each (height, width, 3). `can_resize` holds
    for each of them.
    """
    lines = pixels.view(-1, 3)
    horizontal, vertical, begins = _plans(sizes, shape)
    rows = max(int(plan.starts[-1]) + plan.taps - int(plan.starts[0]) for plan in vertical)
    x, y = _Weights.of(horizontal, pixels.device), _Weights.of(vertical, pixels.device)
    tops = y.starts[:, :1]
    heights, widths, begin = (
        torch.from_numpy(values).to(pixels.device) for values in (*np.array(sizes, np.int32).T, begins)
    )
    # The rows that any result needs, and the last row again for pictures that need fewer.
    row = torch.minimum(tops + torch.arange(rows, device=pixels.device, dtype=torch.int32), heights[:, None] - 1)
    first = (begin[:, None] + row * widths[:, None])[:, :, None] + x.starts[:, None, :]
    last = (begin + heights * widths - 1)[:, None, None]

    def along(tap: int) -> torch.Tensor:
        return lines.index_select(0, torch.minimum(first + tap, last).flatten()).view(*first.shape, 3)

    resized_across = _mixed(along, [x.of_tap[tap][:, None, :, None] for tap in range(x.taps)])
    of_picture = torch.arange(len(sizes), device=pixels.device, dtype=torch.int32)[:, None] * rows
    flat = resized_across.view(len(sizes) * rows, -1)
    start = y.starts - tops

    def below(tap: int) -> torch.Tensor:
        rows_of_pixels = of_picture + (start + tap).clamp(max=rows - 1)
        return flat.index_select(0, rows_of_pixels.flatten()).view(*rows_of_pixels.shape, -1)

    resized_down = _mixed(below, [y.of_tap[tap][:, :, None] for tap in range(y.taps)])
    return resized_down.view(*resized_down.shape[:2], -1, 3)


@dataclass(frozen=True)
class _Plan:
    """The first pixel that each pixel of a line is made of, and the weights from there: (pixels,), (pixels, taps)."""

    starts: NDArray[np.int64]
    weights: NDArray[np.int32]

    @property
    def taps(self) -> int:
        return int(self.weights.shape[1])


@dataclass(frozen=True)
class _Weights:
    """The plans of several pictures: `starts` int32 (pictures, pixels), `of_tap` int32 (taps, pictures, pixels)."""

    starts: torch.Tensor
    of_tap: torch.Tensor

    @property
    def taps(self) -> int:
        return len(self.of_tap)

    @staticmethod
    def of(plans: Sequence[_Plan], device: torch.device) -> _Weights:
        taps = max(plan.taps for plan in plans)
        of_tap = np.zeros((taps, len(plans), len(plans[0].starts)), np.int32)
        for number, plan in enumerate(plans):
            of_tap[: plan.taps, number] = plan.weights.T
        starts = np.stack([plan.starts for plan in plans]).astype(np.int32)
        return _Weights(torch.from_numpy(starts).to(device), torch.from_numpy(of_tap).to(device))


def _plans(sizes: Sequence[Size], shape: Shape) -> tuple[list[_Plan], list[_Plan], NDArray[np.int32]]:
    """Returns the plans across and down, and where each picture begins, in pixels."""
    horizontal, vertical = [], []
    for size in sizes:
        height, width = resized_size(shape.size, *size)
        crop_height, crop_width = shape.crop or (height, width)
        # Half a pixel is rounded to an even number, as torchvision does.
        top, crop_left = round((height - crop_height) / 2), round((width - crop_width) / 2)
        horizontal.append(_plan(size[1], width, crop_left, crop_width, shape.filter))
        vertical.append(_plan(size[0], height, top, crop_height, shape.filter))
    ends = np.cumsum([height * width for height, width in sizes])
    return horizontal, vertical, np.concatenate([[0], ends[:-1]]).astype(np.int32)


def _plan(old: int, new: int, begin: int, count: int, kind: Filter) -> _Plan:
    return _Plan(*weights(old, new, begin, begin + count, kind))


def _mixed(lines: Callable[[int], torch.Tensor], factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the sum over taps of lines times factors, rounded to bytes."""
    total = lines(0).to(torch.int32).mul_(factors[0])
    for tap in range(1, len(factors)):
        total += lines(tap).to(torch.int32).mul_(factors[tap])
    rounded: torch.Tensor = total.add_(1 << (BITS - 1)).bitwise_right_shift_(BITS).clamp_(0, 255).to(torch.uint8)
    return rounded


# Encoded images to a model's batch, decoded and resized on its GPU.


MOST_BYTES = 64 * 2**20
MOST_PIXELS = 24 * 10**6
"""The largest file and picture for a GPU: larger ones are few, and would need its memory for themselves."""
OTHERS_AT_ONCE = 8
Decoded = Callable[[bytes | None], tuple[Pixels | None, str | None]]
"""The decoder for CPUs: pixels, or the reason for none."""
Decoder = Callable[[Sequence[bytes], torch.device], list[torch.Tensor]]
"""Decodes plain JPEGs on a GPU: uint8 (3, height, width) each. Raises RuntimeError where it cannot decode one."""


def decoder_name() -> str:
    """Returns the name of the decoder that `decoder()` returns, the same in all processes of one installation."""
    return "nvImageCodec" if find_spec("nvidia") and find_spec("nvidia.nvimgcodec") else "nvJPEG"


@cache
def decoder(device: torch.device) -> Decoder:
    """Returns the decoder of this installation. Raises SpecError where its libraries lack one."""
    decode = by_nvimgcodec if decoder_name() == "nvImageCodec" else by_torchvision
    try:
        decode([_probe()], device)
    except (RuntimeError, ImportError) as error:
        raise SpecError(
            f"decode: gpu: {decoder_name()} decodes nothing on {device} ({str(error).splitlines()[0]}); install "
            "'c2b-ray[gpu]', or write decode: cpu"
        ) from error
    return decode


def by_torchvision(files: Sequence[bytes], device: torch.device) -> list[torch.Tensor]:
    """Decodes by nvJPEG, which comes with torchvision's builds for CUDA."""
    import torchvision.io  # noqa: F401  (registers the operator)

    # One copy for all files, since a tensor on bytes that cannot be written to is refused with a warning.
    joined = torch.from_numpy(np.frombuffer(bytearray(b"".join(files)), np.uint8))
    # It writes on its own stream without waiting, so the memory that it gets must not be in use any more.
    torch.cuda.current_stream(device).synchronize()
    result: list[torch.Tensor] = torch.ops.image.decode_jpegs_cuda(
        list(torch.split(joined, [len(data) for data in files])), _RGB, device
    )
    return result


def by_nvimgcodec(files: Sequence[bytes], device: torch.device) -> list[torch.Tensor]:
    """Decodes by nvImageCodec, of the extra [gpu]."""
    stream = torch.cuda.current_stream(device)
    images = _nvimgcodec(device.index or 0).decode(list(files), cuda_stream=stream.cuda_stream)
    if any(image is None for image in images):
        raise RuntimeError("nvImageCodec refused a file")
    tensors = [torch.utils.dlpack.from_dlpack(image).permute(2, 0, 1) for image in images]
    for tensor in tensors:
        tensor.record_stream(stream)
    return tensors


@cache
def _nvimgcodec(device: int) -> Any:
    nvimgcodec: Any = import_module("nvidia.nvimgcodec")

    return nvimgcodec.Decoder(device_id=device)


_RGB = 3  # torchvision.io.ImageReadMode.RGB


class GpuPreparation:
    """Files to a batch on a GPU. Files that cannot be decoded have an error, and a black picture in the batch."""

    def __init__(self, shape: Shape, device: torch.device, by_cpu: Decoded, decode: Decoder | None = None) -> None:
        self._shape, self._device, self._decoded = shape, device, by_cpu
        self._decode = decode or decoder(device)
        self._others = ThreadPoolExecutor(min(OTHERS_AT_ONCE, len(os.sched_getaffinity(0))), "decode")

    def prepared(self, files: Sequence[bytes | None]) -> tuple[torch.Tensor | None, list[str | None]]:
        """Returns pictures, uint8 (files, height, width, 3) on the device, and why a file is none; no pictures where
        all files are none."""
        indices = [i for i, data in enumerate(files) if data is not None and _for_gpu(data)]
        pictures = self._on_gpu([data for i in indices if (data := files[i]) is not None])
        sizes = [None if picture is None else (int(picture.shape[1]), int(picture.shape[2])) for picture in pictures]
        by_gpu = {
            i: picture
            for i, picture, size in zip(indices, pictures, sizes, strict=True)
            if picture is not None and size is not None and can_resize(size, self._shape)
        }
        cpu_indices = [i for i in range(len(files)) if i not in by_gpu]
        errors: list[str | None] = [None] * len(files)
        by_cpu: dict[int, Pixels] = {}
        for i, (pixels, error) in zip(
            cpu_indices, self._others.map(self._by_cpu, [files[i] for i in cpu_indices]), strict=True
        ):
            errors[i] = error
            if pixels is not None:
                by_cpu[i] = pixels
        return self._batch_of(len(files), by_gpu, by_cpu), errors

    def _by_cpu(self, data: bytes | None) -> tuple[Pixels | None, str | None]:
        pixels, error = self._decoded(data)
        return (None if pixels is None else shaped(pixels, self._shape)), error

    def _on_gpu(self, files: list[bytes]) -> list[torch.Tensor | None]:
        """Returns the pictures of files; None for one that the decoder refuses, which is found by halving."""
        if not files:
            return []
        try:
            return list(self._decode(files, self._device))
        except RuntimeError:  # of one file, or of no memory for all of them
            if len(files) == 1:
                return [None]
        half = len(files) // 2
        return [*self._on_gpu(files[:half]), *self._on_gpu(files[half:])]

    def _batch_of(self, count: int, by_gpu: dict[int, torch.Tensor], by_cpu: dict[int, Pixels]) -> torch.Tensor | None:
        if not by_gpu and not by_cpu:
            return None
        block = None
        if by_gpu:
            sizes = [(int(picture.shape[1]), int(picture.shape[2])) for picture in by_gpu.values()]
            levels = torch.cat([picture.permute(1, 2, 0).reshape(-1) for picture in by_gpu.values()])
            block = resized(levels, sizes, self._shape)
        if block is not None and len(by_gpu) == count:
            return block
        size = next(iter(by_cpu.values())).shape if block is None else block.shape[1:]
        pictures = torch.zeros((count, *size), dtype=torch.uint8, device=self._device)
        if block is not None:
            pictures[list(by_gpu)] = block
        if by_cpu:
            pictures[list(by_cpu)] = torch.from_numpy(np.stack(list(by_cpu.values()))).to(self._device)
        return pictures


def _for_gpu(data: bytes) -> bool:
    header = read_header(data) if len(data) <= MOST_BYTES else None
    return header is not None and header.plain and header.width * header.height <= MOST_PIXELS


def _probe() -> bytes:
    stream = BytesIO()
    Image.new("RGB", (16, 16)).save(stream, "JPEG")
    return stream.getvalue()
