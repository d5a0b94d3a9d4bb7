"""An export to an object store is what it is on a disk, and is not written over."""

from __future__ import annotations

import pytest
from synthetic_dataset import Recipe, write_dataset

from c2b_ray.audits.kit.session import Session
from c2b_ray.commands.dataset.export import FORMATS, export
from c2b_ray.errors import RunError
from c2b_ray.filesystems import resolve
from c2b_ray.pipelines.sources.files import Location, listing
from c2b_ray.store import files

HERE = Session("here")


def test_exports_on_an_object_store_are_those_on_a_disk(s3, tmp_path):
    write_dataset(tmp_path / "dataset", Recipe(rows_per_caption=2))
    for format in FORMATS:
        local, remote = str(tmp_path / format), f"s3://photos/{format}"
        for out in (local, remote):
            export(str(tmp_path / "dataset"), format, out, session=HERE)
        names = listing(Location(local, *resolve(local))).names
        assert listing(Location(remote, *resolve(remote))).names == names
        for name in [*names, ".c2b-export.json"]:
            assert files.read_bytes(f"{remote}/{name}") == files.read_bytes(f"{local}/{name}")
        with pytest.raises(RunError, match="holds files already"):
            export(str(tmp_path / "dataset"), format, remote, session=HERE)
