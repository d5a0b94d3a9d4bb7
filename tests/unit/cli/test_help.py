"""Every command's help ends with an example that the command takes, and `c2b --help` groups the commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from c2b_ray.cli.commands import PANELS, app

GROUP = typer.main.get_command(app)


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, (*words, name))
    if not getattr(command, "commands", None):
        yield " ".join(words), command


LEAVES = dict(leaves(GROUP))


@pytest.mark.parametrize("words", LEAVES)
def test_the_example_of_a_command_is_one_that_it_takes(words: str) -> None:
    command = LEAVES[words]
    shown = f"Example: c2b {words.removesuffix(' run')} "
    assert command.epilog, f"c2b {words} has no example in cli/commands.py"
    assert command.epilog.startswith(shown)
    # Parses the arguments, as a call does, and runs nothing; what is missing or unknown is an error.
    command.make_context(words, shlex.split(command.epilog.removeprefix(shown)))


def test_every_command_is_in_a_panel_and_every_panel_has_its_commands() -> None:
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted(GROUP.commands)  # type: ignore[attr-defined]


def test_the_help_of_all_commands_is_grouped(c2b) -> None:
    status, out, _ = c2b("--help")
    assert status == 0
    places = [out.index(f"─ {panel} ") for panel in PANELS]
    assert places == sorted(places)


@pytest.mark.parametrize("group", ["failures", "prompts"])
def test_the_help_of_a_group_with_a_default_command_shows_its_options(c2b, group: str) -> None:
    out = c2b(group, "--help")[1]
    assert "--placement" in out
    assert "--estimate" in out
    assert "Commands" in out
    assert f"Example: c2b {group} {group}.yaml" in out


@pytest.mark.parametrize("option", ["--estimate", "--dry-run"])
def test_an_estimate_is_asked_for_by_one_name_and_its_earlier_one(c2b, tmp_path, option: str) -> None:
    for command in (("audit",), ("failures",), ("dataset", "build")):
        status, _, error = c2b(*command, tmp_path / "absent.yaml", option)
        assert status == 2
        assert "absent.yaml" in error
