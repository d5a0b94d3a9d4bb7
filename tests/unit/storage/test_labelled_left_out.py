"""What a labelled folder holds and a run does not use: counted by reason, joined where names are one, or refused."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage.labelled import LabelledTable


def files(folder: Path, *names: str, data: bytes = b"x") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def reasons(table: LabelledTable) -> dict[str, int]:
    return {reason.split(" (")[0]: count for reason, count in table.left_out.counts.items()}


def test_files_that_are_no_images_links_and_rows_without_a_file_are_counted(tmp_path: Path) -> None:
    folder = files(tmp_path / "photos", "red/a.jpg", "red/b.jfif", "green/c.png", "green/d.jxl", "green/e")
    files(folder, "red/notes.txt", "red/.thumb.jpg", "__MACOSX/x.jpg", "all.zip")
    files(tmp_path / "elsewhere", "f.jpg")
    (folder / "blue").symlink_to(tmp_path / "elsewhere")
    (folder / "red/gone.jpg").symlink_to("nowhere")
    (folder / "metadata.csv").write_text("file_name,weather\nred/a.jpg,sun\nred/b.jfif,rain\nred/z.jpg,sun\n")
    table = LabelledTable(str(folder))
    assert table.keys.to_pylist() == ["green/c.png", "red/a.jpg", "red/b.jfif"]
    assert reasons(table) == {
        "linked folder, which is not followed": 1,
        "hidden file or folder": 2,
        "no regular file": 1,
        ".jxl picture, a format that is not read": 1,
        "file without a suffix": 1,
        ".txt file": 1,
        ".zip archive": 1,
        "row of metadata.csv whose file is not among the images": 1,
        "image without a row in metadata.csv": 1,
    }


def test_masks_beside_their_pictures_are_no_images_and_this_is_said(tmp_path: Path) -> None:
    kept = ["bus/a.jpg", "bus/a_mask.jpg", "bus/b (1).png", "bus/mask.png", "bus/c_mask.png", "tram/a_mask.png"]
    masks = ["bus/a_mask.png", "bus/a.seg.png", "bus/b (1)_mask.png", "bus/b (1)_mask_1.png", "bus/a_Segmentation.tif"]
    files(tmp_path, *kept, *masks)
    table = LabelledTable(str(tmp_path))
    assert sorted(table.paths()) == sorted(kept)
    (sentence,) = table.left_out.sentences()
    assert sentence == (
        "left out: 5 × mask of a picture beside it, by its name (a picture of its own needs another name), such as "
        "'bus/a.seg.png'"
    )
    (tmp_path / "metadata.csv").write_text("file_name,weather\nbus/a.jpg,sun\nbus/a_mask.png,rain\n")
    assert sorted(LabelledTable(str(tmp_path)).paths()) == sorted([*kept, "bus/a_mask.png"])


def test_names_that_differ_in_unicode_s_form_or_separators_alone_are_joined_and_this_is_said(tmp_path: Path) -> None:
    folder = files(tmp_path / "photos", "red/cafe\u0301.jpg", "red/b.jpg", "red/ü.jpg", "red/u\u0308.jpg")
    (folder / "metadata.csv").write_text(
        "file_name,weather\nred/caf\u00e9.jpg,sun\n.\\red\\b.jpg,rain\nred/ü.jpg,fog\nred/u\u0308.jpg,snow\n"
    )
    table = LabelledTable(str(folder))
    weather = dict(zip(table.keys.to_pylist(), table.labels["weather"].to_pylist(), strict=True))
    assert weather == {
        "red/cafe\u0301.jpg": "sun",
        "red/b.jpg": "rain",
        "red/ü.jpg": "fog",
        "red/u\u0308.jpg": "snow",
    }
    assert ["2 names are written in another form" in note for note in table.left_out.notes] == [True]
    (tmp_path / "t.csv").write_text("image,target_class\nphotos/red/caf\u00e9.jpg,red\n")
    of_paths = LabelledTable(str(tmp_path / "t.csv"))
    assert of_paths.fetch([0])["error"].to_pylist() == [None]
    assert ["1 name is written in another" in note for note in of_paths.left_out.notes] == [True]


def test_two_files_of_metadata_and_metadata_of_other_files_are_refused_with_the_cause(tmp_path: Path) -> None:
    folder = files(tmp_path / "photos", "red/a.jpg", "red/b.jpg")
    (folder / "metadata.csv").write_text("file_name,weather\na.jpg,sun\nb.jpg,rain\n")
    with pytest.raises(SourceError, match=r"lists 'a.jpg', the image is called 'red/a.jpg': they differ in the folder"):
        LabelledTable(str(folder))
    (folder / "metadata.jsonl").write_text('{"file_name": "red/a.jpg", "weather": "sun"}\n')
    with pytest.raises(ConfigError, match=r"metadata\.csv and metadata\.jsonl; keep the one"):
        LabelledTable(str(folder))
    with pytest.raises(SourceError, match=r"no labelled images there \(left out: 1 × \.jxl picture"):
        LabelledTable(str(files(tmp_path / "none", "red/a.jxl")))


def stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def saved(folder: Path, entry: str | None, indices: list[int], parts: int = 2) -> Path:
    folder.mkdir()
    rows = pa.table({"image": [b"%d" % i for i in range(6)], "target_class": list("abcdef")})
    names = [f"data-{i}.arrow" for i in range(parts)]
    for i, name in enumerate(names):
        stream(folder / name, rows.slice(i * 3, 3))
    state: dict[str, object] = {"_data_files": [{"filename": name} for name in names]}
    if indices:
        stream(folder / "indices.arrow", pa.table({"indices": pa.array(indices, pa.uint64())}))
        state |= {} if entry is None else {entry: [{"filename": "indices.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize("entry", ["_indices_data_files", "_indices_files"])
def test_a_saved_selection_gives_its_rows_in_its_order(tmp_path: Path, entry: str) -> None:
    table = LabelledTable(str(saved(tmp_path / "d", entry, [4, 0, 4, 3])))
    assert table.labels["target_class"].to_pylist() == list("eaed")
    assert table.fetch([0, 1])["bytes"].to_pylist() == [b"4", b"0"]


def test_a_saved_dataset_with_a_part_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "gone", None, [])
    (folder / "data-1.arrow").unlink()
    with pytest.raises(SourceError, match=r"data-1\.arrow is missing"):
        LabelledTable(str(folder))
    with pytest.raises(SourceError, match=r"holds a selection \(indices\.arrow\) that its state\.json does not name"):
        LabelledTable(str(saved(tmp_path / "unnamed", None, [1])))
    with pytest.raises(SourceError, match="names row 9, and there are 6 rows"):
        LabelledTable(str(saved(tmp_path / "beyond", "_indices_files", [9])))
    folder = saved(tmp_path / "state", None, [])
    for text, reason in [
        ("[]", "no object"),
        ("{", "not JSON"),
        ("{}", "_data_files"),
        ('{"_data_files": [1]}', "names no"),
    ]:
        (folder / "state.json").write_text(text)
        with pytest.raises(SourceError, match=reason):
            LabelledTable(str(folder))


@pytest.mark.parametrize("kind", ["webdataset", "files", "parquet"])
def test_what_img2dataset_wrote_is_a_labelled_source(tmp_path: Path, kind: str) -> None:
    images = {"jpg": pa.array([b"0", None, b"2"], pa.binary())} if kind == "parquet" else {}
    columns = {"url": list("abc"), "key": ["000", "001", "002"], "status": ["success", "failed_to_download", "success"]}
    pq.write_table(pa.table({**columns, "target_class": ["x", "y", "z"], **images}), tmp_path / "00000.parquet")
    if kind == "files":
        (tmp_path / "00000").mkdir()
        for key in ("000", "002"):
            (tmp_path / f"00000/{key}.jpg").write_bytes(key[2:].encode())
    if kind == "webdataset":
        with tarfile.open(tmp_path / "00000.tar", "w") as archive:
            for key in ("000", "002"):
                info = tarfile.TarInfo(f"{key}.jpg")
                info.size = 1
                archive.addfile(info, io.BytesIO(key[2:].encode()))
    table = LabelledTable(str(tmp_path))
    read = table.fetch(range(len(table)))
    assert [data for data in read["bytes"].to_pylist() if data is not None] == [b"0", b"2"]
    if kind != "parquet":
        assert table.labels["target_class"].to_pylist() == ["x", "z"]
        assert reasons(table) == {"row of img2dataset without an image": 1}


def test_tables_that_are_not_read_are_counted_and_splits_in_one_folder_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"image": [b"1"], "target_class": ["x"], "tags": [["a"]]})
    pq.write_table(rows, tmp_path / "a.parquet")
    files(tmp_path, "more/b.parquet", "labels.csv")
    table = LabelledTable(str(tmp_path))
    assert reasons(table) == {"table beside or below the Parquet files that are read": 2}
    assert list(table.not_labels) == ["tags"]
    (tmp_path / "both").mkdir()
    for name in ("train", "test"):
        pq.write_table(rows, tmp_path / f"both/{name}.parquet")
    with pytest.raises(ConfigError, match=r"several splits \(test, train\)"):
        LabelledTable(str(tmp_path / "both"))
