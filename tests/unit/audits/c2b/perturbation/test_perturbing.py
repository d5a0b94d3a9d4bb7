"""Audits with `perturb`: a planted weakness is found and no other, a table without attributes suffices, and a run that
was cut off goes on."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.audit import audit_named
from c2b_ray.audits.c2b.estimate import estimate
from c2b_ray.audits.c2b.perturbation import effects as audited
from c2b_ray.audits.runs import summary
from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.storage.labelled import LabelledTable

LABELS = ["striped", "plain"]
PERTURB = {"images": 40, "blur": [1, 5], "grey": [5], "flip": [1]}
PICTURES = 5
"""Unperturbed, blur at two levels, grey, flip."""
EACH = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures with or without fine stripes, of any colour; the first of each class is there three times."""
    folder, random = tmp_path_factory.mktemp("stripes"), np.random.default_rng(100_004)
    rows, firsts = ["image,target_class,side"], {}
    for n in range(2 * EACH):
        name, colour = LABELS[n % 2], random.uniform(70, 180, 3)
        y, x = np.mgrid[:48, :48]
        wave = (
            50 * np.sign(np.sin(2.1 * (x * np.cos(n) + y * np.sin(n)))) if name == "striped" else 8 * np.sin(y / 8 + n)
        )
        pixels = colour + np.broadcast_to(wave, x.shape)[..., None] + random.normal(0, 2, (48, 48, 3))
        firsts.setdefault(name, pixels)
        pixels = firsts[name] if n < 6 else pixels
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{n}.png")
        rows.append(f"{n}.png,{name},{'left' if n % 4 < 2 else 'right'}")
    (folder / "table.csv").write_text("\n".join(rows))
    (folder / "bare.csv").write_text("\n".join(row.rpartition(",")[0] for row in rows))
    return folder


def edges(images):
    """Right about stripes as long as they are sharp."""
    steps = [np.abs(np.diff(image.astype(float).mean(axis=2), axis=0)).mean() for image in images]
    return np.array([[step - 10, 10 - step] for step in steps])


def range_of(images):
    """Right about stripes however much they are blurred here, because any spread of values tells it."""
    spreads = [image.astype(float).mean(axis=2)[6:-6, 6:-6].std() for image in images]
    return np.array([[spread - 7.5, 7.5 - spread] for spread in spreads])


def config(folder, table="bare.csv", **more):
    fields = {"task": "Tell striped from plain.", "classes": LABELS, "perturb": PERTURB}
    return {**fields, "images": {"source": "labelled", "table": str(folder / table), "properties": False}, **more}


def verdicts(run, classifier="edges"):
    rows = [row for row in run.read("perturbations").to_pylist() if row["classifier"] == classifier]
    return {(row["target_class"], row["perturbation"], row["level"]): row["verdict"] for row in rows}


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return c2b_ray.audit(
        config(folder), out, "here", classifier={"edges": c2b_ray.InMemory(edges, LABELS, revision="1")}
    )


def test_a_planted_weakness_is_found_and_nothing_else(run):
    found = {key: verdict for key, verdict in verdicts(run).items() if verdict in ("for", "against")}
    assert found == {("striped", "blur", 5): "against"}
    row = next(row for row in run.read("perturbations").to_pylist() if row["verdict"] == "against")
    assert row["mistaken_for"] == "plain"
    assert run.manifest["status"] == "finished"


def test_copies_of_a_picture_count_once(run):
    sampled = run.read("perturbed_images")
    assert sampled.num_rows == 80
    for row in run.read("perturbations").to_pylist():
        assert row["n"] + row["repeats"] == 40
    assert sum(sampled["repeat"].to_pylist()) == sum(row["repeats"] for row in _first_rows(run))
    assert sum(sampled["repeat"].to_pylist()) > 0


def _first_rows(run):
    return [row for row in run.read("perturbations").to_pylist() if (row["perturbation"], row["level"]) == ("flip", 1)]


def test_the_weakness_is_named_on_the_page_in_the_terminal_and_by_a_gate(run):
    page = Path(run.report).read_text()
    assert "striped, blurred (level 5): " in page
    assert "The images have no attribute" in page
    assert page.count("data:image/jpeg") == 3 + 2 + 2  # blur at two levels, grey and flip, each with what it was
    told = summary(run)
    assert any("striped, blurred (level 5)" in line for line in told.lines)
    assert [row["perturbation"] for row in told.to_json["perturbations"]] == ["blur"]
    failed = [one.cell for one in audit_named("c2b").check_gates(run, ["against"]) if one.outcome == "failed"]
    assert failed == ["striped/blur/5"]
    assert [one.outcome for one in audit_named("c2b").check_gates(run, ["*/flip/*: difference<-0.1"])] == [
        "passed",
        "passed",
    ]
    csv = audit_named("c2b").export(run, "perturbations", None).decode().splitlines()
    assert len(csv) == 1 + run.count("perturbations")


def test_a_finished_run_is_left_as_it_is(folder, run):
    before = {name: run.read(name) for name in ("perturbations", "perturbed_images")}
    finished = run.manifest["finished"]
    again = c2b_ray.audit(
        config(folder), run.path, "here", classifier={"edges": c2b_ray.InMemory(edges, LABELS, revision="1")}
    )
    assert all(again.read(name).equals(table) for name, table in before.items())
    assert again.manifest["tables"].keys() >= {"perturbations", "perturbed_predictions"}
    assert again.manifest["finished"] >= finished


def test_a_run_that_was_cut_off_answers_only_what_is_left(folder, run, tmp_path):
    calls = {"pictures": 0, "stop": 100}

    def stopping(images):
        calls["pictures"] += len(images)
        if calls["pictures"] > calls["stop"]:
            raise RuntimeError("the machine went down")
        return edges(images)

    def go():
        model = c2b_ray.InMemory(stopping, LABELS, revision="1")
        return c2b_ray.audit(config(folder), tmp_path / "run", "here", classifier={"edges": model})

    with pytest.raises(ServiceError, match="went down"):
        go()
    calls["stop"] = 10_000
    calls["pictures"] = 0
    resumed = go()
    assert calls["pictures"] < 80 * (1 + PICTURES)  # each as it is, too
    assert resumed.read("perturbations").equals(run.read("perturbations"))


def test_a_control_is_found_nothing_against_and_attributes_are_compared_beside(folder, tmp_path):
    models = {"edges": c2b_ray.InMemory(edges, LABELS), "range": c2b_ray.InMemory(range_of, LABELS)}
    perturb = {"images": 50, "blur": [1], "flip": [1]}
    run = c2b_ray.audit(config(folder, "table.csv", perturb=perturb), tmp_path / "run", "here", classifier=models)
    assert set(run.scores["attribute"].to_pylist()) == {"side"}
    assert set(verdicts(run, "range").values()) <= {"none", "undetermined"}
    assert set(run.read("perturbations")["classifier"].to_pylist()) == {"edges", "range"}
    page = Path(run.report).read_text()
    assert 'id="perturbations"' in page
    assert 'id="found"' in page


def test_which_images_are_perturbed_depends_on_their_class_and_seed_alone(folder):
    def rows(**more):
        asked = read_audit({**config(folder), "classifier": "timm:resnet18", **more})
        return audited.perturbed_rows(asked, LabelledTable(str(folder / "bare.csv")))

    chosen = rows()
    assert {name: len(of) for name, of in chosen.items()} == {"striped": 40, "plain": 40}
    assert all((of % 2 == place).all() for place, of in enumerate(chosen.values()))
    assert all((rows(classes=LABELS[::-1])[name] == of).all() for name, of in chosen.items())
    assert any((rows(seed=1)[name] != of).any() for name, of in chosen.items())


def test_a_wrong_set_up_is_said_where_no_attribute_is_compared(folder, tmp_path):
    def swapped(images):
        return edges(images)[:, ::-1]

    with pytest.raises(ConfigError, match="classifier"):
        c2b_ray.audit(config(folder), tmp_path / "run", "here", classifier=c2b_ray.InMemory(swapped, LABELS))


def test_a_table_of_predictions_cannot_be_asked(folder, tmp_path):
    (tmp_path / "answers.csv").write_text("key,label\n0.png,striped\n1.png,plain\n")
    asked = config(folder, classifier=f"table:{tmp_path / 'answers.csv'}")
    with pytest.raises(ConfigError, match=r"perturb: .*cannot be asked about a perturbed picture"):
        c2b_ray.audit(asked, tmp_path / "run", "here")


def test_the_estimate_counts_perturbed_pictures(folder):
    costs = estimate(
        {**config(folder), "classifier": "world:resnet-control-0", "label_map": {"striped": [0], "plain": [1]}}
    )
    assert {cost.what.rpartition(", ")[2]: cost.most for cost in costs}["perturbed"] == 80 * PICTURES


def test_images_that_lie_below_another_folder_are_perturbed_and_shown(folder, tmp_path):
    table = tmp_path / "lists" / "table.csv"
    table.parent.mkdir()
    table.write_text((folder / "bare.csv").read_text())
    images = {"source": "labelled", "table": str(table), "root": str(folder), "properties": False}
    model = c2b_ray.InMemory(edges, LABELS, revision="1")
    found = c2b_ray.audit({**config(folder), "images": images}, tmp_path / "run", "here", classifier={"edges": model})
    assert verdicts(found)["striped", "blur", 5] == "against"
    assert Path(found.report).read_text().count("data:image/jpeg") == 3 + 2 + 2
