"""Builds a dataset of failures, for `c2b dataset build`.

Below the build: what ends one whose images cannot be used, and the identity by which a build is resumed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2b_ray.audits.dataset.config import DatasetConfig, read_dataset_config
from c2b_ray.audits.dataset.directory import DIGESTS, MANIFEST, RECORDED, DatasetBuild, building, manifest_problems
from c2b_ray.audits.dataset.models import model_factories
from c2b_ray.audits.dataset.plan import hypotheses_of, plan_captions
from c2b_ray.audits.dataset.shard_files import CAPTIONS, PlannedCaptions
from c2b_ray.audits.dataset.shards.passes import (
    BuildPasses,
    LocalWorkers,
    OnUnits,
    ScrapedCounts,
    ThreadWorkers,
    damaged,
    exposed,
)
from c2b_ray.audits.dataset.shards.workers import BECAUSE, DRAWS, DROPPED, ModelFactories, Recipe, Task
from c2b_ray.audits.dataset.steps.plan import Plan
from c2b_ray.audits.kit.backend import AUTO, backend
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import HERE, check_specs, held_in_memory, paths_read, specs_of, warn_of_assumptions
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps, versions
from c2b_ray.config.classifiers import PACKAGED
from c2b_ray.config.named import MODELS, Names, replaced_texts
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.engine.progress import Progress
from c2b_ray.errors import RunError, SourceError
from c2b_ray.storage import files
from c2b_ray.storage.confined import paths, without_paths
from c2b_ray.storage.manifest import FileOrFields, differences, unnamed
from c2b_ray.tables import content_id

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, Model


@dataclass(frozen=True)
class BuildResult:
    """`rows` of `draws` were kept, the others left out by reason. `made`: shards that this call wrote. `without_value`:
    rows of a labelled table that were not drawn, by the column (target_class, or one of `by`) that they lack.
    `left_out`: what the table's folder holds besides, reason → how many."""

    out: str
    draws: int
    rows: int
    shards: int
    drops: dict[str, int]
    made: int
    repeated: dict[str, int]
    seconds: float
    without_value: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


def build_dataset(
    config: FileOrFields | DatasetConfig,
    out: str | Path,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
    *,
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None = None,
    labels: Sequence[str] | None = None,
    metrics_port: int | None = None,
) -> BuildResult:
    """Builds a dataset of failures at `out`, or what is left of it, and returns what it holds.

    `config`: a dataset file's path, a mapping of its fields, or a `DatasetConfig`; the other arguments are those of
    `c2b_ray.audit`. A finished directory is checked, and what is damaged or missing is made again. Raises RunError
    where `out` holds the dataset of another config or other files, or where another process builds in it.

    `metrics_port`: a port of this machine, at which Prometheus finds the build's counters while it runs.
    """
    in_memory = held_in_memory(classifier, labels, via)  # held until the build ends
    session = Session(HERE if in_memory else via, None if placement is None else read_placement(placement), listener)
    return build(read_dataset_config(config, specs_of(in_memory)), str(out), session, metrics_port)


def build(config: DatasetConfig, out: str, session: Session, metrics_port: int | None = None) -> BuildResult:
    check_specs(config)
    began, steps = time.monotonic(), Steps(session.listener)
    with exposed(metrics_port) as metrics, building(out) as directory:
        fields = config.model_dump(mode="json")
        description = directory.about
        hash_now = config_hash(config, format_of(description))
        previous = description or directory.manifest  # whose dataset.json was removed, because it was damaged
        if previous is not None and previous["config_hash"] != hash_now:
            raise _another(out, previous, fields, hash_now)
        via = session.chosen(lambda: _most_draws(directory))
        with backend(via, session.placement) as models:
            models.runner.check_paths(out, paths_read(config))
            plan, recipe = _begin(config, directory, models, steps, (fields, hash_now))
            workers = _workers(via, recipe, session.placement)
            return _Build(directory, recipe, workers, steps, metrics).run(plan, began)


def _another(out: str, description: Mapping[str, Any], fields: dict[str, Any], hash_now: str) -> RunError:
    config = description.get("config")
    if config is None:
        changed = "config, of which the removed dataset.json told,"
    else:
        changed = differences(config, fields) if config != fields else "contents of a file"
    return RunError(
        f"{out} holds the dataset of another config: its hash is {description['config_hash']}, this one's is "
        f"{hash_now} (the {changed} differs); choose another --out, or delete it{unnamed(fields)}",
        run=out,
    )


def _workers(via: str, recipe: Recipe, placement: PlacementConfig | None) -> LocalWorkers:
    if via == HERE:
        return ThreadWorkers(recipe)
    from c2b_ray.audits.dataset.shards.on_ray import RayWorkers

    return RayWorkers(recipe, placement, served=via == "serve")


def _most_draws(directory: DatasetBuild) -> int | None:
    description = directory.about
    return None if description is None else int(description["plan"]["draws"])


def _begin(
    config: DatasetConfig,
    directory: DatasetBuild,
    models: Backend,
    steps: Steps,
    identity: tuple[dict[str, Any], str],
) -> tuple[Plan, Recipe]:
    """Returns the plan, made now or read, and the recipe for workers. Raises RunError where a model has changed."""
    fields, hash_now = identity
    description = directory.about
    if description is None:
        with steps.step("plan"):
            description = plan_captions(config, directory, models, steps)
    elif not _captions_whole(directory, description):
        with steps.step("plan"):
            if plan_captions(config, directory, models, steps)["captions_sha256"] != description["captions_sha256"]:
                raise RunError(
                    f"{directory.location}: captions.parquet is damaged, and what the config names now gives other "
                    "captions; put the file back, or delete the dataset",
                    run=directory.location,
                )
    with steps.step("describe the models"):
        loaders = as_begun(model_factories(config, description["labels"], models), description, directory.location)
    if "models" not in description:
        beginning = {"format": FORMAT, "config": fields, "config_hash": hash_now, "models": loaders.revisions()}
        description |= {**beginning, "facts": _facts(config, models, steps), "versions": versions()}
        directory.begin(description)
    plan = Plan(dataset_id(description), description["plan"]["draws"], config.shard_draws, config.batch)
    sources, distance = config.images.sources, config.near_duplicates
    recipe = Recipe(
        directory.files.everywhere(), plan, loaders.load, sources, config.seed, distance, config.cap_per_caption,
        format=format_of(description),
    )  # fmt: skip
    return plan, recipe


def _facts(config: DatasetConfig, models: Backend, steps: Steps) -> dict[str, Any]:
    """Returns the settings of each classifier and where they were read; warns of those that are assumed."""
    descriptions = {name: models.describe("classifier", spec) for name, spec in config.specs.items()}
    for name, description in descriptions.items():
        warn_of_assumptions(steps, name, description)
    return {name: [asdict(fact) for fact in description.facts] for name, description in descriptions.items()}


def _captions_whole(directory: DatasetBuild, description: Mapping[str, Any]) -> bool:
    files = directory.files
    return files.exists(CAPTIONS) and files.digest(CAPTIONS).sha256 == description["captions_sha256"]


class _Build:
    """One build, from the directory's present state to its manifest."""

    def __init__(
        self, directory: DatasetBuild, recipe: Recipe, workers: LocalWorkers, steps: Steps, metrics: ScrapedCounts
    ) -> None:
        self._directory, self._recipe, self._steps, self._metrics = directory, recipe, steps, metrics
        self._workers = workers

    def run(self, plan: Plan, began: float) -> BuildResult:
        captions = PlannedCaptions(self._recipe.files)
        try:
            self._discard_damaged(plan)
            passes = BuildPasses(self._recipe, self._workers, captions)
            remaining = passes.left
            with self._steps.step("draw and classify") as on_progress:
                passes.run_first(self._units(on_progress, min(plan.draws, FEW)))
            with self._steps.step("leave out near-duplicates, write shards") as on_progress:
                passes.run_second(self._units(on_progress))
            manifest = self._manifest(plan, began, remaining)
        finally:
            self._workers.close()
        return BuildResult(
            self._directory.location, plan.draws, manifest["rows"], plan.shards, manifest["drops"], remaining,
            manifest["repeated"], manifest["seconds"], manifest.get("without_value", {}), manifest.get("left_out", {}),
        )  # fmt: skip

    def _units(self, on_progress: Callable[[Progress], None], enough: int | None = None) -> OnUnits:
        """`enough`: a number of draws, some of which must be usable."""
        began, first = time.monotonic(), [-1]

        def tell(done: int, total: int, sums: dict[str, float]) -> None:
            if first[0] < 0:
                first[0] = done
            self._metrics.tell(sums)
            if enough is not None:
                refuse_unusable(self._directory.location, sums, enough)
            self._directory.lost(self._workers.lost, self._workers.repeated)
            done_here = done - first[0]
            errors = int(sums.get("dropped:no_image", 0) + sums.get("dropped:no_answer", 0))
            on_progress(
                Progress(done_here, errors, first[0], total, done_here / max(time.monotonic() - began, 1e-9), done_here)
            )

        return tell

    def _discard_damaged(self, plan: Plan) -> None:
        files, manifest = self._directory.files, self._directory.manifest
        if manifest is not None and (why := next(manifest_problems(manifest, self._directory.about or {}), None)):
            self._steps.warn(f"{why}; it is made anew")
            files.remove(MANIFEST)
            manifest = None
        with self._steps.step("check what is there"):
            names = damaged(self._workers, files, plan, None if manifest is None else manifest["shards"])
        for name in names:
            self._steps.warn(f"{name} is damaged; it is made anew")
            files.remove(name)

    def _manifest(self, plan: Plan, began: float, remaining: int) -> dict[str, Any]:
        old = self._directory.manifest
        if old is not None and not remaining:
            self._directory.clear()
            return old
        listed: dict[int, list[dict[str, Any]]] = {}

        def summed(task: Task, entries: list[dict[str, Any]]) -> None:
            listed[task.number] = entries

        with self._steps.step("list the shards"):
            self._workers.run((Task("listed", group) for group in range(plan.groups)), summed, lambda sums: None)
        shards = [entry for group in sorted(listed) for entry in listed[group]]
        drops: Counter[str] = Counter()
        for entry in shards:
            drops.update(entry["drops"]["reasons"])
        description = self._directory.about or {}
        notes = {name: description["plan"][name] for name in _NOTES if description["plan"].get(name)}
        manifest = {
            "format": 1,
            "config_hash": description["config_hash"],
            "rows": sum(entry["rows"] for entry in shards),
            "draws": plan.draws,
            "drops": dict(sorted(drops.items())),
            **notes,
            RECORDED: DIGESTS,
            "repeated": self._directory.repeated(),
            "seconds": round(time.monotonic() - began, 3),
            "versions": versions(),
            "shards": shards,
        }
        self._directory.finish(manifest)
        return manifest


# Ends a build whose first images cannot be used, before more of them are drawn.


FEW = 256
"""The number of first draws of which some must be usable."""
UNUSABLE = ("no_image", "no_answer")


def refuse_unusable(location: str, sums: Mapping[str, float], enough: int) -> None:
    """Raises SourceError where none of the first images can be used, once there are `enough` of them, so that no more
    are drawn."""
    draws, unusable = sums.get(DRAWS, 0.0), {name: sums.get(f"{DROPPED}:{name}", 0.0) for name in UNUSABLE}
    if draws < enough or sum(unusable.values()) < draws:
        return
    counts = ", ".join(f"{int(count)} {name}" for name, count in unusable.items() if count)
    why = sorted(name.removeprefix(f"{BECAUSE}:") for name in sums if name.startswith(f"{BECAUSE}:"))
    because = f": {'; '.join(why[:3])}" if why else ""
    raise SourceError(
        f"{location}: none of the first {int(draws)} images can be used ({counts}){because}. A "
        "generator that returns black or NaN images, or a classifier whose answers are not numbers, has no failures; "
        "mend it, delete the directory, and build again",
        location=location,
    )


_NOTES = ("without_value", "left_out", "warnings")
"""Entries of the plan about a labelled table, which the manifest repeats."""


# The identity of a dataset: a hash of its config in which paths are replaced by hashes of their contents. So a build
# resumes after its folder was moved, with renamed files, or from a copy on another machine. The sources of images and
# answers are identified by their models' revisions, which `dataset.json` keeps beside this hash.


FORMAT = 3
"""The format of dataset.json. In format 1 the hash included the paths, and near-duplicates were recognised by their
fingerprints only; in format 2 moved copies were not detected."""


def format_of(description: Mapping[str, Any] | None) -> int:
    """Returns the format in which a dataset was begun, and in which it must be finished.

    Raises RunError where this version does not know it.
    """
    version = FORMAT if description is None else description.get("format", 1)
    if version not in range(1, FORMAT + 1):
        raise RunError(f"the dataset has format {version}, which a newer version of c2b-ray wrote; use that version")
    return int(version)


def config_hash(config: DatasetConfig, format: int = FORMAT) -> str:
    """Returns the hash in `dataset.json` and the manifest. Raises SourceError where a file that the config names is
    gone."""
    if format == 1:
        return content_id("dataset", config.model_dump(mode="json"), _captions_read(config))
    return content_id("dataset", format, _without_paths(config), contents(config))


def dataset_id(description: Mapping[str, Any]) -> str:
    """Returns a hash of everything that determines the rows, from the content of `dataset.json`."""
    models = description["models"] if format_of(description) == 1 else list(description["models"].values())
    return content_id("dataset", description["config_hash"], models, description["captions_sha256"])


def contents(config: DatasetConfig) -> dict[str, str]:
    """Returns field → hash of the contents of its path, for all paths that no model's revision covers."""
    hashes = _captions_read(config)
    if config.hierarchy is not None and config.hierarchy not in PACKAGED:
        hashes["hierarchy"] = _contents(config.hierarchy)
    if config.captions is not None:
        for name in ("language_model", "captioner"):
            for part, path in paths(getattr(config.captions, name) or ""):
                hashes[f"captions.{name} {part}"] = _contents(path)
        if config.captions.images is not None:
            hashes["captions.images"] = _contents(config.captions.images)
    return hashes


def as_begun(models: ModelFactories, description: Mapping[str, Any], location: str) -> ModelFactories:
    """Returns the models under their names from the beginning of the build, which the dataset's rows hold.

    Raises RunError where a model has changed since.
    """
    recorded, revisions = description.get("models"), models.revisions()
    if recorded is None:
        return models
    if len(recorded) != len(revisions):
        raise RunError(
            f"{location} was begun with {len(recorded)} models, now there are {len(revisions)}; choose another --out"
        )
    for (name, revision), (other, current) in zip(recorded.items(), revisions.items(), strict=True):
        if revision != current:
            raise RunError(
                f"{location} was begun with another model: {name} had revision {revision}, now {other} has {current}; "
                "put the former files back, or choose another --out",
                run=location,
            )
    return models.named([name.partition(" ")[2] for name in recorded])


def _captions_read(config: DatasetConfig) -> dict[str, str]:
    captions = config.captions
    if captions is not None and captions.file is not None:
        return {"captions.file": files.sha256(captions.file)[0]}
    if captions is not None and captions.run is not None:
        return {"captions.run": files.sha256(hypotheses_of(captions.run))[0]}
    return {}


def _contents(path: str) -> str:
    """Returns the hash of a file's bytes; for a folder, of its files' names and sizes: it may hold a model of
    many GB."""
    if files.is_directory(path):
        return content_id("folder", files.sizes(path))
    return files.sha256(path)[0]


def _without_paths(config: DatasetConfig) -> dict[str, Any]:
    fields = replaced_texts(config, _without_path).model_dump(mode="json")
    if isinstance(classifiers := fields["classifier"], dict):
        fields["classifier"] = [[name, spec] for name, spec in classifiers.items()]
    return fields


def _without_path(names: Names, text: str) -> str:
    if names in MODELS:
        return without_paths(text)
    return text if names is Names.HIERARCHY and text in PACKAGED else "contents"
