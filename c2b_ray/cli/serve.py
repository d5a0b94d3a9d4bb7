"""`c2b serve`: the models of a Serve config, until interrupted."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    config: Annotated[str | None, typer.Argument(metavar="[CONFIG.yaml]", help="By default the laptop's.")] = None,
) -> None:
    """Start Ray Serve with the deployments of a config file and wait; Ctrl-C drains and stops it."""
    from c2b_ray.serving.run import serve_until_interrupted

    serve_until_interrupted(config)
