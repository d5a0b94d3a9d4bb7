"""Appendices F and J of Classifier-to-Bias on the embedded world: retrieval beside generation, and two language models.

    python bench/evaluate_appendices.py --out DIR [--also SPEC]

The comparison has two planted classifiers, a control and two classes. One method takes its attributes from the world's
language model, once with images from the renderer and once with images retrieved from an index of scenes. Another takes
attributes that a person wrote (docs/papers/configs/c2b_writer.json), in place of a second language model: the other
shipped ones cannot answer, because `world:prompter` and `world:reader` hold 256 tokens, fewer than the prompt for
proposals and a whole reply. `--also` adds a language model that answers chats, such as that of `c2b world train lm
--seed 1`.

The rows show what each method proposes and how much of it is biased (J), and how often the images of each show the
class, the value, and both, according to the judge (F).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import c2b_ray
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.world.table import write_sample

WRITER = Path(__file__).parents[1] / "docs/papers/configs/c2b_writer.json"
TEMPLATES = {
    "weather": "a photo of a [CLASS] in [VALUE] weather",
    "place": "a photo of a [CLASS], [VALUE] in the background",
    "time of day": "a photo of a [CLASS], [VALUE]",
    "company": "a photo of a [CLASS] with [VALUE]",
}
"""Captions of the writer's attributes: the script holds no captions."""


def config(index: Path, also: str | None) -> dict[str, Any]:
    audit = {"captions_per_cell": 1, "images_per_caption": 60}
    drawn = {"source": "generate", "generator": "world:renderer"}
    another = {also: {**audit, "language_model": also, "images": drawn}} if also else {}
    return {
        "task": "Sort snapshots of ordinary things by what they show.",
        "classes": ["bus", "bird"],
        "classifier": {
            "planted-0": "world:resnet-planted-0",
            "planted-2": "world:resnet-planted-2",
            "control-0": "world:resnet-control-0",
        },
        "truth": {"world": {"scenes": 6000}},
        "methods": {
            "world:lm": {**audit, "language_model": "world:lm", "images": drawn},
            "writer": {**audit, "language_model": f"scripted:{WRITER}", "templates": TEMPLATES, "images": drawn},
            "world:lm, retrieved": {**audit, "language_model": "world:lm",
                                    "images": {"source": "retrieve", "index": str(index)}},
            **another,
        },
        "vqa": {"model": "world:clip", "images": 50, "drawn": 20},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--also", help="the spec of one more language model")
    parser.add_argument("--scenes", type=int, default=4000, help="number of scenes in the index")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    index = args.out / "index"
    if not index.exists():
        write_sample(args.out / "scenes.parquet", args.scenes, 7)
        build(str(args.out / "scenes.parquet"), "world:clip", str(index), Session("here"))
    result = c2b_ray.evaluate(config(index, args.also), args.out / "run", via="here")
    print("| what | wanted | got |\n|---|---|---|")
    for row in result.proposers.to_pylist():
        said = f"{row['per_class']:.1f} attributes a class, {row['values']} values, {row['biased']} biased, as tested"
        print(f"| App. J, {row['method']} | – | {said}; {row['rejected']} replies rejected |")
    for row in result.agreement.to_pylist():
        if (row["classifier"], row["rule"], row["threshold_kind"]) == ("", "tested", "calibrated"):
            said = f"HIT {row['hit']:.3f} FH {row['false_hit']:.3f} MISS {row['miss']:.3f} of {row['biases']}"
            print(f"| App. J, {row['method']}, {row['direction']} | – | {said} |")
    for row in result.shown.to_pylist():
        said = f"{row['share']:.3f} ({row['share_low']:.3f} to {row['share_high']:.3f}) of {row['images']}"
        print(f"| App. F, {row['method']}, images that show the {row['what']} | – | {said} |")


if __name__ == "__main__":
    main()
