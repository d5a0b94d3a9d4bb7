"""Writes the README.md of an export: YAML that Hugging Face's loaders and pages read, and notes for people.

It knows the content of a build's config and manifest; it knows no format. Paths and credentials of specs are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from c2b_ray.audits.dataset.formats.kit import ExportedFiles, ExportedRows
from c2b_ray.report import words
from c2b_ray.report.formats.folder import Folder, extension, file_name
from c2b_ray.report.formats.writers import IMAGE, feature, yaml_feature
from c2b_ray.report.redact import clean_setting, cleaned
from c2b_ray.tables.dataset import DATASET_ROWS

MOST_LABELS = 100
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
"""The bounds of the Hub's categories of sizes, each ten times the one before."""


def text(about: ExportedRows, yaml_fields: Mapping[str, Any], loading: str) -> str:
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


# Hugging Face datasets: Parquet files with Image and ClassLabel features, and a dataset card.


LABEL = "label"


@dataclass(frozen=True)
class HuggingFace:
    labels: tuple[str, ...]
    total: int  # files

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        numbers = {label: position for position, label in enumerate(self.labels)}
        rows = 0
        schema = self._schema()
        with (
            folder.open(self.name(number)) as stream,
            pq.ParquetWriter(stream, schema, compression=_compression()) as writer,
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
        folder.put("README.md", text(about, {"dataset_info": info, "configs": configs}, LOADING).encode())

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


def _compression() -> dict[str, str]:
    """Leaves encoded images uncompressed: they do not shrink."""
    return {field.name: "none" if field.name == "image" else "zstd" for field in DATASET_ROWS}


def _converted(table: pa.Table, numbers: dict[str, int], schema: pa.Schema) -> pa.Table:
    images = [
        {"bytes": image, "path": f"{file_name(name)}.{extension(image)}"}
        for image, name in zip(table["image"].to_pylist(), table["image_id"].to_pylist(), strict=True)
    ]
    columns = {name: table[name] for name in table.column_names}
    columns["image"] = pa.array(images, IMAGE)
    columns[LABEL] = pa.array([numbers[label] for label in table[LABEL].to_pylist()], pa.int64())
    return pa.table([columns[name] for name in schema.names], schema=schema)


LOADING = """```python
import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")
dataset[0]["image"], dataset.features["label"].int2str(dataset[0]["label"])
```
"""
