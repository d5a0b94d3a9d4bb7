"""`c2b dataset`: builds, checks and uses datasets of failures. The commands are in the modules `dataset_…`."""

from __future__ import annotations

import typer

from c2b_ray.cli import dataset_build, dataset_evaluate, dataset_export, dataset_harden, dataset_show

app = typer.Typer(help="Datasets of images that a classifier fails on.", no_args_is_help=True)
app.command("build")(dataset_build.build)
app.command("verify")(dataset_build.verify)
app.command("export")(dataset_export.export)
app.command("evaluate")(dataset_evaluate.evaluate)
app.command("harden")(dataset_harden.harden)
app.command("show")(dataset_show.show)
