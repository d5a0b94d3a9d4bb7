"""Reads and checks a failures file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from c2b_ray.config.failures import FailuresConfig
from c2b_ray.config.reading import ConfigFile
from c2b_ray.filesystems.documents import FileOrFields

_FILE = ConfigFile(FailuresConfig, "c2b failures", classes="labels")


def read_failures_config(
    source: FileOrFields | FailuresConfig, classifier: dict[str, str] | None = None
) -> FailuresConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    return _FILE.read(source, classifier)
