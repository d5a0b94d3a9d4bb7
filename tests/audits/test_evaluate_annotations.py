"""`c2b evaluate` on files of CelebA's and ImageNet-X's public layouts, whose images are scenes of the world."""

from __future__ import annotations

import json

import pytest

import c2b_ray
from c2b_ray.audits.evaluate.truth import FACTORS
from c2b_ray.world.scenes import sample
from c2b_ray.world.table import picture

pytestmark = pytest.mark.long
B2T = {"captioner": "world:clip", "encoder": "world:clip"}


def signs(table, **of):
    rows = [row for row in table.to_pylist() if all(row[key] == value for key, value in of.items())]
    return {(row["target_class"], row["attribute"]): row["tested"] for row in rows}


def write_celeba(folder, scenes):
    """Writes scenes and their attributes in CelebA's layout: is it a bus, in fog, small, without fog."""
    (folder / "img_align_celeba").mkdir(parents=True)
    lines, parts = [], []
    for number, scene in enumerate(scenes, 1):
        (folder / f"img_align_celeba/{number:06}.jpg").write_bytes(picture(scene))
        shown = (scene.target_class == "bus", scene.weather == "fog", scene.size == "small", scene.weather != "fog")
        lines.append(f"{number:06}.jpg " + " ".join(f"{1 if is_so else -1:>2}" for is_so in shown))
        parts.append(f"{number:06}.jpg 1")
    head = [str(len(scenes)), "Bus Foggy Little No_Fog"]
    (folder / "list_attr_celeba.txt").write_text("\n".join([*head, *lines]) + "\n")
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")


def test_celeba(tmp_path):
    folder = tmp_path / "celeba"
    write_celeba(folder, [*sample(800, 100_300, target_class="bus"), *sample(300, 100_301, target_class="boat")])
    result = c2b_ray.evaluate(
        {
            "classifier": "world:resnet-planted-0",  # half wrong of a bus in fog
            "truth": {"celeba": {"folder": str(folder), "target": "Bus", "present": "bus", "absent": "boat"}},
            "methods": {
                "C2B": {
                    "images": {"source": "generate", "generator": "world:renderer"},
                    "attributes": {"weather": ["clear", "fog"]},
                    "captions_per_cell": 1,
                    "images_per_caption": 60,
                }
            },
            "b2t": B2T,
            "threshold": 0.7,
        },
        tmp_path / "out",
        via="here",
    )
    truth = signs(result.truth)
    assert truth["bus", "Foggy"] == -1
    assert truth["bus", "No_Fog"] == 1
    assert truth["boat", "Foggy"] == truth["bus", "Little"] == 0
    outcomes = {
        (row["attribute"], row["outcome"])
        for row in result.outcomes.to_pylist()
        if (row["method"], row["rule"], row["threshold_kind"]) == ("C2B", "tested", "set")
        and (row["direction"], row["target_class"]) == ("truth_to_detected", "bus")
    }
    assert outcomes == {("Foggy", "hit"), ("No_Fog", "hit")}  # "no fog" is fog with its direction turned
    assert any("rests on 3 pairs of names" in note for note in result.manifest["notes"])


def test_imagenet_x_and_b2t_alone(tmp_path):
    """A spurious background, and labels: what B2T is made for."""
    folder = tmp_path / "val"
    folder.mkdir()
    scenes = [*sample(700, 100_302, target_class="bird"), *sample(200, 100_303, target_class="fish")]
    lines = []
    for number, scene in enumerate(scenes, 1):
        name = f"ILSVRC2012_val_{number:08}.JPEG"
        (folder / name).write_bytes(picture(scene))
        shown = {"background": scene.setting == "street", "smaller": scene.size == "small"}
        factors = {factor: int(shown.get(factor, False)) for factor in FACTORS}
        lines.append(json.dumps({"file_name": name, "class": {"bird": 11, "fish": 0}[scene.target_class], **factors}))
    (tmp_path / "imagenet_x_val_top_factor.jsonl").write_text("\n".join(lines) + "\n")
    source = {"annotations": str(tmp_path), "folder": str(folder), "factors": "top"}
    result = c2b_ray.evaluate(
        {
            "classifier": {"planted": "world:resnet-planted-2", "control": "world:resnet-control-0"},
            "truth": {"imagenet_x": source},
            "label_map": {"goldfinch": ["bird"], "tench": ["fish"]},
            "names": {"background": "city street"},
            "methods": {},
            "b2t": B2T,
        },
        tmp_path / "out",
        via="here",
    )
    assert {key: sign for key, sign in signs(result.truth, classifier="planted").items() if sign} == {
        ("goldfinch", "background"): -1
    }
    assert not any(signs(result.truth, classifier="control").values())
    hits = [row for row in result.matches.to_pylist() if row["rank"] == 1 and row["truth_tested"]]
    assert [(row["detected_wording"], row["detected_tested"]) for row in hits] == [("street", -1)]
    tested = [row for row in result.detected.to_pylist() if row["tested"] and row["classifier"] == "control"]
    assert tested == []
