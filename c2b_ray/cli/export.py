"""`c2b export`: a run's scores for other programs, and a section for a model card."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from c2b_ray.errors import ConfigError
from c2b_ray.store import files


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    form: Annotated[str, typer.Option("--format", help="csv, json, parquet, failures or model-card.")],
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Where to; by default standard output.")] = None,
    classifier: Annotated[str | None, typer.Option(metavar="SPEC", help="Of a model card: which classifier.")] = None,
) -> None:
    """Write a run's scores as CSV, JSON or Parquet, or a model-card section with Hugging Face metadata.

    `failures` is CSV with a row for each image that a classifier got wrong in a cell: key, truth (the class that the
    image was drawn for), answer (what it was taken for), cell (attribute/value), attribute, bias_class, classifier,
    label (the classifier's own), label_probability, image_id.
    """
    from c2b_ray.audits.export import export as run_export

    if form == "parquet" and out is None:
        raise ConfigError("--out", "a Parquet file needs a name")
    data = run_export(run, form, classifier)
    if out is None:
        sys.stdout.write(data.decode())
    else:
        files.write_under(out, data)
