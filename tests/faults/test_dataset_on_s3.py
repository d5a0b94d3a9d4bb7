"""Exports on an object store are those on a disk, and are not written over; a dataset is read from a busy store."""

from __future__ import annotations

import pytest
from faulty_proxy import Fault
from synthetic_dataset import Recipe, write_dataset

from c2b_ray.audits.dataset.export import FORMATS, export
from c2b_ray.audits.dataset.shard_files import ShardFiles
from c2b_ray.audits.kit.session import Session
from c2b_ray.engine.sources.files import Location, listing
from c2b_ray.errors import RunError
from c2b_ray.storage import files, resolve
from c2b_ray.storage.failure_dataset import open_dataset

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


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("after", [0, 1])
def test_shards_are_read_from_a_store_that_is_busy_for_a_while(s3_proxy, tmp_path, method, after):
    """For longer than the client's own three attempts last."""
    write_dataset(tmp_path / "dataset", Recipe(rows_per_caption=2))
    place = f"s3://tests/busy-{method}-{after}"
    for folder in ("", "shards"):
        for file in sorted((tmp_path / "dataset" / folder).glob("*.*")):
            files.write_bytes("/".join(filter(None, (place, folder, file.name))), file.read_bytes())
    data = open_dataset(place)
    name = data.shards[0].name
    reads = (
        lambda: list(data.tables([name], ["image_id"])),
        lambda: list(ShardFiles(place).pieces(f"shards/{name}")),
    )
    for read in reads:
        s3_proxy.faults[:] = [Fault("busy", (method,), path=name, after=after, times=4)]
        assert sum(table.num_rows for table in read()) == data.shards[0].rows
