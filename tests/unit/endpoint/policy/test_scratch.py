"""Temporary files of runners, of jobs and of uploads: none stay, whatever was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.policy.copies import ScratchFolder
from c2b_ray.endpoint.work.process import ProcessStarter

OWNER = """
import sys
from c2b_ray.endpoint.policy.copies import ScratchFolder

print(ScratchFolder("own-").path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_what_a_killed_owner_left_is_removed_and_what_a_live_one_uses_is_not(temp: Path) -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        (theirs / "job").mkdir()
        (theirs / "job" / "weights.onnx").write_bytes(b"a tenant's")
        (temp / "own-link").symlink_to(temp)
        mine = ScratchFolder("own-")
        assert theirs.is_dir()
        owner.kill()
    again = ScratchFolder("own-")
    assert not theirs.exists()
    assert Path(mine.path).is_dir()
    mine.close()
    again.close()
    assert [path.name for path in temp.iterdir()] == ["own-link"]


@pytest.mark.parametrize("network", [True, False])
def test_a_jobs_temporary_files_go_with_its_process_however_it_ends(temp: Path, network: bool) -> None:
    """Of weights of strangers, the process writes no other temporary folder."""
    folder = temp / "runner"
    folder.mkdir()
    config = EndpointConfig.model_validate({"storage": str(temp / "storage")})
    process, _ = ProcessStarter(config, str(folder), None).process(network=network)
    try:
        (own,) = folder.iterdir()
        while not (text := Path(f"/proc/{process.pid}/environ").read_text()):
            assert process.receive(0.1) is None  # empty while the launcher becomes the program
        environment = dict(line.partition("=")[::2] for line in text.split("\0") if line)
        assert environment["TMPDIR"] == str(own)
        assert environment.get("RAY_TMPDIR") == (str(temp) if network else None)
        (own / "spool").write_bytes(b"half an index")
    finally:
        process.kill()
    assert not list(folder.iterdir())
