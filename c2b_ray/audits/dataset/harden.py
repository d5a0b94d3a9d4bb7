"""Makes a classifier robust to a dataset of its failures, for `c2b dataset harden` (Wiles et al. 2022, App. D).

    dataset → 80 % and 20 %; clean images → trainings (as it is, without the dataset, with it; seeds) → Table 7

Retraining begins from fresh weights and puts the dataset's larger part into 5 % of each batch; the result is compared
with the same training without the dataset. Fine-tuning begins from the classifier's weights. Trainings are rows of a
stage: they run beside each other, and a finished one is not repeated.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import t

from c2b_ray.audits.dataset.harden_images import WORLD, CleanImages, Images, images_of, outputs, split_of
from c2b_ray.audits.dataset.steps.plan import By
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.config.classifiers import read_label_map
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.models.training import Recipe, Trainable, at_once, correct, fit, trainable
from c2b_ray.report import words
from c2b_ray.report.blocks import Cell, Items, Page, Pairs, Paragraph, Section, Table, Terms
from c2b_ray.report.redact import clean_setting, cleaned
from c2b_ray.report.words import Column
from c2b_ray.stats import paired_difference_interval
from c2b_ray.stats.clusters import effective_pairs
from c2b_ray.stats.scores import Floats
from c2b_ray.steps.classify import LabelMap
from c2b_ray.storage import files
from c2b_ray.storage.failure_dataset import FailureDataset, open_dataset
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import content_id
from c2b_ray.text import finite

# The page of a hardening: Table 7 of Wiles et al. 2022 with this run's numbers, and their meaning.


NAMES = {"as_it_is": "As it is", "without": "Trained without the dataset", "with": "Trained with the dataset"}


def hardened_page(results: Mapping[str, Any]) -> str:
    """Renders the page. `results`: the content of results.json."""
    accuracy = results["accuracy"]
    clean, failures = (accuracy["as_it_is"][name]["images"] for name in ("clean", "dataset"))
    right = {arm: words.percent(accuracy[arm]["dataset"]["mean"]) for arm in NAMES if arm in accuracy}
    control = f"{right['without']} after training on clean images alone, " if "without" in right else ""
    headline = (
        f"Of {words.plural(failures, 'failure')} that no training saw, {right['as_it_is']} are answered right as it "
        f"is, {control}{right['with']} after training with the other failures."
    )
    columns = [
        Column("Training"), Column("Clean images", number=True), Column("Failures", number=True),
        Column("Seeds", number=True),
    ]  # fmt: skip
    caption = (
        f"Top-1 in percent on images that no training saw, {words.plural(clean, 'clean one')} and "
        f"{words.plural(failures, 'failure')}; mean over seeds ± standard deviation"
    )
    table = Table(columns, [_row(arm, accuracy[arm]) for arm in NAMES if arm in accuracy], caption=caption)
    settings = cleaned({**results["options"], **results["recipe"]})
    return Page(
        title=clean_setting(results["classifier"]),
        suffix="hardened",
        kicker="A classifier trained with its failures",
        head=[Paragraph(headline, "tally")],
        sections=(
            Section("Accuracy", [table, Items(gain_sentences(results["gain_of_with_over"]), "pooled")]),
            Section(
                "How it was trained",
                [Terms(_method(results)), Pairs([(name, str(value)) for name, value in settings.items()])],
            ),
        ),
    ).html()


def _row(arm: str, accuracies: Mapping[str, Mapping[str, Any]]) -> tuple[str | Cell, ...]:
    clean, dataset = accuracies["clean"], accuracies["dataset"]
    return NAMES[arm], _shown(clean), _shown(dataset), words.count(dataset["seeds"])


def _shown(accuracy: Mapping[str, Any]) -> Cell:
    spread = "" if accuracy["sd"] is None else f"± {100 * accuracy['sd']:.2f}"
    return Cell(f"{100 * accuracy['mean']:.2f}", [spread])


def gain_sentences(gains: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Returns what the trainings with the dataset gain over each other arm, with limits, and where the gain comes from.

    `gains`: `gain_of_with_over` of results.json.
    """
    sentences = []
    over = {"as_it_is": "the classifier as it is", "without": "the same training without the dataset"}
    for arm, gains_of_arm in gains.items():
        parts = []
        for name, images in (("dataset", "held-out failures"), ("clean", "clean images")):
            mean, low, high = (gains_of_arm[name][number] for number in ("mean", "low", "high"))
            interval = "" if low is None else f" ({words.signed_range(low, high)})"
            parts.append(f"{words.signed(mean)}{interval} on {images}")
        sentences.append(f"Over {over[arm]}: accuracy {words.listed(parts)}.")
    of_dataset = {arm: gains_of_arm["dataset"]["mean"] for arm, gains_of_arm in gains.items()}
    gain = of_dataset["as_it_is"]
    if gain > 0 and of_dataset.get("without", gain) < gain / 2:
        sentences.append(
            "Most of the gain comes from training anew, not from the dataset: the classifier as it is was not trained "
            "on these clean images alone."
        )
    return sentences


def _method(results: Mapping[str, Any]) -> list[str]:
    split, options = results["split"], results["options"]
    is_by_caption = split["by"] == "caption"
    grouping = "images of one caption" if is_by_caption else "images whose perceptual hashes differ in at most 4 bits"
    other = "" if is_by_caption else " Images of one caption may be on both sides, as in the paper."
    left_out = results["left_out"]
    arm_sentence = ""
    if left_out["clean"] or left_out["dataset"]:
        of_either = (
            f"{words.plural(left_out['clean'], 'clean image')} and {words.plural(left_out['dataset'], 'failure')}"
        )
        arm_sentence = f" Not trained on: {of_either} that are copies of one that is measured on, mirrored ones too."
    begins = "fresh weights" if options["mode"] == "retrain" else "the classifier’s own weights"
    return [
        f"The dataset’s {words.count(split['rows'])} images are {words.plural(split['groups'], 'group')}: {grouping} "
        f"stay together.{other} About {words.percent(options['test_share'])} are held out, and accuracy on failures is "
        f"of these alone.{arm_sentence}",
        f"Each training begins from {begins}; {words.percent(options['share'])} of a batch is failures with their true "
        "label, the rest clean images. The same training without failures is what the dataset’s part in a gain is read "
        "from (Wiles et al. 2022, Appendix D, Table 7).",
        "± is the standard deviation over seeds. The 95 % intervals of gains allow for both: how much trainings vary "
        "(Student’s, over seeds), and that other held-out images would give other answers (Tango’s, of pairs of "
        "answers to one image; failures of one caption count as fewer). They do not say how much another dataset "
        "would.",
        "Images were selected because a classifier fails on them: its accuracy as it is lies near 0 by selection.",
        *_of_clean(results["clean"]),
    ]


def _of_clean(clean: Mapping[str, Any]) -> list[str]:
    """Says what clean accuracy is of, where the classifier as it is may have seen the images."""
    if clean["test"] is not None or str(clean["location"]).startswith("world:"):
        return []
    return [
        "Clean accuracy is of a tenth of --clean, which these trainings do not see. The classifier as it is was "
        "perhaps trained on it: then its clean accuracy is too high beside theirs; name others in --clean-test."
    ]


# The results of hardening: Table 7 of Wiles et al. 2022 as numbers, as JSON and as a page.


CONFIDENCE = 0.95
ARMS = ("as_it_is", "without", "with")


@dataclass(frozen=True)
class Accuracy:
    """Over `seeds` trainings: mean, and standard deviation between them (NaN for one)."""

    mean: float
    sd: float
    seeds: int
    images: int


@dataclass(frozen=True)
class Gain:
    """The gain of the trainings with the dataset over another arm, in [-1, 1]. The interval allows for how trainings
    vary and for how the images that are measured on do; NaN for one seed, which does not tell the former."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class HardeningResult:
    """`clean`, `dataset`: accuracy on the held-out images of either, by arm. `gains`: of `with` over each other arm, by
    arm and then clean or dataset. `about`: settings and split. `trainings`: of `TRAINED`."""

    clean: Mapping[str, Accuracy]
    dataset: Mapping[str, Accuracy]
    gains: Mapping[str, Mapping[str, Gain]]
    about: Mapping[str, Any]
    trainings: pa.Table

    def to_json(self) -> dict[str, Any]:
        arms = {arm: {"clean": asdict(self.clean[arm]), "dataset": asdict(self.dataset[arm])} for arm in self.clean}
        gains = {
            arm: {name: asdict(gain) for name, gain in gains_of_arm.items()} for arm, gains_of_arm in self.gains.items()
        }
        models = [row["spec"] for row in self.trainings.to_pylist() if row["arm"] == "with"]
        left_out = {name: int(self.trainings[f"{name}_left_out"][0].as_py()) for name in ("clean", "dataset")}
        document = {"accuracy": arms, "gain_of_with_over": gains, "models": models, "left_out": left_out, **self.about}
        return dict(finite(document))

    def write(self, out: str) -> None:
        files.write_table(f"{out}/trainings.parquet", self.trainings)
        files.write_bytes(
            f"{out}/results.json", json.dumps(self.to_json(), ensure_ascii=False, indent=1).encode() + b"\n"
        )
        files.write_bytes(f"{out}/index.html", hardened_page(self.to_json()).encode())


def summary_of(trainings: pa.Table, about: Mapping[str, Any], captions: NDArray[np.int64]) -> HardeningResult:
    """Returns the result of trainings, a table of `TRAINED`. `captions`: the number of the caption of each failure that
    is measured on, int64 (failures,)."""
    arms = [arm for arm in ARMS if arm in trainings["arm"].to_pylist()]
    rows = {arm: trainings.filter(pc.equal(trainings["arm"], arm)) for arm in arms}
    clean, dataset = ({arm: _accuracy(rows[arm], name) for arm in arms} for name in ("clean", "dataset"))
    gains = {
        arm: {
            name: _gain(_answers(rows["with"], name), _answers(rows[arm], name), of_images)
            for name, of_images in (("clean", None), ("dataset", captions))
        }
        for arm in arms
        if arm != "with"
    }
    return HardeningResult(clean, dataset, gains, about, trainings)


def _answers(rows: pa.Table, name: str) -> Floats:
    """Returns 1 where a training's answer is right, else 0: (trainings, images)."""
    answers: Floats = np.array(rows[f"{name}_answers"].to_pylist(), np.float64)
    return answers


def _accuracy(rows: pa.Table, name: str) -> Accuracy:
    rates = rows[f"{name}_right"].to_numpy() / np.maximum(rows[f"{name}_images"].to_numpy(), 1)
    sd = float(rates.std(ddof=1)) if len(rates) > 1 else float("nan")
    return Accuracy(float(rates.mean()), sd, len(rates), int(rows[f"{name}_images"][0].as_py()))


def _gain(after: Floats, before: Floats, captions: NDArray[np.int64] | None) -> Gain:
    """Returns the gain, seed by seed where both have as many; otherwise over the mean before.

    The distances of both intervals from the gain are added in squares. `after`, `before`: of `_answers`; `captions`: of
    the images, int64 (images,); None where images are independent.
    """
    accuracies_after, accuracies_before = after.mean(axis=1), before.mean(axis=1)
    differences = (
        accuracies_after - accuracies_before
        if len(accuracies_after) == len(accuracies_before)
        else accuracies_after - accuracies_before.mean()
    )
    mean = float(differences.mean())
    if len(differences) < 2:
        return Gain(mean, float("nan"), float("nan"))
    reach = float(
        t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    )
    low, high = _limits_over_images(after.mean(axis=0) - before.mean(axis=0), captions)
    return Gain(mean, max(mean - math.hypot(mean - low, reach), -1.0), min(mean + math.hypot(high - mean, reach), 1.0))


def _limits_over_images(difference: Floats, captions: NDArray[np.int64] | None) -> tuple[float, float]:
    """Returns limits of the mean difference, as other images would give it.

    `difference`: of each image, the share of trainings that answer it right less that of the others, in [-1, 1].
    Averages over seeds differ less than single answers, for which these limits are made: they are wide rather than
    narrow.
    """
    counts = np.array([np.maximum(-difference, 0.0), np.maximum(difference, 0.0), np.ones(len(difference))])
    counts[:2] = np.minimum(counts[:2], 1.0)
    weight = 1.0
    if captions is not None:
        group = np.unique(captions, return_inverse=True)[1]
        only_before, only_after, total = (np.bincount(group, part)[None] for part in counts)
        weight = float(effective_pairs(only_before, only_after, total, CONFIDENCE).effective[0]) / len(difference)
    worse, better, pairs = (weight * counts.sum(axis=1)).tolist()
    low, high = paired_difference_interval(worse, min(better, pairs - worse), pairs, CONFIDENCE)
    return float(low), float(high)


ALONE = Session()
DEFAULT_RENDERS = f"{WORLD}:20000"
CONFIG = "harden.json"
FORMAT = 4
"""Raised where trainings of an earlier release were trained or measured on other images, or lack a column."""
TRAINED = pa.schema(
    [
        pa.field("training_id", pa.string(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),  # as_it_is, without (the dataset), with
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("clean_right", pa.int64(), nullable=False),
        pa.field("clean_images", pa.int64(), nullable=False),
        pa.field("dataset_right", pa.int64(), nullable=False),
        pa.field("dataset_images", pa.int64(), nullable=False),
        pa.field("clean_answers", pa.list_(pa.bool_()), nullable=False),  # of each image, whether it is right
        pa.field("dataset_answers", pa.list_(pa.bool_()), nullable=False),
        pa.field("clean_left_out", pa.int64(), nullable=False),  # of training: copies of images that are measured on
        pa.field("dataset_left_out", pa.int64(), nullable=False),
        pa.field("model", pa.string()),  # the folder of its files, below the output
        pa.field("spec", pa.string()),  # what loads it
        pa.field("seconds", pa.float64(), nullable=False),
    ]
)
_fresh = threading.Lock()  # torch's random state is the process's


@dataclass(frozen=True)
class Hardening:
    """How a classifier is trained. None: chosen by the mode and the clean images.

    `share`: of each batch, from the dataset. `split`: by caption or image, as `audits.dataset.steps.plan` splits.
    `without`: whether the same training is also done without the dataset. `crop`: the least share of an image that a
    random crop keeps. `label_map`: the path of a JSON file of each label's outputs.
    """

    mode: Literal["retrain", "finetune"] = "retrain"
    seeds: int = 5
    share: float = 0.05
    split: By | None = None
    test_share: float = 0.2
    without: bool = True
    steps: int | None = None
    batch: int | None = None
    rate: float | None = None
    crop: float = 1.0
    label_map: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("retrain", "finetune"):
            raise ConfigError("--mode", f"{self.mode!r} is neither retrain nor finetune")
        if self.split not in (None, "caption", "image"):
            raise ConfigError("--split", f"{self.split!r} is neither caption nor image")
        shares = {"--share": self.share, "--test-share": self.test_share}
        for name, value in shares.items():
            if not 0 < value < 1:
                raise ConfigError(name, f"{value} does not lie between 0 and 1")
        if not 0 < self.crop <= 1:
            raise ConfigError("--crop", f"{self.crop} does not lie in (0, 1]")
        for name, number in {"--seeds": self.seeds, "--steps": self.steps, "--batch": self.batch}.items():
            if number is not None and number < 1:
                raise ConfigError(name, f"{number} is not a whole number above 0")

    def labels(self, names: list[str], dataset: FailureDataset) -> LabelMap | None:
        """Returns the label map, by default that of the dataset's build."""
        configured = self.label_map or dataset.label_map
        return read_label_map(configured, names) if isinstance(configured, str) else configured

    def recipe(self, clean: int) -> Recipe:
        """Returns the recipe for `clean` clean images.

        Renders of the world are learned within 600 batches; photos take 90 epochs from fresh weights and 3 from
        existing ones.
        """
        from_scratch = self.mode == "retrain"
        batch = self.batch or 96
        epochs = 90 if from_scratch else 3
        steps = self.steps or max(600 if from_scratch else 150, min(math.ceil(epochs * clean / batch), 600_000))
        return Recipe(
            steps, batch, self.rate or (4e-3 if from_scratch else 1e-3), self.share, 0.02, self.crop, from_scratch
        )


DEFAULT = Hardening()


def harden(
    dataset: str,
    out: str,
    classifier: str | None = None,
    clean: CleanImages | None = None,
    options: Hardening = DEFAULT,
    session: Session = ALONE,
) -> HardeningResult:
    """Trains, and writes `out`/results.json, trainings.parquet, index.html and a folder of weights for each training.

    `classifier`: by default the dataset's only one. `clean`: its training images; by default renders where the
    classifier is one of the world's. Raises ConfigError for arguments that do not go together; RunError where `out`
    belongs to another hardening. After an interruption the same call resumes with the remaining trainings.
    """
    failures, spec = _opened(dataset, classifier)
    clean = clean or _default_clean(spec)
    steps = Steps(session.listener)
    with steps.step("read labels and split the dataset"):
        model = trainable(spec)
        names = sorted({*clean.labels(), *failures.label_counts()})
        number_of = outputs(model, names, options.labels(names, failures))
        captions, parts = split_of(failures, options.split, options.test_share)
        recipe = replace(options.recipe(_count(clean)), **_of_world(clean, options))
        fields = {"dataset": failures.id, "classifier": spec, "revision": model.known.revision, "outputs": number_of}
        images = {"clean": asdict(clean), "clean_revision": clean.revision()}
        identity = fields | images | {"options": asdict(options), "recipe": asdict(recipe), "format": FORMAT}
    _claim(out, identity)
    job = _Job(recipe, options.mode, out)
    role = partial(Bench.of, spec, failures, parts.test, clean, number_of)
    with session.backend(lambda: 0) as models, steps.step("train") as on_progress:
        models.runner.check_paths(out, {dataset: "DIR"})
        rows = _trainings(content_id(identity), options)
        config = StageConfig(TRAINED, Placement(1, at_once(), cpus=1.0), rows_per_file=1, total=rows.total)
        step, parts_of = partial(_train, job=job), f"{out}/trainings"
        models.runner.run(rows, step, role, parts_of, id_column="training_id", config=config, on_progress=on_progress)
    trained = read_stage(f"{out}/trainings").sort_by([("arm", "ascending"), ("seed", "ascending")])
    about = {**identity, "split": {"by": parts.by, "groups": parts.groups, "rows": len(captions)}}
    result = summary_of(trained, about, captions[parts.test])
    result.write(out)
    return result


@dataclass(frozen=True)
class _Job:
    recipe: Recipe
    mode: str
    out: str


def _opened(dataset: str, classifier: str | None) -> tuple[FailureDataset, str]:
    """Returns the classifier's failures if the dataset has its answers, else all rows; and its spec."""
    failures = open_dataset(dataset)
    name = failures.name_of(classifier or _only_classifier(failures))
    if name not in failures.specs:
        return failures, name
    return open_dataset(dataset, name), failures.specs[name]


def _only_classifier(dataset: FailureDataset) -> str:
    names = list(dataset.specs)
    if len(names) != 1:
        raise ConfigError(
            "--classifier", f"the dataset has {len(names)} classifiers; name the one to harden: {', '.join(names)}"
        )
    return names[0]


def _default_clean(spec: str) -> CleanImages:
    if spec.startswith("world:"):
        return CleanImages(DEFAULT_RENDERS)
    raise ConfigError("--clean", f"name what {spec} was trained on: a folder with a folder for each label, or a table")


def _count(clean: CleanImages) -> int:
    from c2b_ray.storage.labelled import LabelledTable

    return clean.renders or LabelledTable(clean.location, "--clean").labels.num_rows


def _of_world(clean: CleanImages, options: Hardening) -> dict[str, Any]:
    """Returns the world's recipe for renders, unless the options override it."""
    if clean.renders is None or options.steps is not None:
        return {}
    return {"steps": 600 if options.mode == "retrain" else 150}


def _claim(out: str, identity: Mapping[str, Any]) -> None:
    """Writes the identity of this hardening. Raises RunError where `out` holds another, or anything else."""
    data = json.dumps(identity, sort_keys=True, indent=1).encode() + b"\n"
    entries = files.entries(out)
    if CONFIG in entries:
        if files.read_bytes(f"{out}/{CONFIG}") != data:
            raise RunError(f"{out}: holds a hardening with other settings; name another directory", run=out)
        return
    if entries:
        raise RunError(f"{out}: holds files already; name an empty directory or a new one", run=out)
    files.write_under(f"{out}/{CONFIG}", data)


def _trainings(identity: str, options: Hardening) -> Rows:
    arms = [("as_it_is", 0)] + [(arm, seed) for seed in range(options.seeds) for arm in ("with", "without")]
    arms = [(arm, seed) for arm, seed in arms if options.without or arm != "without"]
    table = pa.table(
        {
            "training_id": [content_id(identity, arm, seed) for arm, seed in arms],
            "arm": [arm for arm, _ in arms],
            "seed": pa.array([seed for _, seed in arms], pa.int64()),
        }
    )
    return Rows([table.slice(row, 1) for row in range(len(arms))], total=len(arms))


@dataclass(frozen=True)
class Bench:
    """A classifier and its images, in the process that trains it."""

    model: Trainable
    images: Images

    @staticmethod
    def of(spec: str, dataset: FailureDataset, test: Any, clean: CleanImages, number_of: Mapping[str, int]) -> Bench:
        model = trainable(spec)
        return Bench(model, images_of(model, dataset, test, clean, number_of))


def _train(batch: pa.Table, bench: Bench, job: _Job) -> pa.Table:
    return pa.Table.from_pylist([_trained(row, bench, job) for row in batch.to_pylist()], TRAINED)


def _trained(row: Mapping[str, Any], bench: Bench, job: _Job) -> dict[str, Any]:
    began, model, images = time.monotonic(), bench.model, bench.images
    arm, seed = row["arm"], row["seed"]
    with _fresh:
        module = model.fresh(seed) if job.mode == "retrain" and arm != "as_it_is" else model.build(True).float()
    module = model.placed(module)
    folder = spec = None
    if arm != "as_it_is":
        module = fit(module, model.prepare, (images.clean, images.dataset if arm == "with" else None), job.recipe, seed)
        folder = f"models/{arm}-{seed}"
        spec = model.reload(f"{job.out}/{folder}")
        for name, data in model.save(module.cpu()).items():
            files.write_under(f"{job.out}/{folder}/{name}", data)
        module = model.placed(module)
    clean, failures = (correct(module, model.prepare, pool) for pool in (images.clean_test, images.dataset_test))
    return {
        **row,
        "clean_right": int(clean.sum()),
        "clean_images": len(clean),
        "dataset_right": int(failures.sum()),
        "dataset_images": len(failures),
        "clean_answers": clean.tolist(),
        "dataset_answers": failures.tolist(),
        "clean_left_out": images.clean_left_out,
        "dataset_left_out": images.dataset_left_out,
        "model": folder,
        "spec": spec,
        "seconds": time.monotonic() - began,
    }
