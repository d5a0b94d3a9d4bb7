"""Datasets of failures built on an object store: the files of a build on a local disk."""

import toy_dataset

from c2b_ray.store.files import entries


def test_a_dataset_on_s3_is_that_on_a_disk_and_leaves_no_unfinished_files(s3, tmp_path):
    rows, drops, _ = toy_dataset.build(tmp_path / "here")
    there, dropped, _ = toy_dataset.build("s3://photos/failures")
    assert (there, dropped) == (rows, drops)
    assert entries("s3://photos/failures/work") == []
    for folder in ("shards", "drops"):
        for path in sorted((tmp_path / "here" / folder).iterdir()):
            body = s3.get_object(Bucket="photos", Key=f"failures/{folder}/{path.name}")["Body"].read()
            assert body == path.read_bytes()
