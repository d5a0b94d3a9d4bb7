"""An HTTP proxy that fails on purpose: it refuses requests, delays them, cuts bodies and loses answers.

The seed and a request's method, path and number of repetitions decide whether it fails; the order in which threads
arrive does not matter. The proxy forwards headers unchanged, so that signed requests stay valid.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Kind = Literal["busy", "deny", "slow", "drop", "cut_upload", "cut_download", "lose_answer"]
ERRORS = {"busy": (503, "SlowDown", "Please reduce your request rate."), "deny": (403, "AccessDenied", "Access Denied")}
OF_A_HOP = {"connection", "keep-alive", "transfer-encoding"}


@dataclass
class Fault:
    """A kind of fault and the requests that it applies to.

    busy: answers 503 SlowDown; deny: answers 403 AccessDenied; slow: waits `delay_s` first; drop: closes the connection
    after the headers; cut_upload: forwards half of the body, then closes both connections; cut_download: sends half of
    the answer's body; lose_answer: lets the server work, and closes the connection before its answer.
    """

    kind: Kind
    methods: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")
    path: str = ""  # a part of the request's path and query
    share: float = 1.0  # of the matching requests
    times: int | None = None  # the most faults
    after: int = 0  # the number of matching requests that pass first
    delay_s: float = 0.0
    matched: int = 0
    done: int = 0


@dataclass
class Proxy:
    """The proxy's address, its faults (tests change `faults` while it runs), and a record of its requests."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    seed: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, kind of fault or ""
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fault_for(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self._seen[method, path] += 1
            chance = random.Random(f"{self.seed}/{method}/{path}/{self._seen[method, path]}").random()
            for fault in self.faults:
                if method not in fault.methods or fault.path not in path:
                    continue
                fault.matched += 1
                due = fault.matched > fault.after and (fault.times is None or fault.done < fault.times)
                if due and chance < fault.share:
                    fault.done += 1
                    self.requests.append((method, path, fault.kind))
                    return fault
            self.requests.append((method, path, ""))
            return None

    def count(self, kind: Kind) -> int:
        return sum(done == kind for _, _, done in self.requests)


@contextmanager
def faulty_proxy(upstream: tuple[str, int], *faults: Fault, seed: int = 0) -> Iterator[Proxy]:
    """Yields a proxy before `upstream` (host, port), in threads of this process."""
    proxy = Proxy("", list(faults), seed)
    server = _Server(proxy, upstream)
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: Proxy, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy, self.upstream = proxy, upstream

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that close the connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        fault = self.server.proxy.fault_for(self.command, self.path)
        kind = fault.kind if fault else ""
        if kind == "drop":
            self._close()
            return
        body = self._chunked() if self._in_chunks else self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault is not None and fault.delay_s:
            time.sleep(fault.delay_s)
        if kind in ERRORS:
            self._refuse(*ERRORS[kind])
            return
        with closing(HTTPConnection(*self.server.upstream, timeout=120)) as server:
            try:
                self._forward(server, body, half=kind == "cut_upload")
                if kind == "cut_upload":
                    self._close()
                    return
                answer = server.getresponse()
                data = answer.read()
            except (OSError, HTTPException):  # the server itself closed the connection
                self._close()
                return
        if kind == "lose_answer":
            self._close()
            return
        self._answer(answer, data, half=kind == "cut_download")

    def _forward(self, server: HTTPConnection, body: bytes, half: bool) -> None:
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in {*OF_A_HOP, "expect"}:
                server.putheader(name, value)
        if self._in_chunks:
            server.putheader("Transfer-Encoding", "chunked")
        server.endheaders()
        sent = body[: len(body) // 2] if half else body
        if self._in_chunks:
            sent = b"%x\r\n%s\r\n" % (len(sent), sent) + (b"" if half else b"0\r\n\r\n")
        server.send(sent)

    @property
    def _in_chunks(self) -> bool:
        return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

    def _chunked(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _answer(self, answer: HTTPResponse, data: bytes, half: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in {*OF_A_HOP, "content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        if length is not None and answer.status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if half else data)
        if half:
            self._close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        text = b"" if self.command == "HEAD" else text
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _close(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve
