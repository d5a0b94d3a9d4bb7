"""The command-line options that determine where work runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

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


# A group of commands that has a command to run by default.


RUN = "run"


class RunsByDefault(TyperGroup):
    """Runs `c2b failures FILE` as `c2b failures run FILE`, unless FILE names another command of the group."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help of the group, and below it that of the command that it runs by default."""
        super().format_help(ctx, formatter)
        command = self.commands[RUN]
        command.format_help(type(ctx)(command, info_name=ctx.info_name, parent=ctx.parent), formatter)
