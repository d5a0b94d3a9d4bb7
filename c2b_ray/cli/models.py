"""`c2b models`: the schemes of model specs."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.cli import show


def models(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the schemes of model specs by role, and the world's models."""
    from c2b_ray.models.catalog import schemes
    from c2b_ray.world.zoo import names

    world = [f"world:{name}" for name in names()]
    if as_json:
        show.print_json({"schemes": schemes(), "world": world})
        return
    for role, names_of_role in schemes().items():
        print(f"{role:<16}{', '.join(f'{scheme}:…' for scheme in names_of_role)}")
    print("\n".join(["", "the embedded world:", *(f"  {name}" for name in world)]))
