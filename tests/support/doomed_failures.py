"""Small runs of `c2b failures` in processes that die at a chosen moment (`doomed_builds`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml
from doomed_builds import die_after

CONFIG = {
    "labels": ["boat"],
    "classifier": "world:resnet-planted-1",
    "images": {"generate": {"model": "world:renderer"}},
    "captioner": "world:clip",
    "hierarchy": "world",
    "budget": {"draws": 600},
}


def find(out: Path, commits: int | None = None) -> None:
    """Runs `c2b failures` into `out`. `commits`: the number of files that it may rename into place before it dies."""
    from c2b_ray import cli

    os.environ["HF_HUB_OFFLINE"] = "1"
    (out.parent / "failures.yaml").write_text(yaml.safe_dump(CONFIG))
    os.chdir(out.parent)
    sys.stdout = sys.stderr = open(f"{out}.said", "w")  # noqa: SIM115 — as long as the process
    if commits is not None:
        die_after(out, commits)
    sys.argv = ["c2b", "failures", "failures.yaml", "--out", out.name, "--via", "here", "--json"]
    cli.main()
