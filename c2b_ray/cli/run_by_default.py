"""A group of commands that has a command to run by default."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

RUN = "run"


class RunsByDefault(TyperGroup):
    """Runs `c2b failures FILE` as `c2b failures run FILE`, unless FILE names another command of the group."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)
