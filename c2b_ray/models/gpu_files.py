"""Classifiers and encoders that decode files on their own GPU: roles of files around torch models.

While one batch is computed, the next is decoded and resized on the same GPU. It knows the two kinds of torch models,
and not where files come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from c2b_ray.errors import SpecError
from c2b_ray.models.batched_run import Compute, OutputCopies, Runtime, Transfer, computed
from c2b_ray.models.pixels.gpu_decode import Decoded, GpuPreparation
from c2b_ray.models.pixels.preprocess import OnArrays, Prepared
from c2b_ray.models.spec_options import batches
from c2b_ray.roles import Floats, Pixels

if TYPE_CHECKING:
    from c2b_ray.models.open_clip_encoder import OpenClipEncoder
    from c2b_ray.models.torch_runtime import TorchClassifier

Files = Sequence[bytes | None]


def decoding_files(model: Any, spec: str, by_cpu: Decoded) -> GpuFileClassifier | GpuFileEncoder:
    """Returns a torch classifier or encoder with its GPU decoding files; `by_cpu` decodes what the GPU cannot. Raises
    SpecError for any other model, and for preprocessing whose steps are not known."""
    runtime: Runtime | None = getattr(model, "runtime", None)
    preparation = getattr(model, "preparation", None)
    if runtime is None or not isinstance(preparation, OnArrays):
        raise SpecError(
            f"{spec}: the placement's `decode: gpu` is for torch models whose preprocessing is resizing, cropping and "
            "normalising (timm, torchvision, open_clip), and this is none; write `decode: cpu`"
        )
    files = FilesOnGpu(preparation, GpuPreparation(preparation.shape, runtime.device, by_cpu))
    return GpuFileClassifier(model, files) if hasattr(model, "logits") else GpuFileEncoder(model, files)


class FilesOnGpu:
    """Files of a model through its GPU's decoder and a module."""

    def __init__(self, steps: OnArrays, files: GpuPreparation) -> None:
        self._prepare, self._files = Prepared(steps), files

    def run(self, compute: Compute, files: Files, runtime: Runtime, width: int) -> tuple[Floats, list[str | None]]:
        """Returns the module's output for every file, float32 (files, width), and why a file cannot be decoded; its row
        is then NaN."""
        answers, decoded_rows, errors = OutputCopies(runtime.device), list[int](), list[str | None]()
        result = np.full((len(files), width), np.nan, np.float32)

        def prepared(part: Files) -> torch.Tensor:
            pictures, reasons = self._files.prepared(part)
            reasons_of_batch.append(reasons)
            return torch.empty(0, dtype=torch.uint8, device=runtime.device) if pictures is None else pictures

        reasons_of_batch: list[list[str | None]] = []
        with torch.inference_mode():
            blocks = Transfer(runtime.device)(prepared, batches(files, runtime.rows))
            for number, pictures in enumerate(blocks):
                first = len(errors)
                errors += reasons_of_batch[number]
                if len(pictures):
                    decoded_rows += range(first, len(errors))
                    for output in computed(compute, pictures, self._prepare, runtime):
                        answers.add(output)
        if decoded_rows:
            result[decoded_rows] = answers.gathered()
        result[[error is not None for error in errors]] = np.nan
        return result, errors


class GpuFileClassifier:
    """A torch classifier that decodes files on its GPU; implements `roles.Classifier` and `roles.FileClassifier`."""

    def __init__(self, classifier: TorchClassifier, files: FilesOnGpu) -> None:
        self._classifier, self._files = classifier, files
        self.labels, self.revision, self.facts = classifier.labels, classifier.revision, classifier.facts
        self.head = classifier.head

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Returns logits of pictures that are decoded already."""
        return self._classifier.logits(images, keys)

    def logits_of_files(self, files: Files, keys: Sequence[str]) -> tuple[Floats, list[str | None]]:
        """Returns logits, float32 (files, labels), and why a file cannot be decoded; its row is then NaN. `keys` are
        ignored."""
        model, width = self._classifier, len(self.labels)
        logits, errors = self._files.run(model.compute, files, model.runtime, width)
        overflowed = [int(row) for row in model.beyond(logits) if errors[row] is None]
        if overflowed:
            logits[overflowed], _ = self._files.run(
                model.exact, [files[row] for row in overflowed], model.exactly, width
            )
        return logits, errors


class GpuFileEncoder:
    """An encoder that decodes files on its GPU; implements `roles.TextImageEncoder` and `roles.FileEncoder`."""

    def __init__(self, encoder: OpenClipEncoder, files: FilesOnGpu) -> None:
        self._encoder, self._files = encoder, files
        self.dimension, self.revision, self.facts = encoder.dimension, encoder.revision, encoder.facts

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        """Returns unit-norm embeddings of pictures that are decoded already."""
        return self._encoder.encode_images(images)

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """Returns unit-norm embeddings, float32 (texts, dimension)."""
        return self._encoder.encode_texts(texts)

    def embeddings_of_files(self, files: Files) -> tuple[Floats, list[str | None]]:
        """Returns unit-norm embeddings, float32 (files, dimension), and why a file cannot be decoded; its row is then
        NaN."""
        encoder = self._encoder
        embeddings, errors = self._files.run(encoder.compute_images, files, encoder.runtime, self.dimension)
        return encoder.unit(embeddings), errors
