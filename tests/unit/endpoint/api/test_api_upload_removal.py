"""Uploads that are forgotten: a file, a folder of images, and one whose file is gone already."""

import io
import os
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from c2b_ray.endpoint.api import uploads


def test_the_same_bytes_are_one_upload_of_one_kind(endpoint):
    """They were answered 200 with another kind than asked for, which the config then could not use."""
    picture = io.BytesIO()
    Image.new("RGB", (9, 9)).save(picture, "PNG")
    client = endpoint.as_("a")

    def sent(kind):
        return client.post("/v1/uploads", content=picture.getvalue(), headers={"X-Upload-Kind": kind})

    first = sent("image")
    assert first.status_code == 201, first.text
    refused = sent("images")
    assert (refused.status_code, refused.json()["code"]) == (409, "other_kind")
    assert refused.json()["errors"][0]["field"] == "X-Upload-Kind"
    assert "of the kind image" in refused.json()["detail"]
    assert sent("image").status_code == 200
    assert client.delete(f"/v1/uploads/{first.json()['sha256']}").status_code == 200
    assert sent("images").status_code == 422, "a picture is no archive"


def test_an_upload_of_each_kind_is_removed_with_what_it_holds(endpoint):
    picture, archive = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    with zipfile.ZipFile(archive, "w") as entries:
        entries.writestr("bus/a.png", picture.getvalue())
    client, folder = endpoint.as_("a"), endpoint.context.tenant_root(endpoint.tenants["a"])
    for kind, content in (("image", picture.getvalue()), ("images", archive.getvalue()), ("image", b"gone")):
        sent = picture.getvalue() if content == b"gone" else content
        answer = client.post("/v1/uploads", content=sent, headers={"X-Upload-Kind": kind})
        assert answer.status_code == 201, answer.text
        sha256 = answer.json()["sha256"]
        stored = os.path.join(folder, "uploads", sha256)
        assert os.path.exists(stored)
        if content == b"gone":
            os.unlink(stored)
        assert client.delete(f"/v1/uploads/{sha256}").status_code == 200
        assert not os.path.exists(stored)
        assert client.delete(f"/v1/uploads/{sha256}").status_code == 404


def test_bytes_that_are_sent_while_they_are_deleted_are_there_afterwards(endpoint, monkeypatch):
    """The row was gone and the file not yet: the second upload found the file, and the deletion then took it."""
    picture = io.BytesIO()
    Image.new("RGB", (7, 9)).save(picture, "PNG")
    client, headers = endpoint.as_("a"), {"X-Upload-Kind": "image"}
    sha256 = client.post("/v1/uploads", content=picture.getvalue(), headers=headers).json()["sha256"]
    deleting, sent, remove = threading.Event(), threading.Event(), uploads.remove_upload

    def slow(*args):
        deleting.set()
        sent.wait(1)
        remove(*args)

    monkeypatch.setattr(uploads, "remove_upload", slow)
    with ThreadPoolExecutor(1) as other:
        deletion = other.submit(client.delete, f"/v1/uploads/{sha256}")
        assert deleting.wait(10)
        again = client.post("/v1/uploads", content=picture.getvalue(), headers=headers)
        sent.set()
        assert deletion.result().status_code == 200
    assert again.status_code == 201, again.text
    folder = endpoint.context.tenant_root(endpoint.tenants["a"])
    assert os.path.exists(os.path.join(folder, "uploads", sha256))
    assert client.get(f"/v1/uploads/{sha256}").status_code == 200
