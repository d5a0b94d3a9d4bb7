"""What a machine has for audits: each lack is said with what mends it, and only what breaks an audit fails."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from c2b_ray.audits import doctor
from c2b_ray.audits.doctor import Gpu, Row
from c2b_ray.models.surroundings import Hub, Torch

REQUIRED = [
    Requirement(line)
    for line in (
        "torch>=2.14,<2.15",
        "numpy>=2",
        'onnx>=1.17; extra == "onnx"',
        'onnxruntime>=1.20; extra == "onnx"',
        'boto3>=1.35; extra == "s3"',
    )
]
ALL = {"torch": "2.14.0", "numpy": "2.4.0", "onnx": "1.18", "onnxruntime": "1.22", "boto3": "1.36"}
GIB = 2**30
IDLE = Gpu("H100", 80 * GIB, GIB, [])
BUSY = Gpu("H100", 80 * GIB, 60 * GIB, ["python (7)"])


def test_a_package_that_is_missing_or_too_old_breaks_an_audit() -> None:
    assert doctor.packages(ALL, REQUIRED).state == "ok"
    row = doctor.packages({"torch": "2.13.0"}, REQUIRED)
    assert (row.state, row.text) == ("broken", "torch 2.13.0, not <2.15,>=2.14, numpy is missing")
    assert row.remedy == "make setup"  # in a checkout


def test_an_extra_that_lacks_a_package_is_a_note_with_its_command() -> None:
    rows = doctor.extras({**ALL, "onnx": "1.2"}, REQUIRED, ["onnx", "s3", "all"])
    assert rows == [
        Row("extras", "ok", "s3"),
        Row("extra onnx", "note", "onnx 1.2, not >=1.17", "pip install 'c2b-ray[onnx]'"),
    ]


def test_versions_are_compared_with_the_lock_where_both_have_the_package() -> None:
    text = "\n".join(
        [
            "# made by a command",
            "numpy==2.4.0 \\",
            "    --hash=sha256:00 \\",
            "torch==2.14.1 ; sys_platform != 'never' \\",
            "torch==1.0 ; sys_platform == 'never' \\",
            "absent==1.0",
        ]
    )
    pinned = doctor._locked(text)
    assert pinned == {"numpy": "2.4.0", "torch": "2.14.1", "absent": "1.0"}
    row = doctor.locked(ALL, pinned)
    assert (row.state, row.text) == ("note", "1 differ from requirements.lock: torch 2.14.0 (lock: 2.14.1)")
    assert doctor.locked(ALL, {"numpy": "2.4.0"}).state == "ok"


def test_the_lock_of_this_checkout_is_read() -> None:
    assert len(doctor._locked(doctor.LOCK.read_text())) > 100


@pytest.mark.parametrize(
    ("row", "state", "said", "remedy"),
    [
        (doctor.system("linux", (3, 10), "3.10.2"), "broken", "needs 3.11", "python3.11 -m venv .venv"),
        (doctor.system("darwin", (3, 12), "3.12.1"), "note", "macOS", "Linux"),
        (doctor.system("win32", (3, 12), "3.12.1"), "broken", "needs Linux", "WSL"),
        (doctor.system("linux", (3, 11), "3.11.7"), "ok", "3.11.7", ""),
        (doctor.torch_row(Torch(problem="no libcudart")), "broken", "no libcudart", "docs/install.md"),
        (doctor.torch_row(Torch("13.0", 1)), "ok", "CUDA 13.0", ""),
        (doctor.gpus([], None), "ok", "none", ""),
        (doctor.gpus([IDLE], "built for CPUs: install X"), "note", "built for", "install X"),
        (doctor.gpus([BUSY], None), "note", "60.0 GiB of 80.0 GiB in use by python (7)", "nvidia-smi"),
        (doctor.gpus([IDLE], None), "ok", "H100, 1.0 GiB of 80.0 GiB in use", ""),
        (doctor.gpus([Gpu("odd", None, None, [])], None), "ok", "odd", ""),
        (doctor.hub(Hub("https://hub", "/cache", True, False, None)), "note", "offline", "unset HF_HUB_OFFLINE"),
        (doctor.hub(Hub("https://hub", "/cache", False, True, True)), "ok", "a token is there", ""),
        (doctor.hub(Hub("https://hub", "/cache", False, False, False)), "note", "does not answer", "HF_HUB_OFFLINE=1"),
        (doctor.ray("2.60.0", "host:1", False, []), "broken", "RAY_ADDRESS=host:1", "unset RAY_ADDRESS"),
        (doctor.ray("2.60.0", "host:1", True, []), "ok", "answers", ""),
        (doctor.ray("2.60.0", None, True, ["10.0.0.1:6379"]), "ok", "10.0.0.1:6379", "RAY_ADDRESS=auto"),
        (doctor.ray("2.60.0", None, True, []), "ok", "no cluster", ""),
        (doctor.cores(2, 64, 1.5), "ok", "2 of the machine's 64, by the limit of its container", ""),
        (doctor.cores(4, 64, None), "ok", "by its affinity", ""),
        (doctor.memory(2 * GIB), "note", "2.0 GiB", "container"),
        (doctor.shared_memory(64 * 2**20, 0), "note", "64 MiB", "--shm-size=8g"),
        (doctor.shared_memory(8 * GIB, 1), "ok", "8.0 GiB", ""),
        (doctor.shared_memory(None, 0), "ok", "no /dev/shm", ""),
        (doctor.open_files(1024, 524288), "note", "1,024", "ulimit -n 4096"),
        (doctor.open_files(1024, 1024), "note", "1,024", "nofile"),
        (doctor.open_files(resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok", "no limit", ""),
    ],
)  # fmt: skip
def test_what_is_there_and_what_to_do(row: Row, state: str, said: str, remedy: str) -> None:
    assert row.state == state
    assert said in row.text
    assert remedy in row.remedy
    assert bool(remedy) == bool(row.remedy)


def test_the_place_of_runs_need_not_exist_but_its_folder_can_be_written(tmp_path: Path) -> None:
    row = doctor.place(str(tmp_path / "not" / "yet"))
    assert row.state in ("ok", "note")
    assert str(tmp_path) in row.text
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_breaks_an_audit(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert doctor.place(str(tmp_path / "runs")).state == "broken"


def test_a_full_disk_breaks_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK", 2**62)
    assert doctor.place(str(tmp_path)).state == "broken"


def test_a_bucket_is_written_and_the_probe_removed(s3) -> None:
    row = doctor.place("s3://photos/runs")
    assert row == Row("runs", "ok", "s3://photos/runs can be written")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket="photos").get("Contents", ())]
    assert keys in ([], ["runs/"])  # Arrow's mark of an empty folder


def test_a_bucket_that_is_not_there_breaks_an_audit(s3) -> None:
    row = doctor.place("s3://elsewhere/runs")
    assert row.state == "broken"
    assert "elsewhere" in row.text


def test_the_command_fails_where_no_cluster_answers_and_shows_no_secret(c2b, monkeypatch, tmp_path) -> None:
    with socket.socket() as taken:  # a port where nothing listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"ray://user:hunter2hunter2@127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("HF_TOKEN", "hf_thisisnotarealtokenatall1234")
        status, out, _ = c2b("doctor", "--json", "--runs", tmp_path)
    assert status == 1
    shown = json.loads(out)
    assert shown["sound"] is False
    assert [row["subject"] for row in shown["rows"] if row["state"] == "broken"] == ["Ray"]
    assert "hunter2" not in out
    assert "thisisnot" not in out
    monkeypatch.delenv("RAY_ADDRESS")
    status, out, _ = c2b("doctor", "--runs", tmp_path)
    assert status == 0
    assert re.search("no cluster: audits run in this process|a cluster runs here", out)  # other tests may run one
