"""The model-card section: metadata that the Hub's own library reads, and words that stay words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import yaml
from huggingface_hub import ModelCard

from c2b_ray.audits.c2b.exports import MOST_FINDINGS, escaped, images_used, model_card
from c2b_ray.storage.run import Run
from c2b_ray.tables import INTERSECTIONS, POOLED

PLANTED, CONTROL = "world:resnet-planted-3", "world:resnet-control"


@pytest.fixture(scope="module")
def card(showcase_run: Run) -> str:
    return model_card(showcase_run, PLANTED)


def test_the_hubs_own_library_reads_the_metadata(card: str, showcase_run: Run) -> None:
    data = ModelCard(card).data
    results = data.eval_results
    assert data.model_name == PLANTED
    assert {(r.task_type, r.dataset_type) for r in results} == {("image-classification", "c2b-ray")}
    assert {r.dataset_revision for r in results} == {"77a0c4de"}
    by_type: dict[str, list[Any]] = {}
    for result in results:
        by_type.setdefault(result.metric_type, []).append(result)
    scores = [row for row in showcase_run.scores.to_pylist() if row["classifier"] == PLANTED]
    seen = sum(row["n"] for row in scores)
    assert by_type["accuracy"][0].metric_value == round(sum(row["correct"] for row in scores) / seen, 4)
    found = [row for row in scores if row["verdict"] in ("for", "against")]
    assert by_type["findings"][0].metric_value == len(found)
    worst = min(found, key=lambda row: row["phi"])
    assert by_type["bias_score"][0].metric_name == "φ of bus, weather: snow"
    assert by_type["bias_score"][0].metric_value == round(worst["phi"], 4)


def test_the_words_say_what_was_found_and_on_what(card: str, showcase_run: Run) -> None:
    text = card.split("---\n", 2)[2]
    assert "**weather is snow**" in text
    verdicts = [r["verdict"] for r in showcase_run.scores.to_pylist() if r["classifier"] == PLANTED]
    assert f"{verdicts.count('undetermined')} stay undetermined" in text
    assert "τ = 0.1" in text
    assert "α = 0.05" in text
    assert "20 November 2026" in text
    images = images_used(showcase_run, PLANTED)
    assert images == showcase_run.images.num_rows - 5  # five have no bytes, so no answer
    assert f"on {images:,} images retrieved by caption." in text
    assert "noisy labels" in text
    assert "/srv" not in card


def test_only_the_asked_classifier_is_told(showcase_run: Run) -> None:
    assert PLANTED not in model_card(showcase_run, CONTROL)


def test_findings_of_two_values_and_over_all_classes_are_told_of_the_asked_classifier(
    build_run: Callable[..., Run],
) -> None:
    run = build_run(images_per_cell=3, pictures=False, classifiers=("m", "<b>n"))
    numbers = {field.name: 0.0 for field in INTERSECTIONS if pa.types.is_floating(field.type)}
    both = {"attribute": "weather × lighting", "bias_class": "snow, night", "attribute_a": "weather",
            "value_a": "snow", "attribute_b": "lighting", "value_b": "night"}  # fmt: skip
    cell = {**numbers, **both, "classifier": "m", "target_class": "bus", "verdict": "against", "n": 200, "correct": 80,
            "errors": 0, "accuracy": 0.4, "expected": 0.8, "interaction": -0.4, "basis": "captions", "captions": 1,
            "caption_spread": float("nan")}  # fmt: skip
    run.write("intersections", pa.Table.from_pylist([cell], INTERSECTIONS))
    whole = {"classifier": "m", "attribute": "weather", "bias_class": "fog", "classes": 3, "n": 150, "correct": 90,
             "phi": -0.1, "phi_low": -0.15, "phi_high": -0.05, "verdict": "against", "basis": "captions",
             "captions": 15, "caption_spread": 0.02}  # fmt: skip
    run.write("pooled", pa.Table.from_pylist([whole], POOLED))
    text = model_card(run, "m")
    assert (
        "Two values at once:\n\n- m recognises a **bus** less well when **weather is snow and lighting is night**"
        in text
    )
    assert "200 images, on one caption\\)." in text
    assert "Over all classes together:\n\n- Over 3 classes, m does less well when weather is fog" in text
    assert "at once:" not in model_card(run, "<b>n")


def test_a_clean_run_says_that_it_is_not_cleared_of_everything(build_run: Callable[..., Run]) -> None:
    run = build_run(classifiers=("m",), images_per_cell=8, pictures=False)
    text = model_card(run, "m")
    assert "0 cells show an established bias" in text
    assert "Undetermined does not mean unbiased" in text
    assert not any(line.startswith("- And") for line in text.splitlines())


def test_images_that_a_calibrated_verifier_checked_are_not_called_noisy(build_run: Callable[..., Run]) -> None:
    run = build_run(classifiers=("m",), images_per_cell=8, pictures=False, manifest={"status": "running"})
    rows = [row | {"basis": "calibrated"} for row in run.scores.to_pylist()]
    run.write("scores", pa.Table.from_pylist(rows, run.scores.schema))
    text = model_card(run, "m")
    assert "noisy labels" not in text
    assert "A verifier looked at what the images show" in text


def test_without_a_single_answer_no_accuracy_is_claimed(build_run: Callable[..., Run]) -> None:
    text = model_card(build_run(classifiers=("m",), images_per_cell=3, pictures=False, all_errors=True), "m")
    assert "nan" not in text.lower()
    types = {result.metric_type for result in ModelCard(text).data.eval_results}
    assert types == {"findings", "undetermined"}


def test_what_others_wrote_is_neither_markup_nor_metadata(
    build_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value-123")
    evil = "<img src=x>*[a](http://b)*\n---\nmodel-index: []"
    spec = "onnx:/home/someone/private/net.onnx"
    run = build_run(
        classes=("bus", evil),
        attributes={"weather|": ("rain", "snow")},
        classifiers=(spec,),
        images_per_cell=60,
        accuracy={(spec, evil, "snow"): 0.1},
        pictures=False,
        config={"task": "Use very-secret-value-123 `now`\n# Heading"},
    )
    text = model_card(run, spec)
    assert "very-secret-value-123" not in text
    assert "/home/someone" not in text
    body = text.split("---\n", 2)[2] if text.count("\n---\n") == 1 else pytest.fail("the front matter was broken")
    assert "<img" not in body.replace("\\<", "")
    assert r"\*\[a\]\(http\://b\)\*" in body
    assert "\n# Heading" not in body
    front = yaml.safe_load(text.split("---\n", 2)[1])
    assert front["model-index"][0]["name"] == "onnx:net.onnx"
    assert ModelCard(text).data.model_name == "onnx:net.onnx"


def test_many_findings_are_cut(build_run: Callable[..., Run]) -> None:
    classes = tuple(f"class {i}" for i in range(MOST_FINDINGS + 3))
    accuracy = {("m", name, "snow"): 0.1 for name in classes}
    run = build_run(
        classes=classes, attributes={"weather": ("rain", "snow")}, classifiers=("m",), accuracy=accuracy,
        images_per_cell=40, pictures=False,
    )  # fmt: skip
    text = model_card(run, "m")
    assert "- And 3 more" in text
    assert text.count("\n- The classifier") + text.count("\n- m recognises") == MOST_FINDINGS


def test_escaping() -> None:
    assert escaped("a_b *c* [d](e) <f> #g ~h | `i` \\") == r"a\_b \*c\* \[d\]\(e\) \<f\> \#g \~h \| \`i\` \\"
    assert escaped("www.x.org\n http://y") == r"www\.x.org http\://y"


def test_two_of_one_name_are_told_apart_and_the_rule_is_named(build_run: Callable[..., Run]) -> None:
    specs = ("onnx:/a/net.onnx?labels=/x/labels.txt", "onnx:/b/net.onnx?labels=/x/labels.txt")
    run = build_run(classifiers=specs, images_per_cell=3, pictures=False, config={"right": "among_classes"})
    names = [yaml.safe_load(model_card(run, spec).split("---\n", 2)[1])["model-index"][0]["name"] for spec in specs]
    assert len(set(names)) == 2
    assert all(name.startswith("onnx:net.onnx?labels=labels.txt #") for name in names)
    assert r"right: among\_classes" in model_card(run, specs[0])
