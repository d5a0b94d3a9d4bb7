"""`c2b world`: scenes of the embedded world, and its models trained anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.extras import needed_by

app = typer.Typer(help="The embedded world: labelled scenes, and its models.", no_args_is_help=True)


@app.command()
def sample(
    out: Annotated[Path, typer.Option(help="The Parquet file to write: images, classes and attributes.")],
    n: Annotated[int, typer.Option("-n", min=1, help="How many scenes.")] = 6000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Render labelled scenes: a table to index, or to audit as it is."""
    from c2b_ray.world.table import write_sample

    write_sample(out, n, seed)
    print(f"{n} scenes in {out}")


@app.command()
def train(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="lm, clip, classifiers, judge, vae, diffusion; by default all, in this order."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("build/world"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train the world's models from seeds: all six where none is named, which takes hours on two cores.

    Most of that is diffusion's; each of the others takes less than an hour.
    """
    with needed_by("c2b world train"):
        from c2b_ray.world.train import train as train_models

    train_models(names or (), out, seed)
