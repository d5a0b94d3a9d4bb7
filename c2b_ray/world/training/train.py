"""Retrains the world's models by one command, in the order in which they need each other; then writes the model card.

Knows which models there are and the directory of each; does not know how any of them learns. Every model has its own
directory with a metrics.json, from which MODEL_CARD.md is written.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.models import catalog, diffusers_generator, timm_classifier
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Classifier
from c2b_ray.world.associations import Associations
from c2b_ray.world.queries import scene_codes
from c2b_ray.world.scenes import sample
from c2b_ray.world.training import (
    autoencoder,
    classifiers,
    clip,
    clip_quality,
    diffusion,
    judge,
    language_model,
    train_clip_zoo,
    train_prompts,
)
from c2b_ray.world.training.generator_quality import Jury, evaluate, reconstruction
from c2b_ray.world.training.latent import family
from c2b_ray.world.training.model_card import write_card
from c2b_ray.world.truth import EVALUATION_SEEDS, Labelled, bias, correct_answers, count_cells, labelled, render_all
from c2b_ray.world.zoo import GENERATION, WEIGHTS, ZOO, ZooClassifier

QUALITY_PROMPTS = 2000
TRUTH_SCENES = 4000
"""The number of scenes of each class on which a member's true φ is measured."""
_CONTROL = "resnet-control-0"
_JUDGED = 2000  # the number of scenes on which judge and autoencoder are measured


@dataclass(frozen=True)
class Job:
    """The settings of every training: output directory, seed, number of processes, hidden associations."""

    out: Path
    seed: int
    workers: int = 1
    associations: Associations = field(default_factory=Associations)
    skews: Sequence[str] = ()


def train(
    names: Sequence[str],
    out: Path,
    seed: int,
    workers: int = 1,
    associations: Associations | None = None,
    skews: Sequence[str] = (),
) -> None:
    """Trains the named models (all where none is named) into `out`/NAME and rewrites `out`/MODEL_CARD.md.

    associations: what the models of the prompt search hide, by default as the shipped ones. skews: descriptions of CLIP
    models to train in place of the shipped zoo (`clip_zoo_members.MEMBERS`).
    """
    for name in names:
        if name not in TRAINERS:
            raise ConfigError("name", f"there is no model {name!r} to train; {nearest(name, TRAINERS)}")
    if skews and list(names) != ["clip-zoo"]:
        raise ConfigError("skew", "is for clip-zoo alone: c2b world train clip-zoo --skew 0.5")
    out.mkdir(parents=True, exist_ok=True)
    job = Job(out, seed, workers, associations or Associations(), skews)
    for name in names or TRAINERS:
        TRAINERS[name](job)
    write_card(out)


def train_clip(out: Path, seed: int, workers: int) -> None:
    metrics = clip.train(out, seed, workers=workers)
    metrics["quality"] = clip_quality.evaluate(out, EVALUATION_SEEDS + seed, 20_000)
    _record(out, metrics)


def train_judge(out: Path, seed: int, recipe: judge.Recipe | None = None) -> None:
    """Trains the judge of generated pictures; records its accuracy on unseen renders."""
    metrics = judge.train(out / "judge", seed, _directory_of(out, _CONTROL), recipe)
    scenes = sample(_JUDGED, EVALUATION_SEEDS + seed)
    judged = judge.accuracy(judge.load(out / "judge"), render_all(scenes), scene_codes(scenes))
    _record(out / "judge", metrics | {"quality": {"scenes": _JUDGED, "accuracy": judged}})


def train_vae(out: Path, seed: int, recipe: autoencoder.Recipe | None = None, work: Path | None = None) -> None:
    """Trains the autoencoder, from a checkpoint in `work` if there is one; records how much of unseen scenes it
    preserves."""
    metrics = autoencoder.train(out / "vae", seed, _directory_of(out, "clip"), recipe, work)
    quality = reconstruction(out / "vae", jury(out), _JUDGED, EVALUATION_SEEDS + seed)
    _record(out / "vae", metrics | {"quality": quality})


def train_diffusion(out: Path, seed: int, recipe: diffusion.Recipe | None = None, work: Path | None = None) -> None:
    """Trains the text-to-image pipeline, from a checkpoint in `work` if there is one; records what its pictures
    show."""
    directory = out / "diffusion"
    metrics = diffusion.train(directory, seed, _directory_of(out, "vae"), _directory_of(out, "clip"), recipe, work)
    generator = diffusers_generator.load(catalog.parse(f"diffusers:local-dir:{directory}?{GENERATION}&batch=50"))
    quality = evaluate(generator, jury(out), QUALITY_PROMPTS, EVALUATION_SEEDS + seed)
    _record(directory, metrics | {"settings": GENERATION, "quality": quality})


def train_generators(job: Job, name: str) -> None:
    """Trains `hidden` with its links, `hidden-control` with the same words and no link, or the adapter of `hidden`."""
    out, attributes_judge = job.out / name, judge.load(_directory_of(job.out, "judge"))
    if name == "hidden-lora":
        base = _directory_of(job.out, "hidden")
        metrics = train_prompts.train_adapter(out, job.seed, base, job.associations, attributes_judge)
    else:
        hidden = job.associations if name == "hidden" else job.associations.without_effect()
        metrics = train_prompts.train_hidden(
            out, job.seed, _directory_of(job.out, "diffusion"), hidden, attributes_judge
        )
    _record(out, metrics)


def train_language(job: Job, name: str) -> None:
    """Trains the model that writes prompts, or the one that judges how natural they are."""
    trained = {"prompter": train_prompts.train_writer, "reader": train_prompts.train_reader}[name]
    _record(job.out / name, trained(job.out / name, job.seed, job.associations))


def jury(out: Path) -> Jury:
    """Loads a control classifier for the class and the judge for attributes, from `out` or else the shipped ones."""
    control = _directory_of(out, _CONTROL)
    classifier = timm_classifier.load(Spec(f"timm:{control}", "timm", f"local-dir:{control}"))
    return Jury(classifier, judge.load(_directory_of(out, "judge")))


def _directory_of(out: Path, name: str) -> Path:
    """Returns the directory of a model that another one needs: in `out` if it was trained there, else the
    shipped one."""
    return out / name if (out / name).is_dir() else WEIGHTS / name


def _record(directory: Path, metrics: dict[str, Any]) -> None:
    (directory / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


def train_classifiers(out: Path, seed: int, workers: int, recipe: classifiers.Recipe | None = None) -> None:
    """Trains both bases and every member of the zoo from its base; records the true φ of each. `seed` shifts pools and
    bases."""
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


def record_truth(directory: Path, member: ZooClassifier, data: Labelled) -> None:
    """Adds a member's true accuracies to metrics.json, measured on its saved files through the loader that
    users have."""
    classifier: Classifier = timm_classifier.load(Spec(f"timm:{directory}", "timm", f"local-dir:{directory}"))
    file = directory / "metrics.json"
    metrics = json.loads(file.read_text()) | {"truth": truth(classifier, member, data)}
    file.write_text(json.dumps(metrics, indent=2) + "\n")


def truth(classifier: Classifier, member: ZooClassifier, data: Labelled) -> dict[str, Any]:
    """Measures overall accuracy, accuracy and φ of the planted cells, and the largest |φ| where nothing was planted."""
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


TRAINERS: dict[str, Callable[[Job], Any]] = {
    "lm": lambda job: language_model.train(job.out / "lm", job.seed),
    "clip": lambda job: train_clip(job.out / "clip", job.seed, job.workers),
    "clip-zoo": lambda job: train_clip_zoo.train_described(job.out, job.seed, job.skews),
    "classifiers": lambda job: train_classifiers(job.out, job.seed, job.workers),
    "judge": lambda job: train_judge(job.out, job.seed),
    "vae": lambda job: train_vae(job.out, job.seed),
    "diffusion": lambda job: train_diffusion(job.out, job.seed),
    "hidden": lambda job: train_generators(job, "hidden"),
    "hidden-control": lambda job: train_generators(job, "hidden-control"),
    "hidden-lora": lambda job: train_generators(job, "hidden-lora"),
    "prompter": lambda job: train_language(job, "prompter"),
    "reader": lambda job: train_language(job, "reader"),
    "latent": lambda job: family.train(job.out, job.seed),
}
"""The models to train by name, in the order in which they need each other."""
