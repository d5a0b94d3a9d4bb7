"""Some rows of a run's large tables, such as the bytes of a few images, without reading the others into memory.

Knows how a run keeps its tables; knows nothing of what pictures show.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import simplejpeg
from PIL import Image

from c2b_ray.errors import ImageError, InputError, SourceError
from c2b_ray.report.words import source_of
from c2b_ray.steps.decode import decode_to_show
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
    images = InPlace(source_of(run.record.config))
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
        for group in rows
        for image_id in group.filter(pc.is_valid(completed(group)["row"]))["image_id"].to_pylist()
    ]


def keep_shown(run: Run, pictures: Mapping[str, bytes]) -> None:
    """Adds pictures to those that the run's report shows."""
    if not pictures:
        return
    columns = [pa.array(list(pictures), pa.string()), pa.array(list(pictures.values()), pa.binary())]
    with writing(run.location(SHOWN)) as parts:
        parts.write(pa.table(columns, schema=_SHOWN), "image_id")


def chosen_rows(
    run: Run, table: str, id_column: str, wanted_ids: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yields the rows with a wanted id, one row group at a time."""
    if not wanted_ids or not run.has(table):
        return
    ids = pa.array(wanted_ids, pa.string())
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


def _chosen(part: SealedParquet, id_column: str, wanted_ids: pa.Array, columns: list[str]) -> Iterator[pa.Table]:
    for group in range(part.metadata.num_row_groups):
        ids = part.read_groups([group], [id_column])[id_column]
        if pc.any(pc.is_in(ids, wanted_ids)).as_py():
            rows = part.read_groups([group], columns)
            yield rows.filter(pc.is_in(rows[id_column], wanted_ids))


# Makes small JPEG thumbnails, as data: URIs, from encoded images.


LARGEST = 384  # pixels of the longer side: a page shows them small, and larger on a click
SMALL = 128  # for pages with very many pictures
QUALITY = 80
MOST_CHARACTERS = 5_000_000
_URI = "data:image/jpeg;base64,"


def thumbnail(data: bytes, largest: int = LARGEST) -> str:
    """Returns a data: URI of the image, its longer side at most `largest`, never enlarged. Raises ImageError as
    `decode` does."""
    return uri(small(data, largest))


def small(data: bytes, largest: int = LARGEST, quality: int = QUALITY) -> bytes:
    """Returns the image as a JPEG, its longer side at most `largest`, never enlarged. Raises ImageError as `decode`
    does."""
    image = Image.fromarray(decode_to_show(data, largest))
    # A third of the time: what LANCZOS keeps of finest lines is not seen in so small a picture.
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS if largest > SMALL else Image.Resampling.HAMMING)
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def is_jpeg_within(data: bytes, largest: int) -> bool:
    """Tells whether an image is a JPEG whose longer side is at most `largest`, by its header."""
    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return False
    return bool(max(height, width) <= largest)


def uri(jpeg: bytes) -> str:
    return f"{_URI}{base64.b64encode(jpeg).decode()}"


def length_of_uri(jpeg: bytes) -> int:
    """Returns the number of characters of `uri`."""
    return len(_URI) + 4 * -(-len(jpeg) // 3)


def thumbnail_or_nothing(data: bytes, largest: int) -> str:
    """Returns the thumbnail; "" for what is no image."""
    try:
        return thumbnail(data, largest)
    except ImageError:
        return ""


def thumbnails(images: Mapping[str, bytes], most: int = MOST_CHARACTERS) -> dict[str, str]:
    """A thumbnail per image id, in that order: small ones once the larger have taken `most` characters; images that
    cannot be decoded are left out."""
    return {image_id: uri(jpeg) for image_id, jpeg in all_small(images, most).items()}


def all_small(images: Mapping[str, bytes], most: int = MOST_CHARACTERS) -> dict[str, bytes]:
    """Returns the JPEGs of `thumbnails`."""
    jpegs: dict[str, bytes] = {}
    characters = 0
    for image_id, data in images.items():
        try:
            jpegs[image_id] = small(data, LARGEST if characters < most else SMALL)
        except ImageError:
            continue
        characters += length_of_uri(jpegs[image_id])
    return jpegs


# Pictures of one outcome side by side, as text: the caption of each, and the source of its bytes.


WRONG, RIGHT = "✗", "✓"


@dataclass(frozen=True)
class Picture:
    """`source` is a data: URI, empty where the image cannot be shown; `key` is the image's name in its source;
    `caption` is empty where all share one."""

    source: str
    key: str
    alt: str
    label: str
    probability: str
    stands_for: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    verdict: str  # right, wrong
    sign: str
    title: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class ThumbnailSet:
    """The available thumbnails and keys of images, by id."""

    thumbnails: Mapping[str, str]
    keys: Mapping[str, str]
