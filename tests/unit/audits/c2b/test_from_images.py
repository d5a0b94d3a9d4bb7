"""From a bare folder, table or dataset to an audit file: what is inferred, what is said, what is refused."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.from_images import Choices, are_images, default_task, drafted, place_of, written
from c2b_ray.config import read_audit
from c2b_ray.config.named import LONGEST_NAME
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage.labelled import LabelledTable

CONTROL = "world:resnet-control-0"  # its labels: bus, boat, airplane, house, chair, mug, bird, fish, umbrella, bicycle


def png(value=0, side=8):
    buffer = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def folder_of(path, **counts):
    for name, count in counts.items():
        (path / name).mkdir(parents=True)
        for number in range(count):
            (path / name / f"{number}.png").write_bytes(png(number))
    return path


def table_of(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_a_folder_of_classes_becomes_an_audit_file_that_reads_back_the_same(tmp_path):
    photos = folder_of(tmp_path / "photos", Bus=3, boats=2, lorry=4)
    draft = drafted(photos, CONTROL)
    assert draft.fields["classes"] == ["Bus", "boats"]
    assert draft.fields["label_map"] == {"Bus": ["bus"], "boats": ["boat"]}
    assert draft.fields["images"] == {"source": "labelled", "table": str(photos)}
    assert any("lorry (4 images) is not audited" in line for line in draft.warnings)
    path = written(draft, str(tmp_path / "runs/photos.yaml"))
    assert yaml.safe_load(draft.text) == draft.fields
    assert read_audit(path).model_dump() == read_audit(draft.fields).model_dump()
    assert "lorry (4 images) is not audited" in draft.text  # where it is kept


def test_a_class_that_a_table_of_answers_never_gives_is_said_to_be_in_no_share_of_right_answers(tmp_path):
    """Of a classifier that never answers tram, all trams are wrong: 4 of 8 answers are right, and not 4 of 5."""
    folder_of(tmp_path / "photos", bus=3, car=2, tram=3)
    shown = {f"{name}/{n}.png": name for name, count in (("bus", 3), ("car", 2), ("tram", 3)) for n in range(count)}
    rows = [(file, name, ("day", "night")[int(file[-5]) % 2]) for file, name in shown.items()]
    photos = table_of(tmp_path / "photos/labels.csv", ["file", "label", "light"], rows)
    shown |= {"car/0.png": "bus", "tram/0.png": "bus", "tram/1.png": "car", "tram/2.png": "car"}
    answers = table_of(tmp_path / "answers.csv", ["file", "prediction"], list(shown.items()))
    draft = drafted(photos, f"table:{answers}")
    assert any("shares of right answers leave them out" in line for line in draft.warnings)
    run = c2b_ray.audit({**draft.fields, "check": False}, out=tmp_path / "run", via="here")
    assert run.manifest["other_rows"] == 3
    assert "rows of the labelled table of classes that are not audited" in Path(run.report).read_text()
    (tmp_path / "labels.txt").write_text("bus\ncar\ntram\n")
    named = drafted(photos, f"table:{answers}?labels={tmp_path / 'labels.txt'}")
    assert (named.fields["classes"], named.warnings) == (["bus", "car", "tram"], ())


def test_a_file_that_was_changed_is_kept(tmp_path):
    draft = drafted(folder_of(tmp_path / "photos", bus=1, boat=1), CONTROL)
    place = place_of(tmp_path / "photos", tmp_path / "out", "runs")
    assert place == f"{tmp_path}/out.yaml"
    assert written(draft, place) == place
    assert written(draft, place) == place
    (tmp_path / "out.yaml").write_text("task: mine")
    other = written(draft, place)
    assert re.fullmatch(rf"{tmp_path}/out-\w{{8}}\.yaml", other)
    assert (tmp_path / "out.yaml").read_text() == "task: mine"
    assert [written(draft, place) for _ in range(3)] == [other] * 3
    (tmp_path / "out.yaml").write_text("[no audit")
    assert written(draft, place) == other


def test_each_audit_of_the_same_images_has_one_file(tmp_path):
    photos = folder_of(tmp_path / "photos", bus=1, boat=1)
    place = place_of(photos, None, str(tmp_path / "runs"))
    first, second = (drafted(photos, CONTROL, Choices(task=task)) for task in ("Which?", "What?"))
    names = [written(draft, place) for draft in (first, second, first, second)]
    assert names[0] == place
    assert len({*names}) == 2
    assert names[:2] == names[2:]
    assert [read_audit(name).task for name in names[:2]] == ["Which?", "What?"]


def test_a_file_whose_comments_alone_were_changed_is_the_same_audit(tmp_path):
    draft = drafted(folder_of(tmp_path / "photos", bus=1, boat=1), CONTROL)
    path = tmp_path / "photos.yaml"
    path.write_text(f"# mine\n{draft.text}")
    assert written(draft, str(path)) == str(path)
    assert path.read_text().startswith("# mine")


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (("image", "target_class"), {}),
        (("file_name", "label"), {"image": "file_name", "target_class": "label"}),
        (("Path", "Class"), {"image": "Path", "target_class": "Class"}),
        (("filepath", "category_name"), {"image": "filepath", "target_class": "category_name"}),
    ],
)
def test_columns_are_found_by_usual_names(tmp_path, header, columns):
    folder_of(tmp_path, bus=1, boat=1)
    table = table_of(tmp_path / "t.csv", header, [("bus/0.png", "bus"), ("boat/0.png", "boat")])
    draft = drafted(table, CONTROL)
    assert draft.fields["images"].get("columns", {}) == columns
    assert "root" not in draft.fields["images"]
    assert all(name in " ".join(draft.summary) for name in columns.values())


def test_of_several_columns_the_one_with_the_classifiers_labels_is_the_class(tmp_path):
    folder_of(tmp_path, bus=1, boat=1)
    rows = [("bus/0.png", "0", "bus"), ("boat/0.png", "1", "boat")]
    table = table_of(tmp_path / "t.csv", ("file", "label", "category"), rows)
    assert drafted(table, CONTROL).fields["images"]["columns"]["target_class"] == "category"
    chosen = drafted(table, CONTROL, Choices(target_class="label"))
    assert chosen.fields["images"]["columns"]["target_class"] == "label"
    with pytest.raises(ConfigError, match=r"--class-column: the table has no column 'Label'; did you mean 'label'"):
        drafted(table, CONTROL, Choices(target_class="Label"))


def test_columns_without_usual_names_are_found_by_what_they_hold(tmp_path):
    """As in HAM10000: `image_id` without an ending, `dx`; beside columns that are neither."""
    folder_of(tmp_path / "photos", bus=2, boat=2)
    rows = [(f"L{n // 2}", f"{kind}/{n}", kind, "bus", "20") for kind in ("bus", "boat") for n in range(2)]
    table = table_of(tmp_path / "photos/t.csv", ["lesion_id", "image_id", "dx", "predicted", "size"], rows)
    draft = drafted(table, CONTROL)
    assert draft.fields["images"]["columns"] == {"image": "image_id", "target_class": "dx"}
    assert "root" not in draft.fields["images"]  # the names are looked up below the table's folder


def test_a_column_of_whole_numbers_may_name_the_images(tmp_path):
    """No other column of numbers does, and none where one of texts does."""
    folder_of(tmp_path / "photos", bus=4, boat=4)
    for number, path in enumerate(sorted((tmp_path / "photos").glob("*/*.png"))):
        path.rename(path.with_name(f"{number + 8:05}.png"))
    columns = {"image_id": [*range(8, 16)], "label": ["boat"] * 4 + ["bus"] * 4, "size": [*range(8)]}
    for further in ({}, {"name": [f"{number:05}" for number in range(8, 16)]}):
        pq.write_table(pa.table(columns | further), tmp_path / "photos/t.parquet")
        named = drafted(tmp_path / "photos/t.parquet", CONTROL).fields["images"]["columns"]["image"]
        assert named == next(iter(further), "image_id")


def test_columns_of_0_and_1_that_are_called_like_labels_are_the_classes(tmp_path):
    """As Roboflow and ISIC write them, the former with a space behind each comma."""
    folder_of(tmp_path / "photos", bus=1, boat=1)
    (tmp_path / "photos/t.csv").write_text("filename, bus, boat, night\nbus/0.png, 1, 0, 1\nboat/0.png, 0, 1, 0\n")
    draft = drafted(tmp_path / "photos/t.csv", CONTROL)
    assert draft.fields["classes"] == ["boat", "bus"]
    assert draft.fields["images"]["columns"] == {"image": "filename", "target_class": ["bus", "boat"]}
    assert any("from the columns of 0 and 1 bus, boat" in line for line in draft.summary)


def test_a_column_of_0_and_1_of_one_label_is_no_column_of_numbers_of_outputs(tmp_path):
    """Else 1 of the column `boat`, the second label, would stand for the second label whatever the column is called."""
    folder_of(tmp_path / "photos", bus=2, boat=2)
    rows = [(f"{name}/{n}.png", int(name == "bus"), n, n) for name in ("bus", "boat") for n in range(2)]
    table = table_of(tmp_path / "photos/t.csv", ["image", "bus", "boat", "chair"], rows)
    with pytest.raises(ConfigError, match=r"--class-column: 'bus' says with 0 and 1 whether .* 0 would stand for bus"):
        drafted(table, CONTROL, Choices(target_class="bus"))


@pytest.mark.parametrize("unknown", [-1, ""])
def test_a_column_of_0_and_1_is_the_numbers_of_two_outputs_where_it_is_called_like_the_second(tmp_path, unknown):
    folder_of(tmp_path, bus=6)
    table = table_of(
        tmp_path / "t.csv", ["image", "sick"], [(f"bus/{n}.png", (0, 1, unknown)[n % 3]) for n in range(6)]
    )
    answers = table_of(
        tmp_path / "answers.csv", ["key", "healthy", "sick"], [(f"bus/{n}.png", 0.4, 0.6) for n in range(6)]
    )
    if unknown == -1:
        with pytest.raises(ConfigError, match=r"'sick' holds -1, .* Leave the field blank where it is not known"):
            drafted(table, f"table:{answers}", Choices(target_class="sick"))
    else:
        draft = drafted(table, f"table:{answers}", Choices(target_class="sick"))
        assert draft.fields["label_map"] == {"0": ["healthy"], "1": ["sick"]}


def test_a_column_that_is_called_like_a_label_is_not_left_out_in_silence(tmp_path):
    folder_of(tmp_path / "photos", bus=3)
    rows = [(f"bus/{n}.png", n % 2, n == 1, n) for n in range(3)]
    table = table_of(tmp_path / "photos/t.csv", ["image", "bus", "boat", "chair"], rows)
    with pytest.raises(ConfigError, match=r"column 'chair' is called like a label, and holds '2'; expected 0 and 1"):
        drafted(table, CONTROL)


def test_one_class_each_is_one_class_however_the_table_writes_it(tmp_path):
    """A classifier whose labels exclude each other takes columns of 0 and 1 where each image has one class, and is
    audited as with one column of classes."""
    folder_of(tmp_path / "photos", bus=6, boat=6)
    rows = [(f"{name}/{n}.png", name, n % 2) for name in ("bus", "boat") for n in range(6)]
    table_of(tmp_path / "photos/one.csv", ["image", "target_class", "night"], rows)
    marked = [(file, int(name == "bus"), int(name == "boat"), night) for file, name, night in rows]
    table_of(tmp_path / "photos/marks.csv", ["image", "bus", "boat", "night"], marked)
    scores = []
    for name in ("one", "marks"):
        run = c2b_ray.audit(
            str(tmp_path / f"photos/{name}.csv"), classifier=CONTROL, out=str(tmp_path / name), via="here"
        )
        columns = ["target_class", "attribute", "bias_class", "n", "correct", "phi", "p_value", "verdict"]
        scores.append(sorted(map(str, run.scores.select(columns).to_pylist())))
    assert scores[0] == scores[1]
    marked.append(("bus/0.png", 1, 1, 0))
    table_of(tmp_path / "photos/both.csv", ["image", "bus", "boat", "night"], marked)
    with pytest.raises(ConfigError, match="its images may show several classes"):
        c2b_ray.audit(str(tmp_path / "photos/both.csv"), classifier=CONTROL, out=str(tmp_path / "both"), via="here")


def test_inner_folders_may_be_the_classes_and_the_outer_ones_an_attribute(tmp_path):
    """DomainNet, PACS and ImageNet-C: a domain or a corruption, then the class."""
    for domain in ("sketch", "photo"):
        folder_of(tmp_path / "set" / domain, bus=3, boat=3)
    draft = drafted(tmp_path / "set", CONTROL)
    assert draft.fields["classes"] == ["boat", "bus"]
    assert draft.fields["images"]["columns"] == {"target_class": "folder 2"}
    run = c2b_ray.audit(str(tmp_path / "set"), classifier=CONTROL, out=str(tmp_path / "run"), via="here")
    assert {(row["attribute"], row["bias_class"]) for row in run.scores.to_pylist()} == {
        ("folder 1", "photo"), ("folder 1", "sketch"),
    }  # fmt: skip


def test_outer_folders_that_are_classes_stay_so_whatever_lies_in_them(tmp_path):
    for kind in ("bus", "boat"):
        folder_of(tmp_path / "set" / kind, monday=2, friday=2)
    draft = drafted(tmp_path / "set", CONTROL)
    assert "columns" not in draft.fields["images"]
    table = LabelledTable(str(tmp_path / "set"))
    assert table.labels.column_names == ["target_class"]  # as ever: a run's images are known by it


def test_images_of_the_training_among_the_others_are_warned_of(tmp_path):
    folder_of(tmp_path, bus=2, boat=2)
    rows = [(f"{name}/{n}.png", name, ("Train", "test")[n]) for name in ("bus", "boat") for n in range(2)]
    draft = drafted(table_of(tmp_path / "t.csv", ("file", "label", "subset"), rows), CONTROL)
    assert any("among these (subset: Train 2, test 2)" in line for line in draft.warnings)
    only = table_of(tmp_path / "u.csv", ("file", "label", "subset"), [(*row[:2], "train") for row in rows])
    assert any("among these (subset: train 4)" in line for line in drafted(only, CONTROL).warnings)
    (tmp_path / "labels.txt").write_text("train\ntram\n")
    trains = table_of(tmp_path / "v.csv", ("file", "label"), [(row[0], "train") for row in rows])
    answers = table_of(tmp_path / "answers.csv", ("file", "label"), [(row[0], "train") for row in rows])
    draft = drafted(trains, f"table:{answers}?labels={tmp_path / 'labels.txt'}")
    assert not any("images of the training" in line for line in draft.warnings)  # the vehicle


def test_two_columns_of_images_are_told_apart_by_nobody(tmp_path):
    folder_of(tmp_path / "photos", bus=2)
    rows = [("bus/0.png", "bus/1.png", "bus"), ("bus/1.png", "bus/0.png", "bus")]
    table = table_of(tmp_path / "photos/t.csv", ["left", "right", "dx"], rows)
    with pytest.raises(ConfigError, match=r"several columns of .* name images \(left, right\); say which"):
        drafted(table, CONTROL)


def test_folders_with_numbers_before_their_names_are_matched(tmp_path):
    """CUB's folders, and those of the dogs of ImageNet."""
    photos = folder_of(tmp_path / "photos", **{"001.bus": 1, "n02085620-boat": 1, "3d_house": 1})
    draft = drafted(photos, CONTROL)
    assert draft.fields["label_map"] == {"001.bus": ["bus"], "n02085620-boat": ["boat"]}
    assert any("001.bus by numbered name" in line for line in draft.summary)


def test_synsets_are_matched_to_the_labels_of_a_few_of_imagenets_classes(tmp_path):
    """Imagenette: ten classes in folders of synsets, and a classifier that names them."""
    photos = folder_of(tmp_path / "photos", n02930766=1, n04146614=1)  # cab, school bus
    labels = tmp_path / "labels.txt"
    labels.write_text("school bus\ntaxi\n")
    table = tmp_path / "predictions.csv"
    table.write_text("file,label\nn02930766/0.png,taxi\nn04146614/0.png,school bus\n")
    draft = drafted(photos, f"table:{table}?labels={labels}")
    assert draft.fields["label_map"] == {"n02930766": ["taxi"], "n04146614": ["school bus"]}


def test_a_folder_that_holds_the_folder_of_classes_is_audited_by_these(tmp_path):
    photos = folder_of(tmp_path / "data/images", bus=1, boat=1).parent
    assert drafted(photos, CONTROL).fields["images"]["columns"] == {"target_class": "folder 2"}


def test_a_table_without_usual_names_is_asked_about(tmp_path):
    table = table_of(tmp_path / "t.csv", ("x", "what"), [("a.png", "bus")])
    with pytest.raises(ConfigError, match=r"--image-column: .*name it: x, what"):
        drafted(table, CONTROL)
    with pytest.raises(ConfigError, match=r"--class-column: .*name it: what"):
        drafted(table, CONTROL, Choices(image="x"))


@pytest.mark.parametrize("way", ["absolute", "upwards", "beside"])
def test_the_folder_of_the_images_is_found_by_their_paths(tmp_path, way):
    photos = folder_of(tmp_path / "data/photos", bus=2, boat=2)
    start = {"absolute": f"{photos}/", "upwards": "../data/photos/", "beside": ""}[way]
    rows = [(f"{start}{name}/{number}.png", name) for name in ("bus", "boat") for number in range(2)]
    folder = tmp_path / "data" if way == "beside" else tmp_path / "lists"
    table = table_of(folder / "t.csv", ("path", "label"), rows)
    images = drafted(table, CONTROL).fields["images"]
    assert images["root"] == str(photos)
    from c2b_ray.storage.labelled import LabelledTable

    read = LabelledTable(images["table"], columns=images["columns"], root=images["root"]).fetch([0, 3])
    assert read["error"].to_pylist() == [None, None]
    assert read["bytes"].to_pylist() == [png(0), png(1)]


def test_images_that_are_nowhere_are_refused_before_the_run(tmp_path):
    (tmp_path / "empty").mkdir()
    table = table_of(tmp_path / "t.csv", ("file", "label"), [("a.png", "bus"), ("b.png", "boat")])
    with pytest.raises(SourceError, match=r"none of its first 2 images is there, such as 'a.png'.*--root"):
        drafted(table, CONTROL)
    table = table_of(tmp_path / "u.csv", ("file", "label"), [("/one/a.png", "bus"), ("/two/b.png", "boat")])
    with pytest.raises(ConfigError, match=r"--root: .*share no folder, such as '/one/a.png'"):
        drafted(table, CONTROL)


@pytest.mark.parametrize("embedded", [True, False])
def test_what_to_parquet_of_hugging_face_writes(tmp_path, embedded):
    """An image is a struct of bytes and path, a class a number with its name in the schema's metadata."""
    photos = folder_of(tmp_path / "photos", bus=2, boat=2)
    paths = sorted(photos.glob("*/*.png"))
    images = [
        {"bytes": path.read_bytes(), "path": path.name} if embedded else {"bytes": None, "path": str(path)}
        for path in paths
    ]
    features = {
        "img": {"_type": "Image"},
        "kind": {"_type": "ClassLabel", "names": ["boat", "bus"]},
    }
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [("img", kind), ("kind", pa.int64())], metadata={"huggingface": json.dumps({"info": {"features": features}})}
    )
    table = pa.table([pa.array(images, kind), pa.array([["boat", "bus"].index(p.parent.name) for p in paths])], schema)
    pq.write_table(table, tmp_path / "train.parquet")
    draft = drafted(tmp_path / "train.parquet", CONTROL)
    assert draft.fields["images"]["columns"] == {"image": "img", "target_class": "kind"}
    assert draft.fields["classes"] == ["boat", "bus"]
    assert draft.fields["images"].get("root") == (None if embedded else str(photos))
    from c2b_ray.storage.labelled import LabelledTable

    fields = draft.fields["images"]
    read = LabelledTable(fields["table"], columns=fields["columns"], root=fields.get("root")).fetch(range(4))
    assert read["bytes"].to_pylist() == [path.read_bytes() for path in paths]


def test_classes_that_are_no_labels_name_what_to_do(tmp_path):
    photos = folder_of(tmp_path / "photos", lion=1, zebra=1)
    with pytest.raises(ConfigError, match=r"no class of .* is a label of the classifier \('lion', 'zebra'\)"):
        drafted(photos, CONTROL)


def test_a_table_beside_images_without_classes_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "labels.csv").write_text("file,label\na.png,bus\n")
    with pytest.raises(SourceError, match=r"no image has a class; audit a table .*labels\.csv;"):
        drafted(tmp_path, CONTROL)
    (tmp_path / "empty.csv").write_text("file,label\na.png,\n")
    with pytest.raises(SourceError, match=r"no image has a class; put each class's images.* or write a table with a"):
        drafted(tmp_path / "empty.csv", CONTROL)


@pytest.mark.parametrize("folder", ["set", "set/images"])
@pytest.mark.parametrize("form", ["{}.{}.png", "{}_{}.png", "{1}-{0}.png", "{}{:04}.png"])
def test_classes_in_the_names_of_files_are_told_as_a_remedy_and_never_taken(tmp_path, folder, form):
    (tmp_path / folder).mkdir(parents=True)
    for name in ("bus", "boat", "lorry"):
        for number in range(3):
            (tmp_path / folder / form.format(name, number)).write_bytes(png(number))
    example = re.escape(f"{folder[4:]}/{form.format('boat', 0)},boat and ".removeprefix("/"))
    with pytest.raises((SourceError, ConfigError), match=rf"rite a table .* the line file,label .* {example}"):
        drafted(tmp_path / "set", CONTROL)
    for path in (tmp_path / folder).iterdir():
        path.rename(path.with_name(path.name.replace("bus", "IMG")))
    with pytest.raises((SourceError, ConfigError)) as told:
        drafted(tmp_path / "set", CONTROL)
    assert "file,label" not in str(told.value)


def test_a_table_beside_a_folder_of_images_is_named_where_no_folder_is_a_label(tmp_path):
    folder_of(tmp_path / "set", images=2)
    (tmp_path / "set/labels.csv").write_text("file,label\n0.png,bus\n")
    with pytest.raises(ConfigError, match=r"Audit a table that names them, such as .*set/labels\.csv; or write"):
        drafted(tmp_path / "set", CONTROL)


def test_numbers_that_pandas_wrote_as_floats_are_numbers(tmp_path):
    folder_of(tmp_path, bus=1, boat=1)
    table = table_of(tmp_path / "t.csv", ("image", "label"), [("bus/0.png", "0.0"), ("boat/0.png", "1.0")])
    draft = drafted(table, CONTROL)
    assert draft.fields["label_map"] == {"0.0": ["bus"], "1.0": ["boat"]}
    assert any("0.0 bus, 1.0 boat" in line for line in draft.warnings)


def test_numbers_that_begin_at_1_are_no_positions_of_outputs(tmp_path):
    (tmp_path / "answers.csv").write_text("file,red,green,blue\na/0.png,0.5,0.3,0.2\n")
    answers = f"table:{tmp_path}/answers.csv"
    folder_of(tmp_path / "a", **{"1": 1, "2": 1, "3": 1})
    with pytest.raises(
        ConfigError, match=r"numbers from 1 to 3, and the classifier's outputs are numbered from 0 to 2"
    ):
        drafted(tmp_path / "a", answers)
    # A 0 shows where they begin: what is beyond the outputs is no class, such as 255 for "not known".
    folder_of(tmp_path / "b", **{"0": 1, "1": 1, "255": 1})
    draft = drafted(tmp_path / "b", answers)
    assert draft.fields["label_map"] == {"0": ["red"], "1": ["green"]}
    assert any("255 (1 image) is not audited" in line for line in draft.warnings)
    assert "classes are taken to be the numbers of the classifier's outputs: 0 red, 1 green" in draft.warnings


def test_a_table_without_a_header_is_told_so(tmp_path):
    folder_of(tmp_path / "images", bus=2)
    with pytest.raises(SourceError, match=r"first line names an image.*write a line such as file,label above it"):
        drafted(table_of(tmp_path / "t.csv", ["images/bus/0.png", "bus"], [["images/bus/1.png", "bus"]]), CONTROL)


@pytest.mark.parametrize("name", ["nowhere", "list.xlsx"])
def test_a_place_without_images_is_no_audit_file(tmp_path, c2b, name):
    (tmp_path / "list.xlsx").write_text("a.png 0")
    status, _, err = c2b("audit", tmp_path / name, "--classifier", CONTROL)
    assert status == 2
    assert "expected a folder of images, or a table that ends in .csv" in err
    assert "audit file" not in err


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("t.xlsx", "a spreadsheet (save the sheet as .csv)"), ("t.npz", "arrays (write each picture as a file into a"),
     ("t.zip", "an archive (unpack it")],
)  # fmt: skip
def test_a_file_that_is_no_table_of_images_is_told_what_to_do(tmp_path, c2b, name, remedy):
    (tmp_path / name).write_bytes(b"PK")
    status, _, err = c2b("audit", tmp_path / name, "--classifier", CONTROL)
    assert status == 2
    assert f"no table of images, but {remedy}" in " ".join(err.split())


def test_a_folder_of_which_no_image_can_be_read_is_told_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("bus", "boat"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "photos" / name / f"{number}.png").write_text("no picture")
    with pytest.raises(SourceError, match=r"none of its 6 images can be read; the first reason: .*not an image"):
        c2b_ray.audit(str(tmp_path / "photos"), classifier=CONTROL, out=str(tmp_path / "run"), via="here")


def test_only_images_are_taken_for_images(tmp_path):
    folder_of(tmp_path / "photos", bus=1)
    (tmp_path / "audit.yaml").write_text("task: t")
    assert are_images(tmp_path / "photos")
    assert are_images(tmp_path / "nowhere.csv")  # whose absence is told as that of a table
    assert not are_images(tmp_path / "audit.yaml")
    assert not are_images(tmp_path / "nowhere")
    assert not are_images({"task": "t"})


def brightness(images):
    """Right on bright pictures alone: "light" where a picture is bright."""
    return [[0.0, 4.0] if image.mean() > 127 else [4.0, 0.0] for image in images]


def test_from_a_folder_to_a_run_in_python_and_by_the_command_that_it_wrote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = []
    for name, value in (("dark", 20), ("light", 230)):
        for number in range(8):
            path = tmp_path / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(value + number))
            rows.append((f"{name}/{number}.png", "left" if number % 2 else "right"))
    table_of(tmp_path / "photos/metadata.csv", ("file_name", "side"), rows)
    told = []
    run = c2b_ray.audit(
        "photos", classifier=c2b_ray.InMemory(brightness, labels=["dark", "light"]), listener=told.append
    )
    assert set(run.scores["target_class"].to_pylist()) == {"dark", "light"}
    assert set(run.scores["accuracy"].to_pylist()) == {1.0}
    fields = yaml.safe_load((tmp_path / "runs/photos.yaml").read_text())
    assert fields["images"] == {"source": "labelled", "table": str(tmp_path / "photos")}
    with pytest.raises(ConfigError, match="pass classifier="):
        c2b_ray.audit("photos")


def test_the_command_writes_the_file_before_it_runs_and_runs_what_it_wrote(tmp_path, monkeypatch, c2b):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "photos", bus=4, boat=4, lorry=1)
    rows = [(f"{name}/{number}.png", "ab"[number % 2]) for name in ("bus", "boat") for number in range(4)]
    table_of(tmp_path / "photos/metadata.csv", ("file_name", "side"), rows)
    answers = [("file", "label", "prediction"), *((name, name.split("/")[0], name.split("/")[0]) for name, _ in rows)]
    table_of(tmp_path / "answers.csv", answers[0], answers[1:])
    status, out, err = c2b("audit", "photos", "--classifier", "table:answers.csv", "--out", "runs/first")
    assert status == 0, err
    assert "audit file: runs/first.yaml" in out
    assert "lorry (1 image) is not audited" in err
    status, again, err = c2b("audit", "runs/first.yaml", "--out", "runs/first", "--json")
    assert status == 0, err
    assert json.loads(again)["run"].endswith("runs/first")
    status, _, err = c2b("audit", "photos")
    assert status == 2
    assert "--classifier: photos holds images" in err
    status, _, err = c2b("audit", "runs/first.yaml", "--classifier", "table:answers.csv")
    assert status == 2
    assert "is an audit file" in err
    (tmp_path / "coco.json").write_text('{"images": [], "annotations": [], "categories": []}')
    status, _, err = c2b("audit", "coco.json", "--classifier", "table:answers.csv")
    assert status == 2
    assert "coco.json lists annotations and is no audit file" in err


def test_a_task_that_nobody_wrote_fits_into_the_file_however_long_the_names(tmp_path):
    long = [f"{i} {'a name that is long ' * 4}".strip() for i in range(7)]
    assert default_task(["bus"]) == "Tell what a picture shows: bus."
    assert default_task(long).endswith("and 6 other classes.")
    assert default_task(["x" * 300, "y"]) == "Tell which of 2 classes a picture shows."
    folder_of(tmp_path / "photos", **dict.fromkeys(long, 1))
    (tmp_path / "photos.csv").write_text("file,prediction\n" + "".join(f"{name}/0.png,{name}\n" for name in long))
    draft = drafted(str(tmp_path / "photos"), {"c": f"table:{tmp_path / 'photos.csv'}"}, Choices())
    assert len(draft.fields["task"]) <= LONGEST_NAME
