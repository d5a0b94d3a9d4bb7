"""Labels the pictures of a generator's latents with the side of each attribute, and measures hyperplanes of these
labels.

A generated picture has no label; a network that names the sides of rendered pictures with a known accuracy labels it
(`world.training.latent.classifiers.train_reader` made it). Such a network also names a side for a picture that shows
none, as a generator's blurred ones may; so several networks, trained independently, have to agree, or the picture has
no label. It knows generators by their role; not how they were trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.roles import Classifier, LatentGenerator
from c2b_ray.stats.latent import fit_hyperplane
from c2b_ray.tables import seed_of

_ROWS = 500


@dataclass(frozen=True)
class Labelled:
    """`latents` float32 (rows, d); for each attribute `sides`, bool (rows,), and `shown`, whether the picture shows it,
    bool (rows,)."""

    latents: NDArray[np.float32]
    sides: dict[str, NDArray[np.bool_]]
    shown: dict[str, NDArray[np.bool_]]


def reader(directory: Path) -> Classifier:
    """Loads the network that names sides: its labels are the attributes, a logit above 0 means side 1."""
    return catalog.classifier(f"timm:local-dir:{directory}")


def pictures(generator: LatentGenerator, latents: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Generates the pictures of latents, uint8 (rows, side, side, 3)."""
    parts = []
    with torch.inference_mode():
        for first in range(0, len(latents), _ROWS):
            images = generator.images(torch.from_numpy(latents[first : first + _ROWS]))
            parts.append((images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy())
    return np.concatenate(parts)


def label(
    generator: LatentGenerator,
    names_sides: Sequence[Classifier],
    count: int,
    seed: int,
    tell: Callable[[int], None] | None = None,
) -> Labelled:
    """Samples latents and labels their pictures. `names_sides`: networks that all have to agree; ConfigError where
    their labels differ. `tell`: called with the number of latents that are labelled, again and again."""
    label_names = list(names_sides[0].labels)
    for network in names_sides[1:]:
        if list(network.labels) != label_names:
            labels = f"{', '.join(label_names)} and {', '.join(network.labels)}"
            raise ConfigError("reader", f"the networks need the same labels; they have {labels}")
    latents = generator.sample(count, seed_of("labelled latents", seed))
    parts = []
    for first in range(0, count, _ROWS):
        images = list(pictures(generator, latents[first : first + _ROWS]))
        parts.append(np.stack([network.logits(images, [""] * len(images)) > 0 for network in names_sides]))
        if tell is not None:
            tell(first + len(images))
    labels_by_network = np.concatenate(parts, axis=1)
    agrees = (labels_by_network == labels_by_network[:1]).all(axis=0)
    names = list(enumerate(label_names))
    return Labelled(
        latents, {name: labels_by_network[0, :, k] for k, name in names}, {name: agrees[:, k] for k, name in names}
    )


def hyperplane_accuracies(labelled: Labelled, seed: int) -> dict[str, dict[str, Any]]:
    """Returns for each attribute `accuracy` of its hyperplane (balanced, held out) and `share` of side 1; the accuracy
    is None where a side is too rare."""
    result: dict[str, dict[str, Any]] = {}
    for name, sides in labelled.sides.items():
        accuracy: float | None = None
        with suppress(ValueError):  # the generator almost never draws the other side
            is_shown = labelled.shown[name]
            accuracy = round(fit_hyperplane(labelled.latents[is_shown], sides[is_shown], seed).accuracy, 4)
        result[name] = {"accuracy": accuracy, "share": round(float(sides.mean()), 4)}
    return result


def write_labelled(of_generators: Mapping[str, Labelled], path: Path) -> None:
    """Writes a Parquet table for `c2b latent`: generator, latent, and a boolean column for each attribute, null where
    the picture does not show it."""
    parts = []
    for name, labelled in of_generators.items():
        latents = pa.array(labelled.latents.tolist(), pa.list_(pa.float32()))
        columns = {"generator": pa.array([name] * len(latents)), "latent": latents}
        sides = {key: pa.array(value, mask=~labelled.shown[key]) for key, value in labelled.sides.items()}
        parts.append(pa.table(columns | sides))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.concat_tables(parts, promote_options="default"), path)
