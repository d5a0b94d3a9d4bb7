"""A visitor of the endpoint's pages without a browser: signs in, follows links, sends forms with their tokens."""

from __future__ import annotations

import re
from typing import Any

import httpx
from endpoint_app import Endpoint
from starlette.testclient import TestClient

TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


class Visitor:
    def __init__(self, endpoint: Endpoint, who: str | None = None) -> None:
        self.client = TestClient(endpoint.app, raise_server_exceptions=False, follow_redirects=False)
        if who is not None:
            answer = self.post("/ui/signin", {"key": endpoint.keys[who]}, "/ui/signin")
            assert answer.status_code == 303, answer.text

    def get(self, path: str, **options: Any) -> httpx.Response:
        answer: httpx.Response = self.client.get(path, **options)
        return answer

    def token(self, path: str = "/ui/usage") -> str:
        match = TOKEN.search(self.get(path).text)
        assert match is not None
        return match[1]

    def post(self, path: str, fields: dict[str, str], of: str = "/ui/usage", **options: Any) -> httpx.Response:
        """Sends a form with its token. `of`: the page of the form."""
        answer: httpx.Response = self.client.post(path, data={"csrf": self.token(of), **fields}, **options)
        return answer
