"""A client that hangs up in the middle of its body."""

import anyio


def test_a_client_that_hangs_up_is_no_error_of_the_endpoint(endpoint, caplog):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    key = endpoint.keys["a"].encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/audits", "raw_path": b"/v1/audits", "query_string": b"", "root_path": "", "client": ("x", 1),
        "server": ("x", 80), "state": {},
        "headers": [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + key)],
    }  # fmt: skip
    anyio.run(endpoint.app, scope, receive, send)
    assert [message["status"] for message in sent if "status" in message] == [400]
    assert "failed" not in caplog.text
