"""Each kind of source: its keys, its bytes, and what becomes of what cannot be read."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.engine.sources import files as source_files
from c2b_ray.engine.sources.datasets import opened, read
from c2b_ray.errors import SourceError


def rows_of(source: Path | str, limit: int | None = None) -> dict[str, dict[str, Any]]:
    rows = [row for table in read(str(source), limit=limit).tables() for row in table.to_pylist()]
    by_key = {row["key"]: row for row in rows}
    assert len(by_key) == len(rows), "a key is repeated"
    return by_key


def files(folder: Path, **content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def shard(path: Path, *members: tuple[str, bytes]) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            add(archive, name, data)
    return path.read_bytes()


def test_a_folder_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "images with #%20 and ü"
    files(folder, a_dot_jpg=b"A", deep__er__B_dot_PNG=b"B", empty_dot_webp=b"", notes_dot_txt=b"no image")
    files(folder, _dot_hidden_dot_jpg=b"H", _dot_cache__c_dot_jpg=b"C")
    (folder / "link.jpg").symlink_to("a.jpg")
    (folder / "gone.jpg").symlink_to("nowhere.jpg")
    # Two links to a parent: followed without end, they name 2^n folders at depth n.
    (folder / "deep" / "up").symlink_to("..")
    (folder / "deep" / "again").symlink_to("..")
    os.mkfifo(folder / "pipe.jpg")
    (folder / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"L")
    rows = rows_of(folder)
    assert {key: row["bytes"] for key, row in rows.items() if row["error"] is None} == {
        "a.jpg": b"A",
        "deep/er/B.PNG": b"B",
        "empty.webp": b"",
        "link.jpg": b"A",
    }
    assert {key: row["error"] for key, row in rows.items() if row["error"]} == {
        "gone.jpg": "no such file",
        "caf\\xe9.jpg": "the file's name is not UTF-8; rename it",
    }
    assert list(rows_of(folder, limit=2)) == ["a.jpg", "caf\\xe9.jpg"]


def test_a_linked_folder_is_followed_once_and_named_by_where_it_is(tmp_path: Path) -> None:
    files(tmp_path / "elsewhere", x_dot_jpg=b"X")
    files(tmp_path / "images" / "z", y_dot_jpg=b"Y")
    (tmp_path / "images" / "a").symlink_to("z")
    (tmp_path / "images" / "b").symlink_to(tmp_path / "elsewhere")
    assert list(rows_of(tmp_path / "images")) == ["b/x.jpg", "z/y.jpg"]


def test_what_may_not_be_read_is_a_row(tmp_path: Path) -> None:
    files(tmp_path, a_dot_jpg=b"A", b_dot_jpg=b"B", closed__c_dot_jpg=b"C")
    (tmp_path / "a.jpg").chmod(0)
    (tmp_path / "closed").chmod(0)
    if os.access(tmp_path / "a.jpg", os.R_OK):
        pytest.skip("root may read every file")
    errors = {key: row["error"] for key, row in rows_of(tmp_path).items()}
    (tmp_path / "closed").chmod(0o700)
    assert errors == {
        "a.jpg": "no permission to read",
        "b.jpg": None,
        "closed/": "the folder cannot be listed: Permission denied",
    }


def test_a_file_that_cannot_be_an_image_for_its_size_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "huge.jpg", "wb") as file:
        file.truncate(source_files.MAX_BYTES + 1)
    place = source_files.Location("source", pa.fs.LocalFileSystem(), str(tmp_path))
    assert place.fetch("huge.jpg") == (None, f"too large: more than {source_files.MAX_BYTES} bytes")


def test_tables_with_bytes(tmp_path: Path) -> None:
    table = pa.table({"bytes": pa.array([b"0", None, b""], pa.binary()), "label": pa.array([1, 2, None], pa.int32())})
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=2)
    huggingface = pa.table(
        {"image": [{"bytes": b"1", "path": "x.jpg"}, {"bytes": None, "path": "beside.jpg"}, None], "label": [4, 5, 6]}
    )
    pq.write_table(huggingface, tmp_path / "a.parquet")
    (tmp_path / "beside.jpg").write_bytes(b"beside")
    rows = rows_of(tmp_path)
    found = {key: (row["bytes"], row["error"], row["label"]) for key, row in rows.items() if key.startswith("b")}
    assert found == {
        "b.parquet#0": (b"0", None, 1),
        "b.parquet#1": (None, "no bytes", 2),
        "b.parquet#2": (b"", None, None),
    }
    assert [rows[f"a.parquet#{i}"]["bytes"] for i in range(3)] == [b"1", b"beside", None]
    assert list(rows_of(tmp_path, limit=5)) == [*(f"a.parquet#{i}" for i in range(3)), "b.parquet#0", "b.parquet#1"]
    assert rows_of(tmp_path / "b.parquet").keys() == {"b.parquet#0", "b.parquet#1", "b.parquet#2"}
    pq.write_table(pa.table({"bytes": [b"c"], "more": pa.array(["x"]).dictionary_encode()}), tmp_path / "c.parquet")
    assert [(row["label"], row["more"]) for row in rows_of(tmp_path).values()][-2:] == [(None, None), (None, "x")]
    pq.write_table(pa.table({"bytes": [b"c"], "label": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(SourceError, match=r"the tables disagree on a column: .*label"):
        read(str(tmp_path))


def test_tables_with_paths(tmp_path: Path) -> None:
    files(tmp_path / "source", images__1_dot_png=b"1", tables__2_dot_png=b"2")
    (tmp_path / "secret.png").write_bytes(b"S")
    paths = ["../images/1.png", "2.png", "3.png", "../../secret.png", str(tmp_path / "secret.png"), None]
    pq.write_table(pa.table({"image": paths}), tmp_path / "source" / "tables" / "t.parquet")
    rows = rows_of(tmp_path / "source").values()
    assert [row["bytes"] for row in rows] == [b"1", b"2", None, None, None, None]
    assert [row["image"] for row in rows] == paths
    errors = [row["error"] for row in rows]
    assert errors[:3] == [None, None, "3.png: no such file"]
    assert "leads out of" in errors[3]
    assert "leads out of" in errors[4]
    assert errors[5] == "no bytes"


def test_a_key_column_names_the_rows_and_must_be_unique(tmp_path: Path) -> None:
    files(tmp_path, p_dot_jpg=b"P", q_dot_jpg=b"Q")
    pq.write_table(pa.table({"key": ["p.jpg", "q.jpg"]}), tmp_path / "names.parquet")
    assert {key: row["bytes"] for key, row in rows_of(tmp_path).items()} == {"p.jpg": b"P", "q.jpg": b"Q"}
    pq.write_table(pa.table({"key": ["p.jpg", "q.jpg", "p.jpg"]}), tmp_path / "names.parquet")
    with pytest.raises(SourceError, match=r"not unique, such as 'p.jpg' \(2 rows\)"):
        read(str(tmp_path))


def test_a_damaged_table_costs_its_own_rows_only(tmp_path: Path) -> None:
    table = pa.table({"bytes": [os.urandom(1000) for _ in range(20)]})
    pq.write_table(table, tmp_path / "good.parquet")
    pq.write_table(table, tmp_path / "page.parquet", row_group_size=10, compression="zstd")
    data = bytearray((tmp_path / "page.parquet").read_bytes())
    data[4:100] = b"\xff" * 96  # the first row group's first page header
    (tmp_path / "page.parquet").write_bytes(data)
    (tmp_path / "short.parquet").write_bytes((tmp_path / "good.parquet").read_bytes()[:-10])
    rows = rows_of(tmp_path)
    errors = {key for key, row in rows.items() if row["error"]}
    assert errors == {"short.parquet", *(f"page.parquet#{i}" for i in range(10))}
    assert len(rows) == 41
    assert all("damaged table" in rows[key]["error"] for key in errors)


def test_shards(tmp_path: Path) -> None:
    shard(
        tmp_path / "s" / "00.tar",
        ("./x/1.jpg", b"1"),
        ("./x/1.json", b'{"a": 1}'),
        ("./x/1.mask.png", b"mask"),
        ("x/2.cls", b"7"),
        ("x/2.PNG", b"2"),
        ("x/3.txt", b"only words"),
        ("x/1.jpg", b"1 again"),
    )
    with tarfile.open(tmp_path / "s" / "01.tgz", "w:gz") as archive:
        add(archive, "only.jpeg", b"J")
    rows = rows_of(tmp_path / "s")
    assert {key: row["bytes"] for key, row in rows.items()} == {
        "00.tar/x/1": b"1",
        "00.tar/x/2": b"2",
        "00.tar/x/3": None,
        "00.tar/x/1#2": b"1 again",
        "01.tgz/only": b"J",
    }
    assert rows["00.tar/x/1"]["json"] == '{"a": 1}'
    assert rows["00.tar/x/2"]["cls"] == "7"
    assert rows["00.tar/x/3"]["error"] == "the sample holds no image, only txt"
    assert list(rows_of(tmp_path / "s", limit=2)) == ["00.tar/x/1", "00.tar/x/2"]
    assert list(rows_of(tmp_path / "s" / "01.tgz")) == ["01.tgz/only"]


def test_a_damaged_shard_gives_its_good_samples_and_says_so(tmp_path: Path) -> None:
    members = [(f"{i}.jpg", bytes([i]) * 700) for i in range(5)]
    data = shard(tmp_path / "whole.tar", *members)
    each = 512 + 1024  # header, content filled up to blocks
    (tmp_path / "content.tar").write_bytes(data[: 3 * each + 600])
    (tmp_path / "between.tar").write_bytes(data[: 3 * each])
    (tmp_path / "header.tar").write_bytes(data[: 3 * each] + b"\xff" * 512 + data[3 * each + 512 :])
    (tmp_path / "empty.tar").write_bytes(b"")
    (tmp_path / "joined.tar").write_bytes(data + shard(tmp_path / "other.tar", ("other.jpg", b"O")))
    rows = rows_of(tmp_path)
    assert {key for key, row in rows.items() if row["error"]} == {
        f"{n}.tar" for n in ("content", "between", "header", "empty")
    }
    assert "a damaged shard: 2 samples were read" in rows["header.tar"]["error"]
    good = {key for key, row in rows.items() if not row["error"]}
    # The last sample before the damage may lack members, so it is not handed out.
    # In content.tar the next sample has begun, so sample 2 is whole.
    expected = {f"{name}.tar/{i}" for name in ("between", "header") for i in range(2)}
    expected |= {f"content.tar/{i}" for i in range(3)}
    expected |= {f"{name}.tar/{i}" for name in ("whole", "joined") for i in range(5)}
    assert good == expected | {"joined.tar/other", "other.tar/other"}


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder; expected a folder of images"):
        read(str(tmp_path / "nowhere"))
    with pytest.raises(SourceError, match="holds nothing; expected"):
        read(str(tmp_path))
    files(tmp_path, a_dot_csv=b"a")
    with pytest.raises(SourceError, match=r"holds no image \(1 × .csv file"):
        read(str(tmp_path))
    with pytest.raises(SourceError, match="expected a folder of images"):
        read(str(tmp_path / "a.csv"))
    pq.write_table(pa.table({"label": [1]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet has no column of images; expected `bytes`.*it has label"):
        read(str(tmp_path))
    files(tmp_path, a_dot_jpg=b"A")
    assert list(rows_of(tmp_path)) == ["a.jpg"]
    shard(tmp_path / "s.tar", ("x.jpg", b"X"))
    with pytest.raises(SourceError, match="1 images and 1 tar files; name the one you mean"):
        read(str(tmp_path))
    (tmp_path / "damaged.parquet").write_bytes(b"nothing")
    with pytest.raises(SourceError, match="no Parquet file can be read"):
        read(str(tmp_path / "damaged.parquet"))


def test_what_a_folder_holds_besides_its_images_is_counted_by_reason(tmp_path: Path) -> None:
    files(tmp_path, a_dot_jpg=b"A", b_dot_jfif=b"B", c_dot_JPE=b"C", d_dot_psd=b"D", e_dot_jxl=b"E", f=b"F")
    files(tmp_path, g_dot_txt=b"G", h_dot_txt=b"H", i_dot_zip=b"I", _dot_hidden_dot_jpg=b"J")
    files(tmp_path / "__MACOSX", x_dot_jpg=b"K")
    files(tmp_path, deep__l_dot_png=b"L")
    (tmp_path / "again").symlink_to("deep")
    source = opened(str(tmp_path))
    keys = [row["key"] for table in source.rows.tables() for row in table.to_pylist()]
    assert keys == ["a.jpg", "b.jfif", "c.JPE", "deep/l.png"]
    said = {reason.split(" ")[0]: count for reason, count in source.left_out.counts.items()}
    assert said == {".psd": 1, ".jxl": 1, "file": 1, ".txt": 2, ".zip": 1, "hidden": 2, "linked": 1}
    assert any("such as 'd.psd'" in sentence for sentence in source.left_out.sentences())


def test_two_pictures_of_one_sample_are_not_merged_without_a_word(tmp_path: Path) -> None:
    shard(tmp_path / "s.tar", ("22.05.png", b"1"), ("22.06.png", b"2"), ("1.jpg", b"3"), ("1.mask.png", b"4"))
    rows = rows_of(tmp_path / "s.tar")
    assert {key for key, row in rows.items() if row["error"] is None} == {"s.tar/22", "s.tar/1"}
    assert [key for key, row in rows.items() if row["error"]] == ["s.tar/22.06.png"]


URLS = {"url": ["u0", "u1", "u2"], "key": ["000000000", "000000001", "000000002"]}
STATUS = {"status": ["success", "failed_to_download", "success"], "error_message": [None, "HTTP Error 404", None]}


@pytest.mark.parametrize("kind", ["webdataset", "files", "parquet"])
def test_what_img2dataset_wrote_is_a_source_and_its_failed_rows_are_said(tmp_path: Path, kind: str) -> None:
    images = {"jpg": pa.array([b"0", None, b"2"], pa.binary())} if kind == "parquet" else {}
    pq.write_table(pa.table({**URLS, **STATUS, "caption": ["a", "b", "c"], **images}), tmp_path / "00000.parquet")
    (tmp_path / "00000_stats.json").write_text("{}")
    if kind == "webdataset":
        shard(tmp_path / "00000.tar", ("000000000.jpg", b"0"), ("000000000.txt", b"a"), ("000000002.jpg", b"2"))
    if kind == "files":
        files(tmp_path / "00000", **{"000000000_dot_jpg": b"0", "000000000_dot_txt": b"a", "000000002_dot_jpg": b"2"})
    source = opened(str(tmp_path))
    rows = [row for table in source.rows.tables() for row in table.to_pylist()]
    assert [row["bytes"] for row in rows if row["error"] is None] == [b"0", b"2"]
    errors = [row["error"] for row in rows if row["error"]]
    if kind == "parquet":
        assert errors == ["failed_to_download: HTTP Error 404"]
    else:
        assert not errors
        assert source.left_out.counts["row of img2dataset without an image (status failed_to_download)"] == 1
