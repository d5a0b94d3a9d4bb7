"""Weights from files: safetensors, and nothing that can run code while it is read.

It knows tensors and modules, not which architecture they belong to. A pickle (`.pt`, `.pth`, `.bin`, `.ckpt`) executes
whatever its author wrote into it, so it is refused by name and by content, on disk and on the model hub.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.overrides import TorchFunctionMode

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models.spec_options import TO_ONNX
from c2b_ray.models.tensor_names import TensorKind, check_fit, kinds_of

_PICKLES = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib", ".tar"}
WITH_TOKENIZER = ["*.json", "*.jinja", "*.txt", "tokenizer.model"]
"""The files of a language model's directory beside its weights."""
_CONVERT = (
    "convert it once, with safetensors.torch.save_file of its state dict (torch.load(FILE, weights_only=True), or its "
    "entry state_dict or model), and give the .safetensors file"
)
_OF_KERAS = {".h5", ".hdf5", ".keras", ".pb", ".tflite"}
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.safetensors$")


def checked(path: str | Path) -> Path:
    """Returns `path` after checking that it is a complete safetensors file. WeightsError tells what else it is."""
    path = Path(path)
    if path.suffix.lower() in _PICKLES:
        raise WeightsError(f"{path}: {path.suffix} files are pickles, which run code when read; {_CONVERT}")
    if path.suffix.lower() in _OF_KERAS:
        raise WeightsError(f"{path}: {path.suffix} files are TensorFlow's; {TO_ONNX}")
    if not path.is_file():
        problem = "is a directory, not a .safetensors file" if path.is_dir() else "no such file"
        raise WeightsError(f"{path}: {problem}")
    with path.open("rb") as stream:
        head = stream.read(9)
    # The eight bytes before a safetensors header are its length, which may begin like a pickle: look behind them first.
    if head[8:9] != b"{":
        if head.startswith(b"PK\x03\x04") or (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05"):
            raise WeightsError(f"{path}: holds a pickle, which runs code when read; {_CONVERT}")
        raise WeightsError(f"{path}: not a safetensors file, or a damaged one")
    if path.suffix.lower() != ".safetensors":
        raise WeightsError(f"{path}: expected a name that ends in .safetensors")
    try:
        with safe_open(path, framework="pt") as file:
            file.keys()
    except SafetensorError as error:
        raise WeightsError(f"{path}: damaged or cut short ({error})") from error
    return path


def whole(path: str | Path) -> Path:
    """Like `checked`, of a file that has to hold all tensors. Raises WeightsError for one of several shards."""
    path = Path(path)
    shards = [path] if _SHARD.search(path.name) else []
    if not path.is_file() and path.suffix == ".safetensors" and path.parent.is_dir():
        shards = sorted(file for file in path.parent.iterdir() if _SHARD.search(file.name))
    elif path.name.endswith(".safetensors.index.json"):
        shards = [path]
    if shards:
        raise WeightsError(
            f"{path}: the weights are in shards ({shards[0].name}), and one file is expected; read each shard once "
            "with safetensors.torch.load_file, and write all of their tensors with save_file into one file"
        )
    return checked(path)


def read_safetensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Reads the tensors of a file by name, on the CPU, with the file's dtypes. Raises WeightsError where the file is
    refused."""
    path = checked(path)
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)


def read_kinds(path: str | Path) -> dict[str, TensorKind]:
    """Reads the shape and kind of every tensor of a file from its header. Raises WeightsError where the file is
    refused."""
    path = checked(path)
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        return {n: TensorKind(tuple(s.get_shape()), s.get_dtype().startswith(("F", "BF"))) for n, s in slices.items()}


def read_outlines(path: str | Path) -> dict[str, torch.Tensor]:
    """Returns a tensor without memory in the place of each of a file, from its header. Raises WeightsError where the
    file is refused."""
    dtypes = {True: torch.float32, False: torch.int64}
    kinds = read_kinds(path)
    return {n: torch.empty(kind.shape, dtype=dtypes[kind.floating], device="meta") for n, kind in kinds.items()}


def read_tensor(path: str | Path, name: str) -> torch.Tensor:
    """Reads one tensor, which the file must contain, on the CPU."""
    with safe_open(checked(path), framework="pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
        return tensor


def load_into(
    module: nn.Module, tensors: dict[str, torch.Tensor], source: str | Path, head: Collection[str] = ()
) -> None:
    """Copy `tensors` into `module`, each name and shape accounted for, floats cast to the module's own dtype.

    Batch counters (`num_batches_tracked`) may be absent: inference does not read them. WeightsError names the first
    tensors that are missing, unexpected or of another shape; `source` is the file to name, `head` the module's last
    layer.
    """
    state = module.state_dict()
    check_fit(kinds_of(state), kinds_of(tensors), source, type(module).__name__, head)
    # Into the module's own dict, which has what safetensors lack: the version that some modules ask for.
    state.update(tensors)
    module.load_state_dict(state)


def file_revision(*paths: str | Path) -> str:
    """Returns 20 hexadecimal digits that change with the bytes of the files, not with their names and paths."""
    digest = hashlib.blake2b(digest_size=10)
    for path in paths:
        status = Path(path).stat()
        digest.update(
            _hash(str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        )
    return digest.hexdigest()


@lru_cache(256)
def _hash(path: str, *state: int) -> bytes:
    """Returns the hash of a file in this state. A process asks several times: before it starts, to plan a run, and when
    it loads the weights, which may be gigabytes. Whatever writes to a file changes its state."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def from_hub(repository: str, filename: str, spec: str, revision: str | None = None) -> Path:
    """Returns a file of a model repository, from the local cache or downloaded.

    Callers ask for safetensors and JSON only. `spec` is what the user wrote: SpecError where the hub or the repository
    cannot be reached, WeightsError where the repository holds no such file.
    """
    try:
        return Path(hf_hub_download(repository, filename, revision=revision))
    except LocalEntryNotFoundError as error:
        raise SpecError(
            f"{spec}: {filename} of {repository} is not in the local cache and the model hub cannot be reached; "
            "download it beforehand, or give a file of your own with ?weights=PATH.safetensors"
        ) from error
    except EntryNotFoundError as error:
        raise WeightsError(
            f"{spec}: {repository} has no {filename}, and pickles are not read; convert its weights and give them "
            "with ?weights=PATH.safetensors"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise SpecError(
            f"{spec}: {repository} cannot be fetched from the model hub ({str(error).splitlines()[0]}); give a file of "
            "your own with ?weights=PATH.safetensors"
        ) from error


def directory(name: str, spec: str, revision: str | None, patterns: list[str]) -> Path:
    """Returns a directory of that name, or downloads a repository of the model hub: its safetensors and the files of
    these patterns.

    SpecError where there is neither. WeightsError where it holds no safetensors, or a damaged one.
    """
    directory = Path(name)
    if directory.is_dir() and revision:
        raise SpecError(f"{spec}: revision= goes with a repository of the hub, not with a directory")
    if not directory.is_dir():
        try:
            directory = Path(snapshot_download(name, revision=revision, allow_patterns=[*patterns, "*.safetensors"]))
        except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise SpecError(
                f"{spec}: no such directory, and cannot be fetched from the model hub ({first_line}); download it "
                "beforehand and give its directory"
            ) from error
    files = list(directory.glob("*.safetensors"))
    if not files:
        raise WeightsError(
            f"{spec}: {directory} holds no .safetensors, and pickles are not read; {_instead_of(directory)}"
        )
    for file in files:
        checked(file)
    return directory


def _instead_of(directory: Path) -> str:
    """Returns what to name or do instead of a directory without safetensors."""
    inner = sorted({file.parent for file in directory.glob("*/*.safetensors")}, key=lambda path: path.stat().st_mtime)
    if inner:  # a training's folder, whose subfolders are its checkpoints
        return f"its subfolders do: name one, such as {inner[-1]}"
    return "load it once with its library, and write it with save_pretrained(FOLDER)"


def directory_revision(directory: Path) -> str:
    """Like `file_revision`, for all files of a language model's directory."""
    patterns = ("*.safetensors", *WITH_TOKENIZER)
    return file_revision(*sorted({path for pattern in patterns for path in directory.glob(pattern)}))


def language_model_revision(name: str, revision: str | None) -> str | None:
    """Returns the revision of a language model's directory or of a repository of the model hub, of which the commit
    counts; None where neither is on this machine."""
    if Path(name).is_dir():
        return directory_revision(Path(name))
    try:
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:  # a path where nothing is
        return None
    return Path(config).parent.name[:20] if isinstance(config, str) else None


# Builds modules without the random weights that a file is about to replace: drawing them takes most of the time of
# loading a large model. Inside `built` a weight is left as its memory is, or filled with the middle of what would be
# drawn. Everything else is computed as always: buffers that no file holds (positions, masks, anchors), constants, tied
# weights. Only for modules whose every weight then comes from a file.


T = TypeVar("T")
_SCALES = frozenset(getattr(torch.Tensor, name) for name in ("erfinv_", "mul_", "add_", "sub_", "div_", "clamp_"))

_INITIALISERS = frozenset((nn.init.kaiming_uniform_, nn.init.kaiming_normal_, nn.init.normal_, nn.init.uniform_))
"""Those that PyTorch hands to a mode as a whole, and that only draw: their memory need not even be touched."""


class _WithoutDraws(TorchFunctionMode):
    """Parameters are not filled with random numbers in place, in this thread. Other tensors are: what is drawn until it
    lies between bounds must come to an end."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: Any = None  # the last parameter; scaling weights that were not drawn is skipped too

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        first = args[0] if args else options.get("tensor")  # as PyTorch's own initialisers hand it on
        if isinstance(first, nn.Parameter):
            if func in _INITIALISERS:
                return first
            if (middle := _middle(func, *args[1:3], **options)) is not None:
                self._drawn = first
                with torch.no_grad():
                    return first.fill_(middle)
            if func in _SCALES and first is self._drawn:
                return first
        return func(*args, **options)


def _middle(func: Any, *bounds: float, **options: Any) -> float | None:
    """Returns the middle of the distribution that `func` would draw from; None where it draws nothing."""
    if func is torch.Tensor.normal_:
        return bounds[0] if bounds else float(options.get("mean", 0.0))
    if func is torch.Tensor.uniform_:
        low = bounds[0] if bounds else options.get("from", 0.0)
        high = bounds[1] if len(bounds) > 1 else options.get("to", 1.0)
        return float(low + high) / 2
    return None


def built(build: Callable[[], T]) -> T:
    """Returns what `build` returns: a module that has its weights from a file, or is about to get them."""
    with _WithoutDraws():
        return build()
