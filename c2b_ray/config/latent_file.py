"""Reads and checks a file of `c2b latent` once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from c2b_ray.config.latent import LatentConfig
from c2b_ray.config.reading import ConfigFile
from c2b_ray.storage.documents import FileOrFields

_FILE = ConfigFile(LatentConfig, "c2b latent")


def read_latent_config(source: FileOrFields | LatentConfig, classifier: dict[str, str] | None = None) -> LatentConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    if isinstance(source, LatentConfig):  # its problems are checked again: they may name another classifier
        source = source.model_dump(exclude_unset=True)
    return _FILE.read(source, classifier)
