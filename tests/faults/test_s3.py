"""What an S3 server over a socket refuses, and two writers of one place on it. Deaths of whole audits: at the end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from c2b_ray import load_run
from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.cli.audit import drafted_audit
from c2b_ray.engine.sources.datasets import read
from c2b_ray.errors import RunError, SourceError, StorageError
from c2b_ray.models.index.faiss_index import FaissIndex
from c2b_ray.models.table_classifier import load as load_table
from c2b_ray.storage import files, resolve, writers
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.world import CLASSES
from c2b_ray.world.table import write_sample

PATIENCE_S = 120
SECRET = "a-secret-of-the-tests"


def begin(place):
    with open_c2b_run(place, "a", {}):
        pass


def predictions(place):
    from c2b_ray.models.catalog import parse

    return load_table(parse(f"table:{place}.csv"))


def put(place):
    files.write_bytes(place, b"x")


READS = [load_run, read, FaissIndex, predictions, lambda place: LabelledTable(f"{place}.parquet")]
CALLS = [*READS, begin, lambda place: drafted_audit(place, ["world:clip"], (None,) * 4)]


def refused(call, place) -> str:
    with pytest.raises((SourceError, StorageError)) as raised:
        call(place)
    assert SECRET not in str(raised.value)
    assert place in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_bucket_is_named(s3, s3_server, call):
    assert f"there is no bucket 'gone' at {s3_server}" in refused(call, "s3://gone/place")


@pytest.mark.parametrize("call", READS)
def test_what_is_not_in_a_bucket_is_named(s3, call):
    assert "bucket 'gone'" not in refused(call, "s3://photos/place")


def forbid_everything(s3):
    everything = ["arn:aws:s3:::photos", "arn:aws:s3:::photos/*"]
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": everything}
    s3.put_bucket_policy(Bucket="photos", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))


@pytest.mark.parametrize("call", CALLS)
def test_a_forbidden_bucket_is_named(s3, s3_server, call):
    forbid_everything(s3)
    assert f"{s3_server} forbids this in bucket 'photos'" in refused(call, "s3://photos/place")


def test_without_keys_it_is_the_keys_that_are_asked_for(s3, s3_server, monkeypatch):
    forbid_everything(s3)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert f"{s3_server} does not accept the credentials" in refused(load_run, "s3://photos/place")


def test_wrong_keys_are_said_to_be_wrong(s3, s3_server):
    from moto.core.authorization import enable_iam_authentication

    s3.put_object(Bucket="photos", Key="scenes.parquet", Body=b"x")
    with enable_iam_authentication():
        assert f"{s3_server} forbids this" in refused(read, "s3://photos/scenes.parquet")  # all that a HEAD tells
        assert "does not accept the credentials" in refused(put, "s3://photos/new")


@pytest.mark.parametrize("listening", [True, False], ids=["slow", "unreachable"])
def test_a_silent_server_is_given_up(s3, monkeypatch, listening):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listening:
            silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("C2B_S3_TIMEOUT", "1")
        began = time.monotonic()
        message = refused(read if listening else begin, "s3://photos/place")
        assert time.monotonic() - began < 1 + 20  # of a busy machine; the clients' own patience is a minute and more
        assert ("gave no answer" if listening else "cannot be reached") in message
        assert f"127.0.0.1:{silent.getsockname()[1]}" in message
        assert "'photos'" in message


def test_a_store_that_falls_silent_is_not_a_bad_image(s3, monkeypatch):
    """A row's error is for one file; without the store every row would be one."""
    from c2b_ray.engine.sources.files import Location

    s3.put_object(Bucket="photos", Key="x.jpg", Body=b"x")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setenv("C2B_S3_TIMEOUT", "1")
        with pytest.raises(SourceError, match="cannot be reached"):
            Location("s3://photos", resolve("s3://photos")[0], "photos").fetch("x.jpg")


def test_an_index_is_sent_whole_and_over_what_an_interrupted_one_left(s3, tmp_path):
    (tmp_path / "built" / "images").mkdir(parents=True)
    for name in ("images/part-0", "vectors", "manifest.json"):
        (tmp_path / "built" / name).write_text(name)
    s3.put_object(Bucket="photos", Key="index/images/part-0", Body=b"of before")
    files.upload(tmp_path / "built", "s3://photos/index", last="manifest.json")
    stored = [found["Key"] for found in s3.list_objects_v2(Bucket="photos")["Contents"]]
    assert {"index/images/part-0", "index/vectors", "index/manifest.json"} <= set(stored)
    assert files.read_bytes("s3://photos/index/images/part-0") == b"images/part-0"
    files.download("s3://photos/index", tmp_path / "back")
    assert sorted(file.name for file in (tmp_path / "back").iterdir()) == ["manifest.json", "vectors"]
    s3.put_object(Bucket="photos", Key="index/thesis.txt", Body=b"years of work")
    with pytest.raises(StorageError, match=r"thesis\.txt"):
        files.upload(tmp_path / "built", "s3://photos/index", last="manifest.json")
    files.remove_directory("s3://photos/index")
    assert files.entries("s3://photos/index") == []


def test_a_second_writer_is_refused_and_a_later_one_is_not(s3):
    with (
        open_c2b_run("s3://photos/run", "a", {"tau": 0.05}) as run,
        pytest.raises(RunError, match=f"another process is writing here .process {os.getpid()} on "),
        open_c2b_run("s3://photos/run", "a", {}),
    ):
        pass
    run.update({"status": "finished"})
    with open_c2b_run("s3://photos/run", "a", {"tau": 0.05}) as again:
        assert again.record.status == "finished"
    with pytest.raises(RunError, match="its tau differs"), open_c2b_run("s3://photos/run", "b", {"tau": 0.1}):
        pass


def test_a_killed_writer_makes_way_at_once(s3, caplog):
    code = (
        "import sys, os; from c2b_ray.storage.writers import Lease; Lease(sys.argv[1]).take(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, "s3://photos/run"], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    began = time.monotonic()
    with writers.held("s3://photos/run") as still_ours:
        still_ours()
    assert time.monotonic() - began < writers.BEAT_S
    assert "which has died" in caplog.text


@pytest.fixture
def elsewhere(monkeypatch):
    """Two machines: whether the other's process lives cannot be told; beats and lapses for people in a hurry."""
    monkeypatch.setattr(writers, "_alive", lambda body: None)
    monkeypatch.setattr(writers, "BEAT_S", 0.5)
    monkeypatch.setattr(writers, "LAPSE_S", 4.0)  # the store's clock shows whole seconds


def test_a_writer_on_another_machine_is_refused_while_it_lives(s3, elsewhere):
    with (
        writers.held("s3://photos/run") as still_ours,
        pytest.raises(RunError, match="another process is writing here"),
        writers.held("s3://photos/run"),
    ):
        pass
    still_ours()


def test_a_lease_that_is_not_renewed_lapses_and_its_holder_learns_of_it(s3, elsewhere, monkeypatch):
    silent = writers.Lease("s3://photos/run")
    with monkeypatch.context() as still:
        still.setattr(writers, "BEAT_S", 7.0)  # as a process that was stopped for so long
        silent.take()
    began = time.monotonic()
    with writers.held("s3://photos/run") as still_ours:
        assert 2 < time.monotonic() - began < 7
        deadline = time.monotonic() + 10
        while not silent._lost:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with pytest.raises(RunError, match="has taken over; this process stops writing"):
            silent.check()
        silent.give_back()
        still_ours()
    assert json.loads(s3.get_object(Bucket="photos", Key="run/.lease")["Body"].read())["ended"] is True


def test_a_run_whose_lease_is_lost_writes_nothing_more(s3, monkeypatch):
    monkeypatch.setattr(writers, "BEAT_S", 0.2)
    with open_c2b_run("s3://photos/run", "a", {}) as run:
        s3.delete_object(Bucket="photos", Key="run/.lease")
        time.sleep(2)
        with pytest.raises(RunError, match=r"its \.lease was deleted"):
            run.update({"status": "finished"})
        assert run.manifest["status"] == "running"


def audit(folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "c2b_ray", "audit", "audit.yaml", "--out", "s3://photos/runs/one", "--json"]
    command += ["--via", "actors"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "RAY_ADDRESS": "local"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def held(s3) -> dict[str, object]:
    found = s3.list_objects_v2(Bucket="photos", Prefix="runs/one/predictions/part-").get("Contents", ())
    return {part["Key"]: part["LastModified"] for part in found}


def test_a_killed_audit_goes_on_where_it_was(s3, tmp_path):
    scenes = 1500
    write_sample(tmp_path / "scenes.parquet", scenes, seed=1003)
    s3.upload_file(str(tmp_path / "scenes.parquet"), "photos", "scenes.parquet")
    asked = {
        "task": "Name the thing.",
        "classes": list(CLASSES),
        "classifier": "world:resnet-control-0",
        "images": {"source": "labelled", "table": "s3://photos/scenes.parquet"},
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(asked))
    first = audit(tmp_path)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (before := held(s3)):
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline, "no prediction was written"
            time.sleep(0.1)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert load_run("s3://photos/runs/one").manifest["status"] == "running"

    second = audit(tmp_path)
    out, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, err
    assert "which has died" in err
    assert SECRET not in out + err
    run = load_run("s3://photos/runs/one")
    predicted = run.predictions["image_id"].to_pylist()
    assert len(predicted) == len(set(predicted)) == scenes
    assert before.items() <= held(s3).items(), "what was written was done again"
    assert files.read_bytes(run.report).startswith(b"<!")
    assert SECRET.encode() not in files.read_bytes("s3://photos/runs/one/run.json")
