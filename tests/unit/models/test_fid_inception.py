"""FID's Inception gives the features that torch-fidelity 0.4.0 gives for the same weights and image."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from c2b_ray.errors import WeightsError
from c2b_ray.models import features
from c2b_ray.models.fid_inception import network, prepared, resized

# torch-fidelity's own features (FeatureExtractorInceptionV3, 2048) in float64 of the weights and image below: every
# 256th. In float32 these weights, which are waves, turn rounding into per cents.
EXPECTED = [
    2.2374262809753,
    6.8906297683716,
    0.0073712500743568,
    0.013813205063343,
    0.0052276658825576,
    0.0063566719181836,
    0.00060318701434881,
    0.096757613122463,
]
# tf.image.resize_bilinear of TensorFlow 1, as torch-fidelity writes it, of the squares of 0 to 11 in three rows.
RESIZED = [
    [0.0000, 0.9365, 3.6187, 8.0468, 9.0000],
    [16.1605, 24.6137, 34.8126, 46.7574, 49.2408],
    [64.0000, 79.9197, 97.5853, 116.9967, 121.0000],
]


@cache
def weights() -> dict[str, torch.Tensor]:
    """Waves in place of learned weights: the same on every machine."""
    state = network().state_dict()
    for number, (name, value) in enumerate(sorted(state.items())):
        if value.is_floating_point() and value.ndim > 1:
            wave = torch.sin(torch.arange(value.numel(), dtype=torch.float64) * 0.7 + number)
            state[name] = wave.reshape(value.shape).float() * (2.0 / value[0].numel() ** 0.5)
    return state


@pytest.mark.long
def test_features_are_those_of_torch_fidelity():
    module = network()
    module.load_state_dict(weights())
    module.fc = torch.nn.Identity()
    rows, columns = np.mgrid[0:299, 0:299]
    image = np.stack([(columns * 3) % 256, (rows * 5) % 256, (columns * rows) % 256], -1).astype(np.uint8)
    with torch.no_grad():
        values = module.double().eval()(prepared(image).double())[0].numpy()
    assert values[::256] == pytest.approx(EXPECTED, rel=1e-6)


def test_images_are_resized_as_tensorflow_1_does():
    squares = torch.arange(12.0).reshape(1, 1, 3, 4) ** 2
    assert torch.allclose(resized(squares)[0, 0, ::100, ::70], torch.tensor(RESIZED), atol=1e-4)


@pytest.mark.long
def test_weights_load_and_give_a_row_for_each_image(tmp_path):
    save_file(weights(), tmp_path / "inception.safetensors")
    extractor = features.load(f"inception:{tmp_path}/inception.safetensors?device=cpu&batch=2")
    images = [np.full((40, 60, 3), value, np.uint8) for value in (0, 90, 250)]
    values = extractor.features(images)
    assert values.shape == (3, 2048)
    assert not np.allclose(values[0], values[2])


def test_torchvisions_weights_are_refused(tmp_path):
    state = {name: value for name, value in weights().items() if not name.startswith("fc")}
    state |= {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    save_file(state, tmp_path / "inception.safetensors")
    with pytest.raises(WeightsError, match="another shape"):
        features.load(f"inception:{tmp_path}/inception.safetensors")
