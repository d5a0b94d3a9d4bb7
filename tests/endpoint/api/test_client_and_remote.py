"""The Python client and `c2b remote` against a real server, and against one that is busy or breaks off."""

import hashlib
import json
import os
import threading
import time

import httpx
import numpy as np
import pytest
from endpoint_app import CONFIG
from ledgers import add_event
from safetensors.numpy import save

from c2b_ray.client import Endpoint
from c2b_ray.client.http import BusyError, NotAllowedError, NotThereError, RefusedError, UnreachableError
from c2b_ray.endpoint.api import catalog, uploads
from c2b_ray.endpoint.ledger import running
from c2b_ray.errors import ConfigError, SourceError


@pytest.fixture
def client(endpoint, url):
    with Endpoint(url, endpoint.keys["a"], patience=5.0) as client:
        yield client


def test_a_job_is_submitted_followed_and_read(endpoint, client):
    told = []
    job = client.submit("c2b", CONFIG, name="nightly")
    claim = endpoint.claim(job["id"])

    def work():
        time.sleep(0.3)
        for number in range(3):
            add_event(endpoint.db, job["id"], "progress", {"stage": "draw", "done": number})
        running.finish(endpoint.db, job["id"], claim.fence)

    runner = threading.Thread(target=work)
    runner.start()
    ended = client.wait(job["id"], on_event=told.append)
    runner.join()
    assert ended["state"] == "finished"
    assert [event.data["done"] for event in told if event.kind == "progress"] == [0, 1, 2]
    assert [event.id for event in client.events(job["id"], told[-2].id)] == [told[-1].id]
    assert list(client.events(job["id"], told[-1].id)) == []
    assert job["id"] in [one["id"] for one in client.list(1, state="finished")]


def test_who_waits_for_a_job_that_does_not_begin_waits_no_longer_than_said(client, monkeypatch):
    from c2b_ray.endpoint.api import jobs as streams

    monkeypatch.setattr(streams, "PING_SECONDS", 1)
    job = client.submit("c2b", CONFIG)
    began = time.monotonic()
    assert client.wait(job["id"], seconds=0.5)["state"] == "queued"
    assert time.monotonic() - began < 10
    client.cancel(job["id"])


def test_errors_have_types_codes_and_fields(client, endpoint, url):
    with pytest.raises(RefusedError, match=r"config\.tau") as refused:
        client.submit("c2b", {**CONFIG, "tau": 7})
    assert (refused.value.code, refused.value.field, refused.value.status) == ("invalid_config", "config.tau", 422)
    assert refused.value.request_id
    with pytest.raises(NotThereError):
        client.get("job_" + "0" * 24)
    with pytest.raises(NotAllowedError), Endpoint(url, "c2b_wrong") as stranger:
        stranger.quotas()
    with pytest.raises(UnreachableError), Endpoint("http://127.0.0.1:9", "c2b_key", patience=0) as nobody:
        nobody.quotas()


class Shaky(httpx.BaseTransport):
    """Loses the first answers, and is busy then."""

    def __init__(self, lost, busy):
        self.inner, self.lost, self.busy = httpx.HTTPTransport(), lost, busy
        self.keys = []

    def close(self):
        self.inner.close()

    def handle_request(self, request):
        self.keys.append(request.headers.get("idempotency-key"))
        if self.busy:
            self.busy -= 1
            return httpx.Response(503, headers={"retry-after": "0"}, json={"detail": "busy", "code": "database_down"})
        answer = self.inner.handle_request(request)
        if self.lost:
            self.lost -= 1
            answer.read()
            answer.close()
            raise httpx.ReadError("the connection broke")
        return answer


def test_a_submission_whose_answer_was_lost_is_not_made_twice(endpoint, url):
    with Endpoint(url, endpoint.keys["b"]) as client:
        before = len(list(client.list()))
    shaky = Shaky(lost=1, busy=1)
    with Endpoint(url, endpoint.keys["b"], transport=shaky) as client:
        job = client.submit("c2b", CONFIG)
    assert len(shaky.keys) == 3
    assert len(set(shaky.keys)) == 1
    with Endpoint(url, endpoint.keys["b"]) as client:
        assert len(list(client.list())) == before + 1
        assert client.cancel(job["id"])["state"] == "cancelled"


class BusyForOneUpload(httpx.HTTPTransport):
    """Takes the first upload's body and answers 503, as where the disk is full."""

    def __init__(self):
        super().__init__()
        self.bodies = []

    def handle_request(self, request):
        if request.method == "POST":
            self.bodies.append(b"".join(request.stream))
            if len(self.bodies) == 1:
                return httpx.Response(503, headers={"Retry-After": "0"}, json={"detail": "the disk is full"})
        return super().handle_request(request)


def test_an_upload_that_was_refused_for_now_is_sent_again_whole(endpoint, url, tmp_path):
    """The second time its file was sent from where the first had ended, which broke off with an error of a library."""
    weights = save({"w": np.ones(10, np.float32)})
    (tmp_path / "w.safetensors").write_bytes(weights)
    full = BusyForOneUpload()
    with Endpoint(url, endpoint.keys["a"], transport=full) as client:
        spec = client.upload(tmp_path / "w.safetensors", "safetensors")["spec"]
    assert full.bodies == [weights, weights]
    assert spec == f"upload:{hashlib.sha256(weights).hexdigest()}"


def test_who_is_busy_for_too_long_is_said_to_be(endpoint, url):
    with pytest.raises(BusyError, match="busy"), Endpoint(url, "c2b_x", 0.2, Shaky(lost=0, busy=10_000)) as client:
        client.quotas()


def test_results_by_the_command_line(endpoint, url, audited, monkeypatch, tmp_path, c2b):
    key = tmp_path / "key"
    key.write_text(endpoint.keys["a"] + "\n")
    key.chmod(0o644)
    monkeypatch.setenv("C2B_ENDPOINT", url)
    monkeypatch.delenv("C2B_KEY", raising=False)
    status, _, said = c2b("remote", "list")
    assert (status, "C2B_KEY" in said) == (2, True)
    monkeypatch.setenv("C2B_KEY_FILE", str(key))
    status, _, said = c2b("remote", "list")
    assert (status, "chmod 600" in said) == (2, True)
    key.chmod(0o600)
    assert audited in c2b("remote", "list", "--limit", "100")[1]
    assert json.loads(c2b("remote", "status", audited, "--json")[1])["state"] == "finished"
    junit = tmp_path / "junit.xml"
    status, said, _ = c2b("remote", "gate", audited, "--fail-on", "accuracy<2", "--junit", junit)
    assert (status, said.startswith("failed accuracy<2")) == (1, True)
    assert b"<failure" in junit.read_bytes()
    assert c2b("remote", "gate", audited, "--fail-on", "accuracy<0")[0] == 0
    assert "target_class" in c2b("remote", "export", audited, "--format", "csv")[1].splitlines()[0]
    status, said, _ = c2b("remote", "compare", audited, "--json")
    assert (status, json.loads(said)["a"]) == (0, audited)
    file = tmp_path / "audit.yaml"
    file.write_text(json.dumps(CONFIG))
    status, said, _ = c2b("remote", "audit", file, "--no-wait", "--once", "build-1", "--json")
    job = json.loads(said)["id"]
    assert json.loads(c2b("remote", "audit", file, "--no-wait", "--once", "build-1", "--json")[1])["id"] == job
    assert json.loads(c2b("remote", "audit", file, "--dry-run")[1])["valid"] is True
    assert c2b("remote", "cancel", job)[1].split()[2] == "cancelled"
    assert c2b("remote", "wait", job)[0] == 1
    file.write_text("task: x\n")
    status, _, said = c2b("remote", "audit", file)
    assert (status, "config." in said) == (2, True)


class BreaksOff(httpx.HTTPTransport):
    """Loses every connection after some parts of a file."""

    def __init__(self, after):
        super().__init__()
        self.left, self.parts = after, []

    def handle_request(self, request):
        if "/parts/" in request.url.path:
            self.left -= 1
            if self.left < 0:
                raise httpx.WriteError("the connection broke")
            self.parts.append(int(request.url.path.rpartition("/")[2]))
        return super().handle_request(request)


def test_a_large_file_that_broke_off_goes_on_where_it_ended_and_is_sent_once(endpoint, url, tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "PART_BYTES", 1000)
    monkeypatch.setattr(catalog, "PART_BYTES", 1000)
    path, told = tmp_path / "w.safetensors", []
    path.write_bytes(save({"w": np.random.default_rng(5).normal(size=1000)}))
    count = -(-path.stat().st_size // 1000)
    broken = BreaksOff(after=3)
    with pytest.raises(UnreachableError), Endpoint(url, endpoint.keys["a"], 0.1, broken) as client:
        client.upload(path, "safetensors")
    assert broken.parts == [0, 1, 2]
    whole = BreaksOff(after=100)
    with Endpoint(url, endpoint.keys["a"], transport=whole) as client:
        entry = client.upload(path, "safetensors", told=lambda what, done, total: told.append((what, done, total)))
        assert whole.parts == list(range(3, count))
        assert entry["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert told[-1] == ("w.safetensors", path.stat().st_size, path.stat().st_size)
        assert client.upload(path, "safetensors") == entry
    assert whole.parts == list(range(3, count)), "the same file is not sent twice"


def test_parts_that_are_those_of_another_file_are_sent_again(endpoint, url, tmp_path, monkeypatch):
    """Else the file could not be uploaded until they are swept, a day later."""
    monkeypatch.setattr(catalog, "PART_BYTES", 1000)
    path = tmp_path / "w.safetensors"
    path.write_bytes(save({"w": np.random.default_rng(6).normal(size=300)}))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with Endpoint(url, endpoint.keys["a"]) as client:
        other = {"X-Part-SHA256": hashlib.sha256(b"x" * 1000).hexdigest()}
        client._http.send("PUT", f"/v1/uploads/{digest}/parts/0", content=b"x" * 1000, headers=other)
        assert client.upload(path, "safetensors")["sha256"] == digest


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (("gate", "JOB", "--fail-on", "phi>"), "--fail-on: 'phi>'"),
        (("compare", "JOB", "--classifier-a", "nobody"), "--classifier-a: "),
        (("export", "JOB", "--format", "csv", "--classifier", "nobody"), "--classifier: "),
        (("ask", "JOB", "a bus", "--class", "nothing"), "--class: "),
    ],
)
def test_errors_at_a_terminal_name_the_commands_options(endpoint, url, audited, monkeypatch, c2b, arguments, begins):
    monkeypatch.setenv("C2B_ENDPOINT", url)
    monkeypatch.setenv("C2B_KEY", endpoint.keys["a"])
    status, _, said = c2b("remote", *(audited if one == "JOB" else one for one in arguments))
    assert (status, said.startswith((begins, f"error: {begins}"))) == (2, True), said


@pytest.mark.parametrize(
    ("called", "shown"), [("車" * 80, "車" * 80), ("a" * 250, "a" * 200), (os.fsdecode(b"a\xff\n.txt"), "a.txt")]
)
def test_a_file_may_be_called_as_the_system_allows(endpoint, url, tmp_path, called, shown):
    (tmp_path / called).write_text(shown)
    with Endpoint(url, endpoint.keys["a"]) as client:
        assert client.upload(tmp_path / called, "text")["name"] == shown


def test_a_file_without_room_is_refused_before_it_is_sent(endpoint, url, tmp_path, monkeypatch):
    (tmp_path / "w.safetensors").write_bytes(save({"w": np.zeros(7, np.float32)}))
    sent = BusyForOneUpload()
    used = {"storage_bytes": {"limit": 2**30, "used": 2**30 - 5}}
    with Endpoint(url, endpoint.keys["a"], transport=sent) as client:
        monkeypatch.setattr(client, "quotas", lambda: used)
        with pytest.raises(SourceError, match=r"has \d+ B, and of the 1 GiB that the tenant may store 1 GiB are used"):
            client.upload(tmp_path / "w.safetensors", "safetensors")
    assert sent.bodies == []


def test_a_file_that_is_too_large_is_named_with_its_field_and_nothing_is_sent(endpoint, url, tmp_path, monkeypatch):
    (tmp_path / "net.onnx").write_bytes(b"x" * 3000)
    fields = {**CONFIG, "classifier": f"onnx:{tmp_path}/net.onnx"}
    with Endpoint(url, endpoint.keys["a"]) as client:
        monkeypatch.setattr(client, "catalog", lambda: {"uploads": {"bytes": 2000, "part_bytes": 1000}})
        with pytest.raises(
            ConfigError, match=r"classifier: .*net\.onnx has 2\.93 KiB, and an upload may have 1\.95 KiB"
        ):
            client.upload_files("c2b", fields)
        with pytest.raises(SourceError, match=r"net\.onnx has 2\.93 KiB, and an upload may have 1\.95 KiB"):
            client.upload(tmp_path / "net.onnx", "onnx")
        monkeypatch.undo()
        said = []
        with pytest.raises(RefusedError, match="neither ONNX nor safetensors"):
            client.upload_files("c2b", fields, say=said.append)
    assert said == [f"{tmp_path}/net.onnx: 2.93 KiB of the 2 GiB that an upload may have"]


def test_a_key_that_may_only_submit_uploads_what_it_submits(endpoint, url, tmp_path):
    """The limits of uploads are for keys that read; without them the endpoint checks the file when it gets it."""
    (tmp_path / "net.onnx").write_bytes(b"x" * 3000)
    with Endpoint(url, endpoint.keys["submitter"]) as client:
        (tmp_path / "labels.txt").write_text("bus\nboat\n")
        assert client.upload(tmp_path / "labels.txt", "text")["spec"].startswith("upload:")
        with pytest.raises(RefusedError, match="neither ONNX nor safetensors"):
            client.upload_files("c2b", {**CONFIG, "classifier": f"onnx:{tmp_path}/net.onnx"})


def test_what_a_command_names_wrongly_is_told_in_its_own_options(c2b, endpoint, url, audited, monkeypatch):
    monkeypatch.setenv("C2B_ENDPOINT", url)
    monkeypatch.setenv("C2B_KEY", endpoint.keys["a"])
    status, _, said = c2b("remote", "ask", audited, "something purple")
    assert status == 2
    assert "--class: 'something purple' names no class of the run; name one of " in said
    assert " with --class" in said
    assert "target_class" not in said
    status, _, said = c2b("remote", "tables", audited, "score")
    assert status == 2
    assert "this job has no such table; it has " in said
    assert "scores" in said
