"""Requests that mean harm: bombs, floods, what would be run or believed elsewhere."""

import json
import logging

import pytest
from endpoint_app import CONFIG

JSON, YAML = {"content-type": "application/json"}, {"content-type": "application/yaml"}
DEEP = 100_000
MALFORMED = {
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, JSON),
    "deep lists": (b'{"kind":"c2b","config":' + b"[" * DEEP + b"]" * DEEP + b"}", JSON),
    "a key twice": (b'{"kind":"c2b","kind":"failures","config":{}}', JSON),
    "a key twice within": (b'{"kind":"c2b","config":{"seed":1,"seed":2}}', JSON),
    "NaN": (b'{"kind":"c2b","config":{"tau":NaN}}', JSON),
    "infinity": (b'{"kind":"c2b","config":{"tau":1e999}}', JSON),
    "thousands of digits": (b'{"kind":"c2b","config":{"seed":' + b"9" * 5000 + b"}}", JSON),
    "more than 64 bits": (b'{"kind":"c2b","config":{"seed":18446744073709551616}}', JSON),
    "NUL": (b'{"kind":"c2b","config":{"task":"a\\u0000b"}}', JSON),
    "half a surrogate pair": (b'{"kind":"c2b","config":{"task":"\\ud800"}}', JSON),
    "half a pair as a key": (b'{"kind":"c2b","config":{"\\udfff":1}}', JSON),
    "not UTF-8": (b'{"kind":"\xff"}', JSON),
    "nothing": (b"", JSON),
    "YAML's laughs": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nkind: c2b\n", YAML),
    "an alias of itself": (b"&a {kind: c2b, config: *a}", YAML),
    "deep YAML": (b"[" * DEEP, YAML),
    "a YAML tag": (b"!!python/object/apply:os.system ['true']", YAML),
    "a YAML date": (b"kind: c2b\nconfig: {task: 2026-01-01}\n", YAML),
    "YAML bytes": (b"kind: c2b\nconfig: {task: !!binary aGVsbG8=}\n", YAML),
    "large YAML": (b"a: " + b"x" * 600_000, YAML),
}  # fmt: skip


@pytest.mark.parametrize(("content", "headers"), MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_is_no_document_is_refused(endpoint, content, headers):
    for path in ("/v1/audits", "/v1/audits/check"):
        answer = endpoint.as_("a").post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), answer.text


@pytest.mark.parametrize("content", [b"[]", b'"text"', b"null", b"7", b'{"kind":"c2b"}', b'{"config":{}}'])
def test_a_document_of_another_form_names_what_is_wrong(endpoint, content):
    answer = endpoint.as_("a").post("/v1/audits", content=content, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_yaml_is_read_as_a_file_would_be(endpoint):
    text = f"kind: c2b\nname: as a file\nconfig: {json.dumps(CONFIG)}\n"
    answer = endpoint.as_("a").post("/v1/audits", content=text, headers=YAML)
    assert (answer.status_code, answer.json()["config"]) == (202, CONFIG)


def test_other_media_types_are_refused(endpoint):
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "a/b/c", "\x01"):
        answer = endpoint.as_("a").post("/v1/audits", content=b"{}", headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type"), kind


def test_a_body_of_a_gigabyte_is_not_read(endpoint):
    read = []

    def parts():
        for _ in range(1024):
            read.append(1)
            yield b"x" * 2**20

    largest = endpoint.config.policy.body_bytes
    announced = endpoint.as_("a").post("/v1/audits", content=parts(), headers={**JSON, "content-length": str(2**30)})
    assert (announced.status_code, announced.json()["code"]) == (413, "too_large")
    read.clear()
    streamed = endpoint.as_("a").post("/v1/audits", content=parts(), headers=JSON)
    assert streamed.status_code == 413
    assert announced.headers["x-request-id"]
    assert endpoint.as_("a").post("/v1/audits", content=b" " * largest, headers=JSON).status_code == 400


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "é"])
def test_an_idempotency_key_that_cannot_be(endpoint, key):
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    answer = endpoint.as_("a").post("/v1/audits", json={"kind": "c2b", "config": CONFIG}, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Idempotency-Key")


def test_request_ids_of_clients_are_taken_where_they_are_harmless(endpoint):
    assert (
        endpoint.client.get("/healthz", headers={"X-Request-ID": "build-7.a_b"}).headers["x-request-id"]
        == "build-7.a_b"
    )
    for wrong in ("a" * 65, "a\tb", "<script>", "a;b", ""):
        given = endpoint.client.get("/healthz", headers={"X-Request-ID": wrong}).headers["x-request-id"]
        assert given != wrong
        assert len(given) == 24


def test_the_log_holds_no_secret_and_each_line_is_one_object(endpoint, caplog):
    secret = endpoint.keys["a"]
    with caplog.at_level(logging.INFO, "c2b_ray.endpoint.access"):
        answer = endpoint.as_("a").get(f"/v1/audits/{secret}%0a%22injected?token=hunter2-hunter2")
        endpoint.client.get("/v1/audits", headers={"Authorization": f"Bearer {secret[:-1]}"})
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name.endswith("access")]
    assert [line["status"] for line in lines] == [404, 401]
    assert lines[0]["request_id"] == answer.headers["x-request-id"]
    assert lines[0]["tenant"] == endpoint.tenants["a"]
    assert secret[:-1] not in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", "a" * 32),
        (f"cc-{'a' * 32}-{'b' * 16}-01-what-will-be", "a" * 32),
        (f"00-{'a' * 32}-{'b' * 16}-01-more", None),
        (f"ff-{'a' * 32}-{'b' * 16}-01", None),
        (f"00-{'0' * 32}-{'b' * 16}-01", None),
        (f"00-{'a' * 32}-{'0' * 16}-01", None),
        (f"00-{'A' * 32}-{'b' * 16}-01", None),
        (f'00-{"a" * 31}"-{"b" * 16}-01', None),
        ("", None),
    ],
)
def test_the_trace_of_a_caller_is_in_the_log_with_a_span_of_this_request(endpoint, caplog, header, trace):
    with caplog.at_level(logging.INFO, "c2b_ray.endpoint.access"):
        answer = endpoint.client.get("/healthz", headers={"traceparent": header})
    [line] = [json.loads(record.getMessage()) for record in caplog.records if record.name.endswith("access")]
    assert line["trace_id"] == trace
    assert answer.status_code == 200
    if trace is None:
        assert "traceresponse" not in answer.headers
    else:
        assert answer.headers["traceresponse"] == f"00-{trace}-{line['span_id']}-00"
        assert len(line["span_id"]) == 16
        assert line["span_id"] != "b" * 16


def test_what_fails_in_the_endpoint_is_told_to_its_log_alone(endpoint, monkeypatch, caplog):
    from c2b_ray.endpoint.ledger import jobs

    def broken(*_: object) -> None:
        raise RuntimeError("password=hunter2 in /srv/secret")

    monkeypatch.setattr(jobs, "get", broken)
    with caplog.at_level(logging.ERROR, "c2b_ray.endpoint.errors"):
        answer = endpoint.as_("a").get("/v1/audits/job_" + "0" * 24)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "hunter2" not in answer.text
    assert "/srv" not in answer.text
    assert answer.headers["x-request-id"] in caplog.text


def test_errors_show_no_place_of_the_server(endpoint):
    config = {**CONFIG, "images": {"source": "labelled", "table": "data/none.csv"}}
    answer = endpoint.as_("a").post("/v1/audits", json={"kind": "c2b", "config": config})
    assert answer.status_code == 422
    assert endpoint.config.storage_root not in answer.text
