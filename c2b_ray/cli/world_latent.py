"""`c2b world latent`: trains generators and skewed classifiers for `c2b latent`, and labels latents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.audits.kit.session import Steps
from c2b_ray.cli import progress
from c2b_ray.extras import needed_by
from c2b_ray.report import words

app = typer.Typer(help="Models of the latent world, with a skew of your choice.", no_args_is_help=True)

_WORLD = typer.Option("--world", help="dsprites, sprites or scenes.")
_OUT = typer.Option(help="The directory of models; each has its own directory in it.")


@app.command()
def generator(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND]...", help="vae, beta, beta-tc, dip-i, dip-ii, gan-hessian, style. Default: all."
        ),
    ] = None,
    out: Annotated[Path, _OUT] = Path("build/world"),
    of: Annotated[str, _WORLD] = "sprites",
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Train generators, and the reader that labels their pictures; existing ones stay."""
    with needed_by("c2b world latent generator"):
        from c2b_ray.world.training.latent import family
        from c2b_ray.world.training.latent.worlds import world
    family.train_generators(out, world(of), kinds or family.KINDS, seed)


@app.command()
def classifier(
    target: Annotated[str, typer.Option(help="The attribute to learn.")],
    biased: Annotated[
        str | None, typer.Option(help="The attribute that correlates with the labels. Default: none (unbiased).")
    ] = None,
    skew: Annotated[
        float, typer.Option(min=0, max=1, help="The share of pictures whose biased attribute is on the label's side.")
    ] = 0.9,
    label_noise: Annotated[float, typer.Option(min=0, max=0.49, help="The share of wrong labels.")] = 0.05,
    of: Annotated[str, _WORLD] = "sprites",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, _OUT] = Path("build/world"),
) -> None:
    """Train a classifier on skewed pictures, and measure by rendering how each attribute affects its answers."""
    with needed_by("c2b world latent classifier"):
        from c2b_ray.world.training.latent import classifiers, family
    plant = classifiers.Plant(of, target, biased, skew, seed, label_noise)
    directory = out / family.plant_name(plant)
    card = classifiers.make(plant, directory)
    print(f"timm:local-dir:{directory}")
    print(json.dumps(card["truth"], indent=1))


@app.command("labels")
def label_latents(
    generators: Annotated[list[str], typer.Argument(help="NAME=SPEC, or a spec such as world:latent-sprites-vae.")],
    out: Annotated[Path, typer.Option(help="The Parquet file to write, for `latents` in a file of c2b latent.")],
    reader: Annotated[
        list[str] | None,
        typer.Option(
            help="A classifier whose labels are the attributes; a logit above 0 is their second side. Repeatable: "
            "if several disagree, a picture has no label. Default: the world's three."
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=50, help="The number of latents of each generator.")] = 4000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Draw latents of generators and label each by the contents of its picture."""
    with needed_by("c2b world latent"):
        from c2b_ray.models import catalog
        from c2b_ray.world import latent_labels, zoo
    names_sides = [catalog.classifier(spec) for spec in reader or [f"world:{name}" for name in zoo.LATENT_READERS]]
    labelled = {}
    with progress.shown() as bar:
        for text in generators:
            name, equals, spec = text.partition("=")
            is_keyed = bool(equals) and ":" not in name
            model = catalog.latent_generator(spec if is_keyed else text)
            key = name if is_keyed else text
            with Steps(bar).counting(f"label latents of {key}", n, "latents") as count_step:
                labelled[key] = latent_labels.label(model, names_sides, n, seed, count_step)
    latent_labels.write_labelled(labelled, out)
    print(f"{words.plural(n, 'latent')} of each of {words.plural(len(labelled), 'generator')} in {out}")
