"""A chat endpoint of the OpenAI protocol that looks at images, on a socket; it can be told to heed schemas or not.

It answers as the tiny model of `tiny_vlm` is taught to: dark images from light ones, and labels by prompt.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import numpy as np
import tiny_vlm
from PIL import Image

from c2b_ray import prompts


@dataclass
class Service:
    """What the service does; tests change it while it runs.

    `schemas`: heeded, ignored (answers in a sentence) or refused (400). `answer`: said instead of what it sees.
    """

    schemas: str = "heeded"
    answer: str | None = None
    status: int = 200
    bodies: list[Any] = field(default_factory=list)


def _brightness(uri: str) -> str:
    head, data = uri.split(",", 1)
    assert head in ("data:image/png;base64", "data:image/jpeg;base64")
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(data))))
    return "light" if pixels.mean() > 127 else "dark"


def _caption(prompt: str, brightness: str) -> str | None:
    for name in ("image_caption", "image_caption_again"):
        for label in (tiny_vlm.PLAIN, tiny_vlm.LATE, tiny_vlm.NEVER):
            if prompts.messages(name, label=label)[0].content == prompt:
                return tiny_vlm.replies(name, label, brightness)
    return None


def _reply(service: Service, body: Any) -> tuple[int, Any]:
    service.bodies.append(body)
    picture, text = body["messages"][0]["content"]
    if service.status != 200:
        return service.status, {"error": {"message": "not today"}}
    if "response_format" in body and service.schemas == "refused":
        return 400, {"error": {"message": "response_format is not supported"}}
    seen = _brightness(picture["image_url"]["url"])
    said = service.answer or _caption(text["text"], seen)
    if said is None:
        heeds = "response_format" in body and service.schemas == "heeded"
        said = json.dumps({"answer": seen}) if heeds else f"The image looks {seen} to me."
    return 200, {"choices": [{"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]}


@contextmanager
def chatting_over_http() -> Iterator[tuple[str, Service]]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            status, answer = _reply(service, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
