"""`c2b latent` in this process: planted directions are found, an unbiased classifier has none, bad input says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn
from toy_latent import ATTRIBUTES, toy_classifier, toy_generator, toy_labels

import c2b_ray
from c2b_ray.audits.audit import audit_named
from c2b_ray.audits.gate import failed
from c2b_ray.audits.kit.progress import IMAGES, IMAGES_HELD
from c2b_ray.audits.latent.comparison import compare
from c2b_ray.audits.latent.problems import most_images, names_of
from c2b_ray.audits.latent.report import summary
from c2b_ray.audits.latent.search import name_of
from c2b_ray.config.latent import LatentConfig, Problem
from c2b_ray.errors import ConfigError, InputError, RunError, SpecError
from c2b_ray.models.memory_classifier import InMemory, Preprocess
from c2b_ray.tables.latent import DIRECTIONS

pytestmark = pytest.mark.filterwarnings("ignore:.*channels_last.*")
TARGET, BIASED = (2.0, 0, 0, 0, 0, 0), (2.0, 1.2, 0.8, 0, 0, 0)
FAST = {"search": {"iterations": 20, "batch": 16, "walk": 3, "starts": 1}, "evidence": {"latents": 600}}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    generator = toy_generator(folder / "generator")
    return {"generator": generator, "latents": toy_labels(generator, folder / "labels.parquet")}


def run(toy, out, response, listener=None, **fields):
    config = {**toy, "target": "target", **FAST, **fields}
    classifier = toy_classifier(toy["generator"], response)
    return c2b_ray.latent_directions(config, out, "here", listener, classifier=classifier)


def test_planted_directions_are_found_one_after_the_other_and_then_nothing(toy, tmp_path):
    result = run(toy, tmp_path / "run", BIASED, directions=4, biased="first")
    rows = result.directions.to_pylist()
    assert [row["verdict"] for row in rows] == ["found", "nothing found"]  # both biases are one direction: their sum
    assert "the target moves with" not in rows[1]["reason"], "what moved the answer has been found"
    first, last = rows
    planted = np.array([0, 1.2, 0.8, 0, 0, 0])
    assert abs(np.dot(first["direction"], planted / np.linalg.norm(planted))) > 0.95
    assert first["cos_target"] < 1e-6
    assert first["delta_cos"] == pytest.approx(first["cos_bias"] - first["cos_target"])
    assert abs(np.dot(first["direction"], last["direction"])) < 1e-6
    assert first["effect"] > first["margin"] >= 0.05
    assert result.directions.schema.names[:8] == DIRECTIONS.names[:8] == [
        "target", "generator", "method", "direction", "cos_bias", "cos_target", "delta_cos", "verdict",
    ]  # fmt: skip
    shown = summary(result)
    assert "1 direction found" in shown.lines[0]
    assert shown.marks == ["bad", ""]
    strips = result.strips.to_pylist()
    of_first = [row for row in strips if row["direction_id"] == first["direction_id"] and row["latent"] == 0]
    assert [row["position"] for row in of_first] == sorted(row["position"] for row in of_first)
    assert of_first[-1]["probability"] > of_first[0]["probability"] + 0.1


def test_known_attributes_are_kept_out_and_another_bias_is_found(toy, tmp_path):
    result = run(toy, tmp_path / "run", BIASED, known=["first"])
    rows = result.directions.to_pylist()
    assert abs(rows[0]["direction"][1]) < 0.15
    assert abs(rows[0]["direction"][2]) > 0.9
    assert rows[0]["verdict"] == "found"
    checks = audit_named("latent").check_gates(result, ["found", "effect_low>0.9", "findings>0"])
    assert [check.outcome for check in checks] == ["failed", "passed", "failed"]


def test_an_unbiased_classifier_has_nothing_and_a_rerun_searches_nothing(toy, tmp_path):
    result = run(toy, tmp_path / "run", TARGET)
    (row,) = result.directions.to_pylist()
    assert row["verdict"] == "nothing found"
    assert "not shown to be more" in row["reason"]
    (passed,) = audit_named("latent").check_gates(result, ["found"])
    assert (passed.outcome, passed.cell) == ("passed", f"{row['problem']}/consistent/1")
    events = []
    again = run(toy, tmp_path / "run", TARGET, listener=events.append)
    assert again.directions.equals(result.directions)
    assert again.manifest["run_id"] == result.manifest["run_id"]
    assert [event.counts for event in events if event.counts] == [{IMAGES: 0, IMAGES_HELD: row["images_used"]}]


@pytest.mark.long
def test_two_classifiers_are_compared_in_one_space_and_other_spaces_refused(toy, tmp_path):
    fields = {"strips": {"latents": 0}, "directions": 2}
    biased = run(toy, tmp_path / "b", BIASED, **fields)
    unbiased = run(toy, tmp_path / "u", TARGET, **fields)
    both = compare(unbiased, biased)
    (worse,) = [row for row in both.cells.to_pylist() if row["change"] == "worse"]
    assert (worse["verdict_a"], worse["verdict_b"]) == ("nothing found", "found")
    assert worse["difference"] == pytest.approx(worse["effect_b"] - worse["effect_a"])
    assert [check.outcome for check in both.check(["worse"])] == ["failed"]
    assert not failed(compare(biased, unbiased).check(["worse"]))
    assert "Moves the answer more" in Path(both.write(tmp_path / "both")).read_text(encoding="utf-8")
    assert sum(both.to_json()["changes"].values()) == both.cells.num_rows
    alike = compare(biased, biased_again := run(toy, tmp_path / "again", BIASED, **fields)).cells.to_pylist()
    assert biased_again.path != biased.path
    assert [row["p_value"] for row in alike] == pytest.approx([1.0] * len(alike))
    assert all(row["cosine"] == pytest.approx(1) for row in alike if row["verdict_b"] == "found")
    other = toy_generator(tmp_path / "other", seed=2)
    elsewhere = {"generator": other, "latents": toy_labels(other, tmp_path / "other.parquet")}
    with pytest.raises(RunError, match="a direction of one generator is nothing in another's space"):
        compare(biased, run(elsewhere, tmp_path / "e", BIASED, **fields))
    with pytest.raises(RunError, match="differ in evidence"):
        compare(biased, run(toy, tmp_path / "m", BIASED, **{**fields, "evidence": {"latents": 500}}))


def test_images_are_told_as_searches_end_one_after_the_other(toy, tmp_path):
    events = []
    result = run(toy, tmp_path / "run", BIASED, directions=4, methods=["consistent", "axes"], listener=events.append)
    rows = result.directions.to_pylist()
    used = {
        method: sum(row["images_used"] for row in rows if row["method"] == method) for method in ("consistent", "axes")
    }
    assert [row["rank"] for row in rows if row["method"] == "consistent"] == [0, 1]
    assert all(row["images_used"] > (0 if row["rank"] else 600) for row in rows), "evidence alone takes 600, once"
    told = [event.counts for event in events if event.counts]
    assert sum(counts[IMAGES] for counts in told) == sum(used.values()) == told[-1][IMAGES_HELD]
    config = {"generator": "x", "classifier": "y", **FAST, "directions": 4}
    at_most = most_images(LatentConfig.model_validate({**config, "methods": ["consistent"]}))
    assert used["consistent"] <= at_most < 10 * used["consistent"]
    assert most_images(LatentConfig.model_validate({**config, "methods": ["consistent", "axes"]})) is None


def test_a_long_search_ends_where_its_listener_says_so_and_tells_what_it_made(toy, tmp_path):
    """No row of it is there, and it had hours to go."""

    class StoppedError(Exception):
        pass

    events = []

    def listen(event):
        events.append(event)
        if event.counts:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(toy, tmp_path / "run", BIASED, listener=listen, search={**FAST["search"], "iterations": 100_000})
    told = [event.counts for event in events if event.counts]
    assert sum(counts[IMAGES] for counts in told) > 0
    assert told[-1][IMAGES_HELD] == 0


def test_every_method_answers_and_baselines_say_what_they_picked(toy, tmp_path):
    methods = [
        "total-variation",
        "signed-penalty",
        "no-penalty",
        "hessian-penalty",
        "axes",
        "hessian",
        "random",
        "paper",
    ]
    fields = {"methods": methods, "biased": "first", "strips": {"latents": 0}}
    fields["search"] = {**FAST["search"], "iterations": 10}
    rows = {row["method"]: row for row in run(toy, tmp_path / "run", BIASED, **fields).directions.to_pylist()}
    assert set(rows) == set(methods)
    assert all(np.linalg.norm(row["direction"]) == pytest.approx(1, abs=1e-5) for row in rows.values())
    assert "axis" in rows["axes"]["picked"]
    assert "direction" in rows["hessian"]["picked"]
    assert rows["total-variation"]["picked"] is None
    assert np.count_nonzero(rows["axes"]["direction"]) == 1


def test_problems_have_names_of_their_own_also_beside_one_that_is_called_like_a_numbered_one():
    """Two had one name: their searches were one, and the second problem had no row."""
    named = [Problem(label="small", name="scale #2"), *[Problem(label="small", name="scale")] * 3]
    assert names_of(named) == ["scale #2", "scale", "scale #3", "scale #4"]


def test_constant_predictions_are_undetermined_and_say_so(toy, tmp_path):
    result = run(toy, tmp_path / "run", (0,) * 6)
    rows = result.directions.to_pylist()
    assert [row["verdict"] for row in rows] == ["undetermined"]
    assert rows[0]["reason"].startswith("constant predictions: P(yes) is 0.500")
    checks = audit_named("latent").check_gates(result, ["found"])
    assert [check.outcome for check in checks] == ["skipped", "failed"], "nothing could be checked"
    assert rows[0]["direction"] is None


def test_an_attribute_with_one_value_and_one_that_no_hyperplane_separates(toy, tmp_path):
    table = pq.read_table(toy["latents"])
    same = table.set_column(1, "target", pa.array([True] * len(table)))
    pq.write_table(same, tmp_path / "same.parquet")
    with pytest.raises(ConfigError, match=r"latents\.target: has one value, True"):
        run({**toy, "latents": str(tmp_path / "same.parquet")}, tmp_path / "a", BIASED)
    noise = table.set_column(1, "target", pa.array(np.random.default_rng(0).random(len(table)) > 0.5))
    pq.write_table(noise, tmp_path / "noise.parquet")
    result = run({**toy, "latents": str(tmp_path / "noise.parquet")}, tmp_path / "b", BIASED)
    assert result.directions.num_rows == 0
    assert result.manifest["counts"]["excluded_problems"] == 1
    assert "below 0.9" in result.problems.to_pylist()[0]["reason"]
    (said,) = (line for line in summary(result).lines if line.startswith("Left out: "))
    assert "below 0.9" in said
    assert list(summary(result).to_json["left_out"]) == [result.problems.to_pylist()[0]["problem"]]
    assert result.hyperplanes.num_rows == len(ATTRIBUTES)
    crooked = table.set_column(2, "first", noise["target"])
    pq.write_table(crooked, tmp_path / "crooked.parquet")
    fields = {**toy, "latents": str(tmp_path / "crooked.parquet")}
    result = run(fields, tmp_path / "c", BIASED, known=["first", "second"])
    (problem,) = result.problems.to_pylist()
    assert problem["known"] == ["second"]
    assert problem["reason"].startswith("not kept out: first: held-out accuracy 0.")
    page = (tmp_path / "c" / "report.html").read_text()
    assert "1 problem searched with a reservation" in page
    assert "Cosines to labelled attributes" not in page, "what it found is the attribute that nothing separates"


def test_pseudo_ground_truth_is_the_attribute_that_moves_the_answer_most(toy, tmp_path):
    rows = run(toy, tmp_path / "run", BIASED, biased="pseudo").directions.to_pylist()
    assert rows[0]["biased"] == "first"
    assert rows[0]["cos_bias"] > 0.6


def test_the_rest_leaves_the_pseudo_ground_truth_free_and_without_one_the_problem_says_why(toy, tmp_path):
    """`rest` is all but target and truth: it took the truth too, so that no direction was left to find."""
    fields = {"biased": "pseudo", "strips": {"latents": 0}}
    (row,) = run(toy, tmp_path / "rest", BIASED, known="rest", **fields).directions.to_pylist()
    assert (row["biased"], row["known"], row["verdict"]) == ("first", ["second", "third"], "found")
    assert row["cos_bias"] > 0.95
    named = run(toy, tmp_path / "named", BIASED, known=list(ATTRIBUTES[1:]), **fields)
    assert named.directions["cos_bias"].to_pylist() == [None]
    assert named.problems["reason"].to_pylist()[0].startswith("no pseudo-ground truth: all attributes")
    assert summary(named).rows[0][1] == "target (known: first, second, third)"
    assert "Known, and avoided" in Path(named.report).read_text(encoding="utf-8")


def test_hyperplanes_that_are_known_serve_without_labels_and_widen_the_margin(toy, tmp_path):
    table = pa.table({"attribute": ["target", "first"], "normal": [[3.0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0]]})
    pq.write_table(table, tmp_path / "planes.parquet")
    known = {"generator": toy["generator"], "hyperplanes": str(tmp_path / "planes.parquet")}
    (row,) = run(known, tmp_path / "run", BIASED, biased="first", directions=1).directions.to_pylist()
    assert row["target_known_by"] == "hyperplane"
    assert row["margin"] > 0.06
    assert row["verdict"] == "found"


def test_references_stand_in_for_labels(toy, tmp_path):
    """Nothing labels the target: its hyperplane and its value in each image are what another classifier says."""
    both = {"audited": BIASED, "unbiased": [0.9 * value for value in TARGET], "reference": TARGET}
    config = {
        "generator": toy["generator"],
        "problems": [
            {"classifier": name, "target": "target", "references": ["reference"]} for name in ("audited", "unbiased")
        ],
        **FAST,
    }
    models = {name: toy_classifier(toy["generator"], response) for name, response in both.items()}
    result = c2b_ray.latent_directions(config, tmp_path / "run", classifier=models)
    rows = result.directions.to_pylist()
    assert [(row["classifier"], row["verdict"]) for row in rows] == [
        ("audited", "found"),
        ("unbiased", "nothing found"),
    ]
    assert {row["target_known_by"] for row in rows} == {"references"}
    assert result.hyperplanes.to_pylist()[0]["trained_on"] == "references"


def test_what_cannot_be_searched_is_refused_before_anything_is(toy, tmp_path):
    def refused(error, match, **fields):
        with pytest.raises(error, match=match):
            c2b_ray.latent_directions({**toy, "target": "target", **fields}, tmp_path / "never", via="here")

    refused(ConfigError, r"classifier: onnx:.*net\.onnx: ONNX Runtime gives no gradients", classifier="onnx:net.onnx")
    refused(ConfigError, "a table of predictions", classifier="table:p.csv")
    refused(
        InputError, "no latent_generator has the scheme 'timm'", classifier="world:resnet-control-0", generator="timm:a"
    )
    refused(ConfigError, "problems and target exclude each other", classifier="world:resnet-control-0", problems=[{}])
    module = nn.Sequential(nn.Flatten(), nn.Linear(768, 3))
    model = InMemory(module, ["a", "b", "c"], Preprocess(16))
    with pytest.raises(SpecError, match="has 3 labels: name one"):
        c2b_ray.latent_directions({**toy, "target": "target"}, tmp_path / "n", classifier=model)
    each = InMemory(nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), ["a", "b"], Preprocess(16), head="sigmoid")
    with pytest.raises(SpecError, match=r"each of its labels is on its own .* for the logit z of the label, \(0, z\)"):
        c2b_ray.latent_directions({**toy, "target": "target", "label": "a"}, tmp_path / "n", classifier=each)
    with pytest.raises(ConfigError, match="no hyperplane of 'hue'"):
        c2b_ray.latent_directions({**toy, "target": "hue", "label": "a"}, tmp_path / "n", classifier=model)
    with pytest.raises(ConfigError, match="gradients pass through no handle"):
        c2b_ray.latent_directions({**toy, "classifier": "world:resnet-control-0"}, tmp_path / "m", via="serve")
    assert not list(tmp_path.iterdir())  # no directory of a run that never was


def test_a_name_is_words_of_one_end_and_none_where_chance_says_them():
    low, high = ["a red car at night"] * 12, ["a red car by day"] * 11 + [None]
    assert name_of(low, high) == "at, night → by, day"
    rng = np.random.default_rng(0)
    texts = [["a red car", "a blue car"][int(bit)] for bit in rng.random(24) > 0.5]
    assert name_of(texts, texts[::-1]) is None
    assert name_of([None], [None]) is None
