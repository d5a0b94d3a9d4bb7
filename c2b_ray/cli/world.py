"""`c2b world`: scenes of the embedded world, and its models trained anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.cli import world_latent
from c2b_ray.extras import needed_by

app = typer.Typer(help="The embedded world: labelled scenes, and its models.", no_args_is_help=True)
app.add_typer(world_latent.app, name="latent")


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
            metavar="[NAME]...",
            help="lm, clip, clip-zoo, classifiers, judge, vae, diffusion, hidden, hidden-control, hidden-lora, "
            "prompter, reader, latent; by default all, in this order.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("build/world"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    links: Annotated[
        Path | None,
        typer.Option(help="YAML: the links that hidden, hidden-lora, prompter and reader are trained on, and decoys."),
    ] = None,
    skew: Annotated[
        list[str] | None,
        typer.Option(
            help="Of clip-zoo: train one model with this skew instead of the shipped ones. A number, or settings such "
            "as words=0.5,captions=0,attribute=lighting,values=day/night,size=s,pairs=8000,seed=3; repeatable.",
        ),
    ] = None,
) -> None:
    """Train the world's models from seeds: all where none is named, which takes hours on two cores.

    Most of that is diffusion's; each of the others takes less than an hour.
    """
    with needed_by("c2b world train"):
        from c2b_ray.world.associations import Associations, read_links
        from c2b_ray.world.train import train as train_models

    associations = Associations(*read_links(links)) if links else None
    train_models(names or (), out, seed, associations=associations, skews=skew or ())


@app.command("clip-data")
def clip_data(
    out: Annotated[Path, typer.Option(help="The directory to write: table.parquet and texts.txt.")],
    n: Annotated[int, typer.Option("-n", min=20, help="How many scenes.")] = 5000,
    seed: Annotated[int, typer.Option(min=0)] = 1000,
    groups: Annotated[
        str, typer.Option(help="The attribute whose values are the groups, of equal size: ATTRIBUTE=VALUE/VALUE/…")
    ] = "companion=dog/person",
    captions: Annotated[int, typer.Option(min=1, help="How many captions describe each picture.")] = 1,
    localities: Annotated[
        int, typer.Option(help="So many kinds of scene, each one class in one setting; 0: scenes of every kind.")
    ] = 0,
    planted: Annotated[
        float, typer.Option(help="Share of the last group's captions in the first locality that are mistaken.")
    ] = 0.0,
    balanced: Annotated[
        bool, typer.Option(help="Spread as many mistaken captions over the other groups and localities.")
    ] = True,
) -> None:
    """Render the data of a CLIP-bias audit: pictures, captions, groups, localities, and neutral texts."""
    from c2b_ray.world.clip_zoo.table import TableOptions, write

    attribute, _, values = groups.partition("=")
    write(out, TableOptions(n, seed, attribute, tuple(values.split("/")), captions, localities, planted, balanced))
    print(f"{n} scenes in {out / 'table.parquet'}, neutral texts in {out / 'texts.txt'}")


@app.command("clip-downstream")
def clip_downstream(
    out: Annotated[Path, typer.Option(help="The directory to write: data, a directory a model, clip-bias.yaml.")],
    model: Annotated[
        list[str] | None, typer.Option(help="NAME=SPEC of an encoder; repeatable. By default the shipped zoo's models.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=20, help="How many scenes the models write about.")] = 2000,
    seed: Annotated[int, typer.Option(min=0)] = 2000,
    groups: Annotated[str, typer.Option(help="As of clip-data.")] = "companion=dog/person",
    captions: Annotated[int, typer.Option(min=1, help="How many reference captions a picture has.")] = 3,
    also: Annotated[list[str] | None, typer.Option(help="A further attribute to audit by; repeatable.")] = None,
) -> None:
    """Train a captioner and answerer on each CLIP, over one frozen language model, and write what they say."""
    with needed_by("c2b world clip-downstream"):
        from c2b_ray.world.clip_zoo.downstream import Plan, run
    from c2b_ray.world.clip_zoo.members import MEMBERS
    from c2b_ray.world.clip_zoo.table import TableOptions
    from c2b_ray.world.zoo import WEIGHTS

    attribute, _, values = groups.partition("=")
    options = TableOptions(n, seed, attribute, tuple(values.split("/")), captions)
    specs = dict(_named(text) for text in model or ()) or {name: f"world:{name}" for name in MEMBERS}
    run(out, Plan(specs, WEIGHTS / "lm", options, also=tuple(also or ())))
    print(f"{len(specs)} models in {out}; audit them: c2b clip-bias {out / 'clip-bias.yaml'}")


def _named(text: str) -> tuple[str, str]:
    """`NAME=SPEC`; a spec alone is named by what follows its scheme."""
    name, equals, spec = text.partition("=")
    if equals and ":" not in name:
        return name, spec
    return text.partition(":")[2].replace("/", "-"), text
