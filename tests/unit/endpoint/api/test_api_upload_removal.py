"""Uploads that are forgotten: a file, a folder of images, and one whose file is gone already."""

import io
import os
import zipfile

from PIL import Image


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
