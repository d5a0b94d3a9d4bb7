"""Replicas' common preparations: they take their GPUs, refuse requests for another model, and skip self-tests of some
models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray

from c2b_ray.config.placement import Computing
from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.models import as_placed, catalog, devices

# A made-up question proves nothing about these, and harms some: a URL that charges, a script that runs out, a table
# that rightly has no answer.
UNPROBED = frozenset({"openai", "http", "https", "scripted", "table"})


def can_be_probed(spec: str) -> bool:
    """Returns whether a self-test may send this model a question that no user asked."""
    return catalog.parse(spec).scheme not in UNPROBED


def take_gpus() -> None:
    """Restricts the models of this replica to the GPUs that Ray assigned to it. Called before a model loads."""
    if ray.is_initialized():  # not where Serve's local testing mode runs it in the caller's process
        devices.assign(ray.get_gpu_ids())


def load(role: str, computing: Computing, spec: str) -> Any:
    """Loads the model of a role so that it computes as the app's `args` say."""
    # Here, since the environment of a language model's replica has no decoder of images (deployments/vllm-cpu).
    from c2b_ray.steps.decode import decoded

    return as_placed.load(role, computing, spec, decoded)


def decoders_here(wanted: int | None) -> int:
    """Returns how many processes decode for this replica: as `wanted`, else one per CPU that a replica with a GPU has
    reserved, and none for one without."""
    if wanted is not None or not ray.is_initialized() or not ray.get_gpu_ids():
        return wanted or 0
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]


def refuse_other_model(deployment: str, serves: str, wanted: str) -> None:
    """Raises ServiceError where a caller wants another model than the served one: an audit must never confuse two
    models."""
    if wanted != serves:
        raise ServiceError(
            f"{deployment} serves {serves!r}, and was asked for {wanted!r}: the app was redeployed, or the caller is"
            " connected to the wrong one; deploy the model under another app name, or run the audit again"
        )


# Resolves a replica's Python environment where it differs from the cluster's (`runtime_env.py_executable`).


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
