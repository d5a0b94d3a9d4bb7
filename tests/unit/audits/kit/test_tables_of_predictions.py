"""A table of predictions against the images that it is to answer for: other names are told with their cause, and
answers that are right without exception with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from c2b_ray.audits.kit.models import compared_with, said_of_tables
from c2b_ray.errors import SourceError
from c2b_ray.storage.confined import cause_of

KEYS = ["photos/red/img_001.jpg", "photos/red/img_002.jpg", "photos/green/img_003.jpg"]


@pytest.mark.parametrize(
    ("listed", "what"),
    [
        ("img_001.jpg", "the folder"),
        ("/data/old/photos/red/img_001.jpg", "the folder"),
        ("C:\\photos\\red\\img_001.jpg", "the folder"),
        ("photos/red/img_001.png", "the ending"),
        ("photos/red/img_001", "the ending"),
        ("Photos/Red/IMG_001.JPG", "upper and lower case"),
        ("IMG_001.JPEG", "the folder, the ending, and upper and lower case"),
        ("file:///photos/red/img_001.jpg", "spaces around the name, or a scheme before it"),
        ("photos%2Fred%2Fimg_001.jpg", "signs that are written as %20 and the like"),
        ("photos/red/img_001.jpg ", "spaces around the name, or a scheme before it"),
    ],
)
def test_the_cause_of_other_names_is_the_smallest_difference(listed: str, what: str) -> None:
    cause = cause_of([listed, "z/other.gif"], KEYS)
    assert cause is not None
    assert (cause.what, cause.listed, cause.called) == (what, listed, KEYS[0])


def test_names_that_nothing_explains_have_no_cause() -> None:
    assert cause_of(["a.jpg", "b.jpg"], KEYS) is None
    assert cause_of([], KEYS) is None


def table(path: Path, *rows: str) -> dict[str, str]:
    (path / "t.csv").write_text("\n".join(["file,prediction", *rows]) + "\n")
    return {"m": f"table:{path / 't.csv'}"}


def test_a_table_of_other_images_is_refused_with_the_commonest_cause(tmp_path: Path) -> None:
    specs = table(tmp_path, *(f"{key.rpartition('/')[2]},red" for key in KEYS))
    with pytest.raises(SourceError, match=r"none of the 3 images; the table lists 'img_001.jpg', the image is"):
        compared_with(specs, KEYS)
    (said,) = said_of_tables({**specs, "other": "world:resnet-planted-0"}, KEYS)
    assert "they differ in the folder" in said


def test_some_images_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    specs = table(tmp_path, f"{KEYS[0]},red", "img_002.jpg,red", "other.jpg,green")
    (said,) = compared_with(specs, KEYS)
    assert "2 of 3 images are not in the table, such as 'photos/red/img_002.jpg'; the table lists 'img_002.jpg'" in said


def test_answers_that_are_the_truth_are_said_and_others_are_not(tmp_path: Path) -> None:
    specs, truth = table(tmp_path, *(f"{key},{key.split('/')[1]}" for key in KEYS)), ["red", "RED", "green"]
    (said,) = compared_with(specs, KEYS, truth, ["red", "green"])
    assert "all 3 answers are right. If column 'prediction'" in said
    assert len(compared_with(specs, KEYS, truth, ["a", "b"], {"a": ["red"], "b": ["green"]})) == 0
    assert compared_with(specs, KEYS, ["red", "red", "red"], ["red", "green"]) == []


def test_names_in_another_form_of_accents_meet(tmp_path: Path) -> None:
    specs = table(tmp_path, "caf\u00e9/1.jpg,red", "cafe\u0301/2.jpg,green")
    assert compared_with(specs, ["cafe\u0301/1.jpg", "caf\u00e9/2.jpg"]) == []
