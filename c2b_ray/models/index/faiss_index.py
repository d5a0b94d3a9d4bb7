"""Nearest images by embedding, from a directory that faiss and Parquet share (`faiss_manifest` says what is in it).

It knows vectors, not models: the encoder is a name that callers compare. Reading goes through pyarrow's file systems,
so an index may lie on an object store: its vectors and rows are then brought to this machine once, its images stay
there. `faiss_build` writes one on a local disk.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock
from pyarrow import fs

from c2b_ray.errors import SourceError, SpecError, StorageError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.index.images import Images, as_ids
from c2b_ray.models.index.plan import MANIFEST, ROWS, VECTORS, Manifest
from c2b_ray.models.index.vectors import SearchEffort, Vectors
from c2b_ray.roles import Description, Floats, Neighbours
from c2b_ray.storage import absent_bucket, refusal, resolve
from c2b_ray.storage.s3 import open_input

CACHE = "C2B_CACHE"
DEVICES = ("auto", "cpu", "gpu")
_CHUNK = 16 * 2**20


class FaissIndex:
    """An index directory, opened for search; implements `roles.ImageIndex`.

    `path` is a local directory or a URI such as s3://bucket/index. Raises SourceError where it is no complete index.
    """

    def __init__(self, path: str, effort: SearchEffort = SearchEffort()) -> None:  # noqa: B008  # frozen
        self._path = path.rstrip("/")
        self._files, self._root = resolve(self._path)
        self.manifest = read_manifest(self._path)
        directory = self._local()
        self._vectors = Vectors(directory, self.manifest, effort)
        self._images = Images(self._path, self.manifest, lambda name: str(directory / name))

    @property
    def encoder(self) -> str:
        return self.manifest.encoder

    @property
    def encoder_revision(self) -> str:
        """The revision of the encoder that made the embeddings; queries must come from the same one."""
        return self.manifest.encoder_revision

    @property
    def dimension(self) -> int:
        return self.manifest.dimension

    @property
    def revision(self) -> str:
        return self.manifest.revision

    @property
    def count(self) -> int:
        return self.manifest.count

    def search(self, embeddings: Floats, k: int) -> Neighbours:
        """Returns the k nearest images of each unit-norm embedding, float32 (queries, dimension), nearest first.

        Similarities are exact, of the vectors in float16 where the index is not flat; other kinds approximate only
        which images are nearest. Where fewer than k images exist, ids end in −1 and similarities in NaN. SourceError
        for another dimension.
        """
        queries = np.ascontiguousarray(embeddings, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise SourceError(
                f"{self._path}: index of another encoder: {self.encoder} has dimension {self.dimension}, "
                f"the query has shape {queries.shape}; rebuild with c2b index build"
            )
        if k < 1 or len(queries) == 0:
            return Neighbours(
                np.zeros((len(queries), max(k, 0)), np.int64), np.zeros((len(queries), max(k, 0)), np.float32)
            )
        return self._vectors.search(queries, k)

    def embeddings(self, ids: Sequence[int]) -> Floats:
        """Returns the embeddings of rows, float32 (ids, dimension), in the order of `ids`: as they were given where the
        index is flat, else rounded to float16. SourceError for an id that the index does not have."""
        return self._vectors.rows(as_ids(ids, self.count, self._path))

    def metadata(self, ids: Sequence[int]) -> pa.Table:
        """Returns column `key` and the source's columns, a row per id in the order of `ids`; no image is read."""
        return self._images.metadata(as_ids(ids, self.count, self._path))

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Returns columns `key`, `bytes` and the source's columns, a row per id in the order of `ids`; repeated ids
        repeat rows.

        Only the row groups that hold one of the ids are read. Where the images lie outside the index, `error` says why
        bytes are null. SourceError for an id that the index does not have.
        """
        return self._images.fetch(as_ids(ids, self.count, self._path))

    def _local(self) -> Path:
        """Returns a local directory with the files that must be local."""
        if isinstance(self._files, fs.LocalFileSystem):
            return Path(self._root)
        names = [shard.file for shard in self.manifest.shards]
        names += [ROWS] if self.manifest.format > 1 else []
        names += [VECTORS] if self.manifest.kind != "flat" else []
        directory = cache() / self.manifest.revision
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with FileLock(directory / ".lock"):  # one process brings, the others wait
                for name in names:
                    if not (directory / name).exists():
                        self._bring(name, directory / name)
        except OSError as error:
            raise StorageError(
                f"{directory}: the index cannot be kept here: {error}; make room, or name another folder in {CACHE}"
            ) from error
        return directory

    def _bring(self, name: str, to: Path) -> None:
        temporary = to.with_name(f"{to.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            source = open_input(self._files, f"{self._root}/{name}")
        except OSError as error:
            raise SourceError(f"{self._path}/{name}: {error}; rebuild with c2b index build") from error
        try:
            with source, open(temporary, "xb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
            os.replace(temporary, to)
        finally:
            temporary.unlink(missing_ok=True)


def read_manifest(path: str) -> Manifest:
    """Reads the manifest. Raises SourceError where `path` is no index."""
    files, root = resolve(path)
    try:
        with open_input(files, f"{root}/{MANIFEST}") as stream:
            text = bytes(stream.read())
    except OSError as error:
        refused = absent_bucket(path) if isinstance(error, FileNotFoundError) else refusal(path, error)
        raise SourceError(
            refused or f"{path}: no image index ({MANIFEST}: {error}); build one with c2b index build"
        ) from error
    return Manifest.from_json(text.decode("utf-8", "replace"), path)


def cache() -> Path:
    """Returns the folder where this machine keeps remote indexes, with one folder for each revision."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "c2b-ray") / "indexes"


def load(spec: Spec) -> FaissIndex:
    """Opens the index of a `faiss:` spec or of a plain path; options `probes`, `shortlist` and `device`."""
    return FaissIndex(spec.name, _effort(spec))


def describe(spec: Spec) -> Description:
    """Returns the description from the manifest alone; no vector is read."""
    _effort(spec)
    manifest = read_manifest(spec.name.rstrip("/"))
    return Description(
        revision=manifest.revision,
        dimension=manifest.dimension,
        encoder=manifest.encoder,
        encoder_revision=manifest.encoder_revision,
        count=manifest.count,
    )


def _effort(spec: Spec) -> SearchEffort:
    options = spec.options_among(("probes", "shortlist", "device"))
    device = options.get("device", "auto")
    if device not in DEVICES:
        raise SpecError(f"{spec.text}: device={device}; expected one of {', '.join(DEVICES)}")
    numbers = {name: _number(spec, name, options[name]) for name in ("probes", "shortlist") if name in options}
    return SearchEffort(**numbers, device=device)


def _number(spec: Spec, name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise SpecError(f"{spec.text}: {name}={value}; expected a whole number from 1 on")
    return int(value)
