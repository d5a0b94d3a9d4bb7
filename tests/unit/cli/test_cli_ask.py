"""`c2b ask` on what it cannot answer; answers themselves need models (tests/audits/test_cli.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from run_recipes import Recipe
from synthetic_run import make_run

C2B = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a rainy street",), "names no class of the run; name one of bus, boat, umbrella with --class"),
        (("a bus", "--class", "buss"), "did you mean 'bus'"),
        (("a bus", "--classifier", "world:resnet-plantd-3"), "did you mean 'world:resnet-planted-3'"),
        (("a bus", "--index", "nowhere"), "nowhere: no image index"),
        (("",), "ask with a sentence"),
    ],
)
def test_bad_questions_say_what_to_do(c2b: C2B, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    make_run(tmp_path / "run", Recipe(images_per_cell=1, pictures=False))
    status, out, err = c2b("ask", tmp_path / "run", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_a_labelled_run_says_that_it_needs_an_index(c2b: C2B, tmp_path: Path) -> None:
    labelled = {"images": {"source": "labelled", "table": "t.parquet"}}
    make_run(tmp_path / "run", Recipe(images_per_cell=1, pictures=False, config=labelled))
    status, _, err = c2b("ask", tmp_path / "run", "a bus")
    assert status == 2
    assert "--index" in err
    assert "c2b index build" in err
