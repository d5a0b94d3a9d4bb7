"""A latent's labels are what all readers of its picture say."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.models.latent_generators import NetworkConfig, network, write
from c2b_ray.stats.latent import fit_hyperplane
from c2b_ray.world import latent_labels


def test_labels_are_what_the_reader_says_and_go_into_a_table(tmp_path: Path) -> None:
    torch.manual_seed(2)
    config = NetworkConfig(kind="vae", dimension=3, size=32, width=4, hidden=8)
    write(network(config), config, tmp_path / "vae")
    generator = catalog.latent_generator(f"vae:local-dir:{tmp_path / 'vae'}")

    class Bright:
        labels, revision = ("bright", "dull"), "1"

        def logits(self, images: list[np.ndarray], keys: list[str]) -> np.ndarray:
            values = np.array([image.mean() for image in images])
            return np.stack([values - np.median(values), np.full(len(values), -1.0)], axis=1)

    class Dim(Bright):
        """Of another mind about the first ten pictures."""

        def logits(self, images: list[np.ndarray], keys: list[str]) -> np.ndarray:
            said = super().logits(images, keys)
            said[:10, 0] *= -1
            return said

    class Turned(Bright):
        labels = ("dull", "bright")

    with pytest.raises(ConfigError, match="they have bright, dull and dull, bright"):
        latent_labels.label(generator, [Bright(), Turned()], 120, 4)
    told: list[int] = []
    labelled = latent_labels.label(generator, [Bright(), Dim()], 120, 4, told.append)
    assert told == [120]
    assert labelled.latents.shape == (120, 3)
    accuracies = latent_labels.hyperplane_accuracies(labelled, 1)
    assert accuracies["bright"]["accuracy"] == round(
        fit_hyperplane(labelled.latents[10:], labelled.sides["bright"][10:], 1).accuracy, 4
    )
    assert accuracies["dull"] == {"accuracy": None, "share": 0.0}
    latent_labels.write_labelled({"vae": labelled}, tmp_path / "l.parquet")
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.column_names == ["generator", "latent", "bright", "dull"]
    assert [table[name].null_count for name in ("bright", "dull")] == [10, 0], "what readers differ on has no label"
