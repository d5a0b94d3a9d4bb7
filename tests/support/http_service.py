"""A classifier behind HTTP, by the protocol of `models.http_classifier`; tests can make it misbehave."""

import base64
import json
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image


@dataclass
class Service:
    """The service's behaviour; tests change it while it runs. `failures`: the number of first requests that it answers
    with 500."""

    labels: Sequence[str]
    failures: int = 0
    delay_s: float = 0.0
    answer: dict[str, Any] = field(default_factory=dict)  # replaces parts of the true answer
    about: Any = None  # replaces the answer to GET
    refuses: Collection[str] = ()  # keys; the answer to a batch with one of them is 422
    raw: tuple[int, dict[str, str], bytes] | None = None  # replaces status, headers and body of the answer to POST
    posts: list[int] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)


def _logits(data: str) -> list[float]:
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(data))), np.float64) / 255
    weight = np.random.default_rng(1).normal(size=(3, 5))
    return [float(value) for value in pixels.mean(axis=(0, 1)) @ weight]


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.tokens.append(self.headers["Authorization"])
            self._send(200, service.about or {"labels": list(service.labels), "revision": "1"})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.posts.append(len(asked["images"]))
            time.sleep(service.delay_s)
            if service.failures:
                service.failures -= 1
                self._send(500, {"error": "out of memory"})
                return
            if set(service.refuses) & set(asked["keys"]):
                self._send(422, {"error": "no such image"})
                return
            if service.raw:
                self._send_raw(*service.raw)
                return
            assert len(asked["keys"]) == len(asked["images"])
            true = {} if "probabilities" in service.answer else {"logits": [_logits(i) for i in asked["images"]]}
            self._send(200, {**true, **service.answer})

        def _send(self, status: int, body: Any) -> None:
            self._send_raw(status, {}, json.dumps(body).encode())

        def _send_raw(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextmanager
def serving_over_http(labels: Sequence[str]) -> Iterator[tuple[str, Service]]:
    service = Service(labels)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/classify", service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
