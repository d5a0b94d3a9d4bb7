"""`c2b compare` and `c2b gate`: what they say, what they write, and the exit status that a build reads."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from run_recipes import Recipe
from synthetic_run import make_run
from typer.testing import CliRunner

from c2b_ray import compare, load_run
from c2b_ray.audits.c2b.classification import one_of
from c2b_ray.cli.commands import app
from c2b_ray.errors import Argument, ConfigError
from c2b_ray.tables import COMPARISON

OLD, NEW = "world:old", "world:new"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`old` and `new` audit one classifier each, on the same images; `both` audits the two, `three` a third as well."""
    place = tmp_path_factory.mktemp("runs")
    settings = {"classes": ("bus", "boat"), "attributes": {"weather": ("clear", "fog", "rain")}, "images_per_cell": 60}
    accuracy = {
        (OLD, "bus", "fog"): 0.9,
        (NEW, "bus", "fog"): 0.3,
        (OLD, "boat", "rain"): 0.4,
        (NEW, "boat", "rain"): 0.95,
    }
    for name, classifiers in {"old": (OLD,), "new": (NEW,), "both": (OLD, NEW), "three": (OLD, NEW, "m")}.items():
        recipe = Recipe(**settings, classifiers=classifiers, accuracy=accuracy, pictures=False)
        make_run(place / name, recipe)
    changes = {
        "other-images": {"attributes": {"lighting": ("day", "night")}},
        "other-tau": {"tau": 0.2},
        "other-classes": {"classes": ("bus", "boat", "tram")},
        "unfinished": {"manifest": {"status": "running"}},
        "damaged": {},
        "untold": {},
    }
    for name, change in changes.items():
        recipe = Recipe(**(settings | {"classifiers": (NEW,), "pictures": False} | change))
        make_run(place / name, recipe)
    scores = place / "damaged" / "scores.parquet"
    scores.write_bytes(scores.read_bytes()[:-50])
    told = json.loads((place / "untold" / "run.json").read_text())
    del told["config"]["tau"]
    (place / "untold" / "run.json").write_text(json.dumps(told))
    return place


def test_two_runs_say_what_got_worse_and_better(runs, c2b):
    status, out, _ = c2b("compare", runs / "old", runs / "new")
    assert status == 0
    assert "Got worse (1)" in out
    assert "Got better (1)" in out
    worse = out[out.index("Got worse") : out.index("Got better")]
    assert "fog" in worse
    assert "rain" not in worse
    assert "1 worse, 1 better" in out
    # which images tell the two apart: the first that B alone gets wrong, and A in the other cell
    key = re.search(r"bus, weather: fog: B alone is wrong on (\S+), ", out)
    assert key is not None
    assert key[1] in load_run(runs / "new").images["key"].to_pylist()
    assert "boat, weather: rain: A alone is wrong on " in out


def test_two_classifiers_of_one_run_are_the_same_comparison(runs, c2b):
    status, out, _ = c2b("compare", runs / "both", "--json")
    told = json.loads(out)
    assert status == 0
    assert (told["classifier_a"], told["classifier_b"]) == (OLD, NEW)
    assert told["changes"]["worse"] == told["changes"]["better"] == 1
    assert told["left_out"] == {"unshared": 0, "unanswered": 0}
    two = json.loads(c2b("compare", runs / "old", runs / "new", "--json")[1])
    assert told["cells"] == two["cells"]
    # The other way round, better is worse.
    swapped = json.loads(c2b("compare", runs / "both", runs / "both", "--classifier-a", NEW, "--json")[1])
    assert swapped["classifier_b"] == OLD
    changes = {row["bias_class"]: row["change"] for row in swapped["cells"] if row["change"] in ("better", "worse")}
    assert changes == {"fog": "better", "rain": "worse"}


def test_which_is_a_follows_the_audit_and_not_the_names_of_part_files(tmp_path):
    recipe = Recipe(classes=("bus",), classifiers=(OLD, NEW), pictures=False)
    run = make_run(tmp_path / "run", recipe)
    predictions = run.predictions
    for part, spec in (("part-0", NEW), ("part-1", OLD)):
        place = run.location(f"predictions/{part}.parquet")
        pq.write_table(predictions.filter(pc.equal(predictions["classifier"], spec)), place)
    found = compare(run)
    assert (found.classifier_a, found.classifier_b) == (OLD, NEW)


def test_a_classifier_is_named_by_its_path_from_here_or_as_pages_call_it(c2b, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specs = tuple(f"onnx:{tmp_path}/{name}.onnx" for name in "ab")
    run = make_run(tmp_path / "run", Recipe(classes=("bus",), classifiers=specs, pictures=False))
    for names in (("onnx:./a.onnx", "onnx:b.onnx"), specs):
        arguments = [word for pair in zip(("--classifier-a", "--classifier-b"), names, strict=True) for word in pair]
        told = json.loads(c2b("compare", run.path, *arguments, "--json")[1])
        assert (told["classifier_a"], told["classifier_b"]) == specs
    monkeypatch.chdir("/")
    assert one_of(run, "onnx:b.onnx", Argument.CLASSIFIER) == specs[1]
    with pytest.raises(ConfigError, match=r"no predictions of .onnx:c.onnx.; .*b\.onnx"):
        one_of(run, "onnx:c.onnx", Argument.CLASSIFIER)


def test_python_gives_what_the_command_line_shows(runs):
    found = compare(runs / "old", load_run(runs / "new"))
    assert found.cells.schema == COMPARISON
    assert set(found.scores["classifier"].to_pylist()) == {NEW}


def test_out_holds_a_table_and_a_safe_page(runs, c2b, tmp_path):
    out = tmp_path / "a" / "comparison"
    assert c2b("compare", runs / "old", runs / "new", "--out", out)[0] == 0
    assert pq.read_table(out / "comparison.parquet").schema.equals(COMPARISON)
    page = (out / "comparison.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "Got worse" in page
    assert "−0.60" in page
    assert page.count("<script") == 1  # the page's own
    assert "http" not in page.replace("http-equiv", "")


def test_a_page_of_evil_names_runs_nothing(c2b, tmp_path):
    evil = "<script>alert(1)</script>[bold]"
    recipe = Recipe(
        classes=("bus", evil),
        attributes={"weather": ("fog", "rain")},
        classifiers=(OLD, NEW),
        images_per_cell=60,
        accuracy={(NEW, evil, "fog"): 0.2},
        pictures=False,
    )
    make_run(tmp_path / "run", recipe)
    status, out, _ = c2b("compare", tmp_path / "run", "--out", tmp_path / "out", "--fail-on", "worse")
    assert status == 1
    assert "[bold]" in out
    assert (tmp_path / "out" / "comparison.html").read_text().count("<script") == 1  # the page's own


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        (["worse"], 1),
        (["bus/weather/fog:worse"], 1),
        (["bus/weather/rain:worse"], 0),
        (["boat/*:worse"], 0),
        (["boat/*:worse", "*/fog:worse"], 1),
        (["bus/weather/fog:phi<-0.2"], 1),
        (["bus/weather/fog:phi<-0.9"], 0),
        (["bus/*:against"], 1),
        (["boat/weather/rain:against"], 1),  # it is undetermined: the gate could hardly have failed
        (["difference<-0.5"], 1),
        (["phi_difference>0.9"], 0),
    ],
)
def test_gates_set_the_exit_status(runs, gates, status):
    arguments = [part for gate in gates for part in ("--fail-on", gate)]
    result = CliRunner().invoke(app, ["compare", str(runs / "old"), str(runs / "new"), *arguments])
    assert result.exit_code == status
    assert ("failed" in result.output) == bool(status)


def test_junit_and_json_hold_the_checks(runs, c2b, tmp_path):
    file = tmp_path / "made" / "gates.xml"
    gates = ("--fail-on", "worse", "--fail-on", "bus/weather/fog:against")
    status, out, _ = c2b("compare", runs / "old", runs / "new", *gates, "--junit", file, "--json")
    assert status == 1
    told = json.loads(out)
    assert told["failed"] is True
    (suite,) = ET.parse(file).getroot()
    assert suite.get("name") == "c2b compare"
    assert int(suite.get("tests")) == len(told["gates"]) == 10  # six cells, three values over all classes, one cell
    failed = [(case.get("classname"), case.get("name")) for case in suite.findall("testcase[failure]")]
    assert failed == [("worse", "bus/weather/fog"), ("bus/weather/fog:against", "bus/weather/fog")]


def test_gate_looks_at_one_run(runs, c2b, tmp_path):
    assert c2b("gate", runs / "new", "--fail-on", "against")[0] == 1
    undecided = c2b("gate", runs / "old", "--fail-on", "bus/*:against")
    assert undecided[0] == 1
    assert "is decided" in " ".join(undecided[1].split())
    assert c2b("gate", runs / "old", "--fail-on", "bus/*:against", "--allow-undetermined")[0] == 0
    assert "or --allow-undetermined" in " ".join(undecided[1].split())
    status, out, _ = c2b("gate", runs / "both", "--fail-on", "bus/*:against", "--junit", tmp_path / "g.xml")
    assert status == 1
    assert f"bus/weather/fog ({NEW}): verdict is against" in out
    assert ET.parse(tmp_path / "g.xml").getroot().get("failures") == "1"
    assert c2b("gate", runs / "both", "--fail-on", "bus/*:against", "--classifier", OLD, "--allow-unchecked")[0] == 0
    told = json.loads(c2b("gate", runs / "new", "--fail-on", "phi<-0.99", "--json")[1])
    assert told["failed"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "old", "new", "--fail-on", "bus/wether/fog:worse"), "did you mean 'bus/weather/fog'"),
        (("compare", "old", "new", "--fail-on", "wurse"), "did you mean 'worse'"),
        (("compare", "old", "new", "--junit", "x.xml"), "--fail-on"),
        (("compare", "old"), "has predictions of world:old; name the two"),
        (("compare", "three"), "name the two to compare"),
        (("compare", "three", "old"), "--classifier-a"),
        (("compare", "both", "--classifier-a", "world:odl"), "did you mean 'world:old'"),
        (("compare", "both", "--classifier-a", OLD, "--classifier-b", OLD), "compared with itself"),
        (("compare", "old", "other-images"), "same index, seed"),
        (("compare", "old", "other-tau"), "tau"),
        (("compare", "old", "other-classes"), "classes"),
        (("compare", "old", "unfinished"), "not finished"),
        (("compare", "old", "nowhere"), "no run there"),
        (("compare", "old", "untold"), "untold/run.json: its config has no tau"),
        (("compare", "old", "damaged"), "damaged: the run is damaged: its table scores.parquet is not the one that"),
        (("gate", "damaged", "--fail-on", "against"), "its table scores.parquet is not the one that"),
        (("gate", "old", "--fail-on", "against", "--junit", ""), "--junit: names no file"),
        (("gate", "old", "--fail-on", "against", "--junit", "F/x.xml"), "F: a file, or a link to nothing"),
        (("compare", "old", "new", "--out", "F"), "F: a file, or a link to nothing"),
        (("gate", "old", "--fail-on", "worse"), "c2b compare"),
        (("gate", "old"), "--fail-on"),
        (("gate", "old", "--fail-on", "tram/weather/fog:against"), "no cell 'tram/weather/fog'"),
    ],
)
def test_bad_input_says_what_is_wrong_and_exits_2(runs, c2b, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "F").touch()
    names = {place.name for place in runs.iterdir()} | {"nowhere"}
    status, out, err = c2b(*(runs / word if word in names else word for word in arguments))
    assert status == 2
    assert words in err
    assert out == ""
    assert [place.name for place in tmp_path.iterdir()] == ["F"]


def test_the_page_shows_the_images_that_tell_the_two_apart(tmp_path, c2b):
    recipe = Recipe(
        classifiers=("a", "b"), attributes={"weather": ("fog", "clear")}, images_per_cell=60,
        accuracy={("b", "bus", "fog"): 0.3, ("b", "boat", "fog"): 0.85, ("b", "umbrella", "fog"): 0.85},
    )  # fmt: skip
    run = make_run(tmp_path / "run", recipe)
    found = compare(run, classifier_a="a", classifier_b="b")
    places = [tuple(row[n] for n in ("target_class", "attribute", "bias_class")) for row in found.cells.to_pylist()]
    for row, told in zip(found.cells.to_pylist(), found.shared.disagreements(places).values(), strict=True):
        assert (len(told.only_a), len(told.only_b)) == (row["only_a"], row["only_b"])
    html = Path(found.write(tmp_path / "out")).read_text()
    assert "Over all classes, weather: fog</h3>" in html
    assert "bus, weather: fog</h3>" in html
    assert "A right, B wrong: " in html
    assert "✓" not in html  # what stands beneath a picture is the wrong answer
    assert 'class="file">photos/' in html
    assert html.count('<img src="data:image/jpeg') >= 12
