"""Small evaluations in processes that die at a chosen moment (`doomed_builds`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml
from doomed_builds import die_after
from small_configs import EVALUATE


def evaluate(out: Path, commits: int | None = None) -> None:
    """Runs `c2b evaluate` into `out`. `commits`: the number of files that it may rename into place before it dies."""
    from c2b_ray import cli

    os.environ["HF_HUB_OFFLINE"] = "1"
    (out.parent / "evaluate.yaml").write_text(yaml.safe_dump(EVALUATE))
    os.chdir(out.parent)
    sys.stdout = sys.stderr = open(f"{out}.said", "w")  # noqa: SIM115 — as long as the process
    if commits is not None:
        die_after(out, commits)
    sys.argv = ["c2b", "evaluate", "evaluate.yaml", "--out", out.name, "--via", "here", "--json"]
    cli.main()
