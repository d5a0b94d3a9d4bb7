"""Models of transformers from a directory, without a tensor that transformers would make up.

`from_pretrained` fills what a file lacks with random numbers and goes on. Here that is an error, as are tensors of
other sizes and tensors that are not used; what an architecture itself declares optional, or ties to another tensor, is
neither.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformers
from huggingface_hub import try_to_load_from_cache
from safetensors.torch import save_file
from transformers.utils.import_utils import is_accelerate_available

from c2b_ray.errors import InputError, WeightsError
from c2b_ray.models import weights
from c2b_ray.models.tensor_names import (
    Selection,
    TensorMismatch,
    TensorNames,
    listed,
    naming,
    refuse_copies,
    remedy,
    twins,
)
from c2b_ray.roles import ModelFact
from c2b_ray.storage.manifest import read_json

_HEADS = ("classifier", "score", "head", "fc", "lm_head", "model.lm_head", "qa_outputs")
"""Names of last layers in transformers."""
_LONGEST_PREFIX = 3
"""Parts of a prefix that all names share, such as `model.module._orig_mod.`."""


@dataclass(frozen=True)
class Loaded:
    """A model and what a person is told about the names of its tensors."""

    model: Any
    facts: tuple[ModelFact, ...]


def load_strictly(
    kind: Any, source: str | Path, selection: Selection, optional: Collection[str] = (), **arguments: Any
) -> Loaded:
    """Loads a model by `kind.from_pretrained`, each tensor accounted for.

    `source`: a directory or the name of a repository. `optional`: regular expressions of names that may be missing or
    unused beside those that the architecture declares. `arguments` are `from_pretrained`'s, whose errors are passed on.
    Raises WeightsError that names what is missing, unused or of another size, and shards that are absent.
    """
    _check_shards(_folder(source, arguments))
    if selection.prefix:
        with TemporaryDirectory() as folder:
            facts = _selected(_folder(source, arguments), Path(folder), selection)
            return Loaded(_complete(kind, folder, source, Selection(), optional, arguments).model, facts)
    return _complete(kind, source, source, selection, optional, arguments)


def check_header(
    kind: Any, source: str | Path, selection: Selection, optional: Collection[str] = (), **arguments: Any
) -> tuple[ModelFact, ...]:
    """Checks what `load_strictly` does, without memory for the weights, and returns its facts.

    Where the package accelerate is absent, or a prefix was chosen, nothing is checked before the weights are loaded.
    """
    if selection.prefix:
        folder = _folder(source, arguments)
        names = [name for file in _files(folder) for name in weights.read_kinds(file)]
        return naming((), names, folder, selection).facts(folder)
    if not is_accelerate_available():
        return ()
    return load_strictly(kind, source, selection, optional, device_map="meta", **arguments).facts


def _complete(
    kind: Any,
    folder: str | Path,
    source: str | Path,
    selection: Selection,
    optional: Collection[str],
    arguments: dict[str, Any],
) -> Loaded:
    """Loads the model of a folder; takes a prefix off that all names share, where they fit without it alone."""
    model, misfit = _read(kind, folder, selection, optional, arguments)
    facts = TensorNames({}, "", (), selection).facts(source)
    if misfit is None:
        return Loaded(model, facts)
    files = _files(_folder(folder, arguments))
    names = [name for file in files for name in weights.read_kinds(file)]
    for prefix in _shared(names):
        mapping = {f"^{re.escape(prefix)}": ""}
        renamed, mismatch = _read(kind, folder, selection, optional, {**arguments, "key_mapping": mapping})
        if mismatch is None:
            fact = ModelFact("tensor names", f"without the prefix '{prefix}'", files[0].name)
            return Loaded(renamed, (fact, *facts))
    refuse_copies(twins(names), names, source)
    raise WeightsError(_complaint(source, type(model).__name__, misfit))


def _read(
    kind: Any, folder: str | Path, selection: Selection, optional: Collection[str], arguments: dict[str, Any]
) -> tuple[Any, TensorMismatch | None]:
    with _quiet():
        model, info = kind.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, use_safetensors=True, **arguments
        )
    return model, _misfit(info, len(model.state_dict()), selection.unused, optional)


def _misfit(
    info: Mapping[str, Any], expected: int, unused: tuple[str, ...], optional: Collection[str]
) -> TensorMismatch | None:
    def left(names: Collection[str]) -> list[str]:
        return sorted(name for name in names if not any(re.search(pattern, name) for pattern in optional))

    missing = left(info["missing_keys"])
    unexpected = left([name for name in info["unexpected_keys"] if not (unused and name.startswith(unused))])
    shapes = sorted((name, tuple(stored), tuple(required)) for name, stored, required in info["mismatched_keys"])
    return TensorMismatch(missing, unexpected, shapes, (), expected) if missing or unexpected or shapes else None


def _complaint(source: str | Path, model: str, misfit: TensorMismatch) -> str:
    shapes = [f"{name} {stored} for {required}" for name, stored, required in misfit.shapes]
    described = {"missing": misfit.missing, "unexpected": misfit.unexpected, "of another shape": shapes}
    complaints = [f"{len(names)} {problem} ({listed(names)})" for problem, names in described.items() if names]
    return f"{source} does not fit {model}: {'; '.join(complaints)}. {remedy(misfit, _HEADS)}"


def refuse_made_up(
    source: str | Path, model: str, info: Mapping[str, Any], expected: int, unused: tuple[str, ...] = ()
) -> None:
    """Raises WeightsError where the loading info of a `from_pretrained`, also of diffusers, lists what a file lacks or
    has too many."""
    misfit = _misfit(info, expected, unused, ())
    if misfit is not None:
        raise WeightsError(_complaint(source, model, misfit))


def _folder(source: str | Path, arguments: Mapping[str, Any]) -> Path:
    """Returns a directory, or that of a repository in the local cache, where its weights lie once they were read."""
    if Path(source).is_dir():
        return Path(source)
    config = try_to_load_from_cache(str(source), "config.json", revision=arguments.get("revision"))
    return Path(config).parent if isinstance(config, str) else Path(source)


def _files(directory: Path) -> list[Path]:
    """Returns the files that transformers reads: those of the index, else the one without shards, else all."""
    if shards := _indexed(directory):
        return [directory / name for name in shards]
    single = directory / "model.safetensors"
    return [single] if single.is_file() else sorted(directory.glob("*.safetensors"))


def _indexed(directory: Path) -> list[str]:
    index = directory / "model.safetensors.index.json"
    if (directory / "model.safetensors").is_file() or not index.is_file():
        return []
    try:
        return sorted({str(name) for name in read_json(index)["weight_map"].values()})
    except (OSError, ValueError, InputError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index}: no index of safetensors: {error}") from error


def _check_shards(directory: Path) -> None:
    absent = [name for name in _indexed(directory) if not (directory / name).is_file()] if directory.is_dir() else []
    if absent:
        raise WeightsError(
            f"{directory}: {len(absent)} shards that its index lists are absent ({listed(absent)}); copy them there too"
        )


def _shared(names: Collection[str]) -> list[str]:
    """Returns the prefixes, up to a dot, that all names have in common, the shortest first."""
    parts = [name.split(".")[:-1] for name in names]
    prefixes: list[str] = []
    for depth in range(1, _LONGEST_PREFIX + 1):
        prefixes_at_depth = {".".join(part[:depth]) for part in parts if len(part) >= depth}
        if len(prefixes_at_depth) != 1 or any(len(part) < depth for part in parts):
            break
        prefixes.append(prefixes_at_depth.pop() + ".")
    return prefixes


def _selected(directory: Path, folder: Path, selection: Selection) -> tuple[ModelFact, ...]:
    """Makes a folder with the chosen tensors alone, and links to the directory's other files."""
    tensors = {name: tensor for file in _files(directory) for name, tensor in weights.read_safetensors(file).items()}
    unprefixed = [
        name for name in tensors if not name.startswith(tuple(prefix for prefix in twins(list(tensors)) if prefix))
    ]
    names = naming(unprefixed, list(tensors), directory, selection)
    selected = {name: tensors[source].contiguous() for name, source in names.names.items()}
    save_file(selected, folder / "model.safetensors", metadata={"format": "pt"})
    for path in directory.iterdir():
        if path.is_file() and ".safetensors" not in path.suffixes:
            (folder / path.name).symlink_to(path.resolve())
    return names.facts(directory)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers' table of missing tensors, which are an error here."""
    verbosity = transformers.logging.get_verbosity()
    bar = transformers.utils.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity(logging.ERROR)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bar:
            transformers.logging.enable_progress_bar()  # type: ignore[no-untyped-call]
