"""Streams that end early, are too long, lie, come twice, or hold what they should not."""

import errno
import hashlib
import io
import os
import stat
import tarfile
import time
import zipfile

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from c2b_ray.config.endpoint import Archives, Policy
from c2b_ray.endpoint.policy.archives import check_picture, members, write_images
from c2b_ray.endpoint.policy.uploads import TooLargeError, UploadReceiver, remove_upload, sweep_uploads
from c2b_ray.errors import ImageError, SourceError, StorageError, WeightsError

SMALL = Policy(
    upload_bytes=200_000,
    image_bytes=20_000,
    image_pixels=10_000,
    archives=Archives(members=5, total_bytes=30_000, ratio=20),
)


def picture(kind="PNG", size=(20, 10), **settings):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (*size[::-1], 3), np.uint8)).save(
        buffer, kind, **settings
    )
    return buffer.getvalue()


def zipped(*entries, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(*entries, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in entries:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def receive(root, data, kind, policy=SMALL, **more):
    with UploadReceiver(str(root), policy) as receiver:
        for start in range(0, len(data), 1000):
            receiver.write(data[start : start + 1000])
        return receiver.finish(kind, **more)


def left(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_an_upload_is_kept_once_at_its_content_and_tenants_are_apart(tmp_path):
    data = save({"w": np.ones(10, np.float32)})
    name = f"uploads/{hashlib.sha256(data).hexdigest()}.safetensors"
    first = receive(tmp_path / "a", data, "safetensors")
    again = receive(tmp_path / "a", data, "safetensors")
    other = receive(tmp_path / "b", data, "safetensors")
    assert (first.new, again.new, other.new) == (True, False, True)
    assert left(tmp_path / "a") == left(tmp_path / "b") == [name]
    assert (tmp_path / "a" / name).read_bytes() == data
    assert stat.S_IMODE((tmp_path / "a" / name).stat().st_mode) == 0o600
    remove_upload(str(tmp_path / "a"), first.sha256, "safetensors")
    remove_upload(str(tmp_path / "a"), first.sha256, "safetensors")
    assert left(tmp_path) == [f"b/{name}"]


def test_nothing_is_left_of_what_is_refused_or_interrupted(tmp_path):
    data = save({"w": np.ones(10, np.float32)})
    with UploadReceiver(str(tmp_path), SMALL, most=50) as receiver:
        receiver.write(b"x" * 50)
        with pytest.raises(TooLargeError):
            receiver.write(b"x")
    with pytest.raises(WeightsError, match="a pickle"):
        receive(tmp_path, b"\x80\x04" + bytes(40), "safetensors")
    with pytest.raises(WeightsError, match="safetensors, not onnx"):
        receive(tmp_path, data, "onnx")
    with pytest.raises(SourceError, match="damaged in transit"):
        receive(tmp_path, data, "safetensors", sha256="0" * 64)
    with pytest.raises(ImageError):
        receive(tmp_path, data, "image")
    with pytest.raises(SourceError, match="not those of a Parquet"):
        receive(tmp_path, b"PAR1" + bytes(20), "table")
    with UploadReceiver(str(tmp_path), SMALL) as receiver:
        receiver.write(b"the connection ends here")
    assert left(tmp_path) == []


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full; nothing of it was kept"):
        receive(tmp_path, picture(), "image")
    assert left(tmp_path) == []


def test_what_a_dead_process_left_is_swept(tmp_path):
    with UploadReceiver(str(tmp_path), SMALL) as receiver:
        receiver.write(b"x")
        assert sweep_uploads(str(tmp_path)) == 0
        (old,) = (tmp_path / "uploads" / ".incoming").iterdir()
        os.utime(old, (time.time() - 90_000,) * 2)
        assert (sweep_uploads(str(tmp_path)), left(tmp_path)) == (1, [])


def test_pictures_are_told_by_their_bytes_and_measured_by_their_headers():
    for kind in ("JPEG", "PNG", "WebP"):
        found = check_picture(picture(kind), SMALL)
        assert (found.format, found.width, found.height, found.frames) == (kind, 20, 10, 1)
    frames = [Image.new("RGB", (4, 4), (n, 0, 0)) for n in range(3)]
    for kind in ("PNG", "WebP"):
        animated = io.BytesIO()
        frames[0].save(animated, kind, save_all=True, append_images=frames[1:], lossless=True)
        with pytest.raises(ImageError, match="frames; at most 1"):
            check_picture(animated.getvalue(), SMALL)
    huge = bytearray(picture("PNG"))
    huge[16:24] = b"\0\xff\xff\xff\0\xff\xff\xff"  # its header claims 16777215 × 16777215
    for data, words in (
        (bytes(huge), "damaged|pixels"),
        (picture(size=(200, 100)), "pixels|bytes"),
        (picture("GIF"), "not a JPEG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a JPEG"),
        (b"\xff\xd8\xff" + bytes(100), "damaged"),
        (b"RIFF\0\0\0\0WAVE" + bytes(100), "not a JPEG"),
        (picture()[:30], "damaged"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30_000), "too large"),
        (b"", "not a JPEG"),
    ):
        with pytest.raises(ImageError, match=words):
            check_picture(data, SMALL)


def test_an_archive_of_images_becomes_a_folder(tmp_path):
    entries = [
        ("bus/a.png", picture()),
        ("metadata.csv", b"file_name\nbus/a.png\n"),
        ("__MACOSX/x", b"?"),
        ("bus/.DS", b"?"),
    ]
    for data in (zipped(*entries), tarred(*entries), tarred(*entries, mode="w:gz")):
        stored = receive(tmp_path, data, "images")
        assert stored.meta == {"images": 1}
        folder = os.path.relpath(stored.path, tmp_path)
        assert left(tmp_path) == [f"{folder}/bus/a.png", f"{folder}/metadata.csv"]
        assert not receive(tmp_path, data, "images").new
        remove_upload(str(tmp_path), stored.sha256, "images")
    with pytest.raises(SourceError, match="leads out"):
        receive(tmp_path, zipped(("../a.png", picture())), "images")
    with pytest.raises(SourceError, match="neither a zip nor a tar"):
        receive(tmp_path, picture(), "images")
    assert left(tmp_path) == []


def link(kind):
    info = tarfile.TarInfo("a.png")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


def zip_link():
    info = zipfile.ZipInfo("a.png")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def lying():
    """Its directory says one byte; a megabyte comes out."""
    data = bytearray(zipped(("a.png", bytes(1_000_000))))
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (1).to_bytes(4, "little")
    return bytes(data)


ARCHIVES = [
    *(zipped((name, picture())) for name in ("/etc/a.png", "../a.png", "a/../../b.png", "C:\\a.png", "..\\a.png",
    "a\x01.png")),
    *(tarred((name, picture())) for name in ("/etc/a.png", "../a.png", "/".join("abcdefghijkl"), "a" * 500)),
    *(tarred((link(kind), b"")) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)),
    zipped((zip_link(), b"/etc/passwd")), zipped(("a.png", picture()), ("A.PNG", picture())), zipped(("a.txt",
    b"text")),
    zipped(*((f"{n}.png", picture()) for n in range(6))), tarred(*((f"{n}.png", picture()) for n in range(6))),
    zipped(("a.png", bytes(1_000_000))), zipped(("metadata.csv", bytes(10_000_000)), ("a.png", picture())), lying(),
    zipped(*((f"{n}.jpg", picture("JPEG", (90, 90), quality=100)) for n in range(4)), method=zipfile.ZIP_STORED),
    zipped(("a.png", picture()), method=zipfile.ZIP_LZMA), zipped(), tarred(), zipped(("a.png", picture()))[:-30],
    b"PK\x03\x04" + bytes(100), zipped(("a.png", picture(size=(200, 100)))),
]  # fmt: skip


@pytest.mark.parametrize("data", ARCHIVES, ids=range(len(ARCHIVES)))
def test_archives_that_are_refused(tmp_path, data):
    with pytest.raises(SourceError):
        write_images(members(io.BytesIO(data), SMALL), str(tmp_path / "out"), SMALL)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["out"])
