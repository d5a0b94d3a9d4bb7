"""CelebA's and ImageNet-X's public layouts, as the datasets' own files have them."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq
import pytest
from PIL import Image

from c2b_ray.audits.evaluate.config import CelebATruth, EvaluateConfig, ImageNetXTruth
from c2b_ray.audits.evaluate.truth import FACTORS, celeba, imagenet_x, truth_table
from c2b_ray.errors import ConfigError, InputError

NAMES = "5_o_Clock_Shadow Blond_Hair No_Beard Wearing_Hat Young"


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "JPEG")
    path.write_bytes(buffer.getvalue())


@pytest.fixture
def faces(tmp_path):
    """With the padding of the published file, whose columns are aligned."""
    lines = ["4", NAMES + " "]
    lines += [f"00000{i}.jpg " + " ".join(f"{v:>2}" for v in row) for i, row in enumerate(
        [(-1, 1, 1, -1, 1), (1, -1, 1, -1, -1), (-1, 1, -1, 1, 1), (-1, -1, 1, 1, 1)], 1
    )]  # fmt: skip
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    parts = "000001.jpg 1\n000002.jpg 1\n000003.jpg 0\n000004.jpg 1\n"
    (tmp_path / "list_eval_partition.txt").write_text(parts)
    for i in range(1, 5):
        picture(tmp_path / f"img_align_celeba/00000{i}.jpg")
    return tmp_path


def test_celeba_gives_a_partition_with_the_other_attributes_as_biases(faces, tmp_path):
    read = celeba(CelebATruth(folder=str(faces), target="Blond_Hair"))
    assert read.keys == ["000001.jpg", "000002.jpg", "000004.jpg"]
    assert read.classes == ["blond hair", "not blond hair", "not blond hair"]
    assert "Blond_Hair" not in read.attributes
    assert read.attributes["Wearing_Hat"] == ["absent", "absent", "present"]
    read.write(tmp_path / "out/truth.parquet")
    table = pq.read_table(tmp_path / "out/truth.parquet")
    assert table.column_names[:3] == ["key", "image", "target_class"]
    assert len(table["image"][0].as_py()) > 100
    assert read.written(tmp_path / "out/truth.parquet")
    edited = (faces / "list_attr_celeba.txt").read_text().replace("000002.jpg  1", "000002.jpg -1")
    (faces / "list_attr_celeba.txt").write_text(edited)
    assert not celeba(CelebATruth(folder=str(faces), target="Blond_Hair")).written(tmp_path / "out/truth.parquet")


def test_the_images_of_each_class_are_drawn_by_the_config_s_seed(faces):
    source = CelebATruth(folder=str(faces), target="Blond_Hair", images=2)
    lines = (faces / "list_attr_celeba.txt").read_text().splitlines()
    more = [f"1{i:05}.jpg -1 -1 1 1 1" for i in range(40)]
    (faces / "list_attr_celeba.txt").write_text("\n".join([str(4 + len(more)), *lines[1:], *more]) + "\n")
    with (faces / "list_eval_partition.txt").open("a") as file:
        file.writelines(f"1{i:05}.jpg 1\n" for i in range(40))
    drawn = {tuple(celeba(source, seed).keys) for seed in range(4)}
    assert len(drawn) > 1
    assert celeba(source, 3).keys == celeba(source, 3).keys


def test_celeba_may_lie_as_its_archive_has_it(faces):
    places = {"list_attr_celeba.txt": "Anno", "list_eval_partition.txt": "Eval", "img_align_celeba": "Img"}
    for name, place in places.items():
        (faces / place).mkdir()
        (faces / name).rename(faces / place / name)
    assert len(celeba(CelebATruth(folder=str(faces), target="Young", partition="train")).keys) == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        ("list_attr_celeba.txt", "4\n", "5\n", "5 images"),
        ("list_attr_celeba.txt", "000002.jpg  1", "000002.jpg  2", "line 4"),
        ("list_attr_celeba.txt", "000002.jpg", "../00002.jpg", "line 4"),
        ("list_eval_partition.txt", "000003.jpg 0", "000003.jpg", "line 3"),
        ("list_eval_partition.txt", "000003.jpg 0", "000003.jpg 7", "line 3"),
        ("list_eval_partition.txt", "000003.jpg 0", "000002.jpg 0", "'000002.jpg' is there twice"),
        ("list_eval_partition.txt", "000003.jpg 0\n000004.jpg 1\n", "", "no line for 000003.jpg, nor for 1 other"),
        ("list_attr_celeba.txt", "000002.jpg", "000001.jpg", "'000001.jpg' is there twice"),
        ("list_attr_celeba.txt", "000002.jpg  1", "000002.jpg  0", "line 4"),
        ("list_attr_celeba.txt", "000002.jpg  1", "000002.jpg ", "line 4"),
        ("list_attr_celeba.txt", f"4\n{NAMES}", "000000.jpg 1\n4", "expected the number of images"),
        ("list_attr_celeba.txt", f"{NAMES} \n", "", "its first line says 4 images, and 3 follow"),
        ("list_attr_celeba.txt", "4\n", "", "expected the number of images"),
    ],
)
def test_a_damaged_line_is_named(faces, file, old, new, why):
    text = (faces / file).read_text()
    assert old in text
    (faces / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=why):
        celeba(CelebATruth(folder=str(faces), target="Young", partition="valid"))


def test_celeba_as_kaggle_hands_it_out_with_a_mark_and_the_lines_of_windows(faces):
    lines = (faces / "list_attr_celeba.txt").read_text().splitlines()[2:]
    rows = ["image_id," + NAMES.replace(" ", ","), *(",".join(line.split()) for line in lines)]
    (faces / "list_attr_celeba.csv").write_bytes(("\ufeff" + "\r\n".join(rows) + "\r\n").encode())
    parts = (faces / "list_eval_partition.txt").read_text().splitlines()
    text = "\r\n".join(["image_id,partition", *(",".join(line.split()) for line in parts)])
    (faces / "list_eval_partition.csv").write_bytes(text.encode())
    source = CelebATruth(folder=str(faces), target="Blond_Hair")
    expected = celeba(source)
    for name in ("list_attr_celeba.txt", "list_eval_partition.txt"):
        (faces / name).unlink()
    (faces / "img_align_celeba").rename(faces / "inner")
    (faces / "img_align_celeba").mkdir()
    (faces / "inner").rename(faces / "img_align_celeba/img_align_celeba")
    read = celeba(source)
    assert (read.keys, read.classes, read.attributes) == (expected.keys, expected.classes, expected.attributes)
    assert all(path.is_file() for path in read.paths)


def test_the_lines_of_windows_and_a_mark_are_read_in_the_published_file_too(faces):
    source = CelebATruth(folder=str(faces), target="Young")
    expected = celeba(source)
    for name in ("list_attr_celeba.txt", "list_eval_partition.txt"):
        text = (faces / name).read_text()
        (faces / name).write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    assert celeba(source).attributes == expected.attributes


def test_an_annotated_image_that_is_not_there_is_named(faces, tmp_path):
    (faces / "img_align_celeba/000002.jpg").unlink()
    with pytest.raises(InputError, match=r"000002\.jpg: annotated, and no such image"):
        celeba(CelebATruth(folder=str(faces), target="Young")).write(tmp_path / "out/truth.parquet")
    assert not (tmp_path / "out/truth.parquet").exists()


def test_an_image_that_is_a_link_out_of_the_folder_is_refused(faces, tmp_path):
    picture(tmp_path / "elsewhere.jpg")
    (faces / "img_align_celeba/000002.jpg").unlink()
    (faces / "img_align_celeba/000002.jpg").symlink_to(tmp_path / "elsewhere.jpg")
    with pytest.raises(InputError, match="a link that leads out"):
        celeba(CelebATruth(folder=str(faces), target="Young")).write(tmp_path / "out/truth.parquet")


def test_an_attribute_that_is_none_is_offered_the_nearest(faces):
    with pytest.raises(ConfigError, match="Blond_Hair"):
        celeba(CelebATruth(folder=str(faces), target="Blonde_Hair"))


def record(number, target, *shown):
    factors = {factor: int(factor in shown) for factor in FACTORS}
    extra = {"justification": "x", "one_word": "y", "metaclass": "dog"}
    return {"file_name": f"ILSVRC2012_val_{number:08}.JPEG", "class": target, **factors, **extra}


@pytest.fixture
def annotated(tmp_path):
    rows = [record(1, 0, "pose"), record(2, 0), record(3, 134, "background", "pose"), record(4, 517), record(5, 0)]
    lines = "\n".join(map(json.dumps, rows)) + "\n"
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations/imagenet_x_val_multi_factor.jsonl").write_text(lines)
    (tmp_path / "annotations/prototypical_paths.csv").write_text("file_name,label\nILSVRC2012_val_00000002.JPEG,0\n")
    for number, place in ((1, "n01440764"), (2, "n01440764"), (3, "n02012849"), (4, "."), (5, "n99999999")):
        picture(tmp_path / "val" / place / f"ILSVRC2012_val_{number:08}.JPEG")
    return tmp_path


def test_imagenet_x_gives_factors_without_prototypes_and_the_labels_indices(annotated):
    source = ImageNetXTruth(annotations=str(annotated / "annotations"), folder=str(annotated / "val"))
    read = imagenet_x(source)
    assert [key[-6] for key in read.keys] == ["1", "3", "4"]
    assert read.classes[0] == "tench"
    assert read.classes[1:] == ["crane (aquatic bird)", "crane (device)"]
    assert read.label_map["tench"] == [0]
    assert sorted(index for [index] in read.label_map.values()) == [0, 134, 517]
    assert read.attributes["pose"] == ["present", "present", "absent"]
    assert read.missing == 1
    assert len(imagenet_x(source.model_copy(update={"prototypes": True})).keys) == 4


def test_imagenet_x_names_every_class_in_words_and_differently(tmp_path):
    """Names go into captions, where "n02012849" says nothing. A Cardigan is a dog, a cardigan a garment."""
    rows = [record(number + 1, number) for number in range(1000)]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "val").mkdir()
    for number in range(1000):
        (tmp_path / f"val/ILSVRC2012_val_{number + 1:08}.JPEG").write_bytes(b"")
    read = imagenet_x(ImageNetXTruth(annotations=str(tmp_path / "all.jsonl"), folder=str(tmp_path / "val")))
    assert len({name.lower() for name in read.label_map}) == 1000
    assert not [name for name in read.label_map if any(letter.isdigit() for letter in name)]
    assert {read.classes[264], read.classes[474]} == {"Cardigan (dog)", "cardigan (garment)"}


def test_imagenet_x_reads_what_people_wrote_into_it(annotated):
    """A separator of lines within a justification, a mark, the lines of Windows, a class that a table made a float."""
    rows = [{**record(1, 0, "pose"), "justification": "two\u2028lines"}, {**record(3, 134), "class": 134.0}]
    file = annotated / "annotations/imagenet_x_val_multi_factor.jsonl"
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    file.write_bytes(("\ufeff" + text + "\r\n").encode())
    read = imagenet_x(ImageNetXTruth(annotations=str(file), folder=str(annotated / "val")))
    assert read.attributes["pose"] == ["present", "absent"]
    file.write_text("\n".join(map(json.dumps, [rows[0], rows[0]])))
    with pytest.raises(InputError, match="is there twice"):
        imagenet_x(ImageNetXTruth(annotations=str(file), folder=str(annotated / "val")))


def test_imagenet_x_may_be_a_csv(annotated):
    import csv

    rows = [record(1, 0, "pose"), record(3, 134)]
    with (annotated / "factors.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    source = ImageNetXTruth(annotations=str(annotated / "factors.csv"), folder=str(annotated / "val"))
    assert imagenet_x(source).attributes["pose"] == ["present", "absent"]


BAD = [
    {**record(1, 0), "class": 1.5},
    {"file_name": "a"},
    [1],
    record(1, 1000),
    {**record(1, 0), "pose": 2},
    {**record(1, 0), "file_name": "../a"},
]


@pytest.mark.parametrize("bad", [*map(json.dumps, BAD), "nonsense"])
def test_a_line_that_is_none_is_named(annotated, bad):
    file = annotated / "bad.jsonl"
    file.write_text(json.dumps(record(1, 0)) + "\n" + bad + "\n")
    with pytest.raises(InputError, match="line 2"):
        imagenet_x(ImageNetXTruth(annotations=str(file), folder=str(annotated / "val")))


def test_a_classifier_whose_labels_cannot_be_in_imagenet_s_order_is_refused(annotated, tmp_path):
    """Names in a table are sorted: tench would be the label 2 of these, and every answer wrong."""
    source = {"annotations": str(annotated / "annotations"), "folder": str(annotated / "val")}
    fields = {"truth": {"imagenet_x": source}, "b2t": {"captioner": "world:clip", "encoder": "world:clip"}}
    for number, (labels, fits) in enumerate(
        [(("tench", "crane", "bird"), False), (("0", "134", "517"), True), ([f"name {i}" for i in range(1000)], True)]
    ):
        table = tmp_path / f"{number}.csv"
        table.write_text("file,label\n" + "".join(f"{at},{label}\n" for at, label in enumerate(labels)))
        config = EvaluateConfig.model_validate({**fields, "classifier": f"table:{table}"})
        if fits:
            assert truth_table(config, str(tmp_path / "out")).label_map["tench"] == [0]
        else:
            with pytest.raises(ConfigError, match="3 labels, and ImageNet-X counts 1,000"):
                truth_table(config, str(tmp_path / "out"))
