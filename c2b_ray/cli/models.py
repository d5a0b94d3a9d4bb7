"""Commands about models: `c2b models` (the schemes of specs, and what is read from where), `serve` and `index`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.progress import Placement, session
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.report import words
from c2b_ray.storage.folders import counts_in_words
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.models.spec_options import SchemeOptions


def models(
    scheme: Annotated[
        str | None,
        typer.Argument(metavar="[SCHEME]", help="A scheme such as onnx: what is read from where, its options."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the schemes of model specs by role, and the world's models; or what is read from where for one scheme."""
    from c2b_ray.models.catalog import schemes
    from c2b_ray.world.zoo import names

    schemes_of_role = schemes()
    if scheme is not None:
        _print_scheme(scheme.partition(":")[0], schemes_of_role, as_json)
        return
    world = [f"world:{name}" for name in names()]
    if as_json:
        show.print_json({"schemes": schemes_of_role, "world": world})
        return
    width = max(map(len, schemes_of_role)) + 2
    for role, names_of_role in schemes_of_role.items():
        print(f"{role:<{width}}{', '.join(f'{name}:…' for name in names_of_role)}")
    print("\n".join(["", "the embedded world:", *(f"  {name}" for name in world)]))
    print("\nc2b models SCHEME, such as c2b models onnx, says what is read from where.")


def _print_scheme(scheme: str, schemes_of_role: dict[str, list[str]], as_json: bool) -> None:
    from c2b_ray.models.spec_options import SCHEMES

    roles = [role for role, names in schemes_of_role.items() if scheme in names]
    if not roles:
        all_schemes = {name for names in schemes_of_role.values() for name in names}
        raise ConfigError("SCHEME", f"no role has the scheme {scheme!r}; {nearest(scheme, all_schemes)}")
    tables = {role: SCHEMES.get((role, scheme)) for role in roles}
    if as_json:
        show.print_json({role: None if table is None else asdict(table) for role, table in tables.items()})
        return
    for role, table in tables.items():
        show.line(f"{role} {scheme}:…")
        if table is None:
            show.line("  nothing more is listed; an unknown option is refused, with those that are known")
        else:
            _print_options(table)
        show.line("")


def _print_options(table: SchemeOptions) -> None:
    if table.reads:
        show.line("  what is read from where, in this order:")
        width = max(len(setting) for setting, _, _ in table.reads) + 2
        for setting, order, otherwise in table.reads:
            show.line(f"    {setting:<{width}}{order}; if nothing states it: {otherwise}")
    if table.options:
        show.line("  options:")
        width = max(map(len, table.options)) + 3
        for name, meaning in table.options.items():
            show.line(f"    {name + '=':<{width}}{meaning}")
    for refused in table.refuses:
        show.line(f"  refused: {refused}")


# `c2b serve`: serves the models of a Serve config until interrupted.


def serve(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.yaml]", help="A Serve config. Default: that of a laptop.")
    ] = None,
) -> None:
    """Start Ray Serve with the deployments of a config file and wait; Ctrl-C drains and stops it."""
    from c2b_ray.engine.cluster import SETTINGS
    from c2b_ray.serving.app import LAPTOP

    path = config or LAPTOP
    if not path.is_file():
        raise SourceError(f"{path}: no such Serve config; deployments/ has examples")
    # Ray's command joins a running cluster or starts one, and drains on Ctrl-C, which it also receives.
    command = [sys.executable, "-m", "ray.serve.scripts", "run", str(path)]
    process = subprocess.Popen(command, env={**SETTINGS, **os.environ})  # noqa: S603 — no shell, and the path is the user's
    stopped: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if number == signal.SIGTERM:
            process.send_signal(signal.SIGINT)

    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # after the start, so that the command does not inherit these handlers
        signal.signal(number, pass_on)
    status = process.wait()
    if signal.SIGTERM in stopped:
        raise typer.Exit(128 + signal.SIGTERM)
    if status and not stopped:
        raise typer.Exit(1)


# `c2b index build`, `c2b index import` and `c2b index search`.


index_app = typer.Typer(help="Indices of images, searched by caption.", no_args_is_help=True)

Encoder = Annotated[str, typer.Option(help="The encoder's spec, such as open_clip:ViT-B-32/laion2b_s34b_b79k.")]
Out = Annotated[str, typer.Option(help="The index directory to write.")]
Kind = Annotated[str | None, typer.Option(help="flat, hnsw or ivfpq. Default: chosen by size and memory.")]
Memory = Annotated[str, typer.Option(help="The most memory of a searching process, such as 4GiB.")]
Shards = Annotated[int | None, typer.Option(help="Files that are searched in parallel. Default: chosen by size.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@index_app.command()
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
        summary = build_index(images, encoder, out, session(via, placement, bar), _index_wishes(kind, memory, shards))
    _print_index(summary, f"{out}/errors.parquet", as_json)


@index_app.command("import")
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

    wish = _index_wishes(kind, memory, shards)
    with progress.shown() as bar:
        summary = import_folder(
            folder, encoder, out, images, moved_from=moved_from, skip_bad=skip_bad, listener=bar, wish=wish
        )
    _print_index(summary, "zero or not a number", as_json)


@index_app.command()
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


def _index_wishes(kind: str | None, memory: str, shards: int | None) -> Any:
    from c2b_ray.models.index import plan as faiss_plan

    return faiss_plan.IndexWishes(kind, faiss_plan.memory(memory), shards)


def _print_index(summary: dict[str, Any], errors: str, as_json: bool) -> None:
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
