"""The labelled source on real images and a real network: which cue does MobileNetV2 follow, shape or texture?"""

import json
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
