"""`c2b export`: a run's scores or hypotheses for other programs, and a section for a model card."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from c2b_ray.errors import ConfigError
from c2b_ray.store import files


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    form: Annotated[str, typer.Option("--format", help="csv, json, parquet, failures, perturbations or model-card.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file to write. Default: standard output.")
    ] = None,
    classifier: Annotated[str | None, typer.Option(metavar="SPEC", help="The classifier of a model card.")] = None,
) -> None:
    """Write a run's scores as CSV, JSON or Parquet, or a model-card section with Hugging Face metadata.

    A row of scores is one cell of one classifier. n: images with an answer; correct: the right ones. accuracy and phi
    have limits (_low, _high) and are corrected for the verifier's findings; _observed is uncorrected. p_value and
    q_value test for a bias, none_p_value and none_q_value for the absence of one. verdict: for, against, none (clear)
    or undetermined. images_to_settle: of each value of the attribute. basis: how the images' values are known.
    Unknown values are empty. c2b_ray/schemas/c2b.py documents every column.

    `failures` is CSV with a row for each image that a classifier got wrong in a cell: key, truth (the class that the
    image was drawn for), answer (the predicted class), cell (attribute/value), attribute, bias_class, classifier,
    label (the classifier's label), label_probability, image_id.

    `perturbations` is CSV with a row for each classifier, class, perturbation and level of an audit with `perturb`;
    c2b_ray/schemas/perturb.py documents its columns.

    A run of c2b failures has csv, json and parquet: a row for each hypothesis, of discovery and of confirmation.
    c2b_ray/schemas/failures.py documents every column.
    """
    from c2b_ray.commands.runs import export as run_export

    if form == "parquet" and out is None:
        raise ConfigError("--out", "a Parquet file needs a name")
    data = run_export(run, form, classifier)
    if out is None:
        sys.stdout.write(data.decode())
    else:
        files.write_under(out, data)
