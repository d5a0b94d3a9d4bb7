"""Measures how well world:clip names each attribute of a rendered scene, and how well it describes the scene.

python bench/captioner.py [--n N] [--seed S]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from c2b_ray.models import catalog
from c2b_ray.roles import Question
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES, Scene, sample
from c2b_ray.world.truth import render_all


def question(scene: Scene, name: str, stated: bool) -> Question:
    values = ATTRIBUTES[name]
    texts = tuple(f"a photo of a {scene.target_class}, {name}: {value}" for value in values)
    return Question(f"What is the {name}?", values, texts if stated else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=300_001)
    args = parser.parse_args()
    captioner = catalog.captioner("world:clip")
    scenes = sample(args.n, args.seed)
    images = list(render_all(scenes))
    found: dict[str, object] = {}
    for kind, stated in (("choices alone", False), ("a statement for each", True)):
        asked = [
            (image, question(s, name, stated)) for name in ATTRIBUTES for image, s in zip(images, scenes, strict=True)
        ]
        began = time.perf_counter()
        answers = captioner.answer([image for image, _ in asked], [row for _, row in asked])
        seconds = time.perf_counter() - began
        truth = [s.attribute(name) for name in ATTRIBUTES for s in scenes]
        right = np.array([a.choice == t for a, t in zip(answers, truth, strict=True)]).reshape(len(ATTRIBUTES), -1)
        found[kind] = dict(zip(ATTRIBUTES, right.mean(axis=1).round(3).tolist(), strict=True))
        found[f"{kind}: questions per second"] = round(len(asked) / seconds, 1)
    began = time.perf_counter()
    replies = captioner.caption(images, [s.target_class for s in scenes])
    found["captions per second"] = round(len(images) / (time.perf_counter() - began), 1)
    said = [read(str(reply.text)) for reply in replies]
    found["captions that say it right"] = {
        name: float(np.mean([m.get(name) == s.attribute(name) for m, s in zip(said, scenes, strict=True)]))
        for name in ATTRIBUTES
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
