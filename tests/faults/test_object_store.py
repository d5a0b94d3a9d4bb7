"""The store's rooms before a real S3 server whose requests fail on purpose: what is written is whole, what passes by
itself is waited for, and what does not is named."""

import json
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from faulty_proxy import Fault

from c2b_ray.errors import RunError, StorageError
from c2b_ray.storage import files, sealed, writers
from c2b_ray.storage.parts import read_stage, writing

DATA = bytes(range(256)) * 2000
LARGE = DATA * 40  # an upload in parts


@pytest.fixture
def folder(s3_proxy, request):
    """A place of this test alone, behind the proxy."""
    return f"s3://tests/{request.node.name.replace('[', '-').strip(']')}"


@pytest.mark.parametrize("data", [DATA, LARGE], ids=["put", "in-parts"])
@pytest.mark.parametrize("kind", ["busy", "drop", "cut_upload", "lose_answer"])
def test_a_write_that_is_spoiled_once_ends_whole(s3_proxy, folder, kind, data):
    s3_proxy.faults[:] = [Fault(kind, ("PUT",), times=1)]
    files.write_bytes(f"{folder}/x", data)
    assert s3_proxy.count(kind) == 1
    assert files.read_bytes(f"{folder}/x") == data


@pytest.mark.parametrize("kind", ["busy", "drop", "cut_download"])
def test_a_read_that_is_spoiled_once_ends_whole(s3_proxy, folder, kind):
    table = pa.table({"id": ["a", "b"], "data": [DATA, DATA]})
    files.write_bytes(f"{folder}/x", DATA)
    files.write_bytes(f"{folder}/x.parquet", sealed.encoded(table))
    s3_proxy.faults[:] = [Fault(kind, ("GET",), times=1)]
    assert files.read_bytes(f"{folder}/x") == DATA
    s3_proxy.faults[:] = [Fault(kind, ("GET",), times=1)]
    assert files.read_table(f"{folder}/x.parquet").equals(table)
    assert s3_proxy.count(kind) == 2


def test_a_store_that_is_busy_for_seconds_is_waited_for(s3_proxy, folder):
    """pyarrow's own three attempts are over within two or three."""
    s3_proxy.faults[:] = [Fault("busy", ("PUT",), times=4), Fault("busy", ("GET", "HEAD"), times=4)]
    files.write_bytes(f"{folder}/x", DATA)
    assert files.entries(folder) == ["x"]
    assert files.read_bytes(f"{folder}/x") == DATA
    assert s3_proxy.count("busy") == 8


def test_a_store_that_stays_busy_is_given_up_after_the_timeout(s3_proxy, folder, monkeypatch):
    monkeypatch.setenv("C2B_S3_TIMEOUT", "4")
    s3_proxy.faults[:] = [Fault("busy", ("PUT",))]
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"overloaded or failing .*run the same command again later"):
        files.write_bytes(f"{folder}/x", DATA)
    assert 1 < time.monotonic() - began < 8
    s3_proxy.faults.clear()
    assert not files.exists(f"{folder}/x")


def test_with_a_third_of_all_requests_spoiled_every_part_is_written_once(s3_proxy, folder):
    s3_proxy.faults[:] = [
        Fault("busy", share=0.15),
        Fault("lose_answer", ("PUT",), share=0.25),
        Fault("cut_download", ("GET",), share=0.3),
        Fault("drop", share=0.35),
    ]
    tables = [pa.table({"id": [f"{n}-{i}" for i in range(3)], "data": [DATA] * 3}) for n in range(4)]
    with writing(f"{folder}/stage") as parts:
        for table in tables:
            parts.write(table, "id")
    whole = read_stage(f"{folder}/stage").sort_by("id")
    assert whole.equals(pa.concat_tables(tables).sort_by("id"))
    assert len(s3_proxy.requests) > sum(done == "" for _, _, done in s3_proxy.requests) * 1.2


def test_a_lease_whose_answer_was_lost_is_ones_own(s3_proxy, folder, caplog):
    s3_proxy.faults[:] = [Fault("lose_answer", ("PUT",), ".lease", times=1)]
    with writers.held(f"{folder}/run") as still_ours:
        still_ours()
        with pytest.raises(RunError, match="another process is writing here"), writers.held(f"{folder}/run"):
            pass
    assert s3_proxy.count("lose_answer") == 1
    assert "has died" not in caplog.text


def test_a_renewal_whose_answer_was_lost_keeps_the_lease(s3_proxy, folder, monkeypatch):
    monkeypatch.setattr(writers, "BEAT_S", 0.2)
    with writers.held(f"{folder}/run") as still_ours:
        s3_proxy.faults[:] = [Fault("lose_answer", ("PUT",), ".lease", times=2)]
        deadline = time.monotonic() + 20
        while s3_proxy.count("lose_answer") < 2 or s3_proxy.requests[-1][2]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(0.5)
        still_ours()


def test_of_writers_that_come_at_once_the_store_lets_one_in(s3_proxy, folder):
    """The server compares and puts in one step; moto's does so under Python's own lock alone."""
    gate, inside, refused = threading.Barrier(6), [], []

    def write():
        gate.wait()
        try:
            with writers.held(f"{folder}/run"):
                inside.append(1)
                gate.wait()
        except RunError as error:
            refused.append(str(error))
            gate.wait()

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(inside), len(refused)) == (1, 5)


def test_a_bucket_that_denies_writes_half_way_is_named_and_what_it_holds_is_kept(s3_objects, s3_proxy, folder):
    client, everything = s3_objects.client(), "arn:aws:s3:::denying/*"
    client.create_bucket(Bucket="denying")
    out = folder.replace("tests", "denying", 1)
    tables = [pa.table({"id": [str(n)], "data": [DATA]}) for n in range(3)]
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": everything}
    with writing(out) as parts:
        parts.write(tables[0], "id")
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        client.put_bucket_policy(Bucket="denying", Policy=json.dumps(policy))
        with pytest.raises(StorageError, match=r"forbids this in bucket 'denying' .*for what is written") as raised:
            parts.write(tables[1], "id")
    assert out in str(raised.value)
    assert "a-secret" not in str(raised.value)
    client.delete_bucket_policy(Bucket="denying")
    assert read_stage(out).num_rows == 1
    with writing(out) as parts:
        for table in tables:
            parts.write(table, "id")
    assert read_stage(out).num_rows == 3


def test_an_upload_in_parts_that_is_denied_half_way_leaves_nothing(s3_proxy, folder):
    s3_proxy.faults[:] = [Fault("deny", ("PUT",), after=1)]
    with pytest.raises(StorageError, match="forbids this"):
        files.write_bytes(f"{folder}/x", LARGE)
    s3_proxy.faults.clear()
    assert not files.exists(f"{folder}/x")


def test_a_writer_that_is_killed_in_an_upload_leaves_nothing(s3_proxy, folder):
    code = (
        "import sys\nfrom c2b_ray.storage import files\nprint('begins', flush=True)\nfiles.write_bytes(sys.argv[1], "
        f"bytes({len(LARGE)}))"
    )
    s3_proxy.faults[:] = [Fault("slow", ("PUT",), after=1, delay_s=30)]
    program = subprocess.Popen([sys.executable, "-c", code, f"{folder}/x"], stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not s3_proxy.count("slow"):
            assert program.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        program.kill()
        program.communicate()
    s3_proxy.faults.clear()
    assert files.entries(folder) == []
