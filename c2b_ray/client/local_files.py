"""Finds what a config names that lies on this machine, and gives it to an endpoint, which reads no path of a client.

    onnx:net.onnx?labels=names.txt      →  onnx:upload:3f…?labels=upload:9a…
    images: {table: photos/}            →  images: {table: upload:c4…}      the photographs, packed into one table
    label_map: map.json                 →  label_map: {…}                   what the file holds

What the endpoint has already keeps its name: `data/…` (the tenant's folder there), `upload:…`, `run:…`, and whatever
has a scheme, such as `s3://…`. A local folder called `data` is written `./data/…`. Labelled images of any form are
packed into one Parquet table, the form in which an endpoint takes them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

from c2b_ray.config.classifiers import PACKAGED
from c2b_ray.config.named import MODELS, Names
from c2b_ray.config.reading import replaced
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.models.spec_options import read_labels
from c2b_ray.names import folded
from c2b_ray.storage.confined import with_paths
from c2b_ray.storage.labelled import IMAGE, TARGET, LabelledTable, class_names, refuse_paths_outside
from c2b_ray.storage.labelled_rows import LABEL, PACKED, Rows, open_rows

if TYPE_CHECKING:
    from c2b_ray.audits.audit import Audit


# Packs labelled images, whatever form they have, into one Parquet table: the same rows and columns, with the images'
# bytes beside their paths. It has the keys, labels and revision of the images as they lie here, so that an audit of it
# draws the same images and gives the same results. The same images always give the same bytes, which are sent once. A
# row whose image cannot be read stays, without bytes: it is an error there as it is here.


ROWS_AT_ONCE = 64
"""Images that are read, and written as one row group: few, for photographs of 10 MB each."""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""The form of images in Hugging Face datasets."""
Progress = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""


@dataclass(frozen=True)
class Images:
    """Labelled images of this machine. `location`: a folder or table. `config_field`: the config's field that names it,
    for errors. `columns`: its names for `image`, `target_class` and `key`, if they differ; several names for
    `target_class` where each class has a column. `root`: the folder that its paths lie below, if that is not its own.
    `has_classes`: whether it must have a column of classes."""

    location: str
    config_field: str
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)
    root: str | None = None
    has_classes: bool = True

    def open(self) -> LabelledTable:
        """Raises SourceError or ConfigError as an audit does that reads them."""
        columns = dict(self.columns)
        if not self.has_classes and TARGET not in columns:  # which nobody looks at
            names = open_rows(self.location, self.config_field).schema.names
            columns[TARGET] = next((name for name in names if name != columns.get(IMAGE, IMAGE)), IMAGE)
        return LabelledTable(self.location, self.config_field, columns, self.root)

    def is_packed(self) -> bool:
        """Returns whether they are one Parquet file that holds the images themselves, and is sent as it is."""
        is_file = self.location.lower().endswith((".parquet", ".pq")) and Path(self.location).is_file()
        return is_file and self.root is None and next(self.open().paths(), None) is None

    def bytes(self) -> int:
        """Returns about how many bytes the images have."""
        table, total = self.open(), 0
        for start in range(0, len(table), ROWS_AT_ONCE):
            ids = range(start, min(start + ROWS_AT_ONCE, len(table)))
            total += sum(Path(path).stat().st_size for path in table.locations(ids) if path is not None)
        here = Path(self.location)
        files = [here] if here.is_file() else [one for one in here.rglob("*") if one.suffix in (".parquet", ".arrow")]
        return total + sum(one.stat().st_size for one in files)


def pack(images: Images, file: Path, told: Progress) -> None:
    """Writes the packed table to `file`. Raises SourceError where no image can be read."""
    table, rows = images.open(), open_rows(images.location, images.config_field)
    image, target = table.column_names[IMAGE], table.column_names[TARGET]
    # Only a folder may call its classes `label`, so a table has to call them by the name that every table has.
    has_label = TARGET in images.columns or class_names(rows.schema, LABEL) is not None
    renamed = {LABEL: TARGET} if target == LABEL and not has_label else {}
    schema = pa.schema(
        [one.with_name(renamed.get(one.name, one.name)) for one in rows.schema if one.name != image]
        + [pa.field(image, _IMAGE)],
        {**(rows.schema.metadata or {}), PACKED: str(rows.size).encode()},
    )
    told(images.location, 0, len(table))
    readable, first_error = 0, ""
    options = {"compression": "none", "use_dictionary": [one.name for one in schema if one.name != image]}
    with pq.ParquetWriter(file, schema, **options) as writer:
        done = 0
        for part in _parts(rows, [one.name for one in rows.schema if one.name != image], len(table)):
            ids = range(done, done + len(part))
            _, data, errors = table.read(ids)
            readable += sum(one is not None for one in data)
            first_error = first_error or next((one for one in errors if one), "")
            paths = _paths(table, rows, image, ids)
            pictures = pa.StructArray.from_arrays(
                [pa.array(data, pa.binary()), pa.array(paths, pa.string())], fields=list(_IMAGE)
            )
            writer.write_table(
                part.rename_columns(schema.names[:-1]).append_column(schema.field(image), pictures).cast(schema)
            )
            done += len(part)
            told(images.location, done, len(table))
    if not readable:
        raise SourceError(f"{images.location}: none of its {len(table):,} images can be read: {first_error}")


def _parts(rows: Rows, names: list[str], count: int) -> Iterator[pa.Table]:
    """Yields the columns `names`, some rows at a time; tables without columns where there are none."""
    if not names:
        yield from (
            pa.table({"": pa.nulls(min(ROWS_AT_ONCE, count - at))}).select([]) for at in range(0, count, ROWS_AT_ONCE)
        )
        return
    for table in rows.each(names):
        for start in range(0, len(table), ROWS_AT_ONCE):
            yield table.slice(start, ROWS_AT_ONCE)


def _paths(table: LabelledTable, rows: Rows, image: str, ids: range) -> list[str | None]:
    """Returns the path of each image as the table writes it; None where it has none."""
    values = rows.images(image, ids) if table.has_paths else [None] * len(ids)
    paths = (value.get("path") if isinstance(value, dict) else value for value in values)
    return [None if path is None else str(path) for path in paths]


THERE = ("data/", "upload:", "run:")
"""How names begin that mean something at the endpoint."""
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_TABLES = {".parquet": "table", ".pq": "table", ".csv": "csv"}
_OF_SPECS = {
    "onnx": {".onnx": "onnx"},
    "weights": {".safetensors": "safetensors"},
    "debias": {".safetensors": "safetensors"},
    "table": _TABLES,
}
"""Scheme or option of a spec → ending of a file → the kind of upload that it is."""
_LABELS = "labels"
_NOT_SENT = {
    Names.INDEX: "an index is not uploaded",
    Names.ANNOTATED: "annotations are not uploaded",
    Names.HEADS: "heads are not uploaded",
    Names.HIERARCHY: "a hierarchy is not uploaded",
    Names.RUN: "a run is not uploaded; name one of the endpoint, such as run:job_…",
}
LONGEST_NAME = 200
"""The most characters of a classifier's name."""


@dataclass(frozen=True)
class LocalFile:
    """A file that a config names. `field`: the config's field. `kind`: what it is as an upload. `images`: labelled
    images, which are packed; then `path` is their folder or table."""

    field: str
    path: str
    kind: str
    images: Images | None = None

    def size(self) -> int:
        """Returns the bytes to send, of images about."""
        return Path(self.path).stat().st_size if self.images is None else self.images.bytes()

    @contextmanager
    def as_sent(self, told: Progress) -> Iterator[Path]:
        """Yields the file that is uploaded, which may be a temporary one."""
        if self.images is None and self.kind != "text":
            yield Path(self.path)
            return
        with tempfile.TemporaryDirectory(prefix="c2b-upload-") as folder:
            file = Path(folder) / "file"
            if self.images is None:
                file.write_text("".join(f"{name}\n" for name in read_labels(self.path)), encoding="utf-8")
            else:
                pack(self.images, file, told)
            yield file


class LocalConfig:
    """A config whose paths are relative to `base`. `fields`: as they are written, in the audit's own words.

    Raises ConfigError for a local file that is missing, or that no endpoint takes. Fields that are wrong otherwise are
    left to the endpoint, which may be of another release.
    """

    def __init__(self, audit: Audit, fields: Mapping[str, Any], base: Path) -> None:
        self._fields, self._base = dict(fields), base
        self._roots: dict[str, str] = {}
        self._found: dict[tuple[str, str], LocalFile] = {}
        self._config: BaseModel | None = None
        try:
            config = audit.config_file.model.model_validate(self._fields)
        except (ValidationError, RecursionError):
            return
        label_map = self._fields.get("label_map")
        if isinstance(label_map, str) and not _is_there(label_map):
            self._fields["label_map"] = audit.config_file.label_map(self._at(label_map, "label_map"), config)
        self._fields = _without_roots(self._fields, "", self._roots)
        self._config = audit.config_file.model.model_validate(self._fields)
        replaced(self._config, self._fields, lambda names, value, field: self._value(names, value, field, self._note))

    @property
    def files(self) -> list[LocalFile]:
        """The files, each once."""
        return list(self._found.values())

    def with_uploads(self, upload: Callable[[LocalFile], str]) -> dict[str, Any]:
        """Returns the fields with uploads in place of local files. `upload` is called once for each of `files`, and
        returns its name, `upload:…`."""
        if self._config is None:
            return self._fields
        specs = {key: upload(file) for key, file in self._found.items()}

        def named(path: str, field: str, kind: str, images: Images | None) -> str:
            return specs[path, kind]

        return replaced(self._config, self._fields, lambda names, value, field: self._value(names, value, field, named))

    def _note(self, path: str, field: str, kind: str, images: Images | None) -> str:
        if (path, kind) not in self._found:
            if images is not None and field.endswith("images.table"):  # as the audit does; at the endpoint it is packed
                refuse_paths_outside(images.open(), f"{field.removesuffix('table')}root")
            self._found[path, kind] = LocalFile(field, path, kind, images)
        return path

    def _value(self, names: Names, value: Any, field: str, upload: _Upload) -> Any:
        """Returns the value of a field with `upload(path, field, kind, images)` in place of each local path."""
        if names is Names.LABEL_MAP or names is Names.METHODS:
            return value
        if names is Names.ROOT:  # of no table beside it
            return value
        if isinstance(value, dict):
            return {name: self._one(names, text, field, upload) for name, text in value.items()}
        written = [str(one) for one in (value if isinstance(value, list) else [value])]
        result = [self._one(names, text, field, upload) for text in written]
        if names is Names.CLASSIFIER and result != written:
            shown = [with_paths(text, self._base, lambda _, path: PurePath(path).name) for text in written]
            if max(map(len, shown)) <= LONGEST_NAME and len({*map(folded, shown)}) == len(shown):
                return dict(zip(shown, result, strict=True))  # pages and tables show the file's name, not its hash
        return result if isinstance(value, list) else result[0]

    def _one(self, names: Names, text: str, field: str, upload: _Upload) -> str:
        if names in MODELS:
            return with_paths(text, self._base, lambda what, path: self._of_spec(what, path, field, upload))
        if _is_there(text) or (names is Names.HIERARCHY and text in PACKAGED):
            return text
        if names in _NOT_SENT:
            if (self._base / text).expanduser().exists():
                raise ConfigError(field, f"{text} lies on this machine: {_NOT_SENT[names]}; {_BELOW_DATA}")
            return text
        path = self._at(text, field)
        if names in (Names.TABLE, Names.CAPTIONED):
            return self._of_images(path, field, names, upload)
        return upload(path, field, _kind(path, field, _TABLES), None)

    def _of_images(self, path: str, field: str, names: Names, upload: _Upload) -> str:
        if path.lower().endswith(ARCHIVES) and names is Names.TABLE:
            return upload(path, field, "images", None)
        section = _section(self._fields, field)
        columns = {name: value for name, value in (section.get("columns") or {}).items() if value}
        root = self._roots.get(field)
        images = Images(
            path, field, columns, None if root is None else self._at(root, f"{field}.root"), names is Names.TABLE
        )
        return upload(path, field, "table", None if images.is_packed() else images)

    def _of_spec(self, what: str, path: str, field: str, upload: _Upload) -> str:
        if _is_there(path):
            return path
        at = self._at(path, field)
        if what == _LABELS:
            return upload(at, field, "text", None)
        if what not in _OF_SPECS:
            raise ConfigError(field, f"{path} lies on this machine: what `{what}` names is not uploaded; {_BELOW_DATA}")
        return upload(at, field, _kind(at, field, _OF_SPECS[what]), None)

    def _at(self, text: str, field: str) -> str:
        """Returns the absolute path. Raises ConfigError where nothing is there."""
        try:
            path = (self._base / Path(text).expanduser()).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:  # `~` of no user, a name too long, NUL
            raise ConfigError(field, f"{text}: no such file or folder in {self._base}; {_MEANT_THERE}") from error
        return str(path)


_Upload = Callable[[str, str, str, "Images | None"], str]
_BELOW_DATA = "ask the endpoint's operator to place it below the tenant's data/, or in a store that the endpoint lists"
_MEANT_THERE = "what lies at the endpoint is named data/…, upload:…, run:… or s3://…"


def _is_there(text: str) -> bool:
    """Returns whether a name means something at the endpoint, or on a hub, rather than on this machine."""
    return text.startswith(THERE) or "://" in text


def _kind(path: str, field: str, kinds: Mapping[str, str]) -> str:
    kind = next((kind for ending, kind in kinds.items() if path.lower().endswith(ending)), None)
    if kind is None or not Path(path).is_file():
        raise ConfigError(field, f"{path}: the endpoint takes a file that ends in {' or '.join(kinds)}; convert it")
    return kind


def _without_roots(value: Any, above: str, roots: dict[str, str]) -> Any:
    """Returns a config without the `root` of each local `table` beside it, which goes into `roots`, by the table's
    field."""
    if isinstance(value, Mapping):
        table, root = value.get("table"), value.get("root")
        if isinstance(table, str) and isinstance(root, str) and not _is_there(table):
            roots[f"{above}table"] = root
            value = {name: one for name, one in value.items() if name != "root"}
        return {name: _without_roots(one, f"{above}{name}.", roots) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_roots(one, f"{above}{at}.", roots) for at, one in enumerate(value)]
    return value


def _section(value: Any, field: str) -> Mapping[str, Any]:
    """Returns the section that holds a field. Names that users give may contain dots."""
    if not isinstance(value, Mapping):
        return {}
    if field in value:
        return value
    inner = (_section(one, field[len(name) + 1 :]) for name, one in value.items() if field.startswith(f"{name}."))
    return next((one for one in inner if one), {})
