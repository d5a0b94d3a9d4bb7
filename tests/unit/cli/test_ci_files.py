"""The files of docs/ci are YAML, and every `c2b` command in them is one that this release takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer
import yaml

from c2b_ray.cli.commands import app

FOLDER = Path(__file__).parents[3] / "docs" / "ci"
GROUP = typer.main.get_command(app)


def lines_of(name: str) -> dict[str, list[str]]:
    """Returns the shell lines of each job."""
    document = yaml.safe_load((FOLDER / name).read_text())
    if name == "gitlab.yml":
        return {job: content["script"] for job, content in document.items()}
    return {
        job: [step["run"] for step in content["steps"] if "run" in step] for job, content in document["jobs"].items()
    }


JOBS = [(name, job) for name in ("github.yml", "gitlab.yml") for job in lines_of(name)]


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_every_command_of_a_job_is_one_that_is_taken(name: str, job: str) -> None:
    lines = lines_of(name)[job]
    assert lines[0].startswith("pip install ")
    for line in lines[1:]:
        program, command, *arguments = shlex.split(line)
        assert program == "c2b"
        # Parses the arguments, and runs nothing.
        GROUP.commands[command].make_context(command, arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "job"), [("github.yml", "gate"), ("gitlab.yml", "audit")])
def test_the_jobs_gate_what_they_audited_and_keep_its_report(name: str, job: str) -> None:
    lines = lines_of(name)[job]
    audit, gate = (shlex.split(line) for line in lines[-2:])
    run = audit[audit.index("--out") + 1]
    assert gate[:3] == ["c2b", "gate", run]
    text = (FOLDER / name).read_text()
    assert f"{run}/report.html" in text
    assert text.count("gates.xml") >= 2
