"""A tenant whose root is on an object store: uploads go there and come back, as files, to the job that names them."""

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy import uploads
from c2b_ray.endpoint.policy.configs import resolve_config
from c2b_ray.endpoint.policy.names import Tenancy
from c2b_ray.endpoint.policy.uploads import UploadReceiver, remove_upload, sweep_uploads
from c2b_ray.endpoint.work.child import prepared
from c2b_ray.storage import files

ROOT = "s3://tests/endpoint/tenants/a"


def receive(data, kind):
    with UploadReceiver(ROOT, Policy()) as receiver:
        receiver.write(data)
        return receiver.finish(kind)


def test_uploads_on_a_store_are_kept_once_and_fetched_for_the_job(s3_proxy, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    weights = save({"w": np.ones(10, np.float32)})
    first, again = receive(weights, "safetensors"), receive(weights, "safetensors")
    assert (first.new, again.new) == (True, False)
    assert files.read_bytes(first.path) == weights
    picture, archive = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    with zipfile.ZipFile(archive, "w") as entries:
        entries.writestr("bus/a.png", picture.getvalue())
    images = receive(archive.getvalue(), "images")
    files.write_under(f"{ROOT}/data/names.txt", b"bus\nboat\n")
    tenancy = Tenancy(ROOT, Policy(), {first.sha256: "safetensors", images.sha256: "images"})
    config = {
        "task": "t",
        "classes": ["bus"],
        "classifier": f"timm:resnet18?weights=upload:{first.sha256}&labels=data/names.txt",
        "images": {"source": "labelled", "table": f"upload:{images.sha256}"},
    }
    runs = prepared("c2b", resolve_config(config, AuditConfig, tenancy), ROOT)
    assert runs["images"]["table"] == images.path
    (spec,) = runs["classifier"].values()
    paths = [part.partition("=")[2] for part in spec.partition("?")[2].split("&")]
    assert [Path(path).read_bytes() for path in paths] == [weights, b"bus\nboat\n"]
    assert runs == prepared("c2b", resolve_config(config, AuditConfig, tenancy), ROOT)  # the next slice finds the same
    remove_upload(ROOT, images.sha256, "images")
    remove_upload(ROOT, first.sha256, "safetensors")
    assert not files.exists(f"{images.path}/bus/a.png")
    assert not files.exists(first.path)
    files.write_under(f"{images.path}/bus/a.png", b"half of it, before its process died")
    assert receive(archive.getvalue(), "images").new
    assert files.read_bytes(f"{images.path}/bus/a.png") == picture.getvalue()
    assert not list(tmp_path.glob("c2b-upload-*"))


def test_parts_of_a_file_wait_on_the_store_until_they_are_joined_or_nobody_comes_back(s3_proxy):
    data = b"a,b\n1,2\n" * 100
    for number in (1, 0):
        uploads.add_part(ROOT, "a" * 64, number, data[number * 500 : (number + 1) * 500])
    assert uploads.stored_parts(ROOT, "a" * 64) == {0: 500, 1: 300}
    assert b"".join(uploads.read_parts(ROOT, "a" * 64)) == data
    uploads.add_part(ROOT, "b" * 64, 0, b"x")
    assert uploads.unfinished_parts(ROOT) == {"a" * 64: 800, "b" * 64: 1}
    uploads.remove_parts(ROOT, "a" * 64)
    assert uploads.unfinished_parts(ROOT) == {"b" * 64: 1}
    assert sweep_uploads(ROOT) == 0, "it may go on within a day"
    assert sweep_uploads(ROOT, older_than_seconds=-60.0) == 1
    assert uploads.unfinished_parts(ROOT) == {}
    uploads.remove_parts(ROOT, "a" * 64)


def test_labels_and_tables_that_were_uploaded_are_fetched_for_the_job(s3_proxy, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    labels, predictions = receive(b"bus\nboat\n", "text"), receive(b"file,label\na.png,bus\n", "csv")
    tenancy = Tenancy(ROOT, Policy(), {labels.sha256: "text", predictions.sha256: "csv"})
    config = {
        "task": "t", "classes": ["bus"], "images": {"source": "generate", "generator": "world:renderer"},
        "attributes": {"weather": ["fog", "clear"]},
        "classifier": {
            "named": f"timm:resnet18?labels=upload:{labels.sha256}", "given": f"table:upload:{predictions.sha256}",
        },
    }  # fmt: skip
    specs = prepared("c2b", resolve_config(config, AuditConfig, tenancy), ROOT)["classifier"]
    assert Path(specs["named"].partition("labels=")[2]).read_bytes() == b"bus\nboat\n"
    assert Path(specs["given"].removeprefix("table:")).read_bytes() == b"file,label\na.png,bus\n"
