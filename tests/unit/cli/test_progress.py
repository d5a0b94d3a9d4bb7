"""What is shown while a command runs, and of names that would act on the terminal."""

import re
import subprocess
import sys
import time
from importlib.resources import files

import pyarrow as pa
import pytest
from rich.console import Console
from rich.markup import escape

from c2b_ray.audits.c2b.report.ranking import leading, ranked
from c2b_ray.audits.c2b.report.summary import findings_table
from c2b_ray.audits.kit.progress import Event
from c2b_ray.audits.kit.session import Steps
from c2b_ray.cli import show
from c2b_ray.cli.progress import Bars, Lines, shown
from c2b_ray.engine.progress import Progress, StageTotal
from c2b_ray.tables import SCORES


def test_without_a_terminal_each_step_has_plain_lines_also_while_it_runs(capsys):
    with Lines(every_s=0.05) as lines, Steps(lines).step("classify: [red]\x1b[31m") as on_progress:
        on_progress(Progress(100, 2, 7, 400, 60.0, answered=113))
        time.sleep(0.2)
    out, err = capsys.readouterr()
    first, *between, last = err.splitlines()
    assert first == r"classify: [red]\x1b[31m: begins"
    assert re.fullmatch(
        r"classify: \[red\]\\x1b\[31m: 0 s so far, 120 of 400 rows \(7 from before\), 60 a second, 5 s left, 2 bad",
        between[0],
    )
    assert re.fullmatch(
        r"classify: \[red\]\\x1b\[31m: done in 0\.\d s, 120 of 400 rows \(7 from before\), 60 a second, 2 bad", last
    )
    assert out == ""
    lines(Event("no row has [x]", "warning"))
    assert capsys.readouterr().err == "warning: no row has [x]\n"
    assert isinstance(shown(), Lines)  # as pytest's standard error is no terminal


def test_work_that_is_no_stage_says_how_much_is_done_and_how_long_the_rest_takes(capsys):
    with Lines(every_s=0.05) as lines, Steps(lines).counting("heads", 960, "images") as tell:
        tell(240)
        time.sleep(0.2)
    _, between, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"heads: 0 s so far, 240 of 960 images, [\d,]+ a second, \d+ s left", between)


def test_a_step_that_comes_again_and_again_has_few_lines_and_says_how_far_the_run_is(capsys):
    with Lines(every_s=30) as lines:
        steps = Steps(lines)
        for number in range(50):
            with steps.step("draw") as on_progress:
                on_progress(Progress(64, 0, 0, 64, 9.5, 64, "images", StageTotal(64 * (number + 1), 4000)))
        with steps.step("report"):
            pass
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "draw: begins"
    assert re.fullmatch(
        r"draw: done in 0\.\d s, 64 of 64 images, 9\.5 a second; 64 of at most 4,000 of the run", said[1]
    )
    assert len(said) == 5
    assert re.fullmatch(r"draw: done 50 times in 0\.\d s", said[-1])


def test_a_step_that_comes_again_has_one_bar():
    console = Console(force_terminal=True, record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file, Bars(console) as bars:
        steps = Steps(bars)
        for _ in range(3):
            with steps.step("draw") as on_progress:
                on_progress(Progress(64, 0, 0, 64, 10.0, 64))
        assert len(bars._bars.tasks) == 1


def test_a_bar_shows_a_name_as_it_is():
    console = Console(force_terminal=True, record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file, Bars(console) as bars, Steps(bars).step("classify: [red]x[/red]"):
        pass
    assert "classify: [red]x[/red]" in console.export_text()


@pytest.mark.parametrize("name", ["[red]", "[/]", ":smile:", "a\x1b[31mb", "bus\u202egpj", "back\\"])
def test_names_neither_style_nor_break_a_table(name, capsys):
    row = {"classifier": name, "target_class": name, "attribute": name, "bias_class": name, "verdict": "against"}
    numbers = {"accuracy": 0.5, "phi": -0.2, "phi_low": -0.3, "phi_high": -0.1}
    counts = {"n": 10, "correct": 5, "errors": 0, "paper_verdict": -1}
    groups = leading(ranked(pa.Table.from_pylist([row | numbers | counts], SCORES)))
    show.out().print(show.summary_table(findings_table(groups)))
    show.out().print(escape(name))
    show.line(name)
    said = capsys.readouterr().out
    shown_as = name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert said.count(shown_as) == 6
    assert "\x1b" not in said


def test_the_version_is_said(c2b):
    import c2b_ray

    status, out, _ = c2b("--version")
    assert (status, out) == (0, f"c2b-ray {c2b_ray.__version__}\n")
    assert re.match(r"\d+\.\d+", c2b_ray.__version__)
    assert files("c2b_ray").joinpath("py.typed").is_file()
    by_name = subprocess.run([sys.executable, "-m", "c2b_ray", "--version"], capture_output=True, text=True, check=True)
    assert by_name.stdout == out
