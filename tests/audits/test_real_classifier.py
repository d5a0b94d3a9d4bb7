"""The labelled source on real images and a real network: which cue does MobileNetV2 follow, shape or texture?"""

import csv
import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

import c2b_ray

REAL = Path(__file__).parents[3] / "shared" / "real"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason=f"real input is not here: {REAL}")

CLASSIFIERS = {
    "onnx": f"onnx:{REAL}/mobilenet_v2_imagenet1k.onnx?mean=0.5&std=0.5",
    "torchvision": f"torchvision:mobilenet_v2?weights={REAL}/mobilenet_v2_imagenet1k.safetensors&mean=0.5&std=0.5",
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.long
def test_texture_drives_the_answers(kind, tmp_path):
    categories = json.loads((REAL / "cue-conflict" / "entry_categories.json").read_text())
    run = c2b_ray.audit(
        {
            "task": "Name the object in a photograph.",
            "classes": list(categories),
            "classifier": CLASSIFIERS[kind],
            "images": {
                "source": "labelled",
                "table": str(REAL / "cue-conflict" / "labels.csv"),
                "columns": {"image": "file", "target_class": "shape"},
            },
            "label_map": categories,
            "right": "among_classes",  # as Geirhos et al. choose among the sixteen
        },
        tmp_path / "run",
    )
    scores = run.scores
    assert pc.sum(scores["n"]).as_py() == 640
    assert pc.sum(scores["errors"]).as_py() == 0
    conflict = scores.filter(pc.not_equal(scores["target_class"], scores["bias_class"]))
    shape = pc.sum(conflict["correct"]).as_py()
    texture = pc.sum(conflict["answered_bias_class"]).as_py()
    if kind == "onnx":
        assert (shape, texture) == (90, 310)
    assert 0.15 < shape / (shape + texture) < 0.35
    own = scores.filter(pc.equal(scores["target_class"], scores["bias_class"]))
    assert pc.mean(own["phi"]).as_py() > 0.5
    report = Path(run.report).read_text()
    assert f"{texture} of {shape + texture}" in report


@pytest.mark.long
def test_without_the_texture_column_the_headline_says_texture(tmp_path):
    # A folder a shape, and nothing else: neither a column nor a file's name tells of textures.
    for number, row in enumerate(csv.DictReader((REAL / "cue-conflict" / "labels.csv").read_text().splitlines())):
        folder = tmp_path / "photos" / row["shape"]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(REAL / "cue-conflict" / row["file"], folder / f"{number:03}.jpg")
    run = c2b_ray.audit(str(tmp_path / "photos"), tmp_path / "run", classifier=CLASSIFIERS["onnx"])
    rows = {row["look"]: row for row in run.read("looks").to_pylist()}
    assert rows["texture"]["established"]
    assert rows["texture"]["strongest"]
    assert rows["texture"]["share_low"] > 0.2
    assert rows["texture"]["follow_class"] == 42
    assert "of the answers follow the texture" in run.manifest["headline"]["text"]
