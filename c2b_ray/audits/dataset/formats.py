"""The formats that a dataset of failures is exported to: ImageFolder, WebDataset, Hugging Face, FiftyOne.

A format writes parts (`write`), each from some shards, and once all are there what describes them (`finish`).
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from c2b_ray.audits.dataset.steps.shard import PNG_LEVEL
from c2b_ray.report import words
from c2b_ray.report.formats.folder import WORK, Folder, extension, file_name, folder_names, json_line
from c2b_ray.report.formats.writers import IMAGE, feature, yaml_feature
from c2b_ray.report.redact import clean_setting, cleaned
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import png
from c2b_ray.storage import THREADS, is_remote
from c2b_ray.tables.dataset import DATASET_ROWS


@dataclass(frozen=True)
class ExportedRows:
    """The exported rows, described for cards and metadata. `labels`: with their numbers of rows, by name."""

    rows: int
    labels: Mapping[str, int]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    classifier: str | None
    bytes: int = 0
    files: Sequence[int] = field(default_factory=tuple)  # the number of each file


class Format(Protocol):
    """A format whose files, or each file's images, can be written separately."""

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        """Writes the rows of one file; written again, it is the same."""
        ...

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        """Writes the files about the whole export."""
        ...


@dataclass(frozen=True)
class ExportedFiles:
    rows: int
    bytes: int


def record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row without its image, as JSON values. The fingerprint has 16 hexadecimal digits, because many readers
    take JSON's numbers for floats."""
    return {name: value for name, value in row.items() if name != "image"} | {
        "fingerprint": f"{row['fingerprint']:016x}"
    }


# Writes the README.md of an export: YAML that Hugging Face's loaders and pages read, and notes for people.


MOST_LABELS = 100
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
"""The bounds of the Hub's categories of sizes, each ten times the one before."""


def readme(about: ExportedRows, yaml_fields: Mapping[str, Any], loading: str) -> str:
    """Returns the whole file. `yaml_fields`: those of the format, after the fields of every card."""
    head = {
        "pretty_name": f"Failures of {words.listed(_classifiers(about))}",
        "task_categories": ["image-classification"],
        "tags": ["classifier-failures", *(["synthetic"] if _images(about).get("generate") else []), "robustness"],
        "size_categories": [_size_category(about.rows)],
        **yaml_fields,
    }
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{front}---\n\n{_body(about)}\n## Loading it\n\n{loading}"


def _size_category(rows: int) -> str:
    passed = sum(rows >= 1000 * 10**number for number in range(len(_SIZES)))
    if passed in (0, len(_SIZES)):
        return f"n>{_SIZES[-1]}" if passed else f"n<{_SIZES[0]}"
    return f"{_SIZES[passed - 1]}<n<{_SIZES[passed]}"


def _body(about: ExportedRows) -> str:
    config = cleaned(dict(about.config))
    names = _classifiers(about)
    drops = {
        **(about.manifest.get("drops") or {}),
        **{f"without {name} in the table": n for name, n in (about.manifest.get("without_value") or {}).items()},
    }
    parts = [
        f"# Failures of {words.listed([f'`{name}`' for name in names])}\n",
        f"{words.plural(about.rows, 'image')} on which {' or '.join(f'`{name}`' for name in names)} fails by the rule "
        f"`{config.get('rule', 'top1')}`. `label` is what an image {_shows(about)}, `predicted` what it passed for."
        "\n",
        "Read it with care:\n",
        "- These images were selected because the classifier fails on them: its accuracy here says nothing of how "
        "often it fails, and accuracies of other classifiers only how far its failures transfer.\n"
        f"{_of_labels(about)}`verified` holds what a verifier saw, where one was asked.\n"
        "- Images of one `caption_number` share a caption. Split by caption, not by image.\n",
        "## Labels\n",
        _table(
            ("label", "images"),
            [(name, words.count(count)) for name, count in list(about.labels.items())[:MOST_LABELS]],
        ),
    ]
    if len(about.labels) > MOST_LABELS:
        parts.append(f"And {words.count(len(about.labels) - MOST_LABELS)} more.\n")
    if drops:
        parts += [
            "## What the build left out\n",
            _table(("reason", "images"), [(name, words.count(n)) for name, n in drops.items()]),
        ]
    settings = {name: value for name, value in config.items() if value is not None}
    parts += [
        "## How it was built\n",
        f"```yaml\n{yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=120)}```\n",
    ]
    return "\n".join(parts)


def _images(about: ExportedRows) -> Mapping[str, Any]:
    return about.config.get("images") or {"generate": True}


def _shows(about: ExportedRows) -> str:
    return "is said to show by the table that it comes from" if _images(about).get("labelled") else "was drawn to show"


def _of_labels(about: ExportedRows) -> str:
    if _images(about).get("labelled"):
        return "- Labels are those of the table that the images come from; some failures may be wrong labels. "
    if _images(about).get("index") and not _images(about).get("generate"):
        return "- Labels come from captions that images of an index are near to; not each shows what its caption says. "
    return (
        "- Labels come from the captions that images were drawn from. A generator does not always draw what a caption "
        "says; "
    )


def _classifiers(about: ExportedRows) -> list[str]:
    if about.classifier is not None:
        return [clean_setting(about.classifier)]
    specs = about.config.get("classifier") or about.config.get("classifiers") or "a classifier"
    names = [specs] if isinstance(specs, str) else list(specs)
    return [clean_setting(str(name)) for name in names]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |" for row in rows
    ]
    return "\n".join(lines) + "\n"


LABEL = "label"


@dataclass(frozen=True)
class HuggingFace:
    """Parquet files with Image and ClassLabel features, and a dataset card."""

    labels: tuple[str, ...]
    total: int  # files

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        numbers = {label: position for position, label in enumerate(self.labels)}
        rows = 0
        schema = self._schema()
        with (
            folder.open(self.name(number)) as stream,
            pq.ParquetWriter(
                stream,
                schema,
                compression={field.name: "none" if field.name == "image" else "zstd" for field in DATASET_ROWS},
            ) as writer,
        ):
            for table in tables:  # a row group for each: readers then take an image without its thousand neighbours
                writer.write_table(_converted(table, numbers, schema))
                rows += table.num_rows
            size = stream.tell()
        return ExportedFiles(rows, size)

    def name(self, number: int) -> str:
        return f"data/train-{number:05d}-of-{self.total:05d}.parquet"

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        split = {"name": "train", "num_bytes": about.bytes, "num_examples": about.rows}
        info = {"features": self._yaml(), "splits": [split], "download_size": about.bytes, "dataset_size": about.bytes}
        configs = [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}]
        folder.put("README.md", readme(about, {"dataset_info": info, "configs": configs}, HUGGINGFACE_LOADING).encode())

    def _schema(self) -> pa.Schema:
        fields = []
        for column in DATASET_ROWS:
            kind = {"image": IMAGE, LABEL: pa.int64()}.get(column.name, column.type)
            fields.append(pa.field(column.name, kind))
        features = {field.name: feature(field.type) for field in DATASET_ROWS}
        features |= {"image": {"_type": "Image"}, LABEL: {"names": list(self.labels), "_type": "ClassLabel"}}
        return pa.schema(fields, {b"huggingface": json.dumps({"info": {"features": features}}).encode()})

    def _yaml(self) -> list[dict[str, Any]]:
        names = {str(number): label for number, label in enumerate(self.labels)}
        special: dict[str, dict[str, Any]] = {
            "image": {"dtype": "image"},
            LABEL: {"dtype": {"class_label": {"names": names}}},
        }
        return [{"name": field.name, **(special.get(field.name) or yaml_feature(field.type))} for field in DATASET_ROWS]


def _converted(table: pa.Table, numbers: dict[str, int], schema: pa.Schema) -> pa.Table:
    images = [
        {"bytes": image, "path": f"{file_name(name)}.{extension(image)}"}
        for image, name in zip(table["image"].to_pylist(), table["image_id"].to_pylist(), strict=True)
    ]
    columns = {name: table[name] for name in table.column_names}
    columns["image"] = pa.array(images, IMAGE)
    columns[LABEL] = pa.array([numbers[label] for label in table[LABEL].to_pylist()], pa.int64())
    return pa.table([columns[name] for name in schema.names], schema=schema)


HUGGINGFACE_LOADING = """```python
import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")
dataset[0]["image"], dataset.features["label"].int2str(dataset[0]["label"])
```
"""


_PASSED_OVER = ("gif", "avif", "heic")


@dataclass(frozen=True)
class ImageFolder:
    """A folder for each label, as torchvision and Hugging Face read it, and metadata.jsonl beside them.

    OUT/LABEL/IMAGE_ID.png    as it is; GIF, AVIF and HEIC as PNG: torchvision's ImageFolder passes them over
    OUT/metadata.jsonl        file_name, and the other columns of the image
    OUT/README.md             names the files: Hugging Face's loader takes folders like `bullet train` for splits
    """

    labels: tuple[str, ...]

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        folders = folder_names(self.labels)
        rows = size = 0
        with (
            folder.open(part_name(number)) as metadata,
            ThreadPoolExecutor(THREADS if is_remote(folder.location) else 1) as pool,  # a store answers slowly
        ):
            for table in tables:
                images = []
                for row in table.to_pylist():
                    image = _readable(row["image"])
                    name = f"{folders[row['label']]}/{file_name(row['image_id'])}.{extension(image)}"
                    images.append((name, image))
                    metadata.write(json_line({"file_name": name} | record(row)))
                    rows, size = rows + 1, size + len(image)
                list(pool.map(lambda image: folder.put(*image), images))
        return ExportedFiles(rows, size)

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        with folder.open("metadata.jsonl") as metadata:
            for line in folder.lines(map(part_name, about.files)):
                metadata.write(line + b"\n")
        folders = sorted(folder_names(self.labels).values())
        configs = [{"config_name": "default", "data_files": [{"split": "train", "path": ["metadata.jsonl", "*/*"]}]}]
        folder.put(
            "README.md", readme(about, {"configs": configs}, IMAGEFOLDER_LOADING.format(folders=len(folders))).encode()
        )


def _readable(image: bytes) -> bytes:
    """Returns the image in a format that torchvision's ImageFolder reads, with the same pixels."""
    return png(decode(image), PNG_LEVEL) if extension(image) in _PASSED_OVER else image


def part_name(number: int) -> str:
    return f"{WORK}/metadata-{number:06d}.jsonl"


IMAGEFOLDER_LOADING = """```python
import torchvision
dataset = torchvision.datasets.ImageFolder("PATH OF THIS FOLDER")  # {folders} labels

import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")  # with everything of metadata.jsonl
```
"""


@dataclass(frozen=True)
class WebDataset:
    """Tar shards whose members are grouped by key, readable in sequence and from object stores.

        OUT/shard-000000.tar    KEY.png   the image as it is; .jpg and so on, by its format
                                KEY.cls   the label's number
                                KEY.json  the other columns of the image
        OUT/labels.json         the labels in the order of their numbers
        OUT/README.md

    The same rows make the same bytes: members carry no times and no owners.
    """

    labels: tuple[str, ...]

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        numbers = {label: position for position, label in enumerate(self.labels)}
        rows = size = 0
        with (
            folder.open(shard_name(number)) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for table in tables:
                for row in table.to_pylist():
                    key = file_name(row["image_id"]).replace(".", "_")  # a key ends at its first dot
                    members = ((extension(row["image"]), row["image"]), ("cls", str(numbers[row["label"]]).encode()))
                    for suffix, data in (*members, ("json", json_line(record(row)))):
                        member = tarfile.TarInfo(f"{key}.{suffix}")
                        member.size, member.mode = len(data), 0o644
                        tar.addfile(member, BytesIO(data))
                    rows, size = rows + 1, size + len(row["image"])
        return ExportedFiles(rows, size)

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        folder.put("labels.json", json.dumps(list(self.labels), ensure_ascii=False, indent=1).encode() + b"\n")
        configs = [{"config_name": "default", "data_files": [{"split": "train", "path": "*.tar"}]}]
        last = max(about.files, default=0)
        loading = WEBDATASET_LOADING.format(shards=f"shard-{{000000..{last:06d}}}.tar")
        folder.put("README.md", readme(about, {"configs": configs}, loading).encode())


def shard_name(number: int) -> str:
    return f"shard-{number:06d}.tar"


WEBDATASET_LOADING = """```python
import PIL.Image
import webdataset
dataset = webdataset.WebDataset("PATH OF THIS FOLDER/{shards}").decode("pil")
for sample in dataset:
    image = next(value for value in sample.values() if isinstance(value, PIL.Image.Image))
    sample["cls"], sample["json"]
```

An image is called by its format, `png` or `jpg`. `cls` is the label's number in labels.json.
"""


_PLAIN = (
    "caption",
    "prompt",
    "seed",
    "generator",
    "rule",
    "kept_because",
    "verified",
    "caption_number",
    "draw",
    "key",
    "fingerprint",
)


@dataclass(frozen=True)
class FiftyOne:
    """Images below data/, and their labels twice, for two of FiftyOne's types.

        OUT/data/IMAGE_ID.png
        OUT/samples.json, OUT/metadata.json    fiftyone.types.LegacyFiftyOneDataset: ground truth, the answer of every
                                               classifier with its confidence, and the other columns of an image
        OUT/labels.json                        fiftyone.types.FiftyOneImageClassificationDataset: only the ground truth

    The current FiftyOneDataset is a dump of FiftyOne's database at one version of it; all versions read these two.
    """

    labels: tuple[str, ...]

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        rows = size = 0
        with (
            folder.open(_fiftyone_part("samples", number)) as samples,
            folder.open(_fiftyone_part("labels", number)) as labels,
        ):
            for table in tables:
                for row in table.to_pylist():
                    key = file_name(row["image_id"])
                    name = f"data/{key}.{extension(row['image'])}"
                    folder.put(name, row["image"])
                    samples.write(json_line(fiftyone_sample(row, name)))
                    labels.write(f"{json.dumps(key)}: {self.labels.index(row['label'])}\n".encode())
                    rows, size = rows + 1, size + len(row["image"])
        return ExportedFiles(rows, size)

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        _joined(
            folder, "samples.json", '{"samples": [', "]}", [_fiftyone_part("samples", number) for number in about.files]
        )
        head = f'{{"classes": {json.dumps(list(self.labels))}, "labels": {{'
        _joined(folder, "labels.json", head, "}}", [_fiftyone_part("labels", number) for number in about.files])
        metadata = {
            "info": {"config": cleaned(dict(about.config)), "rows": about.rows},
            "default_classes": list(self.labels),
        }
        folder.put("metadata.json", json_line(metadata))
        folder.put("README.md", readme(about, {}, FIFTYONE_LOADING).encode())


def fiftyone_sample(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a sample of FiftyOne. An undecided answer has no label and is left out."""
    fields = record(row)
    result = {"filepath": name, "tags": [], "ground_truth": {"_cls": "Classification", "label": row["label"]}}
    result |= {column: fields[column] for column in _PLAIN} | {"image_id": row["image_id"]}
    used_fields = set(result)
    for number, answer in enumerate(row["answers"]):
        # Field names are identifiers; the number tells specs with the same identifier apart.
        field = f"predicted_{number}_{re.sub(r'[^0-9a-z]+', '_', answer['classifier'].lower()).strip('_')[-60:]}"
        if answer["predicted"] is not None and field not in used_fields:
            likeliest = float(answer["probabilities"][0]) if answer["probabilities"] else None
            result[field] = {
                "_cls": "Classification",
                "label": answer["predicted"],
                "confidence": likeliest,
                "failed": answer["failed"],
            }
    return result


def _fiftyone_part(kind: str, number: int) -> str:
    return f"{WORK}/{kind}-{number:06d}.txt"


def _joined(folder: Folder, name: str, head: str, tail: str, parts: Iterable[str]) -> None:
    """Writes one JSON document from the parts' lines; only a line of it is in memory."""
    with folder.open(name) as stream:
        stream.write(head.encode())
        for number, line in enumerate(folder.lines(parts)):
            stream.write((b",\n" if number else b"\n") + line)
        stream.write(f"\n{tail}\n".encode())


FIFTYONE_LOADING = """```python
import fiftyone
dataset = fiftyone.Dataset.from_dir("PATH OF THIS FOLDER", dataset_type=fiftyone.types.LegacyFiftyOneDataset)
fiftyone.launch_app(dataset)
```
"""
