"""Reads and checks a file of `c2b clip-bias` once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.config.reading import ConfigFile
from c2b_ray.errors import ConfigError
from c2b_ray.storage.documents import FileOrFields


def read_clip_bias_config(source: FileOrFields | ClipBiasConfig) -> ClipBiasConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    return _FILE.read(source)


def _with_texts(data: dict[str, Any], file: Path) -> dict[str, Any]:
    """Reads the `texts` of a dataset from the file that they name, a text per line. A mapping may come from others, so
    it may not name a file."""
    datasets = data.get("datasets")
    if not isinstance(datasets, dict):
        return data
    read = {
        name: {**one, "texts": _lines(one["texts"], file, f"datasets.{name}.texts")}
        if isinstance(one, dict) and isinstance(one.get("texts"), str)
        else one
        for name, one in datasets.items()
    }
    return {**data, "datasets": read}


def _lines(path: str, file: Path, field: str) -> list[str]:
    try:
        lines = (file.parent / path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(
            field, f"{path!r} is neither a list of texts nor a file with one a line ({error})", location=str(file)
        ) from error
    return [line.strip() for line in lines if line.strip()]


_FILE = ConfigFile(ClipBiasConfig, "c2b clip-bias", completed=_with_texts)
