"""Local copies of files on a store: whole, used by several processes at once, and gone with the last of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from c2b_ray.endpoint.policy import copies
from c2b_ray.storage import files

ROOT = "s3://tests/endpoint/tenants/a"
OTHER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from c2b_ray.endpoint.policy import copies
if len(sys.argv) > 3:
    copies.use_folder_of_tenant(sys.argv[3])
print(copies.fetch_copy(sys.argv[2]), flush=True)
sys.stdin.readline()
copies.remove_copies()
"""


@pytest.fixture(autouse=True)
def folder(s3_proxy, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path / f"c2b-job-files-{os.getuid()}"
    copies.remove_copies()


def other(tmp_path, path, *tenant):
    """Another job's process on this machine, which has fetched the same file."""
    command = [sys.executable, "-c", OTHER, str(tmp_path), path, *tenant]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def copies_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_copies_are_gone_with_the_last_process_that_uses_them(folder, tmp_path):
    path = f"{ROOT}/uploads/{'ab' * 32}.onnx"
    files.write_under(path, b"weights")
    mine = Path(copies.fetch_copy(path))
    process, theirs = other(tmp_path, path)
    assert theirs == mine
    assert mine.read_bytes() == b"weights"
    copies.remove_copies()
    assert copies_in(folder) == [mine], "the other process uses it"
    process.communicate("end\n")
    assert copies_in(folder) == []


def test_what_a_killed_process_left_is_not_used_and_goes(folder, tmp_path):
    """A folder that changed on the store since: half of the copy, or an old one, would give other numbers."""
    files.write_under(f"{ROOT}/data/generator/config.json", b"old")
    process, copy = other(tmp_path, f"{ROOT}/data/generator")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (copy / "config.json").read_bytes() == b"old"
    files.write_under(f"{ROOT}/data/generator/config.json", b"new")
    assert Path(copies.fetch_copy(f"{ROOT}/data/generator")) == copy
    assert (copy / "config.json").read_bytes() == b"new"
    process, left = other(tmp_path, f"{ROOT}/data/generator/config.json")
    process.kill()
    process.communicate()
    assert left.exists()
    copies.remove_copies()
    assert copies_in(folder) == []


def test_a_runner_removes_what_killed_processes_of_any_tenant_left_and_nothing_in_use(folder, tmp_path):
    path = f"{ROOT}/uploads/{'ef' * 32}.onnx"
    files.write_under(path, b"weights")
    (killed, left), (lives, used) = (other(tmp_path, path, tenant) for tenant in ("tenant_a", "tenant_b"))
    assert (left.parents[1], used.parents[1]) == (folder / "tenant_a", folder / "tenant_b")
    killed.kill()
    killed.communicate()
    assert left.exists()
    copies.sweep_copies()
    assert copies_in(folder) == [used]
    lives.communicate("end\n")
    assert copies_in(folder) == []


def test_the_files_that_a_manifest_names_are_fetched_again_if_they_are_the_tenants(folder):
    """A question may run on another machine than the audit that it asks."""
    weights, names = f"{ROOT}/uploads/{'cd' * 32}.onnx", f"{ROOT}/data/deep/names.txt"
    for path in (weights, names):
        files.write_under(path, path.encode())
    copies_of = [copies.fetch_copy(path) for path in (weights, names)]
    manifest = f'{{"config": {{"classifier": "onnx:{copies_of[0]}?labels={copies_of[1]}&mean=0"}}}}'
    copies.remove_copies()
    copies.fetch_copies_of(manifest, "s3://tests/endpoint/tenants/b")
    assert copies_in(folder) == []
    copies.fetch_copies_of(manifest, ROOT)
    assert [Path(path).read_bytes() for path in copies_of] == [weights.encode(), names.encode()]
