"""Checks what the files of a config name in turn: a table's images, an index's folder and encoder, links in a folder.

It runs in the job's process, right before the job reads the files, because the API should not parse files of strangers.
Whatever passes is confined again when it is read (`storage.confined`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from c2b_ray.config.endpoint import Policy
from c2b_ray.config.named import Names
from c2b_ray.endpoint.policy.paths import DATA, RUNS, UPLOADS, Tenancy, is_inside, verified
from c2b_ray.endpoint.policy.schemes import checked_spec
from c2b_ray.endpoint.policy.specs import SPECS
from c2b_ray.endpoint.policy.weights import check_weights
from c2b_ray.errors import ConfigError, ImageError, InputError, WeightsError
from c2b_ray.storage import files
from c2b_ray.storage.labelled_rows import open_rows
from c2b_ray.storage.manifest import parse_json, read_json

IMAGE = "image"
_MANIFEST = "manifest.json"
_ADAPTER, MEGATRON = "adapter_config.json", "megatron.core"
_PICKLES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".bin")


def check_contents(named_paths: list[tuple[Names, str, str]], config: Mapping[str, Any], tenancy: Tenancy) -> None:
    """Checks the files of a config. ConfigError names the field whose file names something this tenant may not use.

    `named_paths`: the result of `specs.paths_of`.
    """
    for names, field, path in named_paths:
        if os.path.isdir(path):
            _check_links(path, field, tenancy)
        if names in (Names.TABLE, Names.CAPTIONED):
            _check_table(path, field, _image_column(config, field))
        elif names is Names.INDEX:
            _check_index(path, field, tenancy)
        elif names in SPECS:
            _check_model(path, field)
        elif names is Names.HEADS:
            _check_heads(path, field)


def _check_links(folder: str, field: str, tenancy: Tenancy) -> None:
    """Checks that every link in the folder and its subfolders leads to files of the same tenant."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            if os.path.islink(path) and not _belongs_to_tenant(path, tenancy):
                relative = os.path.relpath(path, folder)
                raise ConfigError(field, f"{relative!r} in this folder is a link that leads out of the tenant's files")


def _belongs_to_tenant(path: str, tenancy: Tenancy) -> bool:
    return any(is_inside(path, f"{tenancy.root.rstrip('/')}/{part}") for part in (DATA, UPLOADS, RUNS))


def _image_column(config: Mapping[str, Any], field: str) -> str:
    """Returns the name of the image column of a field's table."""
    section = _section_of(config, field) if field != "labelled" else None
    return str(((section or {}).get("columns") or {}).get(IMAGE) or IMAGE)


def _section_of(section: Any, field: str) -> Mapping[str, Any] | None:
    """Returns the section that contains a field. It does not just split at dots, because users' names may contain
    dots."""
    if not isinstance(section, Mapping):
        return None
    if field in section:
        return section
    inner = (
        _section_of(value, field[len(name) + 1 :]) for name, value in section.items() if field.startswith(f"{name}.")
    )
    return next((match for match in inner if match is not None), None)


def _check_table(path: str, field: str, column: str) -> None:
    rows = open_rows(path, field)
    if column not in rows.schema.names:
        return  # the audit itself reports a missing column
    kind = rows.schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)):
        return
    for row, value in enumerate(rows.columns([column])[column].to_pylist(), 1):
        if isinstance(value, str) and _leads_out(value):
            raise ConfigError(
                field,
                f"row {row}: the image {value[:200]!r} is not a path below the table's folder: it is absolute, a URL, "
                "or contains '..'",
            )


def _leads_out(name: str) -> bool:
    steps = name.replace("\\", "/").split("/")
    return name.startswith(("/", "~", "\\")) or ".." in steps or "://" in name or "\0" in name


def _check_index(path: str, field: str, tenancy: Tenancy) -> None:
    """Checks the folder of images and the encoder that an index's manifest names, which are read and loaded."""
    try:
        manifest = parse_json(files.read_bytes(f"{path.rstrip('/')}/{_MANIFEST}"))
    except ValueError as error:
        raise ConfigError(field, f"its {_MANIFEST} is not JSON: {str(error)[:200]}") from error
    root, encoder = (
        (manifest.get(name) for name in ("images_root", "encoder")) if isinstance(manifest, dict) else (0, 0)
    )
    if root is not None:
        if not isinstance(root, str):
            raise ConfigError(field, f"its {_MANIFEST} has an images_root that is not a text")
        _verified(root, f"{field}, the images_root of its {_MANIFEST}", tenancy)
    if not isinstance(encoder, str):
        raise ConfigError(field, f"its {_MANIFEST} names no encoder")
    encoder_field = f"{field}, the encoder of its {_MANIFEST}"
    checked_spec(
        encoder, "encoder", encoder_field, tenancy.policy, lambda text, kinds: _verified(text, encoder_field, tenancy)
    )


def _verified(path: str, field: str, tenancy: Tenancy) -> str:
    try:
        return verified(path, field, tenancy)
    except ConfigError as error:
        raise ConfigError(
            field, "it leads out of the tenant's files; rebuild the index from files below data/"
        ) from error


def _check_model(path: str, field: str) -> None:
    """Checks weights that were not uploaded like uploads. In a folder it checks lists of shards and adapters."""
    if path.lower().endswith(_PICKLES):
        raise ConfigError(field, f"{Path(path).name}: pickles are not read; convert it to safetensors, or export ONNX")
    try:
        if path.endswith((".onnx", ".safetensors")) and "://" not in path and f"/{UPLOADS}/" not in path:
            check_weights(path)
    except (WeightsError, OSError) as error:
        raise ConfigError(field, f"{Path(path).name}: {error}") from error
    if os.path.isdir(path):
        for index in sorted(Path(path).rglob("*.index.json")):
            _check_shards(index, field)
        for adapter in sorted(Path(path).rglob(_ADAPTER)):
            _check_adapter(adapter, field)


def _check_adapter(config: Path, field: str) -> None:
    """Checks an adapter's config, which can name a library to import."""
    document = _document(config, field)
    if isinstance(document, dict) and (
        document.get("megatron_config") or document.get("megatron_core", MEGATRON) != MEGATRON
    ):
        raise ConfigError(
            field, f"{config.name} names a library in megatron_core; remove megatron_core and megatron_config"
        )


def _document(path: Path, field: str) -> Any:
    try:
        return read_json(path)
    except InputError as error:
        raise ConfigError(field, f"{path.name}: {error}") from error


def _check_heads(folder: str, field: str) -> None:
    for file in sorted(Path(folder).glob("*.safetensors")) if os.path.isdir(folder) else ():
        _check_model(str(file), field)


def _check_shards(index: Path, field: str) -> None:
    """Checks the list of a sharded model's files: a loader reads whatever files it names."""
    document = _document(index, field)
    file_names = document.get("weight_map") if isinstance(document, dict) else None
    for name in file_names.values() if isinstance(file_names, dict) else ():
        if not isinstance(name, str) or "/" in name or "\\" in name or name.startswith("."):
            raise ConfigError(field, f"{index.name} names {str(name)[:100]!r}; expected a file beside it")


# Checks images of strangers by their first bytes and headers, and decodes no pixel.


_FORMATS: tuple[tuple[str, bytes, type[ImageFile.ImageFile]], ...] = (
    ("JPEG", b"\xff\xd8\xff", JpegImagePlugin.JpegImageFile),
    ("PNG", b"\x89PNG\r\n\x1a\n", PngImagePlugin.PngImageFile),
    ("WebP", b"RIFF", WebPImagePlugin.WebPImageFile),
)


@dataclass(frozen=True)
class Picture:
    """The facts in an image's header."""

    format: str
    width: int
    height: int
    frames: int


def format_of(head: bytes) -> str:
    """Returns JPEG, PNG or WebP by the first twelve bytes. Raises ImageError for anything else."""
    for name, magic, _ in _FORMATS:
        if head.startswith(magic) and (name != "WebP" or head[8:12] == b"WEBP"):
            return name
    raise ImageError("not a JPEG, PNG or WebP image by its first bytes")


def check_picture(data: bytes, policy: Policy) -> Picture:
    """Returns the facts in an image's header. Raises ImageError if it is no image, too large, or has too many pixels or
    frames."""
    if len(data) > policy.image_bytes:
        raise ImageError(f"too large: more than {policy.image_bytes} bytes")
    name = format_of(data[:12])
    reader = next(reader for format_name, _, reader in _FORMATS if format_name == name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with reader(BytesIO(data), "") as image:
                picture = Picture(name, *image.size, frames=getattr(image, "n_frames", 1))
    except Exception as error:  # Pillow's readers raise many kinds of errors for malformed files
        raise ImageError(f"damaged: {str(error)[:200] or type(error).__name__}") from error
    if picture.width * picture.height > policy.image_pixels:
        pixels = f"{picture.width} × {picture.height} pixels"
        raise ImageError(f"too large: {pixels}, at most {policy.image_pixels} are decoded")
    if picture.frames > policy.image_frames:
        raise ImageError(f"{picture.frames} frames; at most {policy.image_frames}")
    return picture


def check_picture_file(path: str, policy: Policy) -> Picture:
    """Does `check_picture` for a file, and reads no more of it than an image may have."""
    with open(path, "rb") as file:
        return check_picture(file.read(policy.image_bytes + 1), policy)
