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

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help of the group, and below it that of the command that it runs by default."""
        super().format_help(ctx, formatter)
        command = self.commands[RUN]
        command.format_help(type(ctx)(command, info_name=ctx.info_name, parent=ctx.parent), formatter)
