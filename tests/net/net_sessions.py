"""The sessions of the golden net: files, and the `c2b` commands that a user gives in turn beside them.

Each session runs on the embedded world with fixed seeds, in this process, in a few seconds to a minute.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from small_configs import EVALUATE, PROMPTS

TASK = "Sort snapshots of ordinary things by what they show."
PAIR = {"planted": "world:resnet-planted-0", "control": "world:resnet-control-0"}
RENDERER = {"generate": {"model": "world:renderer"}}
SCENES = "world sample --out scenes.parquet -n 700 --seed 1001"
GENERATED = {
    "task": TASK,
    "classes": ["bus", "boat"],
    "classifier": PAIR,
    "images": {"source": "generate", "generator": "world:renderer"},
    "attributes": {"weather": ["clear", "fog"], "size": ["small", "large"]},
    "captions_per_cell": 2,
    "images_per_caption": 10,
}
DATASET = {
    "captions": {"file": "captions.csv"},
    "classifier": PAIR,
    "images": RENDERER,
    "draws_per_caption": 60,
    "shard_draws": 50,
}
CAPTIONS = "label,caption\nbus,a photo of a bus in fog\nboat,a photo of a boat at night\nbus,a small bus in snow\n"


@dataclass(frozen=True)
class Session:
    """`files`: name → text, or a value that is written as YAML. `commands`: arguments of `c2b`, run in order."""

    files: dict[str, Any]
    commands: tuple[str, ...]
    folders: tuple[str, ...] = field(default=())
    """What the commands write and the net keeps: folders of runs, datasets, exports."""


SESSIONS: dict[str, Session] = {
    "generated audit": Session(
        {"audit.yaml": GENERATED},
        (
            "audit audit.yaml --dry-run",
            "audit audit.yaml --out run",
            "audit audit.yaml --out run --json",
            "report run",
            "report run --json",
            "gate run --fail-on against --junit gates.xml",
            "gate run --fail-on 'bus/weather/fog:phi<-0.2' --json",
            "export run --format csv",
            "export run --format json",
            "export run --format model-card --classifier planted",
            "export run --format failures",
            "export run --format parquet --out scores.parquet",
            "compare run run --classifier-a control --classifier-b planted --out compared",
            "compare run run --classifier-a control --classifier-b planted --fail-on worse --junit compared.xml",
            "compare run run --classifier-a control --classifier-b planted --json",
            "ask run 'a photo of a bus in fog' -n 12 --class bus --html asked.html",
        ),
        ("run", "compared", "gates.xml", "compared.xml", "asked.html", "scores.parquet"),
    ),
    "adaptive audit": Session(
        {
            "audit.yaml": {
                **GENERATED,
                "classes": ["bus"],
                "classifier": "world:resnet-planted-0",
                "intersections": [["weather", "size"]],
                "images_per_caption": 60,
                "budget": {"images": 700, "first": 10},
                "verification": {"model": "world:clip"},
            }
        },
        ("audit audit.yaml --dry-run", "audit audit.yaml --out run", "report run --json"),
        ("run",),
    ),
    "retrieved audit": Session(
        {
            "audit.yaml": {
                **GENERATED,
                "images": {"source": "retrieve", "index": "index"},
                "classifier": "world:byobnet-planted-1",
                "images_per_caption": 8,
                "verification": {"model": "world:clip", "calibration": "calibration.parquet"},
            }
        },
        (
            SCENES,
            "world sample --out calibration.parquet -n 300 --seed 7",
            "index build --images scenes.parquet --encoder world:clip --out index --json",
            "index search index 'a bus in fog' -k 4 --json",
            "audit audit.yaml --out run",
            "audit audit.yaml --out run --json",
            "export run --format failures",
        ),
        ("index", "run"),
    ),
    "labelled audit": Session(
        {
            "audit.yaml": {
                "task": TASK,
                "classes": "all",
                "classifier": PAIR,
                "images": {"source": "labelled", "table": "scenes.parquet"},
            }
        },
        (SCENES, "check audit.yaml", "audit audit.yaml --out run", "gate run --fail-on for --json", "report run"),
        ("run",),
    ),
    "proposed audit": Session(
        {
            "audit.yaml": {
                **GENERATED,
                "classes": ["mug"],
                "classifier": "world:resnet-control-1",
                "language_model": "world:lm",
                "attributes": None,
                "captions_per_cell": 1,
                "images_per_caption": 2,
            }
        },
        ("audit audit.yaml --out run --json",),
        ("run",),
    ),
    "generated failures": Session(
        {
            "failures.yaml": {
                "labels": ["bus"],
                "classifier": PAIR,
                "images": RENDERER,
                "captioner": "world:clip",
                "hierarchy": "world",
                "budget": {"draws": 1500},
            }
        },
        (
            "failures failures.yaml --estimate",
            "failures failures.yaml --out run",
            "failures failures.yaml --out run --json",
            "failures ask run 'a bus at night in the snow'",
            "gate run --fail-on failure --json",
            "export run --format csv",
        ),
        ("run",),
    ),
    "labelled failures": Session(
        {
            "failures.yaml": {
                "labels": ["bus", "bird"],
                "classifier": "world:resnet-planted-0",
                "images": {"labelled": {"table": "scenes.parquet"}},
                "hierarchy": "world",
            }
        },
        (SCENES, "failures failures.yaml --estimate", "failures failures.yaml --out run", "report run --json"),
        ("run",),
    ),
    "dataset": Session(
        {"dataset.yaml": DATASET, "captions.csv": CAPTIONS},
        (
            "dataset build dataset.yaml --dry-run",
            "dataset build dataset.yaml --out built",
            "dataset verify built",
            "dataset show built --out pages",
            "dataset export built --format imagefolder --out imagefolder",
            "dataset export built --format webdataset --out webdataset",
            "dataset export built --format huggingface --out huggingface",
            "dataset evaluate built --classifiers world:resnet-control-0,world:byobnet-control-0 --out transfer",
        ),
        ("built", "pages", "imagefolder", "webdataset", "huggingface", "transfer"),
    ),
    "evaluate": Session(
        {"evaluate.yaml": EVALUATE},
        ("evaluate evaluate.yaml --out run", "evaluate evaluate.yaml --out run --json", "export run --format csv"),
        ("run",),
    ),
    "prompts": Session(
        {
            "prompts.yaml": {
                **PROMPTS,
                "associations": {"prompts": 20, "words": 4, "contexts": 4, "follow_up": 6, "images": 2},
            }
        },
        (
            "prompts prompts.yaml --estimate",
            "prompts prompts.yaml --out run",
            "prompts prompts.yaml --out run --json",
            "export run --format csv",
        ),
        ("run",),
    ),
    "clip bias": Session(
        {
            "clip_bias.yaml": {
                "models": {"unskewed": "world:clip-00", "skewed": "world:clip-09"},
                "datasets": {
                    "people": {
                        "table": "people/table.parquet", "attributes": ["companion"], "texts": "people/texts.txt",
                    }
                },
                "groups": {"k": 2, "least": 30},
                "leakage": {"seeds": 1, "folds": 2, "swaps": 8},
                "chance": {"permutations": 100, "resamples": 50},
            }
        },
        (
            "world clip-data --out people -n 200",
            "clip-bias clip_bias.yaml --out run",
            "clip-bias clip_bias.yaml --out run --json",
            "export run --format csv",
        ),
        ("people", "run"),
    ),
    "latent": Session(
        {
            "latent.yaml": {
                "generator": {"known": "world:latent-sprites-known"},
                "classifier": "world:latent-sprites-x-colour",
                "target": "x",
                "latents": "labels.parquet",
                "search": {"iterations": 20, "batch": 16, "walk": 3, "starts": 1},
                "evidence": {"latents": 600},
            }
        },
        (
            "world latent labels known=world:latent-sprites-known --out labels.parquet -n 600",
            "latent latent.yaml --out run",
            "latent latent.yaml --out run --json",
            "export run --format csv",
        ),
        ("labels.parquet", "run"),
    ),
    "surfaces": Session(
        {},
        (
            "--help", "audit --help", "failures --help", "dataset --help", "prompts --help", "clip-bias --help",
            "latent --help", "evaluate --help", "compare --help", "gate --help", "export --help", "ask --help",
            "index --help", "remote --help", "endpoint --help", "keys --help", "tenants --help", "serve --help",
            "models", "models onnx", "models timm", "models hf", "audit --print-schema",
        ),
    ),
}  # fmt: skip
