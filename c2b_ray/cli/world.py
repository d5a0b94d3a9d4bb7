"""`c2b world`: renders scenes of the embedded world, and trains its models, and those of the latent world.

The modules that train are in the repository alone: the wheel leaves `world/training` out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.audits.kit.session import Steps
from c2b_ray.cli import progress
from c2b_ray.extras import needed_by
from c2b_ray.report import words

# `c2b world latent`: trains generators and skewed classifiers for `c2b latent`, and labels latents.


latent_app = typer.Typer(help="Models of the latent world, with a skew of your choice.", no_args_is_help=True)

_WORLD = typer.Option("--world", help="dsprites, sprites or scenes.")
_OUT = typer.Option(help="The directory of models; each has its own directory in it.")


@latent_app.command()
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


@latent_app.command()
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


@latent_app.command("labels")
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


app = typer.Typer(help="The embedded world: labelled scenes, and its models.", no_args_is_help=True)
app.add_typer(latent_app, name="latent")


@app.command()
def sample(
    out: Annotated[Path, typer.Option(help="The Parquet file to write: images, classes and attributes.")],
    n: Annotated[int, typer.Option("-n", min=1, help="The number of scenes.")] = 6000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Render labelled scenes: a table to index, or to audit directly."""
    from c2b_ray.world.table import write_sample

    write_sample(out, n, seed)
    print(f"{words.plural(n, 'scene')} in {out}")


@app.command()
def train(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="lm, clip, clip-zoo, classifiers, judge, vae, diffusion, hidden, hidden-control, hidden-lora, "
            "prompter, reader, latent. Default: all, in this order.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The directory for the weights.")] = Path("build/world"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    links: Annotated[
        Path | None,
        typer.Option(help="A YAML file of the links and decoys that hidden, hidden-lora, prompter and reader learn."),
    ] = None,
    skew: Annotated[
        list[str] | None,
        typer.Option(
            help="For clip-zoo: train a model with this skew instead of the shipped ones. A number or settings, as in "
            "words=0.5,captions=0,attribute=lighting,values=day/night,size=s,pairs=8000,seed=3. Repeatable.",
        ),
    ] = None,
) -> None:
    """Train the world's models from seeds; all of them take hours on two cores.

    diffusion takes most of the time, each of the others less than an hour.
    """
    with needed_by("c2b world train"):
        from c2b_ray.world.training.train import train as train_models
    from c2b_ray.world.associations import Associations, read_links

    associations = Associations(*read_links(links)) if links else None
    train_models(names or (), out, seed, associations=associations, skews=skew or ())


@app.command("clip-data")
def clip_data(
    out: Annotated[Path, typer.Option(help="The directory to write: table.parquet and texts.txt.")],
    n: Annotated[int, typer.Option("-n", min=20, help="The number of scenes.")] = 5000,
    seed: Annotated[int, typer.Option(min=0)] = 1000,
    groups: Annotated[
        str, typer.Option(help="The attribute whose values are the groups, of equal size: ATTRIBUTE=VALUE/VALUE/…")
    ] = "companion=dog/person",
    captions: Annotated[int, typer.Option(min=1, help="The number of captions of each picture.")] = 1,
    localities: Annotated[
        int, typer.Option(help="The number of kinds of scene, each one class in one setting; 0: all kinds of scene.")
    ] = 0,
    planted: Annotated[
        float, typer.Option(help="The share of mistaken captions of the last group in the first locality.")
    ] = 0.0,
    balanced: Annotated[
        bool,
        typer.Option(help="Make as many mistakes in captions of the other groups, spread over the other localities."),
    ] = True,
) -> None:
    """Render the data of a CLIP-bias audit: pictures, captions, groups, localities, and neutral texts."""
    from c2b_ray.world.table import TableOptions, write

    attribute, _, values = groups.partition("=")
    write(out, TableOptions(n, seed, attribute, tuple(values.split("/")), captions, localities, planted, balanced))
    print(f"{words.plural(n, 'scene')} in {out / 'table.parquet'}, neutral texts in {out / 'texts.txt'}")


@app.command("clip-downstream")
def clip_downstream(
    out: Annotated[Path, typer.Option(help="The directory to write: data, a directory a model, clip-bias.yaml.")],
    model: Annotated[
        list[str] | None, typer.Option(help="NAME=SPEC of an encoder. Repeatable. Default: the shipped zoo.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=20, help="The number of scenes to describe.")] = 2000,
    seed: Annotated[int, typer.Option(min=0)] = 2000,
    groups: Annotated[str, typer.Option(help="As for clip-data.")] = "companion=dog/person",
    captions: Annotated[int, typer.Option(min=1, help="The number of reference captions of each picture.")] = 3,
    also: Annotated[list[str] | None, typer.Option(help="A further attribute to audit by. Repeatable.")] = None,
) -> None:
    """Train a captioner and answerer on each CLIP model, over one frozen language model, and write their outputs."""
    with needed_by("c2b world clip-downstream"):
        from c2b_ray.world.training.clip_zoo.downstream import Plan, run
    from c2b_ray.world.clip_zoo_members import MEMBERS
    from c2b_ray.world.table import TableOptions
    from c2b_ray.world.zoo import WEIGHTS

    attribute, _, values = groups.partition("=")
    options = TableOptions(n, seed, attribute, tuple(values.split("/")), captions)
    specs = dict(_named_spec(text) for text in model or ()) or {name: f"world:{name}" for name in MEMBERS}
    run(out, Plan(specs, WEIGHTS / "lm", options, also=tuple(also or ())))
    print(f"{words.plural(len(specs), 'model')} in {out}; audit them: c2b clip-bias {out / 'clip-bias.yaml'}")


def _named_spec(text: str) -> tuple[str, str]:
    """Parses NAME=SPEC; the name of a spec alone is the text after its scheme."""
    name, equals, spec = text.partition("=")
    if equals and ":" not in name:
        return name, spec
    return text.partition(":")[2].replace("/", "-"), text
