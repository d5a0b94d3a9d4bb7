"""Plans a dataset: writes its captions, numbered; before that, checks its models and estimates its cost."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from c2b_ray.audits.dataset.config import DatasetConfig, Labelled, read_dataset_config
from c2b_ray.audits.dataset.directory import DatasetBuild
from c2b_ray.audits.dataset.models import by_captioner, by_language_model, open_table, truths_of
from c2b_ray.audits.dataset.shard_files import CAPTIONS, REPLIES, write_captions
from c2b_ray.audits.dataset.steps.plan import AT_ONCE, NumberedCaptions
from c2b_ray.audits.failures.config import ANY_LABEL
from c2b_ray.audits.failures.discovery.value_sets import Condition
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import check_specs, compared_with, is_table
from c2b_ray.audits.kit.replies import KeptReplies
from c2b_ray.audits.kit.session import Cost, Steps, answers, classifications, generations
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.models import catalog
from c2b_ray.names import mentions, normalise
from c2b_ray.report import words
from c2b_ray.steps.labels import TARGET, Texts, chosen, column_of, compared, one_form, spellings
from c2b_ray.steps.synonyms import some
from c2b_ray.storage import files, resolve
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.manifest import FileOrFields
from c2b_ray.storage.s3 import open_input
from c2b_ray.storage.tables import refuse_other_delimiters, refuse_repeats

# The captions of a dataset, from the source that its config names: numbered, each once, each with its label.


Pairs = Iterable[tuple[str, str]]


def of_file(location: str) -> Iterator[tuple[str, str]]:
    """Yields (label, caption) of a CSV or Parquet file. Raises ConfigError, which names the row whose caption lacks its
    label."""
    row = 0
    for table in _tables_of_file(location):
        refuse_repeats(location, table.column_names)
        for name in ("label", "caption"):
            if name not in table.column_names:
                hint = nearest(name, table.column_names)
                raise ConfigError("captions.file", f"{location} has no column {name!r}; {hint}")
        texts = (table[name].cast(pa.string()).to_pylist() for name in ("label", "caption"))
        for label, caption in zip(*texts, strict=True):
            row += 1
            if not label or not caption or not label.strip() or not caption.strip():
                raise ConfigError("captions.file", f"{location}, row {row}: label or caption is empty")
            label, caption = unicodedata.normalize("NFC", label.strip()), " ".join(caption.split())
            if not mentions(caption, label):
                raise ConfigError(
                    "captions.file",
                    f"{location}, row {row}: the caption {caption[:200]!r} does not name its label {label!r}: a "
                    "picture of it would show something else",
                )
            yield label, caption


def _tables_of_file(location: str) -> Iterator[pa.Table]:
    filesystem, path = resolve(location)
    try:
        with files.reading(location, "file of captions"), open_input(filesystem, path) as stream:
            if location.lower().endswith(".parquet"):
                for batch in pq.ParquetFile(stream).iter_batches(AT_ONCE):
                    yield pa.Table.from_batches([batch])
                return
            as_text = pyarrow.csv.ConvertOptions(column_types={"label": pa.string(), "caption": pa.string()})
            parsed = pyarrow.csv.ParseOptions(newlines_in_values=True)
            for batch in pyarrow.csv.open_csv(stream, parse_options=parsed, convert_options=as_text):
                refuse_other_delimiters(location, batch.schema.names, ",")
                yield pa.Table.from_batches([batch])
    except pa.ArrowException as error:
        why = " ".join(str(error).split())
        hint = "; save it as UTF-8" if "invalid UTF8" in why else ""
        raise SourceError(
            f"{location}: is no CSV or Parquet file of captions: {why}{hint}", location=location
        ) from error


def hypotheses_of(run: str) -> str:
    """Returns the location of the captions of a run of `c2b failures`. Raises ConfigError where it has none."""
    location = f"{run.rstrip('/')}/hypotheses.parquet"
    if not files.exists(location):
        raise ConfigError(
            "captions.run",
            f"{run} has no hypotheses.parquet: it is no run of c2b failures, or that has not ended; run it again first",
        )
    return location


def of_run(location: str) -> Iterator[tuple[str, str]]:
    """Yields (label, caption) of the failing captions that a run of `c2b failures` confirmed."""
    table = files.read_table(hypotheses_of(location))
    rows = [row for row in table.to_pylist() if row["stage"] == "confirmation" and row["verdict"] == "failure"]
    if not rows:
        raise SourceError(
            f"{location}: its hypotheses hold no confirmed failure, so there is no caption to draw; give it a larger "
            "budget, or name captions.file",
            location=location,
        )
    for row in rows:
        yield row["label"], row["caption"]


def of_table(
    config: Labelled, table: LabelledTable, label_names: Iterable[str], missing: Counter[str] | None = None
) -> Iterator[tuple[str, str, list[int]]]:
    """Yields (label, caption, rows) of a labelled table: for each label, or for each of its combinations of values of
    `by`.

    `label_names`: the labels to read, in their order; empty: all labels of the table. `missing`: is told how many rows
    have no label, and how many of these labels have no value in a column of `by`; a row counts for the first of them.
    """
    labels = table.labels
    targets = compared(labels, TARGET)
    columns = {name: compared(labels, column_of(labels, name)) for name in config.by}
    labels_wanted = list(label_names) or _labels_of(table)
    if missing is not None:
        missing.update(_without_value({TARGET: targets}, np.ones(len(targets), bool)))
    for label in labels_wanted:
        of_label = targets == normalise(label)
        if missing is not None:
            missing.update(_without_value(columns, of_label))
        values = [sorted({value for value in column[of_label] if value is not None}) for column in columns.values()]
        for values_shown in product(*values):
            mask = of_label.copy()
            for value, column in zip(values_shown, columns.values(), strict=True):
                mask &= column == value
            rows = np.flatnonzero(mask).tolist()
            if rows:
                suffix = "".join(f", {name}: {value}" for name, value in zip(columns, values_shown, strict=True))
                yield label, f"a photo of {some(label)}{suffix}", rows


def _labels_of(table: LabelledTable) -> list[str]:
    """Returns the labels of a table, each in its most frequent spelling. Raises ConfigError for two that may or may not
    be one."""
    column = table.labels[TARGET]
    one_form([str(name) for name in column.unique().to_pylist() if name], table.field, f"column {TARGET!r}")
    return sorted(spellings(column).values())


def _without_value(columns: Mapping[str, Texts], is_chosen: NDArray[np.bool_]) -> Counter[str]:
    """Returns how many of the chosen rows have no value, by the first column in which they have none."""
    remaining, counts = is_chosen.copy(), Counter[str]()
    for name, column in columns.items():
        is_missing = remaining & pc.is_null(pa.array(column)).to_numpy(zero_copy_only=False)
        counts[name] = int(is_missing.sum())
        remaining &= ~is_missing
    return +counts


def of_conditions(pairs: Pairs, table: LabelledTable) -> Iterator[tuple[str, str, list[int]]]:
    """Yields (label, caption, rows) for a run's captions of labelled images: the images that show what the caption
    says.

    Raises SourceError where no column of this table holds what a caption says.
    """
    labels = table.labels
    targets = compared(labels, TARGET)
    columns = {name: compared(labels, name) for name in chosen(labels, None, table.field)}
    of_text: dict[str, tuple[tuple[str, str], ...]] = {}
    singles = [(name, str(value)) for name, column in columns.items() for value in set(column) if value is not None]
    kinds = [(), *((single,) for single in singles), *((a, b) for a, b in permutations(singles, 2) if a[0] != b[0])]
    for label, text in pairs:
        for values in kinds:
            of_text.setdefault(Condition(label, values).caption.text, values)
        if text not in of_text:
            raise SourceError(
                f"{table.location}: no columns say what the caption {text!r} does; is it the run's table?"
            )
        mask = np.logical_and.reduce([columns[name] == value for name, value in of_text[text]], initial=True)
        mask = np.broadcast_to(mask, len(targets))
        for name in (
            [label] if label != ANY_LABEL else sorted({str(target) for target in targets if target is not None})
        ):
            rows = np.flatnonzero(mask & (targets == normalise(name))).tolist()
            if rows:
                yield name, text, rows


def with_rows(pairs: Pairs) -> Iterator[tuple[str, str, list[int] | None]]:
    return ((label, caption, None) for label, caption in pairs)


def plan_captions(config: DatasetConfig, directory: DatasetBuild, models: Backend, steps: Steps) -> dict[str, Any]:
    """Writes the captions, and returns the entries of dataset.json about them."""
    numbered = NumberedCaptions(config.draws_per_caption * config.images.sources)
    missing: Counter[str] = Counter()
    replies = directory.files.at(REPLIES)
    write_captions(directory.files, numbered.tables(_captions(config, models, steps, missing, replies)))
    if not numbered.total:
        raise SourceError(f"{directory.location}: there is no caption to draw images of")
    plan: dict[str, Any] = {"captions": numbered.captions, "draws": numbered.total, "shard_draws": config.shard_draws}
    from_run = config.captions is not None and config.captions.run is not None
    if numbered.repeated:
        plan["repeated_captions"] = numbered.repeated
    if numbered.repeated and not from_run:  # a run has a caption for each of its targets and classifiers
        steps.warn(f"a caption that comes again with the same label is drawn once; left out: {numbered.repeated}")
    if missing:
        plan["without_value"] = dict(missing)
        rows_left_out = words.listed(
            [f"{words.plural(count, 'row')} without {name}" for name, count in missing.items()]
        )
        steps.warn(f"images.labelled: left out {rows_left_out}")
    if config.images.labelled is not None:
        plan |= _of_table(config, list(numbered.labels), steps)
    return {
        "labels": list(numbered.labels),
        "captions_sha256": directory.files.digest(CAPTIONS).sha256,
        "plan": plan,
    }


def _of_table(config: DatasetConfig, labels: list[str], steps: Steps) -> dict[str, Any]:
    """Says what the labelled table's folder holds besides, and what is odd about tables of predictions; returns the
    plan's entry about it. Raises SourceError where a table of predictions is one of other images."""
    assert config.images.labelled is not None
    table = open_table(config.images.labelled.table, dict(config.images.labelled.columns or {}))
    warnings = list(table.left_out.sentences())
    if any(map(is_table, config.specs.values())):
        label_forms = {normalise(name) for name in labels}
        truth = table.labels[TARGET].to_pylist()
        rows = [row for row, name in enumerate(truth) if name is not None and normalise(name) in label_forms]
        keys = table.keys.take(pa.array(rows, pa.int64())).to_pylist()
        label_map = config.label_map if isinstance(config.label_map, dict) else None
        warnings += compared_with(config.specs, keys, [truth[row] for row in rows], labels, label_map)
    for warning in warnings:
        steps.warn(warning)
    return {"left_out": table.left_out.as_dict(), "warnings": warnings} if warnings else {}


def _captions(
    config: DatasetConfig, models: Backend, steps: Steps, missing: Counter[str], replies: str
) -> Iterator[tuple[str, str, list[int] | None]]:
    if config.images.labelled is not None:
        labelled = config.images.labelled
        table = open_table(labelled.table, dict(labelled.columns or {}))
        mapped_labels = list(config.label_map) if isinstance(config.label_map, dict) else []
        if config.captions is not None and config.captions.run is not None:
            return of_conditions(of_run(config.captions.run), table)
        return of_table(labelled, table, mapped_labels, missing)
    captions = config.captions
    assert captions is not None
    if captions.file is not None:
        return with_rows(of_file(captions.file))
    if captions.run is not None:
        return with_rows(of_run(captions.run))
    if captions.language_model is not None:
        model = models.language_model(captions.language_model)
        with steps.step("caption", images_per_row=0) as report_progress:
            kept_replies = KeptReplies(model, replies, report_progress)
            return with_rows(list(by_language_model(captions, kept_replies, config.seed, steps)))
    return with_rows(by_captioner(captions, models, steps))


# Checks before a dataset is built whether its models and files exist, and estimates the cost of the build.


def estimate(config: FileOrFields | DatasetConfig, via: str = "auto") -> list[Cost]:
    """Returns the cost of a build, line by line, from a short trial of its models in this process, wherever
    the build will run (`via`); writes nothing.

    Raises ConfigError where a classifier lacks a label of the captions, as the build itself would.
    """
    config = read_dataset_config(config)
    check_specs(config)
    captions, draws, labels = size_of(config)
    for name, spec in config.specs.items():
        truths_of(config, name, catalog.described("classifier", spec), labels)
    shards = -(-draws // config.shard_draws)
    costs = [Cost("captions", captions, captions), Cost("shards", shards, shards)]
    draws_per_source = draws // config.images.sources
    costs += [
        Cost(f"images to draw from {spec}", draws_per_source, draws_per_source, generations(spec))
        for spec in config.images.generators
    ]
    if config.images.index is not None:
        costs.append(Cost(f"images to fetch from {config.images.index}", draws_per_source, draws_per_source))
    if config.images.labelled is not None:
        costs.append(Cost("images to read", draws, draws))
    costs += [
        Cost(f"predictions of {name}", draws, draws, classifications(spec)) for name, spec in config.specs.items()
    ]
    if config.verify is not None:
        spec = config.verify.captioner
        costs.append(Cost("failures to verify", 0, draws, answers(spec), "of the failures alone"))
    most = min(draws, captions * config.cap_per_caption)
    return [*costs, Cost("rows to keep", 0, most, note="at most, where every image fails")]


def size_of(config: DatasetConfig) -> tuple[int, int, list[str]]:
    """Returns the numbers of captions and draws, at most, and the labels of the captions."""
    if config.images.labelled is not None:
        numbered = NumberedCaptions(0)
        labelled = config.images.labelled
        table = open_table(labelled.table, dict(labelled.columns or {}))
        for _ in numbered.tables(of_table(labelled, table, list(config.label_map or ()))):
            continue
        return numbered.captions, numbered.total, list(numbered.labels)
    captions = config.captions
    assert captions is not None
    if captions.language_model is not None:
        labels = list(captions.labels or ())
        count = captions.per_label * len(labels)
    elif captions.images is not None:
        labelled_images = LabelledTable(captions.images, "captions.images").labels
        count, labels = labelled_images.num_rows, sorted(set(labelled_images[TARGET].to_pylist()) - {None})
    else:
        pairs = of_file(captions.file) if captions.file is not None else of_run(str(captions.run))
        numbered = NumberedCaptions(1)
        for _ in numbered.tables((label, text, None) for label, text in pairs):
            continue
        count, labels = numbered.captions, list(numbered.labels)
    return count, count * config.draws_per_caption * config.images.sources, labels
