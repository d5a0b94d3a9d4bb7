"""What `c2b failures` says of labelled images: rates from fresh ones, verdicts and doubts of whole clusters."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.value_sets import LabelledAnswers
from c2b_ray.audits.failures.labelled import PARTS, parts_of_clusters
from c2b_ray.audits.failures.labelled_claims import ClaimAnswers, Parts, claims_of, hypotheses
from c2b_ray.errors import ConfigError, RunError

LABELS = ("bus", "boat")
CONFIG = {"labels": ["bus"], "classifier": "fake:", "rule": "top1"}
CAMERAS, EACH = 24, 40


def config(**labelled: str) -> FailuresConfig:
    return FailuresConfig.model_validate({**CONFIG, "images": {"labelled": {"table": "t.csv", **labelled}}})


def test_whole_clusters_are_in_one_part_of_about_a_third() -> None:
    random = np.random.default_rng(0)
    clusters = np.array([f"c{n}" for n in random.choice(40, 4000, p=random.dirichlet(np.ones(40)))], object)
    parts = parts_of_clusters(clusters, 0)
    assert all(len(set(parts[clusters == name])) == 1 for name in set(clusters))
    assert np.bincount(parts) == pytest.approx([4000 / 3] * 3, rel=0.02)
    assert (parts == parts_of_clusters(clusters, 0)).all()
    assert (parts != parts_of_clusters(clusters, 1)).any()


def judged(failed: np.ndarray, light: np.ndarray, camera: np.ndarray, clustered: bool = True) -> dict[str, dict]:
    parts = np.array(PARTS, object)[parts_of_clusters(np.array([f"c{one}" for one in camera], object), 0)]
    one = LabelledAnswers(
        np.full(len(failed), "bus", object), {"light": light}, parts, np.arange(len(failed)),
        camera if clustered else None,
    )  # fmt: skip
    predicted = ["boat" if fails else "bus" for fails in failed]
    answers = ClaimAnswers({}, {"m": np.ones(len(failed), bool)}, {"m": failed}, {"m": predicted})
    asked = config(cluster="camera")
    rows = hypotheses(asked, "t", Parts(one, answers), claims_of(one, answers, asked).claims).to_pylist()
    return {row["caption"]: row for row in rows if row["stage"] == "confirmation" and row["target"] is None}


def test_a_cause_that_all_cameras_show_is_found_and_bad_cameras_are_none() -> None:
    random = np.random.default_rng(3)
    camera = np.repeat(np.arange(CAMERAS), EACH)
    light = np.where(random.random(len(camera)) < 0.3, "night", "day").astype(object)
    found = judged(random.random(len(camera)) < np.where(light == "night", 0.5, 0.05), light, camera)
    night = found["images of bus. its light is night."]
    assert night["verdict"] == "failure"
    assert night["e_value"] is None
    assert night["clusters"] == CAMERAS / 3
    assert night["rate_low"] < 0.5 < night["rate_high"]
    # Each camera shows one light; a camera of night fails always or never, in a third of them.
    of_camera = np.where(np.arange(CAMERAS) % 2, "night", "day").astype(object)
    bad = np.isin(np.arange(CAMERAS), [1, 9, 13, 21])
    failed = np.where(bad[camera], random.random(len(camera)) < 0.9, random.random(len(camera)) < 0.02)
    once, clustered = (judged(failed, of_camera[camera], camera, which) for which in (False, True))
    name = "images of bus. its light is night."
    assert once[name]["verdict"] == "failure"
    assert clustered[name]["verdict"] == "undetermined"
    assert clustered[name]["rate_high"] - clustered[name]["rate_low"] > 2 * (
        once[name]["rate_high"] - once[name]["rate_low"]
    )


def test_a_condition_of_one_camera_is_in_doubt() -> None:
    camera = np.repeat(np.arange(9), EACH)
    part = parts_of_clusters(np.array([f"c{one}" for one in camera], object), 0)
    first = [camera[part == number][0] for number in range(3)]  # one camera of each part is at night
    light = np.where(np.isin(camera, first), "night", "day").astype(object)
    failed = (light == "night") | (np.arange(len(camera)) % 20 == 0)
    row = judged(failed, light, camera)["images of bus. its light is night."]
    assert row["verdict"] == "undetermined"
    assert row["doubts"] == [
        "its images that test it are of one camera, whose other properties cannot be told from it: give it images of "
        "others"
    ]


def test_the_id_of_a_run_without_clusters_is_as_before() -> None:
    assert "cluster" not in config().model_dump()["images"]["labelled"]
    assert config(cluster="camera").model_dump()["images"]["labelled"]["cluster"] == "camera"


def answer(images: list[np.ndarray]) -> np.ndarray:
    return np.stack([[1.0 - (image[0, 0, 0] > 100), 1.0 * (image[0, 0, 0] > 100)] for image in images])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Buses of 18 cameras; those at night are taken for boats nine times in ten."""
    path, random = tmp_path_factory.mktemp("clusters") / "images.parquet", np.random.default_rng(0)
    rows = []
    for number in range(360):
        night = random.random() < 0.4
        image = random.integers(0, 256, (8, 8, 3), np.uint8)
        image[0, 0, 0] = 200 if random.random() < (0.9 if night else 0.05) else 0
        data = BytesIO()
        Image.fromarray(image).save(data, "PNG")
        row = {"image": data.getvalue(), "target_class": "bus", "light": "night" if night else "day"}
        rows.append({**row, "camera": f"cam{number % 18}"})
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def find(table: Path, out: Path, **labelled: str) -> c2b_ray.Run:
    asked = {"labels": ["bus"], "images": {"labelled": {"table": str(table), **labelled}}}
    return c2b_ray.find_failures(asked, out, classifier=c2b_ray.InMemory(answer, LABELS, revision="1"))


def test_a_run_says_what_its_clusters_are_and_refuses_what_takes_images_as_independent(
    table: Path, tmp_path: Path
) -> None:
    run = find(table, tmp_path / "run", cluster="camera")
    rows = [row for row in run.read("hypotheses").to_pylist() if row["verdict"] == "failure"]
    assert {row["caption"] for row in rows} == {"images of bus. its light is night."}
    assert {row["clusters"] for row in rows} == {6}
    page = Path(run.report).read_text()
    assert "Images of one camera may fail together" in page
    assert "camera: 6" in page
    assert not [warning for warning in run.manifest["warnings"] if "camera" in warning]
    with pytest.raises(RunError, match=r"its images come in clusters \(camera\)"):
        c2b_ray.compare(run, run)


def test_without_clusters_a_column_called_like_one_is_named(table: Path, tmp_path: Path) -> None:
    run = find(table, tmp_path / "run")
    assert any("write `cluster: camera` under `images.labelled`" in one for one in run.manifest["warnings"])
    assert set(run.read("hypotheses")["clusters"].to_pylist()) <= {None}


def test_a_column_that_is_not_there_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"images\.labelled\.cluster: .* no column 'camra'; did you mean 'camera'"):
        find(table, tmp_path / "run", cluster="camra")


LABEL, RAISED, OTHERS, IMAGES = "bus", 0.15, 0.03, 900
LABELLED = FailuresConfig.model_validate(
    {"labels": [LABEL], "classifier": "fake:", "images": {"labelled": {"table": "labels.csv"}}, "rule": "top1"}
)
SITES = np.array(list("ABCDEF"), object)


def findings(random):
    """A table in which a classifier fails more often at three of six sites, by so little that chance decides."""
    labels, sites = np.full(IMAGES, LABEL, object), random.choice(SITES, IMAGES)
    failed = random.random(IMAGES) < np.where(np.isin(sites, SITES[:3]), RAISED, OTHERS)
    parts = random.choice(np.array(["search", "test", "measure"], object), IMAGES)
    known = np.ones(IMAGES, bool)
    predicted = ["boat" if fails else LABEL for fails in failed]
    answers = ClaimAnswers({}, {"model": known}, {"model": failed}, {"model": predicted})
    answered = LabelledAnswers(labels, {"site": sites}, parts, np.arange(IMAGES))
    claims = claims_of(answered, answers, LABELLED).claims
    rows = hypotheses(LABELLED, "table", Parts(answered, answers), claims).to_pylist()
    return [row for row in rows if row["verdict"] == "failure"]


@pytest.mark.long
def test_rates_of_findings_are_not_too_high():
    """Measured on the images of the test they were .24 on average, and .74 of the intervals held the truth."""
    random = np.random.default_rng(0)
    rows = [row for _ in range(150) for row in findings(random) if row["caption"][-2] in "ABC"]
    assert len(rows) > 30
    assert np.mean([row["rate"] for row in rows]) == pytest.approx(RAISED, abs=0.025)
    assert np.mean([row["rate_low"] <= RAISED <= row["rate_high"] for row in rows]) > 0.9
