"""More requests of `hostile_requests`: another tenant's objects, keys that should not work, replays, injections."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from hostile_cases import Attack, submitted
from hostile_site import CONFIG, FORMULAS, Site

KEYS = ("expired", "revoked")


def crossings(site: Site) -> Iterator[Attack]:
    """Returns requests for another tenant's objects, by id, on every route, and requests of operators alone."""
    kind, other, mine = "tenant crossing", site.victim, site.attacker
    for job in (other["job"], other["ended"]):
        for path in (
            "",
            "/events",
            "/tables",
            "/tables/predictions",
            "/images/x",
            "/report",
            "/exports/csv",
            "/answer",
        ):
            yield Attack(kind, "GET", f"/v1/audits/{job}{path}")
        yield Attack(kind, "DELETE", f"/v1/audits/{job}")
        yield Attack(kind, "DELETE", f"/v1/audits/{job}?purge=true")
        yield Attack(kind, "POST", f"/v1/audits/{job}/gate", json={"fail_on": ["against"]})
        yield Attack(kind, "POST", f"/v1/audits/{job}/questions", json={"sentence": "a bus"})
        yield Attack(kind, "GET", f"/v1/comparisons?a={mine['formulas']}&b={job}")
        yield Attack(kind, "GET", f"/v1/comparisons?a={job}")
        yield submitted(kind, {"run": f"run:{job}", "sentence": "a bus"}, "question")
    for method in ("GET", "DELETE"):
        yield Attack(kind, method, f"/v1/uploads/{other['upload']}")
    yield Attack(kind, "DELETE", f"/v1/webhooks/{other['webhook']}")
    yield submitted(kind, {**CONFIG, "classifier": f"timm:resnet18?weights=upload:{other['upload']}"})
    yield Attack(kind, "GET", f"/v1/audits?limit=1&cursor={quote(other['cursor'])}")
    for who in ("a", "admin"):
        yield Attack(kind, "DELETE", f"/v1/admin/keys/{other['key']}", key=who)
        yield Attack(kind, "POST", f"/v1/admin/keys/{other['key']}/rotate", json={}, key=who)
        body = {"name": "mine", "scopes": ["admin"], "tenant_id": other["tenant"]}
        yield Attack(kind, "POST", "/v1/admin/keys", json=body, key=who)
        yield Attack(kind, "POST", "/v1/admin/tenants", json={"name": "evil", "weight": 1000}, key=who)
    for path in ("keys", "tenants", "usage", "audit-log"):
        yield Attack(kind, "GET", f"/v1/admin/{path}", key="reader")
    yield Attack(kind, "POST", "/v1/audits", json={"kind": "c2b", "config": CONFIG}, key="reader")
    yield Attack(kind, "GET", "/v1/audits", key="submitter")


def replays(site: Site) -> Iterator[Attack]:
    """Returns requests with expired, revoked and guessed keys, a used idempotency key, and old cursors."""
    kind, good = "replay", site.keys["a"]
    for who in KEYS:
        for path in ("/v1/audits", "/v1/uploads", "/v1/quotas", f"/v1/audits/{site.attacker['job']}"):
            yield Attack(kind, "GET", path, key=who)
        yield Attack(kind, "POST", "/v1/audits", json={"kind": "c2b", "config": CONFIG}, key=who)
    wrong = [
        good[:-1],
        good + "x",
        good.upper(),
        good[:13],
        f"{good[:13]}{'a' * 32}",
        "c2b_" + "a" * 8 + "_",
        "' OR 1=1 --",
    ]
    wrong += ["null", "undefined", "a" * 100_00, "é" * 40, f"{good} {good}", f"{good},{good}"]
    headers = [f"Bearer {text}" for text in wrong] + [
        f"Basic {good}",
        good,
        "Bearer",
        f"bearer\t{good}",
        f"Token {good}",
    ]
    for header in headers:
        yield Attack(kind, "GET", "/v1/audits", headers={"Authorization": header}, key=None)
    yield Attack(kind, "GET", f"/v1/audits?key={good}&access_token={good}", key=None)
    yield Attack(kind, "GET", "/v1/audits", headers={"Cookie": f"key={good}; session={good}"}, key=None)
    first = {"kind": "c2b", "config": CONFIG, "name": "once"}
    site.endpoint.as_("a").post("/v1/audits", json=first, headers={"Idempotency-Key": "k1"})
    for changed in ({**first, "name": "twice"}, {**first, "config": {**CONFIG, "seed": 1}}):
        yield Attack(kind, "POST", "/v1/audits", json=changed, headers={"Idempotency-Key": "k1"})
    for text in ("x" * 5000, "a b", "\x01"):
        yield Attack(kind, "POST", "/v1/audits", json=first, headers={"Idempotency-Key": text})
    cursor = site.attacker["cursor"]
    for changed in (cursor[:-2], cursor[::-1], cursor + "A", cursor.swapcase(), "eyJhIjoxfQ", "' OR 1=1"):
        yield Attack(kind, "GET", f"/v1/audits?limit=1&cursor={quote(changed)}")
    yield Attack(kind, "GET", f"/v1/uploads?cursor={quote(cursor)}")
    for last in ("-1", "x", "9" * 30, "1 OR 1=1"):
        yield Attack(kind, "GET", f"/v1/audits/{site.attacker['ended']}/events", headers={"Last-Event-ID": last})


def injections(site: Site) -> Iterator[Attack]:
    """Returns requests with control characters and formulas in names, headers and fields."""
    kind, bad = "injection", ("a\r\nX-Injected: 1", "a\nb", "a\0b", "\x1b[2J", "\u2028x", "\ud800")
    for text in bad:
        if text != "\u2028x":
            yield submitted(kind, {**CONFIG, "task": text.replace("\n", "\r")})
            yield Attack(kind, "POST", "/v1/audits", json={"kind": "c2b", "name": text, "config": CONFIG})
            yield submitted(kind, {**CONFIG, "classes": [text.replace("\n", "\r"), "boat"]})
        yield Attack(kind, "POST", "/v1/webhooks", json={"url": f"https://hooks.example.org/c2b/{text}"})
        encoded = quote(text, errors="surrogatepass")
        yield Attack(
            kind, "POST", "/v1/uploads", headers={"X-Upload-Kind": "image", "X-Upload-Name": encoded}, content=b"x"
        )
        yield Attack(kind, "GET", f"/v1/audits/{encoded}")
        yield Attack(kind, "GET", f"/v1/audits/{site.attacker['formulas']}/exports/{encoded}")
    for field in ("kind", "job_id", "tenant_id", "state", "resolved", "run_path"):
        yield Attack(kind, "POST", "/v1/audits", json={"kind": "c2b", "config": CONFIG, field: "evil"} | {"x": 1})
        yield submitted(kind, {**CONFIG, field: "evil"})
    for text in ("' OR 1=1 --", "'; DROP TABLE jobs; --", "${jndi:ldap://x}", "{{7*7}}", "<script>alert(1)</script>"):
        yield Attack(kind, "GET", f"/v1/audits/{quote(text)}")
        yield Attack(kind, "GET", f"/v1/audits?kind={quote(text)}")
        yield submitted(kind, {**CONFIG, "classifier": f"world:{text}"})
    for text in FORMULAS:
        yield submitted(kind, {**CONFIG, "classifier": text})


def raw_requests(site: Site) -> Iterator[tuple[str, bytes]]:
    """Returns bytes that no client library sends: two lengths or hosts, folded headers, unknown methods."""
    authorization = f"Authorization: Bearer {site.keys['a']}\r\n".encode()
    smuggled = b"GET /v1/admin/keys HTTP/1.1\r\nHost: x\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    start = b"POST /v1/audits HTTP/1.1\r\nHost: x\r\n" + authorization
    yield "two lengths", start + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}abc"
    yield "length and chunks", start + b"Content-Length: 5\r\n" + chunked + b"\r\n0\r\n\r\n" + smuggled
    yield "odd chunks", start + chunked + b"\r\nFFFFFFFFFFFFFFFFF\r\n"
    yield "xchunked", start + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    yield "negative length", start + b"Content-Length: -1\r\n\r\n"
    yield "huge length", start + b"Content-Length: 99999999999999999999\r\n\r\n"
    yield "folded header", b"GET /v1/audits HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\nAuthorization:\r\n Bearer x\r\n\r\n"
    yield "no host", b"GET /v1/audits HTTP/1.1\r\n\r\n"
    yield "bare line feeds", b"GET /v1/audits HTTP/1.1\nHost: x\nX-Injected: 1\n\n"
    yield "odd method", b"G\x00T /v1/audits HTTP/1.1\r\nHost: x\r\n\r\n"
    yield "odd version", b"GET /v1/audits HTTP/9.9\r\nHost: x\r\n\r\n"
    yield "long line", b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    yield "many headers", b"GET /v1/audits HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"
    yield "absolute target", f"GET http://{site.trap}/ HTTP/1.1\r\nHost: {site.trap}\r\n\r\n".encode()
    yield "connect", f"CONNECT {site.trap} HTTP/1.1\r\nHost: {site.trap}\r\n\r\n".encode()
    yield "trace", b"TRACE /v1/audits HTTP/1.1\r\nHost: x\r\n" + authorization + b"\r\n"
    job = site.attacker["formulas"]
    for path in (f"/v1/audits/{job}/tables/../../../../etc/passwd", "/v1/../../etc/passwd", "//etc/passwd", "\\..\\x"):
        yield "dots", f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode() + authorization + b"Connection: close\r\n\r\n"
    yield "request id", b"GET /v1/audits HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\rX-Injected: 1\r\n\r\n"
