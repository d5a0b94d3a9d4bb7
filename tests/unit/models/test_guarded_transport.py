"""Names that change their address, redirects, bombs and drips, against servers of this process."""

import gzip
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
from c2b_ray.models.url_guard import URL_POLICY, GuardedTransport, UrlPolicy, as_variable


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
