import json
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage import labelled_rows
from c2b_ray.storage.confined import MAX_BYTES
from c2b_ray.storage.labelled import LabelledTable


def write(folder, **files):
    """`a_png="…"` becomes a.png, `bus__a_png` bus/a.png."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_csv_with_paths(tmp_path):
    write(
        tmp_path,
        a_dot_png=b"A",
        t_dot_csv="image,target_class,weather,year\na.png,bus,snow,1\nb.png,boat, ,2\n,bus,rain,3\n",
    )
    table = LabelledTable(str(tmp_path / "t.csv"))
    assert table.labels.to_pylist()[1] == {"target_class": "boat", "weather": None, "year": "2"}
    found = table.fetch([1, 0, 2]).to_pylist()
    assert found[1] == {"key": "a.png", "bytes": b"A", "error": None}
    assert "no such file" in found[0]["error"]
    assert found[2]["bytes"] is None


def test_csv_is_text(tmp_path):
    lines = [
        "image,target_class,code,country,sure",
        "a,007,7,NA,true",
        "b,7,1.50,null,",
        'c,,2024-01-01,"two\nlines",""',
    ]
    write(tmp_path, t_dot_csv="\ufeff" + "\n".join(lines))
    labels = LabelledTable(str(tmp_path / "t.csv")).labels
    assert labels.to_pydict() == {
        "target_class": ["007", "7", None],
        "code": ["7", "1.50", "2024-01-01"],
        "country": ["NA", "null", "two\nlines"],
        "sure": ["true", None, None],
    }


def test_nulls_of_a_parquet_table_stay_null(tmp_path):
    columns = {"image": ["a", "b"], "target_class": ["bus", None], "depth": [1.5, float("nan")], "n": [None, 3]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    labels = LabelledTable(str(tmp_path / "t.parquet")).labels
    assert labels.to_pylist() == [
        {"target_class": "bus", "depth": "1.5", "n": None},
        {"target_class": None, "depth": None, "n": "3"},
    ]


@pytest.mark.parametrize("huggingface", [False, True])
def test_parquet_with_bytes_in_many_row_groups(tmp_path, huggingface):
    data = [str(i).encode() for i in range(10)]
    image = pa.array([{"bytes": b, "path": f"{i}.jpg"} for i, b in enumerate(data)] if huggingface else data)
    pq.write_table(
        pa.table({"image": image, "target_class": ["bus"] * 10, "w": ["a", "b"] * 5}),
        tmp_path / "t.parquet",
        row_group_size=3,
    )
    table = LabelledTable(str(tmp_path / "t.parquet"))
    assert table.fetch([9, 0, 4])["bytes"].to_pylist() == [b"9", b"0", b"4"]
    assert table.labels.column_names == ["target_class", "w"]
    assert table.keys.to_pylist()[:2] == (["0.jpg", "1.jpg"] if huggingface else ["row 0", "row 1"])


@pytest.mark.parametrize(("name", "mark", "wanted"), [("t.csv", ";", ","), ("t.csv", "\t", ","), ("t.tsv", ",", "\t")])
def test_another_delimiter_is_named_as_such(tmp_path, name, mark, wanted):
    """As spreadsheets write them where a comma is the decimal sign."""
    (tmp_path / name).write_text(f"image{mark}target_class{mark}weather\na.png{mark}bus{mark}fog\n")
    with pytest.raises(SourceError) as caught:
        LabelledTable(str(tmp_path / name))
    assert f"its fields are separated by {mark!r}, not by {wanted!r}; save it with commas" in str(caught.value)


@pytest.mark.parametrize(("letters", "line", "byte"), [("latin-1", 2, "0xf6"), ("utf-16", 1, "0xff")])
def test_letters_that_are_not_utf_8_are_refused_with_their_line(tmp_path, letters, line, byte):
    (tmp_path / "t.csv").write_bytes("image,target_class,town\na.png,bus,Köln\n".encode(letters))
    with pytest.raises(SourceError, match=rf"line {line} is not UTF-8 \({byte}\); save the table as “CSV UTF-8”"):
        LabelledTable(str(tmp_path / "t.csv"))


def test_spaces_around_a_columns_name_are_no_part_of_a_name_in_columns(tmp_path):
    """Roboflow writes `filename, red, green`; a config's names have no spaces around them."""
    (tmp_path / "t.csv").write_text("filename, red, green\na.png, 1, 0\nb.png, 0, 1\n")
    columns = {"image": "filename", "target_class": ["red", "green"]}
    table = LabelledTable(str(tmp_path / "t.csv"), columns=columns, several=True)
    assert table.labels["target_class"].to_pylist() == ["red", "green"]
    (tmp_path / "t.csv").write_text("image,target_class \na.png,bus\n")
    with pytest.raises(ConfigError, match="no column 'target_class'"):
        LabelledTable(str(tmp_path / "t.csv"))


def test_json_lines_are_a_table_and_objects_in_them_are_columns(tmp_path):
    """As labelling jobs write them."""
    lines = [{"source-ref": "a.png", "label": 3, "label-metadata": {"class-name": "bus", "confidence": 0.9}}, {}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "t.manifest").write_text(f"\ufeff{text}")  # with the mark that some editors put first
    columns = {"image": "source-ref", "target_class": "label-metadata.class-name"}
    table = LabelledTable(str(tmp_path / "t.manifest"), columns=columns)
    assert table.labels.to_pylist()[0] == {
        "target_class": "bus", "label": "3", "label-metadata.confidence": "0.9"
    }  # fmt: skip
    (tmp_path / "t.jsonl").write_text('{"image": "a.png", "target_class": "bus"}\n[1]\n')
    with pytest.raises(SourceError, match="line 2: expected an object"):
        LabelledTable(str(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("line", "read"),
    [("val/ILSVRC2012_val_1.JPEG 65", ("val/ILSVRC2012_val_1.JPEG", "65")), ("a.png, bus", ("a.png", "bus")),
     ("a b.jpg great white shark", ("a b.jpg", "great white shark")), ("a.png\tbus", ("a.png", "bus")),
     ("Abyssinian_1 3", ("Abyssinian_1", "3"))],
)  # fmt: skip
def test_a_list_has_a_path_and_a_class_in_each_line(tmp_path, line, read):
    (tmp_path / "val.txt").write_text(f"{line}\n\n")
    table = LabelledTable(str(tmp_path / "val.txt"))
    assert list(zip(table.keys.to_pylist(), table.labels["target_class"].to_pylist(), strict=True)) == [read]


@pytest.mark.parametrize("line", ["red/0", "Abyssinian_1 1 1 1", "24"])
def test_a_line_that_is_no_path_and_class_is_refused_with_its_number(tmp_path, line):
    (tmp_path / "val.txt").write_text(f"a.png bus\n{line}\n")
    with pytest.raises(SourceError, match=f"line 2 is not an image's path and its class: '{line}'"):
        LabelledTable(str(tmp_path / "val.txt"))


@pytest.mark.parametrize(
    "written",
    [lambda path: path.stem, lambda path: path.name, lambda path: f"/home/somebody/data/{path.parent.name}/{path.name}",
     lambda path: f"{path.parent.name}/{path.stem}", lambda path: f"{path.parent.name}/{path.stem}.JPG",
     lambda path: f"{path.stem}.png"],
)  # fmt: skip
def test_images_that_are_not_where_a_table_says_are_looked_up_by_name(tmp_path, written):
    """HAM10000 names its images without their ending, and has them in two folders."""
    files = [tmp_path / f"part_{number % 2}" / f"ISIC_{number}.jpg" for number in range(4)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(file.name.encode())
    rows = "".join(f"{written(file)},nv\n" for file in files)
    (tmp_path / "t.csv").write_text(f"image,target_class\n{rows}ISIC_9,nv\n")
    table = LabelledTable(str(tmp_path / "t.csv"))
    fetched = table.fetch(range(5)).to_pylist()
    assert [row["bytes"] for row in fetched] == [*(file.name.encode() for file in files), None]
    assert "no file below" in fetched[4]["error"]
    assert table.locations([0]) == [str(files[0])]
    assert any(f"as part_0/{files[0].name}" in note for note in table.left_out.notes)


def test_a_name_that_several_files_have_is_an_error_of_its_row(tmp_path):
    for name in ("a/x.jpg", "b/x.jpg", "b/y.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "t.csv").write_text("image,target_class\nx,bus\ny,bus\n")
    rows = LabelledTable(str(tmp_path / "t.csv")).fetch([0, 1]).to_pylist()
    assert [row["bytes"] for row in rows] == [None, b"b/y.png"]
    assert "or several are" in rows[0]["error"]


@pytest.mark.parametrize("kind", ["csv", "int64", "uint16"])
def test_a_whole_number_names_the_one_file_of_this_number(tmp_path, kind):
    """A column of numbers holds 12 where the file is called 00012.jpg; 7.jpg and 007.jpg are both the number 7."""
    for name in ("00012.jpg", "a/30.png", "7.jpg", "b/007.jpg", "0.jpg", "c/12x.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    numbers = [12, 30, 7, 0, 300, None]
    if kind == "csv":
        path = tmp_path / "t.csv"
        path.write_text("image,target_class\n" + "".join(f"{'' if n is None else n},bus\n" for n in numbers))
    else:
        path = tmp_path / "t.parquet"
        columns = {"image": pa.array(numbers, getattr(pa, kind)()), "target_class": ["bus"] * len(numbers)}
        pq.write_table(pa.table(columns), path)
    table = LabelledTable(str(path))
    rows = table.fetch(range(len(numbers))).to_pylist()
    assert [row["bytes"] for row in rows] == [b"00012.jpg", b"a/30.png", None, b"0.jpg", None, None]
    assert [row["key"] for row in rows] == ["12", "30", "7", "0", "300", "row 5"]
    assert "or several are" in rows[2]["error"]
    assert "names no image" in rows[5]["error"]
    assert table.locations([0, 2, 5]) == [str(tmp_path / "00012.jpg"), None, None]
    assert any("such as 12 as 00012.jpg" in note for note in table.left_out.notes)


def test_many_images_of_one_name_are_told_apart_by_their_folders_in_little_time(tmp_path, monkeypatch):
    """CheXpert calls 200,000 images view1_frontal.jpg: to compare each name with each of them would take hours."""
    paths = [f"train/patient{number:05}/study1/view1_frontal.jpg" for number in range(20_000)]
    monkeypatch.setattr(labelled_rows, "_files_below", lambda *_: {*paths})
    by_name = labelled_rows.FilesByName(fs.LocalFileSystem(), str(tmp_path))
    started = time.process_time()
    for form in ("CheXpert-v1.0-small/{}", "{}"):
        found = by_name.paths_of(form.format(path) for path in paths)
        assert found == {form.format(path): path for path in paths}
    assert by_name.paths_of(path.removeprefix("train/") for path in paths).keys() == {path[6:] for path in paths}
    assert by_name.path_of("study1/view1_frontal.jpg") is None
    assert by_name.path_of("elsewhere/patient00001/study1/view1_frontal.jpg") is None
    assert time.process_time() - started < 10


def test_two_names_do_not_stand_for_one_file(tmp_path):
    """The folders that tell them apart were left behind on another machine."""
    (tmp_path / "0.jpg").write_bytes(b"0")
    (tmp_path / "1.jpg").write_bytes(b"1")
    (tmp_path / "t.csv").write_text(
        "image,target_class\n/data/bus/0.jpg,bus\n/data/boat/0.jpg,boat\n/data/boat/1.jpg,boat\n"
    )
    rows = LabelledTable(str(tmp_path / "t.csv")).fetch([0, 1, 2]).to_pylist()
    assert [row["bytes"] for row in rows] == [None, None, b"1"]
    assert "another row names it otherwise" in rows[0]["error"]


def test_nothing_is_looked_up_where_one_image_is_where_the_table_says(tmp_path):
    """Another file of the same name would stand for one that is lost."""
    (tmp_path / "old").mkdir()
    for name in ("a.jpg", "old/b.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "t.csv").write_text("image,target_class\na.jpg,bus\nb.jpg,bus\n")
    rows = LabelledTable(str(tmp_path / "t.csv")).fetch([0, 1]).to_pylist()
    assert [row["bytes"] for row in rows] == [b"a.jpg", None]


def test_mistakes_are_named(tmp_path):
    write(tmp_path, t_dot_csv="img,target_class\na,bus\n", u_dot_csv="image,target_class\n", w_dot_parquet="no Parquet")
    with pytest.raises(ConfigError, match=r"no column 'image' \(did you mean 'img'"):
        LabelledTable(str(tmp_path / "t.csv"))
    with pytest.raises(SourceError, match="no rows"):
        LabelledTable(str(tmp_path / "u.csv"))
    with pytest.raises(SourceError, match="no such table"):
        LabelledTable(str(tmp_path / "v.parquet"))
    with pytest.raises(SourceError, match="not a Parquet file"):
        LabelledTable(str(tmp_path / "w.parquet"))
    write(tmp_path, x_dot_csv="image,target_class,w,w\na,bus,1,2\n")
    with pytest.raises(SourceError, match="two columns are called 'w'"):
        LabelledTable(str(tmp_path / "x.csv"))


def test_a_table_may_call_its_columns_otherwise(tmp_path):
    write(tmp_path, p_dot_jpg=b"P", t_dot_csv="id,path,label,weather\nk1,p.jpg,bus,fog\n")
    columns = {"image": "path", "target_class": "label", "key": "id"}
    table = LabelledTable(str(tmp_path / "t.csv"), columns=columns)
    assert table.labels.to_pylist() == [{"target_class": "bus", "weather": "fog"}]
    assert table.fetch([0]).to_pylist() == [{"key": "k1", "bytes": b"P", "error": None}]
    with pytest.raises(ConfigError, match=r"images.columns: target_class: .*no column 'lable'.*did you mean 'label'"):
        LabelledTable(str(tmp_path / "t.csv"), columns=columns | {"target_class": "lable"})


@pytest.mark.parametrize("named", ["metadata.csv", "metadata.jsonl"])
def test_an_image_folder_is_a_class_a_folder(tmp_path, named):
    write(tmp_path, bus__a_dot_jpg=b"A", boat__b_dot_PNG=b"B", bus__notes_dot_txt=b"no", _dot_cache__c_dot_jpg=b"C")
    rows = [{"file_name": "bus/a.jpg", "weather": "fog"}]
    text = "\n".join(map(json.dumps, rows)) if named.endswith("l") else "file_name,weather\nbus/a.jpg,fog\n"
    (tmp_path / named).write_text(text)
    (tmp_path / "bus" / "up").symlink_to("..")  # followed without end, it names bus/up/bus/up/…
    (tmp_path / "again").symlink_to(".")
    os.mkfifo(tmp_path / "bus" / "pipe.jpg")
    table = LabelledTable(str(tmp_path))
    assert table.labels.to_pylist() == [
        {"target_class": "boat", "weather": None},
        {"target_class": "bus", "weather": "fog"},
    ]
    assert table.fetch([1, 0])["bytes"].to_pylist() == [b"A", b"B"]
    assert table.keys.to_pylist() == ["boat/b.PNG", "bus/a.jpg"]


def test_metadata_in_json_may_hold_any_separator_of_lines_within_a_text(tmp_path):
    write(tmp_path, bus__a_dot_jpg=b"A", bus__b_dot_jpg=b"B")
    rows = [{"file_name": "bus/a.jpg", "note": "one\u2028two\x85three"}, {"file_name": "bus/b.jpg", "note": "four"}]
    (tmp_path / "metadata.jsonl").write_bytes("\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    assert LabelledTable(str(tmp_path)).labels["note"].to_pylist() == [row["note"] for row in rows]


def test_an_image_folder_s_mistakes_are_named(tmp_path):
    write(tmp_path / "splits", train__bus__a_dot_jpg=b"A", test__bus__b_dot_jpg=b"B")
    with pytest.raises(ConfigError, match=r"holds splits \(test, train\); name one: .*splits/test"):
        LabelledTable(str(tmp_path / "splits"))
    write(tmp_path / "none", notes_dot_txt="x")
    with pytest.raises(SourceError, match="no labelled images there"):
        LabelledTable(str(tmp_path / "none"))
    write(tmp_path / "twice", bus__a_dot_jpg=b"A", metadata_dot_jsonl='{"file_name": "bus/a.jpg", "w": 1, "w": 2}')
    with pytest.raises(SourceError, match=r"line 1 is not JSON: the key '\w+' is given twice"):
        LabelledTable(str(tmp_path / "twice"))


def huggingface(image):
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["bus", "boat"]}}
    table = pa.table({"image": image, "label": [0, 1, -1], "weather": ["fog", "rain", "fog"]})
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


IMAGES = [{"bytes": b"0", "path": "0.jpg"}, {"bytes": None, "path": "1.jpg"}, {"bytes": b"2", "path": None}]


@pytest.mark.parametrize("layout", ["saved", "parquet", "data"])
def test_datasets_of_hugging_face(tmp_path, layout):
    table = huggingface(IMAGES)
    if layout == "saved":
        with pa.ipc.new_stream(str(tmp_path / "data-00000-of-00001.arrow"), table.schema) as writer:
            writer.write_table(table)
        files = [{"filename": "data-00000-of-00001.arrow"}]
        write(tmp_path, state_dot_json=json.dumps({"_data_files": files}), dataset_info_dot_json="{}")
    else:
        folder = tmp_path / ("data" if layout == "data" else "")
        folder.mkdir(exist_ok=True)
        pq.write_table(table.slice(0, 2), folder / "train-00000-of-00002.parquet")
        pq.write_table(table.slice(2), folder / "train-00001-of-00002.parquet")
    write(tmp_path, **{"1_dot_jpg": b"1"})
    found = LabelledTable(str(tmp_path))
    assert found.labels.to_pydict() == {"target_class": ["bus", "boat", None], "weather": ["fog", "rain", "fog"]}
    assert found.fetch([2, 1, 0])["bytes"].to_pylist() == [b"2", b"1", b"0"]
    assert found.keys.to_pylist() == ["0.jpg", "1.jpg", "row 2"]
    assert found.revision == LabelledTable(str(tmp_path)).revision


def test_a_dataset_of_several_splits_must_be_named(tmp_path):
    for split in ("train", "test"):
        pq.write_table(huggingface(IMAGES), tmp_path / f"{split}-00000-of-00001.parquet")
    with pytest.raises(ConfigError, match=r"several splits \(test, train\); name a file"):
        LabelledTable(str(tmp_path))


def test_a_table_reads_regular_files_below_its_folder_and_nothing_else(tmp_path):
    inside = tmp_path / "inside"
    write(tmp_path, secret_dot_png=b"S", inside__a_dot_png=b"A", inside__deep__b_dot_png=b"B")
    os.mkfifo(inside / "pipe.png")
    (inside / "device.png").symlink_to("/dev/zero")
    (inside / "out.png").symlink_to(tmp_path / "secret.png")
    (inside / "in.png").symlink_to("deep/b.png")
    with open(inside / "huge.png", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    wanted = {
        "a.png": b"A",
        "deep/../a.png": b"A",
        "in.png": b"B",
        "../secret.png": "leads out of the folder",
        "deep/../../secret.png": "leads out of the folder",
        str(tmp_path / "secret.png"): "leads out of the folder",
        "/etc/passwd": "leads out of the folder",
        "/dev/zero": "leads out of the folder",
        "out.png": "a link that leads out of the folder",
        "device.png": "a link that leads out of the folder",
        "pipe.png": "not a regular file",
        "deep": "not a regular file",
        "huge.png": "too large",
    }
    write(inside, t_dot_csv="image,target_class\n" + "".join(f"{name},bus\n" for name in wanted))
    found = LabelledTable(str(inside / "t.csv")).fetch(range(len(wanted))).to_pylist()
    (tmp_path / "deep").mkdir()
    again = LabelledTable(f"{tmp_path}/deep/../inside/t.csv").fetch([0, 2])  # a folder that is named with ..
    assert again["bytes"].to_pylist() == [b"A", b"B"]
    for row, expected in zip(found, wanted.values(), strict=True):
        if isinstance(expected, bytes):
            assert (row["bytes"], row["error"]) == (expected, None)
        else:
            assert row["bytes"] is None
            assert expected in row["error"]


def test_with_a_root_paths_are_below_it_and_nowhere_else(tmp_path):
    write(tmp_path, photos__a_dot_png=b"A", photos__deep__b_dot_png=b"B", lists__c_dot_png=b"C", secret_dot_png=b"S")
    (tmp_path / "photos/way_out.png").symlink_to(tmp_path / "secret.png")
    root = tmp_path / "photos"
    names = ["a.png", "deep/../a.png", "../photos/deep/b.png", f"{root}/a.png"]
    refused = ["../secret.png", f"{tmp_path}/secret.png", "c.png", "way_out.png", f"{root}/../secret.png"]
    rows = "".join(f"{name},bus\n" for name in [*names, *refused])
    write(tmp_path, lists__t_dot_csv="image,target_class\n" + rows)
    table = LabelledTable(str(tmp_path / "lists/t.csv"), root=str(root))
    found = table.fetch(range(len(names) + len(refused)))
    assert found["bytes"].to_pylist() == [b"A", b"A", b"B", b"A", None, None, None, None, None]
    assert table.leading_out() == [refused[0], refused[1], refused[4]]
    assert found["key"].to_pylist() == [*names, *refused]  # as the table calls them
    again = pickle.loads(pickle.dumps(table))
    assert again.fetch([3])["bytes"].to_pylist() == [b"A"]
    without = LabelledTable(str(tmp_path / "lists/t.csv"))
    assert without.leading_out() == [names[2], names[3], *(refused[n] for n in (0, 1, 4))]
    assert without.root_of(without.leading_out()) == str(tmp_path)


def test_labels_of_many_rows_take_a_byte_each_and_a_table_keeps_its_revision(tmp_path):
    """The revision names a run's images: by another one, no run of an earlier release would go on."""
    rows = [f"{i:05}.png,{('bus', 'boat')[i % 2]},{('fog', '', 'rain')[i % 3]},{i}\n" for i in range(40_000)]
    write(tmp_path, t_dot_csv="image,target_class,weather,number\n" + "".join(rows))
    table = LabelledTable(str(tmp_path / "t.csv"))
    assert table.revision == "9e5f8561806e90978498"
    assert table.labels["weather"].nbytes < 1.2 * len(rows)
    assert table.labels["weather"].to_pylist()[:4] == ["fog", None, "rain", "fog"]
    assert table.labels["number"].to_pylist() == [str(i) for i in range(len(rows))]


def test_threads_that_share_a_parquet_table_get_their_own_rows_and_read_one_at_a_time(tmp_path, monkeypatch):
    """Two readers of one file crash the process, or one gets the other's images."""
    images = pa.table({"image": [b"%d" % row for row in range(16)], "target_class": ["bus"] * 16})
    pq.write_table(images, tmp_path / "t.parquet", row_group_size=1)
    reading, together = [], []

    def read_row_group(file, group, columns):
        reading.append(group)
        together.append(len(reading))
        time.sleep(0.001)
        reading.remove(group)
        return images.slice(group, 1)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_row_group)
    table = LabelledTable(str(tmp_path / "t.parquet"))
    wanted = [[(first + row) % 16 for row in range(16)] for first in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda rows: table.fetch(rows)["bytes"].to_pylist(), wanted))
    assert found == [[b"%d" % row for row in rows] for rows in wanted]
    assert max(together) == 1
