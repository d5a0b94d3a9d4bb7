"""Reads and checks a dataset file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from c2b_ray.config.dataset import DatasetConfig
from c2b_ray.config.reading import ConfigFile
from c2b_ray.filesystems.documents import FileOrFields

_FILE = ConfigFile(DatasetConfig, "c2b dataset build")


def read_dataset_config(
    source: FileOrFields | DatasetConfig, classifier: dict[str, str] | None = None
) -> DatasetConfig:
    """Returns a dataset's config; see `ConfigFile.read`."""
    return _FILE.read(source, classifier)
