"""Compares the images nearest to a caption with a random sample of the images that a verifier accepts.

    python bench/pools.py [--scenes N] [--images N] [--seed N]

An index holds scenes of the world, whose contents are known. Two audits of one class draw from it, one with `selection:
nearest` and one with `selection: accepted`. For each cell of weather and colour, the script prints the distinct images
wanted and drawn, and the share of them that show class and value. For "bus in the snow" it also prints the share at
night, among the drawn images and among all such images of the index.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import c2b_ray
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.world.scenes import ATTRIBUTES
from c2b_ray.world.table import write_sample

TARGET = "bus"
LOOKED_AT = ("weather", "colour", "lighting")


def judged(run: c2b_ray.Run, scenes: list[dict[str, str]]) -> list[dict[str, object]]:
    of_key = {scene["key"]: scene for scene in scenes}
    images = run.read("images", ["image_id", "key"]).to_pylist()
    scene = {row["image_id"]: of_key[row["key"]] for row in images}
    captions = {row["caption_id"]: row for row in run.captions.to_pylist()}
    drawn: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in run.draws.to_pylist():
        caption = captions[row["caption_id"]]
        if caption["target_class"] != TARGET:
            continue
        drawn.setdefault((caption["attribute"], caption["bias_class"]), []).append(scene[row["image_id"]])
    asked = run.config["images_per_caption"] * run.config["captions_per_cell"]
    rows: list[dict[str, object]] = []
    for (attribute, value), images in drawn.items():
        held = [of for of in scenes if of["target_class"] == TARGET and of[attribute] == value]
        shown = sum(of["target_class"] == TARGET and of[attribute] == value for of in images)
        row = {"cell": f"{attribute}: {value}", "asked": asked, "held": len(held), "drawn": len(images)}
        row["shown"] = round(shown / len(images), 3)
        row["nights"] = round(sum(of["lighting"] == "night" for of in images) / len(images), 3)
        row["nights_of_held"] = round(sum(of["lighting"] == "night" for of in held) / len(held), 3)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=8000)
    parser.add_argument("--images", type=int, default=20, help="images per caption")
    parser.add_argument("--seed", type=int, default=300_001)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table, calibration = place / "scenes.parquet", place / "calibration.parquet"
        write_sample(table, args.scenes, args.seed)
        write_sample(calibration, 1500, args.seed + 7)
        build(str(table), "world:clip", str(place / "index"), Session("actors"))
        scenes = pq.read_table(table, columns=["key", "target_class", *ATTRIBUTES]).to_pylist()
        for selection in ("nearest", "accepted"):
            asked = {
                "task": "Name the vehicle.",
                "classes": [TARGET, "boat"],
                "classifier": "world:resnet-control-0",
                "images": {"source": "retrieve", "index": str(place / "index"), "selection": selection},
                "attributes": {name: list(ATTRIBUTES[name]) for name in LOOKED_AT},
                "images_per_caption": args.images,
                "verification": {"model": "world:clip", "calibration": str(calibration)},
            }
            run = c2b_ray.audit(asked, place / f"run-{selection}")
            for row in judged(run, scenes):
                print(json.dumps({"selection": selection, **row}))
            about = {"verified": run.verifications.num_rows, "seconds": run.manifest["seconds"]}
            print(json.dumps({"selection": selection, **about}))


if __name__ == "__main__":
    main()
