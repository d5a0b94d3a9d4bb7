"""`c2b index build` and `c2b index search`."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.cli import show

app = typer.Typer(help="Indices of images, searched by caption.", no_args_is_help=True)


@app.command()
def build(
    images: Annotated[str, typer.Option(help="A folder of images, a Parquet table, or WebDataset shards.")],
    encoder: Annotated[str, typer.Option(help="The encoder's spec, such as open_clip:ViT-B-32/laion2b_s34b_b79k.")],
    out: Annotated[str, typer.Option(help="The index directory to make.")],
    via: Annotated[str, typer.Option(help="Where the encoder runs: actors or serve.")] = "actors",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Embed images and build an index of them; interrupted, the same command goes on."""
    from c2b_ray.audits.index import build as build_index

    with show.ProgressBar() as bar:
        summary = build_index(images, encoder, out, via, bar)
    if as_json:
        show.print_json(summary)
    else:
        bad = f", {summary['errors']} could not be used ({out}/errors.parquet)" if summary["errors"] else ""
        show.out().print(f"{summary['images']} images indexed in {out}{bad}", soft_wrap=True)


@app.command()
def search(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="An index directory.")],
    caption: Annotated[str, typer.Argument(metavar="CAPTION", help="What to look for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many images.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """The images nearest to a caption."""
    from c2b_ray.audits.index import search as search_index

    hits = search_index(index, caption, k)
    if as_json:
        show.print_json(hits)
        return
    for hit in hits:
        print(f"{hit['rank']:>4}  {hit['similarity']:.3f}  {hit['key']}")
