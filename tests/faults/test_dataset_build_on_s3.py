"""Datasets of failures built on an object store: the files of a build on a local disk."""

import pytest
import toy_dataset
from faulty_proxy import Fault

from c2b_ray.errors import StorageError
from c2b_ray.storage.files import entries, read_bytes


def test_a_dataset_on_s3_is_that_on_a_disk_and_leaves_no_unfinished_files(s3, tmp_path):
    rows, drops, _ = toy_dataset.build(tmp_path / "here")
    there, dropped, _ = toy_dataset.build("s3://photos/failures")
    assert (there, dropped) == (rows, drops)
    assert entries("s3://photos/failures/work") == []
    for folder in ("shards", "drops"):
        for path in sorted((tmp_path / "here" / folder).iterdir()):
            body = s3.get_object(Bucket="photos", Key=f"failures/{folder}/{path.name}")["Body"].read()
            assert body == path.read_bytes()


@pytest.mark.parametrize("folder", ["candidates", "shards"])
def test_a_bucket_that_denies_writes_half_way_says_so_and_the_same_build_goes_on(s3_proxy, tmp_path, folder):
    rows, drops, _ = toy_dataset.build(tmp_path / "here", 40)
    out = f"s3://tests/denied-{folder}"
    s3_proxy.faults[:] = [Fault("deny", ("PUT",), path=f"/{folder}/", after=1)]
    with pytest.raises(StorageError, match="forbids this in bucket 'tests'"):
        toy_dataset.build(out, 40)
    s3_proxy.faults.clear()
    there, dropped, _ = toy_dataset.build(out, 40)
    assert (there, dropped) == (rows, drops)
    for path in (tmp_path / "here" / "shards").iterdir():
        assert read_bytes(f"{out}/shards/{path.name}") == path.read_bytes()
