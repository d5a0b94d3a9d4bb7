"""The Inception network whose features FID and KID are defined on (Heusel et al. 2017).

    inception:PATH.safetensors

Its weights are those of TensorFlow's release of 2015-12-05, which pytorch-fid and torch-fidelity publish as a pickle;
convert it once: `safetensors.torch.save_file(torch.load(FILE, weights_only=True), PATH)`. It differs from torchvision's
inception_v3 in its pooling, its 1,008 outputs, and in how images are resized: as TensorFlow 1 does, to 299 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import inception_v3
from torchvision.models.inception import InceptionA, InceptionC, InceptionE

from c2b_ray.models import weights
from c2b_ray.models.batched_run import Runtime
from c2b_ray.models.catalog import Spec
from c2b_ray.models.torch_runtime import batch_of, device_of
from c2b_ray.roles import Floats, Pixels
from c2b_ray.tables import content_id

SIDE, DIMENSION = 299, 2048
_OPTIONS = ("device", "batch")
_OUTPUTS = 1008


def load(spec: Spec) -> FidInception:
    """Loads the network. Raises SpecError for an unknown option, WeightsError for weights that do not fit."""
    spec.options_among(_OPTIONS)
    file = weights.checked(spec.name)
    module, device = network(), device_of(spec)
    weights.load_into(module, weights.read_safetensors(file), file)
    return FidInception(
        module, content_id("fid-inception", weights.file_revision(file)), Runtime(device, batch_of(spec, device))
    )


class FidInception:
    """Features of the last pooling layer."""

    def __init__(self, module: nn.Module, revision: str, runtime: Runtime) -> None:
        self.name, self.revision, self._runtime = "Inception (2015-12-05)", revision, runtime
        module.fc = nn.Identity()
        self._module = module.eval().requires_grad_(False).to(runtime.device)

    def features(self, images: Sequence[Pixels]) -> Floats:
        """Returns features, float32 (images, 2048)."""
        result = [np.zeros((0, DIMENSION), np.float32)]
        with torch.inference_mode():
            for start in range(0, len(images), self._runtime.batch):
                batch = torch.cat([prepared(image) for image in images[start : start + self._runtime.batch]])
                result.append(self._module(batch.to(self._runtime.device)).float().cpu().numpy())
        return np.concatenate(result)


def prepared(image: Pixels) -> Tensor:
    """Prepares an image as float32 (1, 3, 299, 299), about −1 to 1."""
    values = torch.tensor(image).permute(2, 0, 1)[None].float()
    return (resized(values) - 128) / 128


def resized(values: Tensor) -> Tensor:
    """Resizes like tf.image.resize_bilinear of TensorFlow 1: pixel k of the result is read at k * size / 299."""
    for axis in (2, 3):
        size = values.shape[axis]
        positions = torch.arange(SIDE, dtype=torch.float32) * (torch.tensor(size, dtype=torch.float32) / SIDE)
        low = positions.floor().long().clamp(max=size - 1)
        high = (low + 1).clamp(max=size - 1)
        share = (positions - low).view((-1, 1) if axis == 2 else (-1,))
        lower_values, upper_values = values.index_select(axis, low), values.index_select(axis, high)
        values = lower_values + (upper_values - lower_values) * share
    return values


def network() -> nn.Module:
    """Builds the module without weights, with tensor names as in the published weights."""
    module: nn.Module = inception_v3(num_classes=_OUTPUTS, aux_logits=False, init_weights=False, transform_input=False)
    replaced: dict[str, nn.Module] = {
        "Mixed_5b": _A(192, pool_features=32),
        "Mixed_5c": _A(256, pool_features=64),
        "Mixed_5d": _A(288, pool_features=64),
        "Mixed_6b": _C(768, channels_7x7=128),
        "Mixed_6c": _C(768, channels_7x7=160),
        "Mixed_6d": _C(768, channels_7x7=160),
        "Mixed_6e": _C(768, channels_7x7=192),
        "Mixed_7b": _E1(1280),
        "Mixed_7c": _E2(2048),
    }
    for name, block in replaced.items():
        setattr(module, name, block)
    return module


def _average(x: Tensor) -> Tensor:
    """Average pooling over the pixels inside the image only."""
    return F.avg_pool2d(x, kernel_size=3, stride=1, padding=1, count_include_pad=False)


class _A(InceptionA):  # type: ignore[misc]
    def _forward(self, x: Tensor) -> list[Tensor]:
        five_by_five = self.branch5x5_2(self.branch5x5_1(x))
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return [self.branch1x1(x), five_by_five, double, self.branch_pool(_average(x))]


class _C(InceptionC):  # type: ignore[misc]
    def _forward(self, x: Tensor) -> list[Tensor]:
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return [self.branch1x1(x), single, double, self.branch_pool(_average(x))]


class _E1(InceptionE):  # type: ignore[misc]
    pool = staticmethod(_average)

    def _forward(self, x: Tensor) -> list[Tensor]:
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        single = torch.cat([self.branch3x3_2a(single), self.branch3x3_2b(single)], 1)
        double = torch.cat([self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)], 1)
        return [self.branch1x1(x), single, double, self.branch_pool(self.pool(x))]


class _E2(_E1):
    """The last block, which takes the maximum: an error of the original that all published values share."""

    @staticmethod
    def pool(x: Tensor) -> Tensor:
        return F.max_pool2d(x, kernel_size=3, stride=1, padding=1)
