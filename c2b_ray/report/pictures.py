"""Some rows of a run's large tables, such as the bytes of a few images, without reading the others into memory.

Knows how a run keeps its tables; knows nothing of what pictures show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import InputError, SourceError
from c2b_ray.report.words import source_of
from c2b_ray.steps.fetch import COLUMNS, InPlace, completed
from c2b_ray.storage import files, resolve
from c2b_ray.storage.parts import read_stage, writing
from c2b_ray.storage.run import Run
from c2b_ray.storage.s3 import open_input
from c2b_ray.storage.sealed import SealedParquet

SHOWN = "shown"
_SHOWN = pa.schema([("image_id", pa.string()), ("bytes", pa.binary())])


def read_pictures(run: Run, image_ids: Sequence[str]) -> dict[str, bytes]:
    """Returns the encoded bytes of the existing images, in the order of their ids.

    They are those that the run holds, or lie still where it read them; of a picture that was changed or is gone since,
    those that its report shows. Ids of images of which there is nothing are left out.
    """
    pictures = _of_images(run, image_ids)
    missing = [image_id for image_id in image_ids if image_id not in pictures]
    if missing:
        pictures |= {image_id: data for image_id, data in shown(run).items() if image_id in set(missing)}
    return {image_id: pictures[image_id] for image_id in image_ids if image_id in pictures}


def _of_images(run: Run, image_ids: Sequence[str]) -> dict[str, bytes]:
    """Returns bytes of images that the run holds, or that lie where it left them."""
    pictures: dict[str, bytes] = {}
    images = InPlace(source_of(run.config))
    for rows in chosen_rows(run, "images", "image_id", image_ids, COLUMNS):
        try:
            rows = images.with_bytes(rows)
        except (InputError, OSError):  # the source is gone, or of another form
            rows = completed(rows)
        rows = rows.filter(pc.is_valid(rows["bytes"]))
        pictures.update(zip(rows["image_id"].to_pylist(), rows["bytes"].to_pylist(), strict=True))
    return pictures


def shown(run: Run) -> dict[str, bytes]:
    """Returns the pictures that the run's report shows, by image id: JPEG, as small as they are shown."""
    try:
        rows = read_stage(run.location(SHOWN))
    except SourceError:  # a run of a release before, or one without a report
        return {}
    return dict(zip(rows["image_id"].to_pylist(), rows["bytes"].to_pylist(), strict=True))


def left_in_place(run: Run, image_ids: Sequence[str]) -> list[str]:
    """Returns those of the images whose bytes the run does not hold."""
    rows = chosen_rows(run, "images", "image_id", image_ids, ["image_id", "row"])
    return [
        image_id
        for some in rows
        for image_id in some.filter(pc.is_valid(completed(some)["row"]))["image_id"].to_pylist()
    ]


def keep_shown(run: Run, pictures: Mapping[str, bytes]) -> None:
    """Adds pictures to those that the run's report shows."""
    if not pictures:
        return
    columns = [pa.array(list(pictures), pa.string()), pa.array(list(pictures.values()), pa.binary())]
    with writing(run.location(SHOWN)) as parts:
        parts.write(pa.table(columns, schema=_SHOWN), "image_id")


def chosen_rows(
    run: Run, table: str, id_column: str, wanted: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yields the rows with a wanted id, one row group at a time."""
    if not wanted or not run.has(table):
        return
    ids = pa.array(wanted, pa.string())
    for location in _locations(run, table):
        filesystem, path = resolve(location)
        with files.reading(location), open_input(filesystem, path) as stream:
            try:
                yield from _chosen(SealedParquet(stream), id_column, ids, list(columns))
            except pa.ArrowException as error:
                raise SourceError(
                    f"{location} is damaged ({error}); delete it and run the {run.kind.command} again"
                ) from error


def _locations(run: Run, table: str) -> list[str]:
    if not run.in_parts(table):
        return [run.location(f"{table}.parquet")]
    names = files.entries(run.location(table))
    return [run.location(f"{table}/{name}") for name in names if name.startswith("part-") and name.endswith(".parquet")]


def _chosen(part: SealedParquet, id_column: str, wanted: pa.Array, columns: list[str]) -> Iterator[pa.Table]:
    for group in range(part.metadata.num_row_groups):
        ids = part.read_groups([group], [id_column])[id_column]
        if pc.any(pc.is_in(ids, wanted)).as_py():
            rows = part.read_groups([group], columns)
            yield rows.filter(pc.is_in(rows[id_column], wanted))
