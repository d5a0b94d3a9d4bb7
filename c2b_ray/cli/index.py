"""`c2b index build`, `c2b index import` and `c2b index search`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.progress import Placement, session
from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.storage.folders import counts_in_words
from c2b_ray.text import visible

app = typer.Typer(help="Indices of images, searched by caption.", no_args_is_help=True)

Encoder = Annotated[str, typer.Option(help="The encoder's spec, such as open_clip:ViT-B-32/laion2b_s34b_b79k.")]
Out = Annotated[str, typer.Option(help="The index directory to write.")]
Kind = Annotated[str | None, typer.Option(help="flat, hnsw or ivfpq. Default: chosen by size and memory.")]
Memory = Annotated[str, typer.Option(help="The most memory of a searching process, such as 4GiB.")]
Shards = Annotated[int | None, typer.Option(help="Files that are searched in parallel. Default: chosen by size.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def build(
    images: Annotated[
        str,
        typer.Option(help="A folder of images, a Parquet table, WebDataset shards, or clip-retrieval's embeddings."),
    ],
    encoder: Encoder,
    out: Out,
    via: Annotated[str, typer.Option(help="Where the encoder runs: auto, here, actors or serve.")] = "auto",
    placement: Placement = None,
    kind: Kind = None,
    memory: Memory = "4GiB",
    shards: Shards = None,
    as_json: AsJson = False,
) -> None:
    """Embed images and build an index of them; if interrupted, run it again to resume."""
    from c2b_ray.audits.index import build as build_index

    with progress.shown() as bar:
        summary = build_index(images, encoder, out, session(via, placement, bar), _wish(kind, memory, shards))
    _tell(summary, f"{out}/errors.parquet", as_json)


@app.command("import")
def import_(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="clip-retrieval's output: img_emb/ and metadata/.")],
    encoder: Encoder,
    out: Out,
    images: Annotated[
        str | None, typer.Option(help="The directory of the images or WebDataset shards. Default: DIR.")
    ] = None,
    moved_from: Annotated[
        str | None, typer.Option(help="The former beginning of the paths in the metadata, if the images were moved.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Omit rows that are zero or not a number.")] = False,
    kind: Kind = None,
    memory: Memory = "4GiB",
    shards: Shards = None,
    as_json: AsJson = False,
) -> None:
    """Build an index from existing embeddings; its images stay where they are."""
    from c2b_ray.audits.index import import_folder

    wish = _wish(kind, memory, shards)
    with progress.shown() as bar:
        summary = import_folder(
            folder, encoder, out, images, moved_from=moved_from, skip_bad=skip_bad, listener=bar, wish=wish
        )
    _tell(summary, "zero or not a number", as_json)


@app.command()
def search(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="An index directory.")],
    caption: Annotated[
        str | None, typer.Argument(metavar="[CAPTION]", help="A description of the images to find.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="The number of images.")] = 20,
    captions: Annotated[
        str | None, typer.Option(help="Many captions: a .txt file with one per line, or a .parquet file.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="The directory for the answers to many captions.")] = None,
    via: Annotated[str, typer.Option(help="Where many captions are searched: auto, here, actors or serve.")] = "auto",
    placement: Placement = None,
    as_json: AsJson = False,
) -> None:
    """Find the images nearest to a caption, or to each of many; if interrupted, run it again to resume."""
    from c2b_ray.audits.index import search_many, search_one

    if (caption is None) == (captions is None):
        raise ConfigError("captions", "name one caption, or a file of them with --captions")
    if caption is not None:
        _print_hits(search_one(index, caption, k), as_json)
        return
    assert captions is not None
    if out is None:
        raise ConfigError("out", "answers to many captions need a directory: --out DIR")
    with progress.shown() as bar:
        result = search_many(index, captions, out, k, session(via, placement, bar))
    if as_json:
        show.print_json({"out": out, **asdict(result)})
    else:
        resumed_note = f", {words.count(result.resumed)} from before" if result.resumed else ""
        bad = f", {words.count(result.errors)} without an answer" if result.errors else ""
        show.line(f"{words.plural(result.rows, 'caption')} answered in {out}{resumed_note}{bad}")


def _wish(kind: str | None, memory: str, shards: int | None) -> Any:
    from c2b_ray.models.index import plan as faiss_plan

    return faiss_plan.IndexWishes(kind, faiss_plan.memory(memory), shards)


def _tell(summary: dict[str, Any], errors: str, as_json: bool) -> None:
    if as_json:
        show.print_json(summary)
        return
    bad = f", {words.count(summary['errors'])} could not be used ({errors})" if summary["errors"] else ""
    omitted_note = f"; left out: {counts_in_words(summary['left_out'])}" if summary.get("left_out") else ""
    show.line(f"{words.plural(summary['images'], 'image')} indexed in {summary['index']}{bad}{omitted_note}")


def _print_hits(hits: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show.print_json(hits)
        return
    for hit in hits:
        print(f"{hit['rank']:>4}  {hit['similarity']:.3f}  {visible(hit['key'])}")
