"""What runs show in notebooks: headline and pictures, failures, tables, the report; and bars of progress."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import failures_recipes
import pytest
import synthetic_failures
from run_recipes import Recipe
from synthetic_run import make_run

from c2b_ray.audits.evaluate.run import open_evaluate_run
from c2b_ray.audits.kit.progress import Event, NotebookBars, notebook_bars
from c2b_ray.audits.runs import compare
from c2b_ray.engine.progress import Progress
from c2b_ray.errors import ConfigError


class _Tags(HTMLParser):
    """Collects the tags of a document, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = Recipe(classifiers=("a", "b"), accuracy={("a", "bus", "fog"): 0.2}, images_per_cell=40)
    return make_run(tmp_path_factory.mktemp("notebook") / "run", recipe)


def test_a_run_shows_its_headline_and_pictures_of_its_findings(run):
    shown = run._repr_html_()
    assert "bus, weather fog: 20\u202f% right (φ −0.75)" in shown
    pictures = _Tags(shown).named("img")
    assert len(pictures) == 8
    assert all(one["src"].startswith("data:image/jpeg;base64,") for one in pictures)
    assert shown.count("bus/weather/fog") == 8  # each is of the finding


def test_failures_are_a_table_for_programs_and_pictures_for_people(run):
    failures = run.failures()
    wrong = run.wrong_answers().to_pylist()
    assert len(failures) == failures.table.num_rows == len({(row["image_id"], row["truth"]) for row in wrong})
    frame = failures.to_pandas()
    assert set(frame[frame.tags.map(len) > 0].truth) == {"bus"}
    assert repr(failures) == f"<Failures of a, b: {len(failures)} images>"
    assert len(_Tags(failures._repr_html_()).named("img")) == 24
    assert {
        row["classifier"] for row in wrong if row["image_id"] in set(run.failures("b").table["image_id"].to_pylist())
    } >= {"b"}


def test_failures_of_captions_show_too(tmp_path):
    run = synthetic_failures.make_run(tmp_path / "run", failures_recipes.Recipe())
    assert "✗ bee" in run.failures()._repr_html_()
    assert run.to_pandas().shape[0] == run.hypotheses.num_rows


def test_tables_are_pandas_frames_by_name(run):
    assert list(run.to_pandas().columns) == run.scores.column_names
    assert len(run.to_pandas("captions")) == run.captions.num_rows
    with pytest.raises(ConfigError, match="did you mean 'scores'"):
        run.to_pandas("score")


def test_the_report_lies_in_a_frame_that_reaches_nothing_of_the_notebook(run):
    (frame,) = _Tags(run.show(400)._repr_html_()).named("iframe")
    assert frame["sandbox"] == "allow-scripts"
    assert "height:400px" in frame["style"]
    with open(run.report) as file:
        assert frame["srcdoc"] == file.read()


def test_names_are_text_and_no_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    recipe = Recipe(
        classes=(evil, "boat"), classifiers=(evil,), accuracy={(evil, evil, "fog"): 0.1}, images_per_cell=30
    )
    run = make_run(tmp_path / "run", recipe)
    for shown in (run._repr_html_(), run.failures()._repr_html_()):
        assert not _Tags(shown).named("script")
        assert "alert(1)" in shown


def test_a_run_that_is_not_finished_or_holds_no_images_says_so(tmp_path):
    run = make_run(tmp_path / "run", Recipe(images_per_cell=1, pictures=False, manifest={"status": "running"}))
    assert "running" in run._repr_html_()
    with open_evaluate_run(tmp_path / "evaluate", "evaluate-1", {}) as other:
        pass
    with pytest.raises(ConfigError, match="holds no images"):
        other.failures()


def test_a_comparison_is_one_line_for_a_terminal_and_its_page_in_a_notebook(run):
    compared = compare(run, classifier_a="a", classifier_b="b")
    assert re.fullmatch(r"<A: a, B: b: \d+ worse, \d+ better, \d+ the same, \d+ undetermined>", repr(compared))
    assert _Tags(compared._repr_html_()).named("iframe")[0]["sandbox"] == "allow-scripts"


def test_a_step_that_runs_twice_keeps_what_both_passes_took_and_did():
    bars = NotebookBars()
    bars._show = lambda: None
    bars(Event("classify", "begin"))
    bars(Event("classify", "progress", 4.9, Progress(160, 0, 0, 160, 30.0, answered=160)))
    bars(Event("classify", "end", 5.0))
    bars(Event("classify", "begin"))
    bars(Event("classify", "progress", 0.4, Progress(160, 0, 160, 160, 0.0, answered=0)))
    bars(Event("classify", "end", 0.5))
    assert "done in 5.5 s, 160 of 160 rows" in bars.html()


def test_bars_say_how_far_how_fast_and_how_long():
    bars = NotebookBars()
    bars._show = lambda: None  # a notebook's part: here is none
    bars(Event("read <b>", "begin"))
    bars(Event("read <b>", "end", 1.5))
    bars(Event("classify", "begin"))
    bars(Event("classify", "progress", 2.0, Progress(100, 2, 0, 400, 50.0, answered=100, what="images")))
    bars(Event("no images of a tram", "warning"))
    assert notebook_bars() is None
    tags = _Tags(bars.html())
    assert tags.named("progress") == [{"value": "1", "max": "1"}, {"value": "100", "max": "400"}]
    assert "read &lt;b&gt;" in bars.html()
    assert re.search(r"100 of 400 images, 50 a second, 6 s left, 2 bad", bars.html())
    assert "done in 1.5 s" in bars.html()
    assert "warning: no images of a tram" in bars.html()
