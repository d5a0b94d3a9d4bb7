"""The block in which a reader looks for himself: its sample, its data, its tables and its curves."""

from __future__ import annotations

import json
from io import BytesIO

import numpy as np
import pytest
from PIL import ExifTags, Image
from sklearn.metrics import roc_auc_score

from c2b_ray.report.explore import LARGEST, Answered, Images, coarse, explore, reduced, sample, script_json
from c2b_ray.report.pictures import small


def images(truth, answer, confidence=None, classes=("cat", "dog"), others=()):
    truth = np.array(truth)
    sure = np.full(len(truth), 0.5) if confidence is None else np.array(confidence, float)
    return Images(classes, (*classes, *others), truth, (Answered("m", np.array(answer), sure),))


def jpeg(colour, size=40):
    buffer = BytesIO()
    Image.new("RGB", (size, size), colour).save(buffer, "JPEG")
    return buffer.getvalue()


def explored(of, embeddings=None):
    number = len(of.truth)
    return explore(
        of,
        np.arange(number),
        [f"{i}.jpg" for i in range(number)],
        [""] * number,
        {},
        [jpeg("red")] * number,
        embeddings,
    )


def test_rare_mistakes_are_in_the_sample():
    truth = np.zeros(10_000, int)
    answer = np.zeros(10_000, int)
    answer[[17, 4_000]] = 1  # two wrong answers of ten thousand
    chosen = sample(images(truth, answer), 50)
    assert {17, 4_000} <= set(chosen.tolist())
    assert len(set(chosen.tolist())) == 50
    np.testing.assert_array_equal(chosen, sample(images(truth, answer), 50))
    assert sorted(sample(images(truth[:9], answer[:9])).tolist()) == list(range(9))


def test_data_cannot_end_the_element_that_holds_it():
    evil = "</script><!--<script>&\u2028"
    text = script_json({"names": [evil]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["names"] == [evil]


def test_names_that_hide_what_is_beside_them_are_made_visible():
    data = json.loads(explored(images([0, 1], [0, 0], classes=("cat\u202e", "dog"))).data)
    assert data["classes"] == ["cat\\u202e", "dog"]


def test_counts_are_of_all_images_and_missing_answers_of_none():
    of = images([0, 0, 0, 1, 1], [0, 2, 0, 1, -1], others=("a label",))
    data = json.loads(explored(of).data)
    assert sorted(data["confusions"][0]) == [[0, -1, 1], [0, 0, 2], [1, 1, 1]]
    cat, dog = explored(of).measured[0].rows
    assert cat == ("cat", "3", "100\u202f%", "67\u202f%", "80\u202f%", "a label (1 of 1 wrong)")
    assert dog[:4] == ("dog", "1", "100\u202f%", "100\u202f%")


def test_the_matrix_counts_every_answer_of_its_classes_however_many_pairs_there_are():
    # 100 classes of 60 images, each taken for 59 others once: 6,000 pairs.
    truth = np.repeat(np.arange(100), 60)
    answer = (truth + np.tile(np.arange(60), 100)) % 100
    data = json.loads(explored(images(truth, answer, classes=tuple(f"class {i}" for i in range(100)))).data)
    counted: dict[int, int] = {}
    for of, _, number in data["confusions"][0]:
        counted[of] = counted.get(of, 0) + number
    assert counted == dict.fromkeys(data["matrix"][0], 60)
    assert len(counted) == 24


def test_curves_of_two_classes_rank_by_the_probability_of_the_second():
    random = np.random.default_rng(0)
    probability, truth = random.random(200), random.integers(0, 2, 200)
    answer = (probability > 0.5).astype(int)
    of = images(truth, answer, np.where(answer == 1, probability, 1 - probability))
    headings = [heading for heading, _ in explored(of).measured[0].charts]
    assert f"area {roc_auc_score(truth, probability):.3f}" in headings[1]
    assert len(headings) == 3
    # An answer outside the classes has no place in that ranking, and a third class none in curves of two.
    assert len(explored(images([0, 1, 0], [0, 1, 2], others=("a label",))).measured[0].charts) == 1
    assert len(explored(images([0, 1, 2], [0, 1, 2], classes=("a", "b", "c"))).measured[0].charts) == 1


def test_the_map_is_of_embeddings_where_there_are_any_else_of_colours_and_says_so():
    of = images([0, 1], [0, 1])
    assert json.loads(explored(of).data)["mapped"] == "colours"
    data = json.loads(explored(of, np.array([[0.0, 1.0], [0.0, 3.0]])).data)
    assert data["mapped"] == "embeddings"
    assert data["map"] == [[-1, 0], [1, 0]]


def test_pictures_that_are_missing_lie_in_the_middle_of_the_map():
    rows = coarse([jpeg("black"), None, jpeg("white")])
    np.testing.assert_allclose(rows[1], 0.5, atol=0.01)


def test_pictures_stop_where_the_page_would_grow_too_large():
    noise = np.random.default_rng(1).integers(0, 255, (90, 90, 3), dtype=np.uint8)
    buffer = BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    pictures = {str(i): buffer.getvalue() for i in range(10)}
    jpegs, number = reduced([*pictures, "absent"], pictures, 30_000)
    assert 1 <= len(jpegs) == number < 10
    assert sum(map(len, jpegs.values())) * 4 / 3 < 30_000
    assert reduced(["absent", "0"], {"0": buffer.getvalue()} | {"absent": b"no picture"})[1] == 2


def test_thumbnails_of_a_report_are_compressed_once():
    noise = np.random.default_rng(2).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    buffer = BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG", quality=95)
    first, _ = reduced(["a"], {"a": buffer.getvalue()})
    assert max(Image.open(BytesIO(first["a"])).size) == LARGEST
    again, number = reduced(["a", "a"], first, thumbnails=True)
    assert (again, number) == (first, 2)
    larger = {"a": small(buffer.getvalue(), 200)}
    assert max(Image.open(BytesIO(reduced(["a"], larger, thumbnails=True)[0]["a"])).size) == LARGEST


def test_a_users_small_jpeg_is_made_anew_without_what_its_file_says():
    buffer, about = BytesIO(), Image.Exif()
    about[ExifTags.Base.Artist] = "Ada of Example Street"
    Image.new("RGB", (40, 30), "red").save(buffer, "JPEG", quality=95, exif=about)
    assert b"Ada" in buffer.getvalue()
    jpegs, _ = reduced(["a"], {"a": buffer.getvalue()})
    assert b"Ada" not in jpegs["a"]


@pytest.mark.parametrize("of", [images([], []), Images(("cat",), ("cat",), np.array([0]), ())])
def test_nothing_to_look_at_is_no_block(of):
    assert explore(of, np.zeros(0, int), [], [], {}, [], None).data is None
