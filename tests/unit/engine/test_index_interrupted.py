"""An index whose build ended at its very end, killed or for want of space, is finished by the same call."""

import os

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.engine import index
from c2b_ray.errors import StorageError
from c2b_ray.models.index.faiss_index import FaissIndex
from c2b_ray.models.index.plan import MANIFEST, IndexWishes
from c2b_ray.storage import files
from c2b_ray.storage.parts import writing

MADE_BY = {"images": "photos", "encoder": "toy:eye", "encoder_revision": "1", "dimension": 4}
LISTED = pa.table({"name": ["a.jpg"], "size": pa.array([3], pa.int64())})


def embedded(out):
    """Leaves what `embed_source` leaves: four images, of which one could not be decoded."""
    keys, vectors = [f"{row}.jpg" for row in range(4)], np.eye(4, dtype=np.float32)
    rows = {"key": keys, "bytes": [b"jpg"] * 4, "embedding": [*vectors[:3].tolist(), None], "metadata": ["{}"] * 4}
    table = pa.table({**rows, "error": [None, None, None, "cannot be decoded"]})
    schema = index.embeddings(4)
    with writing(f"{out}.building") as parts:
        parts.write(table.select(schema.names).cast(schema), "key")
    files.write_bytes(f"{out}.building/{index.MADE_BY}", b"{}")


def stopped(name, error):
    """Stands in for a function that writes or renames files, and does not get beyond the file `name`."""

    def wrap(function):
        def stop(first, *rest):
            if str(first).endswith(name):
                raise error
            return function(first, *rest)

        return stop

    return wrap


@pytest.mark.parametrize("name", ["errors.parquet", "source.parquet", "made_by.json", "manifest.json.tmp", ".partial"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("the disk is full")], ids=["killed", "full"])
def test_a_build_that_ends_at_its_last_files_is_finished_by_the_same_call(tmp_path, monkeypatch, name, error):
    out = str(tmp_path / "photos.index")
    embedded(out)
    with monkeypatch.context() as patch:
        for module, function in ((files, "write_table"), (files, "write_bytes"), (os, "replace")):
            patch.setattr(module, function, stopped(name, error)(getattr(module, function)))
        with pytest.raises(type(error)):
            index.build(out, MADE_BY, IndexWishes(), LISTED)
    assert not os.path.exists(out)
    summary = index.build(out, MADE_BY, IndexWishes(), LISTED)
    assert (summary["images"], summary["errors"]) == (3, 1)
    assert index.built(out, MADE_BY, LISTED) == summary
    assert FaissIndex(out).search(np.eye(4, dtype=np.float32)[:1], 1).ids.tolist() == [[0]]
    assert sorted(os.listdir(tmp_path)) == ["photos.index"]
    assert not {".lock", "journal.json", "vectors.f32"} & set(os.listdir(out))


def test_an_index_that_is_still_being_put_on_a_store_is_not_whole(tmp_path):
    out = str(tmp_path / "photos.index")
    embedded(out)
    index.build(out, MADE_BY, IndexWishes(), LISTED)
    os.remove(f"{out}/{MANIFEST}")  # which is put last
    assert index.built(out, MADE_BY, LISTED) is None
