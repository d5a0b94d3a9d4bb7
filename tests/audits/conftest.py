"""Whole audits and searches in this process, without Ray.

There must be no __init__.py here or in tests/: with one, `import ray` could find the folder tests/ray.
"""

import sys
from collections.abc import Callable

import pytest

from c2b_ray import cli


@pytest.fixture
def c2b(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `c2b ARGUMENTS`; returns its exit status, what it printed, and what it complained of."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["c2b", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            cli.main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run
