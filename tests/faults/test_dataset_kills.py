"""Real deaths of dataset builds: the same command ends with exactly the rows of a build that nobody disturbed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doomed_builds import build, contents, ended, forked, said, write_config
from faulty_proxy import Fault

from c2b_ray.audits.dataset.build import build_dataset
from c2b_ray.errors import RunError, StorageError
from c2b_ray.storage import files

THREADS = 16
"""As many shards as a process has under way at most."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("builds")
    write_config(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder) -> dict[str, bytes]:
    out = folder / "undisturbed"
    assert ended(forked(build, out)) == 0, said(out)
    manifest = manifest_of(out)
    # A comparison of empty datasets would find nothing.
    assert manifest["rows"] > 30
    assert {"not_failed", "over_cap"} <= manifest["drops"].keys()
    assert manifest["repeated"]["tasks"] == 0
    return contents(out)


@pytest.fixture
def out(folder, request) -> Path:
    return folder / request.node.name


def manifest_of(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def noted_as_over(out: Path) -> bool:
    """Whether the build had only the digests of its documents left to write."""
    history = out / "history.json"
    builds = json.loads(history.read_text()).values() if history.exists() else []
    return any(build["ended"] == "finished" for build in builds)


def left_over(out: Path) -> set[str]:
    """What is in a finished dataset's directory besides its files."""
    known = {"captions.parquet", "dataset.json", "manifest.json", "history.json", "digests.json"}
    known |= {"shards", "drops", ".lock"}
    files = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
    return {name for name in files if name.partition("/")[0] not in known}


def killed_here(out: Path, commits: int) -> bool:
    """Whether a build died before it put one more file in place than that; else it has ended."""
    status = ended(forked(build, out, commits))
    assert status in (0, -signal.SIGKILL), said(out)
    return status != 0


@pytest.mark.timeout(600)
def test_killed_between_two_commits_it_ends_with_the_rows_of_an_undisturbed_build(out, undisturbed):
    """Every commit is one of the bench's; here some of the first, and every sixth."""
    commits = 0
    while killed_here(out, commits):
        was_over = noted_as_over(out)
        assert ended(forked(build, out)) == 0, said(out)
        assert contents(out) == undisturbed, f"killed after {commits} commits"
        assert left_over(out) == set()
        assert (out / "digests.json").is_file()
        repeated = manifest_of(out)["repeated"]
        assert (repeated["builds"], repeated["builds_ended_early"]) == ((1, 0) if was_over else (2, 1))
        assert repeated["tasks"] <= THREADS
        shutil.rmtree(out)
        commits += 2 if commits < 4 else 6
    assert commits > 2 * len(undisturbed)


def test_of_two_builds_at_once_the_second_refuses(out, undisturbed):
    first = forked(build, out)
    try:
        deadline = time.monotonic() + 120
        while not (out / "dataset.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(RunError, match="another process is writing"):
            build_dataset(out.parent / "dataset.yaml", out, via="here")
    finally:
        status = ended(first)
    assert status == 0, said(out)
    assert contents(out) == undisturbed


@pytest.mark.parametrize("folder_name", ["candidates", "repeats", "shards", "drops"])
def test_what_is_cut_short_on_disk_is_made_anew(out, undisturbed, folder_name):
    """In the middle of a build, as by a machine that lost its power: no manifest says yet what a file should be."""
    commits = 2 * len(undisturbed) + 1
    assert killed_here(out, commits)
    damaged = sorted(out.glob(f"{folder_name}/*"))
    assert damaged
    for file in damaged:
        os.truncate(file, file.stat().st_size // 2)
    assert ended(forked(build, out)) == 0, said(out)
    assert contents(out) == undisturbed
    shutil.rmtree(out)


@pytest.mark.parametrize("folder_name", ["shards", "drops"])
def test_of_a_finished_dataset_what_is_cut_short_is_made_anew(out, undisturbed, folder_name):
    shutil.copytree(out.parent / "undisturbed", out)
    file = sorted(out.glob(f"{folder_name}/*"))[1]
    os.truncate(file, file.stat().st_size // 2)
    built = build_dataset(out.parent / "dataset.yaml", out, via="here")
    assert contents(out) == undisturbed
    assert built.made == 1


def test_a_full_disk_says_so_and_the_same_command_goes_on(out, undisturbed, tmp_path):
    size = sum(map(len, undisturbed.values()))
    with mounted(out, f"size={size // 2048}k"):
        with pytest.raises(StorageError, match="the disk is full; free some space"):
            build_dataset(out.parent / "dataset.yaml", out, via="here")
        subprocess.run(["mount", "-o", "remount,size=64m", str(out)], check=True)
        build_dataset(out.parent / "dataset.yaml", out, via="here")
        assert contents(out) == undisturbed
        assert left_over(out) == set()
        assert manifest_of(out)["repeated"]["builds_ended_early"] == 1


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_on_an_object_store_that_spoils_a_tenth_of_all_requests(s3_proxy, s3_objects, out, undisturbed, tmp_path):
    s3_proxy.faults[:] = [
        Fault("busy", share=0.03),
        Fault("lose_answer", ("PUT",), share=0.07),
        Fault("cut_download", ("GET",), share=0.07),
        Fault("cut_upload", ("PUT",), share=0.09),
        Fault("drop", share=0.11),
    ]
    build_dataset(out.parent / "dataset.yaml", f"s3://tests/{out.name}", via="here")
    spoiled = sum(done != "" for _, _, done in s3_proxy.requests)
    assert spoiled > 5
    s3_proxy.faults.clear()
    for name in ("", "shards", "drops"):
        files.download(f"s3://tests/{out.name}/{name}".rstrip("/"), tmp_path / "back" / name)
    assert contents(tmp_path / "back") == undisturbed
    objects = s3_objects.client().list_objects_v2(Bucket="tests", Prefix=f"{out.name}/")["Contents"]
    names = {one["Key"].split("/")[1] for one in objects if not one["Key"].endswith("/")}  # no markers of folders
    documents = {"dataset.json", "manifest.json", "history.json", "digests.json"}
    assert names <= {".lease", "captions.parquet", "shards", "drops", *documents}
