"""Hosts and addresses that a model at a URL may not be at, against servers of this process."""

import gzip
import ipaddress
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest
from http_service import serving_over_http

from c2b_ray.errors import AddressError
from c2b_ray.models import catalog
from c2b_ray.models.url_guard import (
    URL_POLICY,
    GuardedTransport,
    Target,
    UrlPolicy,
    as_variable,
    check_url,
    checked_addresses,
    is_public,
    parse_url,
)

ANY = UrlPolicy(("https://*", "http://127.0.0.1:8000", "https://models.example.org:8443/v1/", "https://*.corp.example"))

ODD = [
    "http://2130706433/", "http://0x7f.0.0.1/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/",
    "http://0/",
    "http://127.0.0.1./", "http://127.0.0.01/", "https://①②⑦.0.0.1/", "https://127。0。0。1/", "https://１２７.0.0.1/",
    "https://[::ffff:127.0.0.1%25lo]/", "https://[fe80::1%25eth0]/", "https://exam%70le.org/",
    "https://example.org./",
    "https://user@example.org/", "https://user:secret@example.org/", "https://example.org@169.254.169.254/",
    "https://example.org\\@127.0.0.1/", "https://example.org\r\nHost: evil/", "https:///etc/passwd", "https://",
    "file:///etc/passwd", "ftp://example.org/", "gopher://127.0.0.1:6379/_", "HTTPS://example.org/", "//example.org/",
    "https:example.org", "https://example.org:99999/", "https://example.org:0/", "https://example.org:8O/",
    "https://example.org/#@127.0.0.1", "https://exa mple.org/", "https://example..org/", "https://-example.org/",
    "https://example.org/v1/../admin", "https://example.org/%2e%2e/admin", "https://example.org/a%2fb",
    "https://еxample.org",
    "https://example.org/?api_key=abcdefgh12345678", "https://example.org/" + "a" * 3000, "https://[::1",
    "https://[]/",
    "jar:https://example.org!/", "data:text/html,x", "https://0x7f.1/", "https://127.0.0.1.0x1/", "https://1.2.3/",
]  # fmt: skip


@pytest.mark.parametrize("url", ODD)
def test_only_plain_urls_are_read(url):
    with pytest.raises(AddressError):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8001/", "http://127.0.0.2:8000/", "http://localhost:8000/", "https://127.0.0.1/",
        "https://models.example.org:8443/v2/", "https://models.example.org:8443/v1x", "https://10.0.0.1/",
        "https://[::1]/", "https://[::ffff:10.0.0.1]/", "http://example.org/", "https://example.org:22/",
        "https://example.org:8443/v1/",
    ],
)  # fmt: skip
def test_what_is_not_listed_is_not_asked(url):
    with pytest.raises(AddressError, match="not among the URLs"):
        check_url(url, ANY)


def test_a_pattern_of_names_ends_at_a_dot_and_a_path_at_a_slash():
    listed = UrlPolicy(("https://*.corp.example/api",))
    assert check_url("https://a.b.corp.example/api/x?size=1", listed).host == "a.b.corp.example"
    for url in ("https://evilcorp.example/api", "https://corp.example/api", "https://a.corp.example/apis"):
        with pytest.raises(AddressError):
            check_url(url, listed)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0",
        "255.255.255.255", "224.0.0.1", "168.63.129.16", "192.0.0.192", "198.18.0.1", "::", "::1",
        "fe80::1", "fd00:ec2::254",
        "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "ff02::1", "fec0::1", "2001:db8::1", "5f00::1", "100::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_the_internets(address):
    assert not is_public(ipaddress.ip_address(address))
    # One such address among several is enough.
    with pytest.raises(AddressError, match="not one of the internet"):
        checked_addresses(Target("https", "a.example", 443, "/", None), ["93.184.215.14", address], ANY)


def test_public_addresses_and_listed_ones_are_asked():
    target = Target("https", "a.example", 443, "/", None)
    public = ["93.184.215.14", "2606:4700::6810:84e5", "64:ff9b::5db8:d70e"]
    assert checked_addresses(target, public, ANY) == public
    within = UrlPolicy(("https://a.example",), networks=("10.2.0.0/16",))
    assert checked_addresses(target, ["10.2.3.4"], within) == ["10.2.3.4"]
    with pytest.raises(AddressError):
        checked_addresses(target, ["10.3.0.1"], within)
    literal = check_url("http://127.0.0.1:8000/x", ANY)
    assert checked_addresses(literal, ["127.0.0.1"], ANY) == ["127.0.0.1"]


@contextmanager
def server(answer):
    """`answer(handler)` writes each answer; yields the port and the Host headers that came."""
    hosts = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            hosts.append(self.headers["Host"])
            answer(self)

        def log_message(self, *_):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listening.server_address[1], hosts
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def said(status=200, body=b"ok", **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def client(port, addresses, **limits):
    """A name's successive answers; only 127.0.0.1 is listed."""
    answers = iter(addresses)
    policy = UrlPolicy((f"http://model.example:{port}",), networks=("127.0.0.1/32",), **limits)
    transport = GuardedTransport(policy, resolver=lambda host, port: next(answers))
    return httpx.Client(transport=transport, follow_redirects=True)


def test_a_name_that_changes_its_address_is_asked_where_it_was_checked():
    with server(said()) as (port, hosts), client(port, [["127.0.0.1"], ["169.254.169.254"]]) as asking:
        assert asking.get(f"http://model.example:{port}/").text == "ok"
        assert hosts == [f"model.example:{port}"]  # resolved once: the second answer would have been refused
        with pytest.raises(AddressError, match="not one of the internet"):
            asking.get(f"http://model.example:{port}/")
    with server(said()) as (port, hosts), client(port, [["127.0.0.1", "127.0.0.2"]]) as asking:
        with pytest.raises(AddressError, match=r"127\.0\.0\.2"):
            asking.get(f"http://model.example:{port}/")
        assert not hosts


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest/meta-data", "https://model.example/", "http://0x7f.1/"]
)
def test_a_redirect_is_checked_like_a_request(location):
    with server(said(302, Location=location)) as (port, hosts), client(port, [["127.0.0.1"]] * 3) as asking:
        with pytest.raises(AddressError):
            asking.get(f"http://model.example:{port}/")
        assert len(hosts) == 1


def test_another_host_header_is_not_sent():
    with server(said()) as (port, hosts), client(port, [["127.0.0.1"]]) as asking:
        with pytest.raises(AddressError, match="another Host"):
            asking.get(f"http://model.example:{port}/", headers={"Host": "internal"})
        assert not hosts


def test_long_and_packed_answers_are_cut_off():
    bomb = gzip.compress(bytes(10_000_000))

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        try:
            for _ in range(1000):
                handler.wfile.write(bytes(65_536))
        except OSError:
            pass

    for answer in (said(200, bomb, Content_Encoding="gzip"), said(200, bytes(200_001)), endless):
        with (
            server(answer) as (port, _),
            client(port, [["127.0.0.1"]], max_bytes=200_000) as asking,
            pytest.raises(AddressError),
        ):
            asking.get(f"http://model.example:{port}/")


def test_an_answer_that_drips_ends_with_its_time():
    def drip(handler):
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(60):
                handler.wfile.write(b"x")
                time.sleep(0.05)
        except OSError:
            pass

    with server(drip) as (port, _), client(port, [["127.0.0.1"]], seconds=0.3) as asking:
        start = time.monotonic()
        with pytest.raises(httpx.ReadTimeout):
            asking.get(f"http://model.example:{port}/")
        assert time.monotonic() - start < 2


def test_classifiers_of_a_process_with_a_policy_ask_no_other_url(monkeypatch):
    with serving_over_http(["a", "b", "c", "d", "e"]) as (url, service):
        monkeypatch.setenv(URL_POLICY, as_variable(UrlPolicy((url,))))
        image = np.zeros((8, 8, 3), np.uint8)
        assert np.isfinite(catalog.classifier(url).logits([image], ["a"])).all()
        asked = len(service.tokens)
        monkeypatch.setenv(URL_POLICY, as_variable(UrlPolicy(("https://models.example.org",))))
        with pytest.raises(AddressError, match="not among the URLs"):
            catalog.classifier(url)
        monkeypatch.setenv(URL_POLICY, "{}")
        with pytest.raises(AddressError, match="holds no policy"):
            catalog.classifier(url)
        assert len(service.tokens) == asked
