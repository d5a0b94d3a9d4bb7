"""`c2b keys` and `c2b audit-log`, on an endpoint in a folder."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.text import without_credentials

C2b = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("C2B_DATABASE_URL", raising=False)
    return tmp_path / "c2b-endpoint"


def verified(folder: Path, text: str) -> tenants.Key | None:
    db = Database(f"sqlite:///{folder / 'ledger.db'}")
    try:
        return tenants.verify_key(db, text)
    finally:
        db.close()


def test_a_key_is_printed_once_and_alone_and_works(c2b: C2b, folder: Path) -> None:
    status, text, _ = c2b("keys", "create", "--tenant", "acme", "--name", "ci", "--scopes", "read", "--expires", "90d")
    assert status == 0
    key = verified(folder, text.strip())
    assert key is not None
    assert (key.name, key.scopes) == ("ci", ("read",))
    assert key.expires == pytest.approx(key.created + 90 * 86_400, abs=1)
    _, listed, _ = c2b("keys", "list", "--json")
    assert [row["tenant"] for row in json.loads(listed)] == ["acme"]
    secret = text.strip().rpartition("_")[2]
    assert secret not in listed + c2b("keys", "list")[1] + c2b("audit-log", "show")[1]
    assert secret.encode() not in b"".join(path.read_bytes() for path in folder.iterdir())
    assert secret not in without_credentials(f"GET /v1/audits with {text}")
    assert stat.S_IMODE((folder / "ledger.db").stat().st_mode) == 0o600


def test_a_key_is_revoked_by_what_it_begins_with_and_rotated_by_its_id(c2b: C2b, folder: Path) -> None:
    text = c2b("keys", "create", "--tenant", "acme")[1].strip()
    new = json.loads(c2b("keys", "rotate", "--grace", "0s", "--json", text[: len("c2b_XXXXXXXX")])[1])
    assert verified(folder, text) is None
    assert verified(folder, new["text"]) is not None
    status, said, _ = c2b("keys", "revoke", new["id"])
    assert status == 0
    assert "was revoked at" in said
    assert verified(folder, new["text"]) is None
    assert c2b("keys", "rotate", new["id"])[0] == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "--tenant", "Not A Name"), "name: 'Not A Name' is not a valid name of a tenant"),
        (("create", "--tenant", "acme", "--scopes", "root"), "scopes: expected some of submit, read, admin"),
        (("create", "--tenant", "acme", "--expires", "soon"), "expires: 'soon' is not a period such as 90d"),
        (("create", "--tenant", "acme", "--expires", "0d"), "expires_in"),
        (("list",), "there is no ledger"),
        (("revoke", "key_x"), "there is no ledger"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    c2b: C2b, folder: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    status, _, said = c2b("keys", *arguments)
    assert status == 2
    assert complaint in said
    assert not folder.exists()


def test_a_key_of_a_new_ledger_says_so(c2b: C2b, folder: Path) -> None:
    """In a wrong folder, or beside an endpoint that was started with another --folder, the key opens nothing."""
    made = f"made a new ledger, {folder / 'ledger.db'}; an endpoint with another one does not know it"
    assert made in c2b("keys", "create", "--tenant", "acme")[2]
    assert "new ledger" not in c2b("keys", "create", "--tenant", "acme")[2]


def test_the_folder_is_found_from_inside_and_may_be_named(
    c2b: C2b, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `c2b endpoint --folder site`, which has no file."""
    site = folder.with_name("site")
    c2b("keys", "create", "--tenant", "acme")
    folder.rename(site)
    assert "name the endpoint's file or folder with --config" in c2b("keys", "list")[2]
    for arguments in (("--config", str(site)), ("--config", site.name)):
        status, listed, _ = c2b("keys", "list", "--json", *arguments)
        assert (status, [row["tenant"] for row in json.loads(listed)]) == (0, ["acme"])
    monkeypatch.chdir(site)
    assert [row["tenant"] for row in json.loads(c2b("keys", "list", "--json")[1])] == ["acme"]


@pytest.mark.parametrize(("answer", "works"), [("n\n", True), ("y\n", False)])
def test_in_a_terminal_a_key_is_revoked_after_a_question(
    c2b: C2b, folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, works: bool
) -> None:
    text = c2b("keys", "create", "--tenant", "acme", "--name", "ci")[1].strip()
    stdin = io.StringIO(answer)
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", stdin)
    status, shown, said = c2b("keys", "revoke", text[: len("c2b_XXXXXXXX")])
    assert "named ci, never used? No one can use it again" in shown + said
    assert (status == 0) == (not works)
    assert (verified(folder, text) is not None) == works


def test_the_log_says_of_how_many_entries_it_shows_the_latest(c2b: C2b, folder: Path) -> None:
    for name in ("one", "two"):
        c2b("keys", "create", "--tenant", "acme", "--name", name)
    assert "the latest 2 of 3 entries; --limit N" in c2b("audit-log", "show", "--limit", "2")[1]
    assert "the latest" not in c2b("audit-log", "show")[1]


def test_an_unknown_key_or_tenant_is_said(c2b: C2b, folder: Path) -> None:
    c2b("keys", "create", "--tenant", "acme")
    assert "no such key" in c2b("keys", "revoke", "key_x")[2]
    assert "no tenant 'other'" in c2b("keys", "list", "--tenant", "other")[2]


def test_a_log_that_somebody_changed_ends_verify_with_status_1(c2b: C2b, folder: Path) -> None:
    for name in ("one", "two"):
        c2b("keys", "create", "--tenant", "acme", "--name", name)
    head = c2b("audit-log", "head")[1].strip()
    assert head.startswith("3:")
    c2b("keys", "create", "--tenant", "acme", "--name", "three")
    assert c2b("audit-log", "verify", "--head", head)[0] == 0
    status, said, _ = c2b("audit-log", "verify", "--head", f"3:{'0' * 64}")
    assert status == 1
    assert "broken at entry 3" in said
    assert c2b("audit-log", "verify", "--head", "3")[0] == 2
    with sqlite3.connect(folder / "ledger.db") as connection:
        connection.execute("UPDATE audit_log SET actor = 'nobody' WHERE seq = 2")
    connection.close()
    status, said, _ = c2b("audit-log", "verify")
    assert status == 1
    assert "broken at entry 2" in said
