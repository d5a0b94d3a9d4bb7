"""The command of an audit, from its declaration: `c2b NAME FILE.yaml`, alike for every audit of any package."""

# Without `from __future__ import annotations`: the options of each command are made of its audit's own texts.

import inspect
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from c2b_ray.audits.audit import Audit, audit_named, names_of_other_packages
from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via, show_run
from c2b_ray.cli.session import Placement
from c2b_ray.errors import ConfigError
from c2b_ray.report.summary import Summary

ViaWithoutServe = Annotated[
    str,
    typer.Option(help="Where the work runs: here (this process, without Ray) or actors (of Ray); auto: here if small."),
]


def command_of(audit: Audit) -> Callable[..., None]:
    """Returns the function of the audit's command, with the options that its declaration calls for."""

    def run(
        file: Annotated[str | None, typer.Argument(metavar=f"{_word(audit)}.yaml", help="The file of the run.")] = None,
        out: Annotated[str | None, typer.Option(help=f"The run directory. Default: runs/{audit.name}-<id>.")] = None,
        via: Via if audit.served else ViaWithoutServe = "auto",  # type: ignore[valid-type]
        placement: Placement = None,
        as_json: Json = False,
        estimate: Annotated[bool, typer.Option("--estimate", "--dry-run", help="Estimate the cost, and stop.")] = False,
        print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of such a file and stop.")] = False,
        **options: str | None,
    ) -> None:
        if print_schema:
            show.schema(audit.config_class)
        elif file is None:
            raise ConfigError("", f"name a file; {audit.command} --print-schema shows what it holds")
        elif estimate:
            show_estimate(audit, file, via, as_json)
        else:
            with progress.shown() as bar:
                result = audit.function(file, out, via, bar, placement, **options)
            show_run(result, as_json)

    run.__doc__ = audit.about
    run.__signature__ = _signature(run, audit)  # type: ignore[attr-defined]
    return run


def add_of_other_packages(app: typer.Typer) -> None:
    """Adds the commands of audits that other packages declare. One that cannot be loaded has a command that says why;
    none takes the name of another command."""
    taken = {str(one.name) for one in (*app.registered_commands, *app.registered_groups)}
    for name in names_of_other_packages():
        if name in taken:
            show.note(f"warning: c2b {name} is a command of c2b-ray, so the audit of this name has none; rename it")
        else:
            app.command(name, rich_help_panel="Audit")(_loaded(name))


def _loaded(name: str) -> Callable[..., None]:
    try:
        return command_of(audit_named(name))
    except ConfigError as error:
        reason = error

    def run(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise reason

    run.__doc__ = "Its package cannot be loaded."
    return run


def show_estimate(audit: Audit, file: str, via: str, as_json: bool) -> list[Any]:
    """Prints the estimate of the cost of a run; returns its costs, none where it is an audit's own summary."""
    estimate = audit.estimate_of(file, via)
    if isinstance(estimate, Summary):
        show.summary(estimate, as_json)
        return []
    if as_json:
        show.print_json([{**asdict(cost), "seconds": cost.seconds} for cost in estimate])
    else:
        show.out().print(show.cost_table(estimate))
    return list(estimate)


def _word(audit: Audit) -> str:
    return audit.name.upper().replace("-", "_")


def _signature(run: Callable[..., None], audit: Audit) -> inspect.Signature:
    """Returns the parameters of the command: without an estimate where there is none, and with the audit's options."""
    own = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=None,
            annotation=Annotated[str | None, typer.Option(metavar=one.metavar, help=one.help)],
        )
        for one in audit.options
    ]  # fmt: skip
    left_out = {"options", *(() if audit.has_estimate else ("estimate",))}
    return inspect.Signature(
        [*(one for name, one in inspect.signature(run).parameters.items() if name not in left_out), *own]
    )
