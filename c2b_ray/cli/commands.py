"""The commands of `c2b`, and the exit statuses of their errors."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from c2b_ray import __version__
from c2b_ray.audits.audit import audit_named
from c2b_ray.cli import audit, audit_command, compare, dataset, doctor, endpoint, ledger, models, remote, show, world
from c2b_ray.errors import C2BError, InputError, StorageError
from c2b_ray.extras import needed_by
from c2b_ray.text import visible, without_credentials

# An example of every command, as its help shows it at its end, and the panel in which `c2b --help` lists it.


PANELS = {
    "Start": ("demo", "init", "doctor", "check", "models"),
    "Audit": ("audit", "failures", "prompts", "clip-bias", "latent", "evaluate", "dataset"),
    "Results": ("runs", "report", "ask", "compare", "gate", "export"),
    "Images and models": ("index", "world", "serve"),
    "Shared endpoint": ("remote", "endpoint", "tenants", "keys", "audit-log", "backup", "restore"),
}
EXAMPLES = {
    "demo": "--images 2000",
    "init": "--images photos/ --classifier onnx:net.onnx --yes",
    "doctor": "--runs s3://audits/runs",
    "check": "audit.yaml",
    "models": "onnx",
    "audit": "audit.yaml --out runs/transport",
    "failures run": "failures.yaml --out runs/failures",
    "failures ask": 'runs/failures "a bus at night in the snow"',
    "prompts run": "prompts.yaml --out runs/prompts",
    "prompts heads": "prompts.yaml --out runs/heads",
    "clip-bias": "clip_bias.yaml --out runs/clip",
    "latent": "latent.yaml --out runs/latent",
    "evaluate": "evaluate.yaml --out runs/evaluation",
    "dataset build": "dataset.yaml --out failures-of-net",
    "dataset verify": "failures-of-net",
    "dataset export": "failures-of-net --format huggingface --out hf",
    "dataset evaluate": "failures-of-net --classifiers timm:resnet50.a1_in1k,onnx:net.onnx --out transfer",
    "dataset harden": "failures-of-net --clean photos/ --out hardened",
    "dataset show": "failures-of-net",
    "runs": "runs --html runs/index.html",
    "report": "runs/transport",
    "ask": 'runs/transport "a tram in the rain at dusk" -n 50',
    "compare": "runs/old runs/new --out compared --fail-on worse",
    "gate": "runs/new --fail-on 'bus/weather/fog:phi<-0.2'",
    "export": "runs/new --format model-card --out section.md",
    "index build": "--images photos/ --encoder open_clip:ViT-B-32/laion2b_s34b_b79k --out photos.index",
    "index import": "embeddings/ --encoder open_clip:ViT-B-32/laion2b_s34b_b79k --out photos.index",
    "index search": 'photos.index "a bus in the snow" -k 20',
    "world sample": "--out scenes -n 1000",
    "world train": "clip --out weights",
    "world clip-data": "--out people -n 1600",
    "world clip-downstream": "--out downstream",
    "world latent generator": "sprites --out generators",
    "world latent classifier": "--target x --biased colour --skew 0.8 --out classifier",
    "world latent labels": "known=world:latent-sprites-known --out labels.parquet",
    "serve": "laptop",
    "remote audit": "photos/ --classifier onnx:net.onnx",
    "remote failures": "failures.yaml",
    "remote dataset": "dataset.yaml",
    "remote prompts": "prompts.yaml",
    "remote clip-bias": "clip_bias.yaml",
    "remote latent": "latent.yaml",
    "remote evaluate": "evaluate.yaml",
    "remote status": "job_0123456789abcdef",
    "remote wait": "job_0123456789abcdef",
    "remote list": "--limit 20",
    "remote cancel": "job_0123456789abcdef",
    "remote tables": "job_0123456789abcdef scores --out scores.parquet",
    "remote report": "job_0123456789abcdef --out report.html",
    "remote export": "job_0123456789abcdef --format csv --out scores.csv",
    "remote upload": "net.onnx",
    "remote gate": "job_0123456789abcdef --fail-on against",
    "remote compare": "job_0123456789abcdef job_fedcba9876543210 --fail-on worse",
    "remote ask": 'job_0123456789abcdef "a tram in the rain at dusk"',
    "endpoint api": "--config endpoint.yaml",
    "endpoint runner": "--config endpoint.yaml",
    "endpoint dispatcher": "--config endpoint.yaml",
    "endpoint purge": "--config endpoint.yaml --tenant vision",
    "endpoint migrate": "--config endpoint.yaml",
    "tenants list": "--config endpoint.yaml",
    "tenants set": "vision --weight 2",
    "keys create": "--tenant vision --name ci",
    "keys list": "--tenant vision",
    "keys revoke": "01234567",
    "keys rotate": "01234567 --grace 24",
    "audit-log verify": "--config endpoint.yaml",
    "audit-log head": "--config endpoint.yaml",
    "audit-log show": "--limit 20",
    "backup": "ledger.jsonl.gz --config endpoint.yaml",
    "restore": "ledger.jsonl.gz --config endpoint.yaml",
}
"""The words of a command → its arguments. A group's default command is called `run`, a word that may be left out."""


def add_to(app: typer.Typer) -> None:
    """Gives every command below `app` its example, and those of `app` their panels."""
    for words, command in _commands(app):
        arguments = EXAMPLES.get(" ".join(words))
        if arguments is not None:
            command_words = [word for word in words if word != "run"]
            command.epilog = f"Example: c2b {' '.join(command_words)} {arguments}"
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        command.rich_help_panel = panel_of.get(str(command.name), command.rich_help_panel)
    for group in app.registered_groups:
        group.rich_help_panel = panel_of.get(str(group.name))
    # In a panel, commands are listed in the order in which they were added.
    places = {name: position for position, name in enumerate(panel_of)}
    app.registered_commands.sort(key=lambda entry: places.get(str(entry.name), len(places)))
    app.registered_groups.sort(key=lambda entry: places.get(str(entry.name), len(places)))


def _commands(app: typer.Typer, prefix: Sequence[str] = ()) -> Iterator[tuple[list[str], typer.models.CommandInfo]]:
    for command in app.registered_commands:
        name = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        yield [*prefix, name], command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, [*prefix, str(group.name)])


app = typer.Typer(
    help="Finds where an image classifier fails, from one sentence about its task and no labelled data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("demo")(audit.demo)
app.command("init")(doctor.init)
app.command("audit")(audit.audit)
app.command("check")(doctor.check)
app.command("report")(audit.report)
app.command("runs")(show.runs)
app.command("ask")(show.ask)
app.command("compare")(compare.compare)
app.command("gate")(compare.gate)
app.command("export")(show.export)
app.add_typer(audit_command.failures_app, name="failures")
app.add_typer(audit_command.prompts_app, name="prompts")
app.add_typer(dataset.app, name="dataset")
for name in ("evaluate", "latent", "clip-bias"):
    app.command(name)(audit_command.command_of(audit_named(name)))
app.add_typer(models.index_app, name="index")
app.add_typer(remote.app, name="remote")
app.command("models")(models.models)
app.add_typer(world.app, name="world")
app.command("doctor")(doctor.doctor)
app.command("serve")(models.serve)
app.add_typer(endpoint.app, name="endpoint")
app.add_typer(ledger.tenants_app, name="tenants")
app.add_typer(ledger.keys_app, name="keys")
app.add_typer(ledger.app, name="audit-log")
app.command("backup")(ledger.backup)
app.command("restore")(ledger.restore)
audit_command.add_of_other_packages(app)
add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"c2b-ray {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Finds where an image classifier fails, from one sentence about its task and no labelled data."""


_OF_THE_ENDPOINT = ("endpoint", "tenants", "keys", "audit-log", "backup", "restore")
"""Commands that read the ledger, or write it: all their packages come with one extra."""


def run() -> None:
    name = next(iter(sys.argv[1:]), "")
    try:
        with needed_by(f"c2b {name}", install="'c2b-ray[endpoint]'" if name in _OF_THE_ENDPOINT else None):
            app()
    except (InputError, StorageError) as error:
        _fail(error, 2)
    except C2BError as error:
        _fail(error, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _fail(StorageError(f"the output cannot be written: {error.strerror}"), 2)


def _fail(error: C2BError, status: int) -> None:
    print(f"error: {visible(without_credentials(str(error)))}", file=sys.stderr, flush=True)
    sys.exit(status)
