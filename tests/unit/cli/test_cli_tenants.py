"""`c2b tenants`, on an endpoint in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

C2b = Callable[..., tuple[int, str, str]]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, c2b: C2b) -> Callable[[], dict[str, dict]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("C2B_DATABASE_URL", raising=False)
    return lambda: {row["name"]: row for row in json.loads(c2b("tenants", "list", "--json")[1])}


def test_what_is_not_named_stays_and_a_default_comes_back(c2b: C2b, listed: Callable[[], dict[str, dict]]) -> None:
    assert c2b("tenants", "set", "acme", "--weight", 3, "--quota", "concurrent_jobs=5")[0] == 0
    assert c2b("tenants", "set", "acme", "--quota", "model_seconds_per_day={'*': 60}")[0] == 0
    acme = listed()["acme"]
    assert (acme["weight"], acme["quotas"]) == (3.0, {"concurrent_jobs": 5, "model_seconds_per_day": {"*": 60}})
    assert c2b("tenants", "set", "acme", "--weight", 1, "--quota", "concurrent_jobs=")[0] == 0
    assert (listed()["acme"]["weight"], set(listed()["acme"]["quotas"])) == (1.0, {"model_seconds_per_day"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--quota", "concurrent_job=5"), "concurrent_jobs"),
        (("--quota", "concurrent_jobs=many"), "concurrent_jobs"),
        (("--quota", "concurrent_jobs"), "FIELD=VALUE"),
        (("--quota", "burst=[1"), "YAML"),
        (("--weight", "0"), "weight"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    c2b: C2b, listed: Callable[[], dict[str, dict]], arguments: tuple[str, ...], said: str
) -> None:
    c2b("tenants", "set", "acme", "--quota", "burst=7")
    status, _, complaint = c2b("tenants", "set", "acme", *arguments)
    assert status == 2
    assert said in complaint
    assert (listed()["acme"]["weight"], listed()["acme"]["quotas"]) == (1.0, {"burst": 7})
