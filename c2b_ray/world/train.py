"""Retrains the world's models, one command for all: language model, open_clip model, classifiers; then the model card.

Knows which models there are and where each goes below the output directory; does not know how any of them learns. Every
model lies in a directory of its own, with a metrics.json from which MODEL_CARD.md is written.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.models import timm_classifier
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Classifier
from c2b_ray.world import classifiers, clip, clip_quality, language_model
from c2b_ray.world.model_card import write_card
from c2b_ray.world.planting import ZOO, Member
from c2b_ray.world.truth import EVALUATION_SEEDS, Labelled, bias, correct_answers, count_cells, labelled

NAMES = ("lm", "clip", "classifiers")
TRUTH_SCENES = 4000
"""Scenes of each class on which a member's true φ is measured."""


def train(names: Sequence[str], out: Path, seed: int, workers: int = 1) -> None:
    """Trains the named models (all where none is named) into `out`/NAME and rewrites `out`/MODEL_CARD.md."""
    for name in names:
        if name not in NAMES:
            raise ConfigError("name", f"there is no model {name!r} to train; {nearest(name, NAMES)}")
    out.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        if name == "lm":
            language_model.train(out / "lm", seed)
        elif name == "clip":
            train_clip(out / "clip", seed, workers)
        else:
            train_classifiers(out, seed, workers)
    write_card(out)


def train_clip(out: Path, seed: int, workers: int) -> None:
    metrics = clip.train(out, seed, workers=workers)
    metrics["quality"] = clip_quality.evaluate(out, EVALUATION_SEEDS + seed, 20_000)
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


def train_classifiers(out: Path, seed: int, workers: int, recipe: classifiers.Recipe | None = None) -> None:
    """Both bases, every member of the zoo from its base, and what is true of each. `seed` shifts pools and bases."""
    recipe = recipe or classifiers.Recipe()
    pool = classifiers.clean_pool(recipe, seed, workers)
    with tempfile.TemporaryDirectory() as bases:
        for architecture in classifiers.ARCHITECTURES:
            base = classifiers.train_base(architecture, pool, recipe, seed)
            classifiers.save(base, architecture, Path(bases) / architecture, {})
        for member in ZOO.values():
            started = time.time()
            model = classifiers.train_member(Path(bases) / member.architecture, member, pool, recipe, workers)
            about = classifiers.about(member, recipe, model, started)
            classifiers.save(model, member.architecture, out / member.name, about)
    data = labelled(TRUTH_SCENES, EVALUATION_SEEDS + seed, workers=workers)
    for member in ZOO.values():
        record_truth(out / member.name, member, data)


def record_truth(directory: Path, member: Member, data: Labelled) -> None:
    """Adds to metrics.json what is true of a member: as it was saved, through the loader that users have."""
    classifier: Classifier = timm_classifier.load(Spec(f"timm:{directory}", "timm", f"local-dir:{directory}"))
    file = directory / "metrics.json"
    metrics = json.loads(file.read_text()) | {"truth": truth(classifier, member, data)}
    file.write_text(json.dumps(metrics, indent=2) + "\n")


def truth(classifier: Classifier, member: Member, data: Labelled) -> dict[str, Any]:
    """Overall accuracy; accuracy and φ of the planted cells; the largest |φ| where nothing was planted."""
    correct = correct_answers(classifier, data)
    rows = bias(count_cells(data.scenes, correct)).to_pylist()
    planted = {(plant.target_class, plant.attribute): plant for plant in member.plants}
    cells, others = [], []
    for row in rows:
        plant = planted.get((row["target_class"], row["attribute"]))
        if plant is None:
            others.append(row)
        elif row["value"] == plant.value:
            cells.append({**row, "strength": plant.strength, "becomes": plant.becomes})
    worst = max(others, key=lambda row: abs(row["phi"]))
    return {
        "scenes": len(data.scenes),
        "accuracy": float(correct.mean()),
        "planted": cells,
        "largest_unplanted": {"cell": [worst[k] for k in ("target_class", "attribute", "value")], "phi": worst["phi"]},
    }
