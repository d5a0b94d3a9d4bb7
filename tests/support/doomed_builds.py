"""Builds of a small dataset of failures in processes that die at a chosen moment.

A process kills itself by SIGKILL just before it renames a file into place. So a test can produce every state in which a
death between two commits leaves a build. The processes are forked from one that has imported the libraries.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import yaml

SIGHT = ("a small boat on the street at night", "a small boat on the beach at night", "a small mug on the beach")
CONFIG = {
    "captions": {"file": "captions.csv"},
    "classifier": "world:resnet-planted-1",
    "images": {"generate": {"model": "world:renderer"}},
    "draws_per_caption": 60,
    "cap_per_caption": 25,
    "near_duplicates": 12,
    "shard_draws": 48,
    "batch": 16,
}
"""Of its failures some are kept and some exceed the cap; captions extend over several shards."""
PATIENCE_S = 240.0
LIBRARIES = ["torch", "timm", "pyarrow.parquet", "pyarrow.dataset", "yaml", "c2b_ray.cli", "c2b_ray.world.zoo"]
WHOLE = ("captions.parquet", "shards", "drops")
"""The files that are equal, byte for byte, after an undisturbed build and after one that was killed."""


def write_config(folder: Path, **changes: Any) -> None:
    rows = [f'{caption.split()[2]},"{caption}"' for caption in SIGHT]
    (folder / "captions.csv").write_text("\n".join(["label,caption", *rows]) + "\n")
    (folder / "dataset.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}))


def contents(out: Path) -> dict[str, bytes]:
    """Returns the dataset's files by name."""
    files = [file for name in WHOLE for file in [out / name, *out.glob(f"{name}/*")] if file.is_file()]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def forked(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Forks a process, which has the libraries at once; the caller waits for it or kills it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


def build(out: Path, commits: int | None = None, via: str = "here") -> None:
    """Runs `c2b dataset build` with the config beside `out`. `commits`: the number of files that it may rename into
    place before it dies."""
    _run(out, ["dataset", "build", "dataset.yaml", "--out", out.name, "--via", via, "--json"], commits)


def run_config(out: Path, command: str, config: dict[str, Any], commits: int | None = None) -> None:
    """Runs `c2b COMMAND` of a config into `out`. `commits`: as for `build`."""
    (out.parent / f"{command}.yaml").write_text(yaml.safe_dump(config))
    _run(out, [command, f"{command}.yaml", "--out", out.name, "--via", "here", "--json"], commits)


def _run(out: Path, arguments: list[str], commits: int | None) -> None:
    from c2b_ray import cli

    os.chdir(out.parent)
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.stdout = sys.stderr = open(f"{out}.said", "w")  # noqa: SIM115 — as long as the process
    if commits is not None:
        die_after(out, commits)
    sys.argv = ["c2b", *arguments]
    cli.main()


def said(out: Path) -> str:
    """Returns the output of the last process that built at `out`."""
    return Path(f"{out}.said").read_text()


def die_after(directory: Path, commits: int) -> None:
    """Makes this process kill itself just before it renames file number `commits` + 1 into place.

    The files that every process writes first, about itself, do not count."""
    left = [commits]
    lock = threading.Lock()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "os.rename":
            return
        target = str(arguments[1])
        name = target.removeprefix(f"{directory}/")
        if name in (target, "history.json") or name.startswith("work/"):
            return
        with lock:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    sys.addaudithook(watch)


def ended(process: BaseProcess) -> int:
    """Waits for the process to end and returns its exit status, which is negative where a signal ended it."""
    process.join(PATIENCE_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"a build did not end within {PATIENCE_S:.0f} s")
    return process.exitcode
