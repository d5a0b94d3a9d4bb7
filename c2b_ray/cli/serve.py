"""`c2b serve`: serves the models of a Serve config until interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from c2b_ray.errors import SourceError


def serve(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.yaml]", help="A Serve config. Default: that of a laptop.")
    ] = None,
) -> None:
    """Start Ray Serve with the deployments of a config file and wait; Ctrl-C drains and stops it."""
    from c2b_ray.engine.cluster import SETTINGS
    from c2b_ray.serving.app import LAPTOP

    path = config or LAPTOP
    if not path.is_file():
        raise SourceError(f"{path}: no such Serve config; deployments/ has examples")
    # Ray's command joins a running cluster or starts one, and drains on Ctrl-C, which it also receives.
    command = [sys.executable, "-m", "ray.serve.scripts", "run", str(path)]
    process = subprocess.Popen(command, env={**SETTINGS, **os.environ})  # noqa: S603 — no shell, and the path is the user's
    stopped: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if number == signal.SIGTERM:
            process.send_signal(signal.SIGINT)

    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # after the start, so that the command does not inherit these handlers
        signal.signal(number, pass_on)
    status = process.wait()
    if signal.SIGTERM in stopped:
        raise typer.Exit(128 + signal.SIGTERM)
    if status and not stopped:
        raise typer.Exit(1)
