"""Reads embedding folders as clip-retrieval writes them, as sources of an index.

    img_emb/img_emb_<n>.npy          float16 or float32 (rows, dimension)
    metadata/metadata_<n>.parquet    as many rows: image_path, and caption, url or other columns
    text_emb/                        not read: captions are queries of the index, not its rows

It knows that layout and where the images may be: below a folder, or in WebDataset shards, whose members are looked up
by name once. Embeddings are memory-mapped and read in batches. A missing or bad row is an error that names file and
row.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.engine.sources.files import Location, listing
from c2b_ray.engine.sources.webdataset import members
from c2b_ray.errors import SourceError
from c2b_ray.roles import Floats
from c2b_ray.storage import THREADS, absent_bucket, refusal, resolve
from c2b_ray.storage.folders import IMAGES
from c2b_ray.storage.s3 import file_info

EMBEDDINGS, METADATA = "img_emb", "metadata"
SHARDS = ".tar"
LOCATIONS = pa.schema([("file", pa.string()), ("offset", pa.int64()), ("size", pa.int64())])
_NUMBER = re.compile(r"_(\d+)\.(npy|parquet)$")
REPAIR = "embed that partition again, or --skip-bad to leave such rows out"
Mapped = np.memmap[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Shards:
    """The position of each member of WebDataset shards, by the name of its sample."""

    names: pa.Array
    locations: pa.Table

    def find(self, wanted: pa.Array) -> pa.Table:
        """Returns rows of `LOCATIONS`; null where no sample has the name."""
        return self.locations.take(pc.index_in(wanted, self.names))


@dataclass(frozen=True)
class Partition:
    """One pair of files; a `faiss_build.Source`."""

    name: str
    rows: int
    dimension: int
    folder: Path
    embeddings: str
    metadata: str
    images: str
    moved_from: str | None = None
    shards: Shards | None = None
    skip_bad: bool = False

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        vectors = np.load(self.folder / self.embeddings, mmap_mode="r")
        start = 0
        for batch in self._batches(most):
            rows = vectors[start : start + len(batch)].astype(np.float32)
            norms = np.linalg.norm(rows, axis=1)
            is_valid = np.isfinite(norms) & (norms > 0)
            if not is_valid.all() and not self.skip_bad:
                bad = int(np.flatnonzero(~is_valid)[0])
                problem = "zero" if norms[bad] == 0 else "not a number"
                raise SourceError(f"{self.folder / self.embeddings}: row {start + bad} is {problem}; {REPAIR}")
            table = self._table(batch, start).filter(pa.array(is_valid))
            start += len(batch)
            if len(table):
                yield table, rows[is_valid] / norms[is_valid, None]

    def _batches(self, most: int) -> Iterator[pa.Table]:
        """Yields the metadata, with `image_path` as text."""
        try:
            for batch in pq.ParquetFile(self.folder / self.metadata).iter_batches(most):
                paths = batch["image_path"].cast(pa.string())
                other_columns = pa.Table.from_batches([batch]).drop_columns(["image_path"])
                yield other_columns.append_column("image_path", paths)
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise SourceError(
                f"{self.folder / self.metadata}: damaged, or its paths are no UTF-8 ({reason}); copy or embed that "
                "partition again"
            ) from error

    def _table(self, rows: pa.Table, first: int) -> pa.Table:
        paths = rows["image_path"].combine_chunks()
        locations = self.shards.find(paths) if self.shards else self._files(paths)
        other_rows = rows.drop_columns(["image_path"]).to_pylist()
        metadata = [json.dumps(row, default=str, ensure_ascii=False) for row in other_rows]
        numbered = pa.array([f"{self.metadata}#{first + i}" for i in range(len(paths))], pa.string())
        columns = {name: locations[name] for name in LOCATIONS.names}
        return pa.table({"key": pc.coalesce(paths, numbered), **columns, "metadata": pa.array(metadata, pa.string())})

    def _files(self, paths: pa.Array) -> pa.Table:
        relative = [path and _relative(path, self.moved_from or self.images) for path in paths.to_pylist()]
        nulls = pa.nulls(len(paths), pa.int64())
        return pa.table([pa.array(relative, pa.string()), nulls, nulls], schema=LOCATIONS)


def is_folder(source: str) -> bool:
    """Returns whether `source` is a local folder of embeddings."""
    return "://" not in source and (Path(source) / EMBEDDINGS).is_dir()


def partitions(source: str, images: str, *, moved_from: str | None = None, skip_bad: bool = False) -> list[Partition]:
    """Returns the folder's partitions, by number.

    `images`: the folder of the images, or of the shards that hold them. `moved_from`: the prefix of the paths in the
    metadata, where that is not `images`. Raises SourceError, which names the file, where one is missing, short or of
    another dimension, or where rows do not correspond.
    """
    folder = Path(source).absolute()
    of_vectors, of_rows = (_numbered(folder / name) for name in (EMBEDDINGS, METADATA))
    if not of_vectors:
        raise SourceError(f"{source}: holds no {EMBEDDINGS}/{EMBEDDINGS}_<n>.npy")
    numbers_found = {*of_vectors, *of_rows}
    numbers = range(min(numbers_found), max(numbers_found) + 1)
    for number in numbers:
        for paths, kind in ((of_vectors, EMBEDDINGS), (of_rows, METADATA)):
            if number not in paths:
                raise SourceError(
                    f"{folder / kind}: partition {number} is missing (there are {min(numbers)} to {max(numbers)}); "
                    "copy or embed it again, or move its counterpart away to leave it out at either end"
                )
    shards = _shards(images)
    result: list[Partition] = []
    for number in numbers:
        vectors = _mapped(of_vectors[number])
        rows = _rows(of_rows[number], len(vectors), of_vectors[number])
        if result and vectors.shape[1] != result[0].dimension:
            raise SourceError(
                f"{of_vectors[number]}: dimension {vectors.shape[1]}, {folder / result[0].embeddings} has "
                f"{result[0].dimension}; a folder holds the embeddings of one encoder"
            )
        embeddings, metadata = (
            str(paths_of_kind[number].relative_to(folder)) for paths_of_kind in (of_vectors, of_rows)
        )
        result.append(
            Partition(
                embeddings, rows, vectors.shape[1], folder, embeddings, metadata, images, moved_from, shards, skip_bad
            )
        )
    return result


def _numbered(folder: Path) -> dict[int, Path]:
    path_of_number: dict[int, Path] = {}
    for path in sorted(folder.glob("*")):
        if match := _NUMBER.search(path.name):
            if (number := int(match[1])) in path_of_number:
                raise SourceError(f"{path}: the same partition as {path_of_number[number].name}; remove one of them")
            path_of_number[number] = path
    return path_of_number


def _mapped(path: Path) -> Mapped:
    try:
        vectors: Mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{path}: damaged or cut short ({error}); copy or embed that partition again") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise SourceError(f"{path}: {vectors.dtype} of shape {vectors.shape}; expected floats (rows, dimension)")
    return vectors


def _rows(path: Path, expected: int, vectors: Path) -> int:
    try:
        with pq.ParquetFile(path) as file:
            rows, schema = file.metadata.num_rows, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: not a Parquet file that can be read: {error}") from error
    if rows != expected:
        raise SourceError(
            f"{path}: {rows:,} rows, but {vectors.name} has {expected:,}, so from row {min(rows, expected):,} on "
            "nothing says which is whose; copy or embed that partition again"
        )
    if "image_path" not in schema.names:
        raise SourceError(f"{path}: no column image_path; it has {', '.join(schema.names)}")
    if pa.types.is_nested(kind := schema.field("image_path").type):
        raise SourceError(f"{path}: its column image_path holds {kind}; expected a path, a text, in each row")
    return int(rows)


def _relative(path: str, root: str) -> str:
    """Returns the path relative to the root. A path outside is returned unchanged, and refused where it is read."""
    relative = posixpath.relpath(path, root) if posixpath.isabs(path) else path
    return path if relative.startswith("../") else relative


def _shards(images: str) -> Shards | None:
    """Returns None where `images` holds no tar files. Raises SourceError where it is no folder."""
    location = Location(images, *resolve(images))
    try:
        kind = file_info(location.filesystem, location.path).type
    except OSError as error:
        raise SourceError(refusal(images, error) or f"{images}: cannot be read: {error}") from error
    if kind != fs.FileType.Directory:  # every image would be missing, and the error would show only when it is read
        raise SourceError(absent_bucket(images) or f"{images}: no such folder; --images names that of the images")
    tars = [name for name in listing(location).names if name.endswith(SHARDS)]
    if not tars:
        return None
    with ThreadPoolExecutor(THREADS) as pool:
        samples: Sequence[Sequence[tuple[str, int, int]]] = list(
            pool.map(partial(members, location, images=IMAGES), tars)
        )
    _refuse_repeats(images, tars, samples)
    rows = [
        (name, tar, offset, size)
        for tar, samples_of_tar in zip(tars, samples, strict=True)
        for name, offset, size in samples_of_tar
    ]
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    kinds = [pa.string(), *LOCATIONS.types]
    names, *locations = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return Shards(names, pa.table(locations, schema=LOCATIONS))


def _refuse_repeats(images: str, tars: Sequence[str], samples: Sequence[Sequence[tuple[str, int, int]]]) -> None:
    """Raises SourceError where two shards hold a sample of the same name: the metadata name samples, not shards."""
    owner: dict[str, str] = {}
    for tar, names in zip(tars, samples, strict=True):
        for name, *_ in names:
            if name in owner:
                raise SourceError(
                    f"{images}: sample {name!r} is in {owner[name]} and in {tar}, and the metadata do not say which is "
                    "meant; embed shards whose samples have names of their own (img2dataset's do), or build the index "
                    "from the shards themselves (c2b index build)"
                )
            owner[name] = tar
