"""The identity of a dataset: a hash of its config in which paths are replaced by hashes of their contents.

So a build resumes after its folder was moved, with renamed files, or from a copy on another machine. The sources of
images and answers are identified by their models' revisions, which `dataset.json` keeps beside this hash. This module
knows the fields that name files, not what a build does with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.dataset.config import DatasetConfig
from c2b_ray.audits.dataset.plan import hypotheses_of
from c2b_ray.audits.dataset.shards.workers import CrewThere
from c2b_ray.config.hierarchy import PACKAGED
from c2b_ray.config.named import MODELS, Names, replaced_texts
from c2b_ray.errors import RunError
from c2b_ray.storage import files
from c2b_ray.storage.spec_paths import paths, without_paths
from c2b_ray.tables import content_id

FORMAT = 3
"""The format of dataset.json. In format 1 the hash included the paths, and near-duplicates were recognised by their
fingerprints only; in format 2 moved copies were not detected."""


def format_of(about: Mapping[str, Any] | None) -> int:
    """Returns the format in which a dataset was begun, and in which it must be finished.

    Raises RunError where this version does not know it.
    """
    known = FORMAT if about is None else about.get("format", 1)
    if known not in range(1, FORMAT + 1):
        raise RunError(f"the dataset has format {known}, which a newer version of c2b-ray wrote; use that version")
    return int(known)


def config_hash(config: DatasetConfig, format: int = FORMAT) -> str:
    """Returns the hash in `dataset.json` and the manifest. Raises SourceError where a file that the config names is
    gone."""
    if format == 1:
        return content_id("dataset", config.model_dump(mode="json"), _captions_read(config))
    return content_id("dataset", format, _without_paths(config), contents(config))


def dataset_id(about: Mapping[str, Any]) -> str:
    """Returns a hash of everything that determines the rows, from the content of `dataset.json`."""
    models = about["models"] if format_of(about) == 1 else list(about["models"].values())
    return content_id("dataset", about["config_hash"], models, about["captions_sha256"])


def contents(config: DatasetConfig) -> dict[str, str]:
    """Returns field → hash of the contents of its path, for all paths that no model's revision covers."""
    hashes = _captions_read(config)
    if config.hierarchy is not None and config.hierarchy not in PACKAGED:
        hashes["hierarchy"] = _contents(config.hierarchy)
    if config.captions is not None:
        for name in ("language_model", "captioner"):
            for what, path in paths(getattr(config.captions, name) or ""):
                hashes[f"captions.{name} {what}"] = _contents(path)
        if config.captions.images is not None:
            hashes["captions.images"] = _contents(config.captions.images)
    return hashes


def as_begun(crew: CrewThere, about: Mapping[str, Any], location: str) -> CrewThere:
    """Returns the models under their names from the beginning of the build, which the dataset's rows hold.

    Raises RunError where a model has changed since.
    """
    then, now = about.get("models"), crew.revisions()
    if then is None:
        return crew
    if len(then) != len(now):
        raise RunError(f"{location} was begun with {len(then)} models, now there are {len(now)}; choose another --out")
    for (name, revision), (other, current) in zip(then.items(), now.items(), strict=True):
        if revision != current:
            raise RunError(
                f"{location} was begun with another model: {name} had revision {revision}, now {other} has {current}; "
                "put the former files back, or choose another --out",
                run=location,
            )
    return crew.named([name.partition(" ")[2] for name in then])


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
    if isinstance(named := fields["classifier"], dict):
        fields["classifier"] = [[name, spec] for name, spec in named.items()]
    return fields


def _without_path(names: Names, text: str) -> str:
    if names in MODELS:
        return without_paths(text)
    return text if names is Names.HIERARCHY and text in PACKAGED else "contents"
