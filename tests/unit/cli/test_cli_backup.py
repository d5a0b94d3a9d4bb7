"""`c2b backup`, `c2b restore` and `c2b endpoint purge`, on an endpoint in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

C2b = Callable[..., tuple[int, str, str]]


def names(c2b: C2b, *options: str) -> list[str]:
    return [row["tenant"] for row in json.loads(c2b("keys", "list", "--json", *options)[1])]


def test_a_tenant_is_purged_and_comes_back_from_a_copy(
    c2b: C2b, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("C2B_DATABASE_URL", raising=False)
    (tmp_path / "other.yaml").write_text("folder: other\n")
    for name in ("acme", "kept"):
        c2b("keys", "create", "--tenant", name, "--name", "ci")
    assert c2b("backup", "copy")[0] == 0
    assert c2b("endpoint", "purge", "--tenant", "acme")[0] == 2
    assert names(c2b) == ["acme", "kept"]
    assert c2b("endpoint", "purge", "--tenant", "acme", "--yes")[0] == 0
    assert names(c2b) == ["kept"]
    assert c2b("endpoint", "purge")[0] == 0
    assert c2b("restore", "copy")[0] == 2  # the ledger has rows
    assert c2b("restore", "copy", "--config", "other.yaml")[0] == 0
    assert names(c2b, "--config", "other.yaml") == ["acme", "kept"]
    assert c2b("audit-log", "verify", "--config", "other.yaml")[0] == 0
