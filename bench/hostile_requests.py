"""Sends hostile requests to the endpoint over HTTP: counts those that come through, and its server errors.

    PYTHONPATH=.:bench:tests/support python bench/hostile_requests.py [--show]

An attacker with a valid key of one tenant tries what `hostile_cases` and `hostile_sessions` list: requests by the
server to inner addresses, paths out of the tenant's folder, bombs, pickles, another tenant's objects, replays,
injections. An attack comes through where the endpoint accepts a request that it must refuse, where an answer holds a
secret, where the trap on this machine gets a request, or where the victim's objects change. Target: 0 attacks through,
0 answers of 5xx. Honest requests of the same forms come first; of these, the refused ones count.
"""

from __future__ import annotations

import argparse
import csv
import io
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
from hostile_cases import Attack, bombs, honest, pickles, server_side_requests, traversals
from hostile_sessions import crossings, injections, raw_requests, replays
from hostile_site import SECRET, Site, site

from c2b_ray.endpoint.ledger import jobs, tables, tenants, uploads, webhooks
from c2b_ray.endpoint.work.child import prepared
from c2b_ray.errors import InputError

FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Tally:
    """Counts `sent`, `through` and `errors` by kind of attack."""

    def __init__(self, show: bool) -> None:
        self.sent: Counter[str] = Counter()
        self.through: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._show = show

    def note(self, kind: str, what: str, through: bool, error: bool) -> None:
        self.sent[kind] += 1
        self.through[kind] += through
        self.errors[kind] += error
        if through or error or self._show:
            word = "through" if through else "server error" if error else "refused"
            sys.stdout.write(f"{word}: {kind}: {what[:300]}\n")


def leaks(answer: httpx.Response) -> bool:
    return SECRET in answer.text or "root:x:0" in answer.text or "x-injected" in answer.headers


def ask(client: httpx.Client, made: Site, attack: Attack, tally: Tally) -> None:
    headers = {name: value.encode("utf-8", "surrogatepass") for name, value in attack.headers.items()}
    if attack.key is not None:
        headers["Authorization"] = f"Bearer {made.keys[attack.key]}".encode()
    what = f"{attack.method} {attack.path} {attack.json if attack.json is not None else (attack.content or b'')[:60]!r}"
    try:
        answer = client.request(attack.method, made.url + attack.path, headers=headers, content=_body(attack, headers))
    except (httpx.InvalidURL, httpx.LocalProtocolError, ValueError) as error:  # no client library sends it
        tally.note(attack.kind, f"{what}: not sent, {error}", False, False)
        return
    except httpx.TransportError as error:  # the server hung up
        tally.note(attack.kind, f"{what}: {error!r}", False, not _lives(made))
        return
    what = f"{what} -> {answer.status_code} {answer.text[:200]}"
    taken = answer.status_code < 400
    # An honest request fails where it is refused.
    through = not taken if attack.kind == "honest" else taken or leaks(answer)
    tally.note(attack.kind, what, through, answer.is_server_error)


def _body(attack: Attack, headers: dict[str, bytes]) -> bytes | None:
    if attack.json is None:
        return attack.content
    import json

    headers.setdefault("Content-Type", b"application/json")
    return json.dumps(attack.json).encode()


def _lives(made: Site) -> bool:
    return httpx.get(f"{made.url}/healthz").is_success


def ask_raw(made: Site, name: str, data: bytes, tally: Tally) -> None:
    """Sends these bytes and notes the status lines of the answer; there are none where the server hangs up."""
    host, _, port = made.url.removeprefix("http://").partition(":")
    answer = b""
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(data)
            while part := connection.recv(65_536):
                answer += part
    except OSError:
        pass  # the server waits for more of the body, or hung up while we sent it
    lines = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    statuses = [int(line[9:12]) for line in lines if line[9:12].isdigit()]
    home = b"\r\nlocation: /ui/\r\n" in answer.lower()  # the redirect to the pages, which names no host
    through = any(200 <= status < (300 if home else 400) for status in statuses) or SECRET.encode() in answer
    through |= b"\r\nx-injected" in answer.lower()
    error = any(status >= 500 for status in statuses) or not _lives(made)
    tally.note("raw bytes", f"{name} -> {statuses}", through, error)


def formulas(client: httpx.Client, made: Site, tally: Tally) -> None:
    """Looks for spreadsheet formulas in every CSV of a run whose classes and values are formulas."""
    base = f"{made.url}/v1/audits/{made.attacker['formulas']}"
    headers = {"Authorization": f"Bearer {made.keys['a']}"}
    listed = client.get(f"{base}/tables", headers=headers).raise_for_status().json()
    paths = [f"/tables/{item['name']}?format=csv" for item in listed["items"]]
    paths += [f"/exports/{form}" for form in listed["exports"] if "csv" in form]
    for path in paths:
        answer = client.get(base + path, headers=headers)
        cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
        acting = [cell for cell in cells if cell.startswith(FORMULA) and not _is_number(cell)]
        tally.note("CSV formula", f"{path}: {len(cells)} cells, {acting[:3]}", bool(acting), answer.is_server_error)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def contents(made: Site, tally: Tally) -> None:
    """Tries files of a tenant that name other files; the job's own process must refuse them."""
    root = made.root("a")
    names = ("/etc/passwd", "../../b/data/secret.csv", "https://169.254.169.254/a.png", "file:///etc/passwd", "~/x.png")
    for number, name in enumerate(names):
        table = root / "data" / f"hostile-{number}.csv"
        table.write_text(f"image,target_class\n{name},bus\n")
        config = {"task": "t", "classes": ["bus"], "classifier": "world:clip"}
        resolved = {**config, "images": {"source": "labelled", "table": str(table)}}
        tally.note("file in a file", name, not _is_refused(resolved, root), False)
    for path in ("/etc/passwd", str(made.root("b") / "data" / "secret.csv"), f"{root}/data/out/secret.csv"):
        resolved = {**config, "images": {"source": "labelled", "table": path}}
        tally.note("file in a file", path, not _is_refused(resolved, root), False)


def _is_refused(resolved: dict[str, object], root: Path) -> bool:
    try:
        prepared("c2b", resolved, str(root))
    except InputError:
        return True
    return False


def victims_state(made: Site) -> list[object]:
    """Returns what the other tenant owns, except for what its own requests change."""
    db, tenant = made.endpoint.db, made.endpoint.tenants["b"]
    page = jobs.page(db, tenant, tables.Filters(None, None, None), None, 100)
    states = [(job.id, job.state, job.cancel_requested, job.deleted) for job in page.items]
    hooks = [hook.id for hook in webhooks.listed(db, tenant)]
    known = [(key.id, key.revoked) for key in tenants.list_keys(db, tenant)]
    return [states, uploads.page(db, tenant)[0], hooks, known, sorted(made.root("b").rglob("*"))]


def attacks(made: Site) -> Iterator[Attack]:
    yield from server_side_requests(made)
    yield from traversals(made)
    yield from pickles()
    yield from bombs()
    yield from crossings(made)
    yield from replays(made)
    yield from injections(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print each request and its answer")
    tally = Tally(parser.parse_args().show)
    with tempfile.TemporaryDirectory() as folder, site(Path(folder)) as made, httpx.Client(timeout=60) as client:
        for request in honest(made):
            ask(client, made, request, tally)
        before, around = victims_state(made), sorted(path.name for path in Path(folder).iterdir())
        for attack in attacks(made):
            ask(client, made, attack, tally)
        for name, data in raw_requests(made):
            ask_raw(made, name, data, tally)
        formulas(client, made, tally)
        contents(made, tally)
        tally.note("afterwards", f"the trap was asked {made.asked[:3]}", bool(made.asked), False)
        tally.note("afterwards", "the victim's things", victims_state(made) != before, False)
        tally.note("afterwards", "files", around != sorted(path.name for path in Path(folder).iterdir()), False)
        left = list((made.root("a") / "uploads" / ".incoming").iterdir())
        tally.note("afterwards", f"left of uploads: {left}", bool(left), False)
    for kind, count in tally.sent.items():
        through, errors = tally.through[kind], tally.errors[kind]
        sys.stdout.write(f"{kind:22} {count:4} sent, {through} through, {errors} server errors\n")
    sent, through, errors = (sum(counter.values()) for counter in (tally.sent, tally.through, tally.errors))
    sys.stdout.write(f"all                    {sent:4} sent, {through} through, {errors} server errors\n")
    sys.exit(1 if through or errors else 0)


if __name__ == "__main__":
    main()
