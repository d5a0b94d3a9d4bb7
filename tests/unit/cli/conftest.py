"""The command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from c2b_ray import cli


@pytest.fixture
def c2b(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `c2b ARGUMENTS` as its entry point does; its exit status, what it printed, what it complained of."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["c2b", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            cli.main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run
