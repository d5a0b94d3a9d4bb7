"""Reads and checks a prompts file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from c2b_ray.config.prompts import PromptsConfig
from c2b_ray.config.reading import ConfigFile
from c2b_ray.filesystems.documents import FileOrFields

_FILE = ConfigFile(PromptsConfig, "c2b prompts")


def read_prompts_config(source: FileOrFields | PromptsConfig) -> PromptsConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    return _FILE.read(source)
