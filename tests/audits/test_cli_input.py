"""The command line without an audit: images that cannot be read, an empty folder, the schema and the models."""

import json
from io import BytesIO

from PIL import Image


def test_bad_images_are_rows_with_an_error(tmp_path, c2b):
    folder = tmp_path / "photos"
    folder.mkdir()
    whole = BytesIO()
    Image.new("RGB", (80, 60), "red").save(whole, "JPEG")
    for name, data in {"good": whole.getvalue(), "cut": whole.getvalue()[:300], "empty": b"", "text": b"hello"}.items():
        (folder / f"{name}.jpg").write_bytes(data)
    status, out, _ = c2b(
        "index", "build", "--images", folder, "--encoder", "world:clip", "--out", tmp_path / "index", "--json"
    )
    summary = json.loads(out)
    assert status == 0
    assert (summary["images"], summary["errors"]) == (1, 3)
    status, out, _ = c2b("index", "search", tmp_path / "index", "a boat", "--json")
    assert [hit["key"] for hit in json.loads(out)] == ["good.jpg"]


def test_an_empty_folder_is_bad_input(tmp_path, c2b):
    (tmp_path / "photos").mkdir()
    status, _, err = c2b(
        "index", "build", "--images", tmp_path / "photos", "--encoder", "world:clip", "--out", tmp_path / "index"
    )
    assert status == 2
    assert "photos" in err


def test_schema_and_models(c2b):
    status, out, _ = c2b("audit", "--print-schema")
    assert status == 0
    assert "images_per_caption" in json.loads(out)["properties"]
    status, out, _ = c2b("models", "--json")
    assert "world:clip" in json.loads(out)["world"]
