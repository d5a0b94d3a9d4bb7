"""The command-line options that determine where work runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from c2b_ray.audits.kit.events import Listener
    from c2b_ray.audits.kit.session import Session

Placement = Annotated[
    str | None,
    typer.Option(
        "--placement",
        metavar="FILE",
        help="How many processes run each stage, and on which nodes: laptop, one-gpu, cluster, or a file such as those "
        "in deployments/placement. Default: chosen from the cluster's resources.",
    ),
]


def session(via: str, placement: str | None, listener: Listener) -> Session:
    """Returns the session of a command with these options. Raises ConfigError for a wrong placement file."""
    from c2b_ray.audits.kit.session import Session
    from c2b_ray.config.placement import read_placement

    return Session(via, None if placement is None else read_placement(placement), listener)
