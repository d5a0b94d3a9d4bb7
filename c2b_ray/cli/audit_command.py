"""Makes the command of an audit, `c2b NAME FILE.yaml`, from its declaration; every audit of any package gets one.

`c2b failures` and `c2b prompts` are groups, whose default command it is.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from c2b_ray.audits.audit import Audit, audit_named, names_of_other_packages
from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via, show_run
from c2b_ray.cli.progress import RUN, Log, Placement, RunsByDefault, log_run, session, trackers
from c2b_ray.errors import ConfigError

# Without `from __future__ import annotations`: the options of each command are built from its audit's texts.


ViaWithoutServe = Annotated[
    str,
    typer.Option(help="Where the work runs: here (this process, without Ray) or actors (of Ray); auto: here if small."),
]


def command_of(audit: Audit) -> Callable[..., None]:
    """Returns the function of the audit's command, with the options that its declaration calls for."""
    word = audit.name.upper().replace("-", "_")

    def run(
        file: Annotated[str | None, typer.Argument(metavar=f"{word}.yaml", help="The file of the run.")] = None,
        out: Annotated[str | None, typer.Option(help=f"The run directory. Default: runs/{audit.name}-<id>.")] = None,
        via: Via if audit.served else ViaWithoutServe = "auto",  # type: ignore[valid-type]
        placement: Placement = None,
        log: Log = None,
        as_json: Json = False,
        estimate: Annotated[bool, typer.Option("--estimate", "--dry-run", help="Estimate the cost, and stop.")] = False,
        yes: Annotated[bool, typer.Option("--yes", help="Start at once, without an estimate of the cost.")] = False,
        print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of such a file and stop.")] = False,
        **options: Any,
    ) -> None:
        if print_schema:
            show.schema(audit.config_class)
        elif file is None:
            raise ConfigError("", f"name a file; {audit.command} --print-schema shows what it holds")
        elif estimate:
            show.estimate(audit.estimate_of(file, via), as_json)
        else:
            if audit.estimates_first and not yes and not as_json:
                costs = audit.estimate_of(file, via)
                show.estimate(costs, as_json)
                options["costs"] = costs
            logs = trackers(log)
            with progress.shown() as bar:
                result = audit.function(file, out, via, bar, placement, **options)
            show_run(result, as_json)
            log_run(result, logs)

    run.__doc__ = audit.about
    run.__signature__ = _signature(run, audit)  # type: ignore[attr-defined]
    return run


def add_of_other_packages(app: typer.Typer) -> None:
    """Adds the commands of audits that other packages declare. One that cannot be loaded has a command that says why;
    none takes the name of another command."""
    used_names = {
        *(str(entry.name) for entry in app.registered_commands),
        *(str(entry.name) for entry in app.registered_groups),
    }
    for name in names_of_other_packages():
        if name in used_names:
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


def _signature(run: Callable[..., None], audit: Audit) -> inspect.Signature:
    """Returns the parameters of the command: without those that its audit has no use for, and with its own options."""
    own_parameters = [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=None,
            annotation=Annotated[str | None, typer.Option(metavar=option.metavar, help=option.help)],
        )
        for option in audit.options
    ]  # fmt: skip
    has = {"options": False, "estimate": audit.has_estimate, "yes": audit.estimates_first}
    return inspect.Signature(
        [
            *(parameter for name, parameter in inspect.signature(run).parameters.items() if has.get(name, True)),
            *own_parameters,
        ]
    )


# `c2b failures`: the captions that make a classifier fail, and how often.


failures_app = typer.Typer(
    help="Find the captions that make a classifier fail.", no_args_is_help=True, cls=RunsByDefault
)


failures_app.command(RUN)(command_of(audit_named("failures")))


@failures_app.command()
def ask(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="The directory of a finished run.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A caption that names a label: a fly on a leaf.")],
    draws: Annotated[int, typer.Option(min=100, help="The most images, those of the baseline included.")] = 20_000,
    target: Annotated[str | None, typer.Option(help="A wrong label to test for, besides any failure.")] = None,
    via: Via = "auto",
    as_json: Json = False,
) -> None:
    """Test whether the classifier fails more often on images of your sentence; the result is added to the run."""
    from c2b_ray.audits.failures.ask import ask as ask_run
    from c2b_ray.audits.failures.report.captions import BEFORE, answer_lines

    with progress.shown() as bar:
        answer = ask_run(directory, sentence, draws, target, via, bar)
    rows = [row for row in answer.rows.to_pylist() if row["stage"] == "confirmation"]
    if as_json:
        show.print_json(rows)
        return
    if not answer.is_new:
        show.line(BEFORE)
    for text in answer_lines(rows):
        show.line(text)


# `c2b prompts`: natural prompts that expose a text-to-image model's hidden bias.


prompts_app = typer.Typer(
    help="Find natural prompts that expose a text-to-image model's hidden bias.", no_args_is_help=True,
    cls=RunsByDefault,
)  # fmt: skip


prompts_app.command(RUN)(command_of(audit_named("prompts")))


@prompts_app.command()
def heads(
    file: Annotated[str, typer.Argument(metavar="PROMPTS.yaml", help="The prompts file.")],
    out: Annotated[str, typer.Option(help="The folder of the heads; name it as `heads.files` of other runs.")],
    via: Via = "auto",
    placement: Placement = None,
    as_json: Json = False,
) -> None:
    """Train linear heads on the generators' activations, and print their accuracy at each denoising step."""
    from c2b_ray.audits.prompts.config import read_prompts_config
    from c2b_ray.audits.prompts.heads import heads_alone
    from c2b_ray.audits.prompts.summary import heads_summary

    with progress.shown() as bar:
        table = heads_alone(read_prompts_config(file), out, session(via, placement, bar))
    show.summary(heads_summary(table), as_json)
