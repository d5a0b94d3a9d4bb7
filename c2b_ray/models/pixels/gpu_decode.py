"""Encoded images to a model's batch, decoded and resized on its GPU.

A GPU decodes plain JPEGs: 8 bits, baseline, upright, grey or in colour differences. Every other file, and whatever the
GPU refuses, goes to the decoder for CPUs (`steps.decode`) in threads of this process, with its errors. The GPU's pixels
differ a little from Pillow's (docs/guide/running.md), so the decoder is part of a model's revision. Damage inside a
file whose markers are whole may go unseen by a GPU. It knows files and tensors, and no model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image

from c2b_ray.errors import SpecError
from c2b_ray.models.pixels.jpeg_header import read_header
from c2b_ray.models.pixels.resize_tensors import can_resize, resized
from c2b_ray.models.pixels.shape import shaped
from c2b_ray.roles import Pixels, Shape

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
    found = by_nvimgcodec if decoder_name() == "nvImageCodec" else by_torchvision
    try:
        found([_probe()], device)
    except (RuntimeError, ImportError) as error:
        raise SpecError(
            f"decode: gpu: {decoder_name()} decodes nothing on {device} ({str(error).splitlines()[0]}); install "
            "'c2b-ray[gpu]', or write decode: cpu"
        ) from error
    return found


def by_torchvision(files: Sequence[bytes], device: torch.device) -> list[torch.Tensor]:
    """Decodes by nvJPEG, which comes with torchvision's builds for CUDA."""
    import torchvision.io  # noqa: F401  (registers the operator)

    # One copy for all files, since a tensor on bytes that cannot be written to is refused with a warning.
    whole = torch.from_numpy(np.frombuffer(bytearray(b"".join(files)), np.uint8))
    # It writes from a stream of its own, and waits for nothing: memory that is given to it here must be free by now.
    torch.cuda.current_stream(device).synchronize()
    result: list[torch.Tensor] = torch.ops.image.decode_jpegs_cuda(
        list(torch.split(whole, [len(data) for data in files])), _RGB, device
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
        there = [i for i, data in enumerate(files) if data is not None and _for_gpu(data)]
        pictures = self._on_gpu([data for i in there if (data := files[i]) is not None])
        sizes = [None if picture is None else (int(picture.shape[1]), int(picture.shape[2])) for picture in pictures]
        by_gpu = {
            i: picture
            for i, picture, size in zip(there, pictures, sizes, strict=True)
            if picture is not None and size is not None and can_resize(size, self._shape)
        }
        others = [i for i in range(len(files)) if i not in by_gpu]
        errors: list[str | None] = [None] * len(files)
        by_cpu: dict[int, Pixels] = {}
        for i, (pixels, error) in zip(others, self._others.map(self._by_cpu, [files[i] for i in others]), strict=True):
            errors[i] = error
            if pixels is not None:
                by_cpu[i] = pixels
        return self._together(len(files), by_gpu, by_cpu), errors

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

    def _together(self, count: int, by_gpu: dict[int, torch.Tensor], by_cpu: dict[int, Pixels]) -> torch.Tensor | None:
        if not by_gpu and not by_cpu:
            return None
        block = _resized(list(by_gpu.values()), self._shape) if by_gpu else None
        if block is not None and len(by_gpu) == count:
            return block
        size = next(iter(by_cpu.values())).shape if block is None else block.shape[1:]
        whole = torch.zeros((count, *size), dtype=torch.uint8, device=self._device)
        if block is not None:
            whole[list(by_gpu)] = block
        if by_cpu:
            whole[list(by_cpu)] = torch.from_numpy(np.stack(list(by_cpu.values()))).to(self._device)
        return whole


def _resized(pictures: Sequence[torch.Tensor], shape: Shape) -> torch.Tensor:
    """Returns pictures, each uint8 (3, height, width), resized and cropped, as uint8 (pictures, height, width, 3)."""
    sizes = [(int(picture.shape[1]), int(picture.shape[2])) for picture in pictures]
    return resized(torch.cat([picture.permute(1, 2, 0).reshape(-1) for picture in pictures]), sizes, shape)


def _for_gpu(data: bytes) -> bool:
    header = read_header(data) if len(data) <= MOST_BYTES else None
    return header is not None and header.plain and header.width * header.height <= MOST_PIXELS


def _probe() -> bytes:
    stream = BytesIO()
    Image.new("RGB", (16, 16)).save(stream, "JPEG")
    return stream.getvalue()
