"""Tables of a few images by cell, for tests of code that knows cells but not how images were drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from c2b_ray.steps.cells import CellImages, images_of_cells
from c2b_ray.tables import CAPTIONS, DRAWS


def cell_images(images: Mapping[tuple[str, str], Mapping[str, Iterable[str]]]) -> CellImages:
    """Builds the images of cells, by (target class, attribute) → bias class → image ids; each cell has one caption."""
    captions, draws = [], []
    for (target, attribute), values in images.items():
        for value, ids in values.items():
            caption = f"{target}/{attribute}/{value}"
            cell = {"kind": "attribute", "target_class": target, "attribute": attribute, "bias_class": value}
            captions.append({"caption_id": caption, "proposal_id": f"{target}/{attribute}", **cell, "number": 0})
            draws += [{"caption_id": caption, "image_id": i, "rank": 0, "source": "retrieve"} for i in ids]
    rows = [row | {"text": row["caption_id"]} for row in captions]
    return images_of_cells(pa.Table.from_pylist(rows, CAPTIONS), pa.Table.from_pylist(draws, DRAWS))
