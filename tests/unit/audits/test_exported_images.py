"""Images of runs for other tools: what each format holds of which kind of run, and where the images lie."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import failures_recipes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic_failures
from PIL import Image
from run_recipes import Recipe
from synthetic_run import make_run

import c2b_ray
from c2b_ray.audits.clip_bias.run import open_clip_bias_run
from c2b_ray.audits.evaluate.run import open_evaluate_run
from c2b_ray.audits.latent.run import open_latent_run
from c2b_ray.audits.prompts.run import open_prompts_run
from c2b_ray.audits.runs import FORMATS, export, export_images, run_images
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.storage.run import Run
from c2b_ray.tables.clip_bias import CLIP_BIAS, GROUP_EXAMPLES
from c2b_ray.tables.latent import DIRECTIONS, PROBLEMS, STRIPS
from c2b_ray.tables.prompts import EXAMPLES, GAINS, PROMPTS

LABELS = ["red", "blue"]


def png(colour: tuple[int, int, int], size: int = 20) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size + 4), colour).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose images lie nowhere as files; `a` fails on buses in fog."""
    recipe = Recipe(classifiers=("a", "b"), accuracy={("a", "bus", "fog"): 0.2}, images_per_cell=40)
    return make_run(tmp_path_factory.mktemp("images") / "run", recipe)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """An audit of files: every blue square in the dark is taken for red. One of them is gone since."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "photos").mkdir()
    rows = ["image,target_class,light"]
    for n in range(48):
        light, name = ("day", "dark")[n % 2], LABELS[n // 2 % 2]
        colour = (200, 20 + n, 20) if name == "red" or light == "dark" else (20, 20 + n, 200)
        (folder / "photos" / f"{n}.png").write_bytes(png(colour, 20 + n))
        rows.append(f"photos/{n}.png,{name},{light}")
    (folder / "table.csv").write_text("\n".join(rows))
    model = c2b_ray.InMemory(
        lambda images: np.stack([image.mean(axis=(0, 1))[[0, 2]] for image in images]), LABELS, revision="1"
    )
    config = {
        "task": "Tell red from blue.",
        "classes": LABELS,
        "images": {"source": "labelled", "table": str(folder / "table.csv")},
    }
    run = c2b_ray.audit(config, folder / "run", classifier=model)
    (folder / "photos" / "3.png").unlink()
    return run, folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_failures_carry_every_classifiers_answer_and_the_findings_that_they_are_part_of(generated, tmp_path):
    failed = generated.wrong_answers().to_pylist()
    counted = export_images(generated, "fiftyone", tmp_path / "out")
    assert counted.images == counted.copied == len({(row["image_id"], row["truth"]) for row in failed})
    (view,) = read(tmp_path / "out" / "views.json")["views"]
    assert (view["tag"], view["field"]) == ("bus/weather/fog", "predicted_0_a")
    assert "less well when weather is fog" in view["description"]
    samples = read(tmp_path / "out" / "samples.json")["samples"]
    of_finding = [sample for sample in samples if view["tag"] in sample["tags"] and sample[view["field"]]["failed"]]
    wrong = [row for row in failed if (row["classifier"], row["truth"], row["cell"]) == ("a", "bus", "weather/fog")]
    assert {sample["image_id"] for sample in of_finding} == {row["image_id"] for row in wrong}
    assert len(wrong) == 32
    for sample in samples:
        answers = {row["classifier"]: row["answer"] for row in failed if row["image_id"] == sample["image_id"]}
        truth = sample["ground_truth"]["label"]
        for name, field in (("a", "predicted_0_a"), ("b", "predicted_1_b")):
            expected = (answers.get(name, truth), name in answers)
            assert (sample[field]["label"], sample[field]["failed"]) == expected
        assert (tmp_path / "out" / sample["filepath"]).is_file()
    assert not (tmp_path / "out" / ".c2b-export").exists()


def test_one_classifiers_images_are_its_own_failures(generated):
    rows = list(run_images(generated, "b").rows())
    failed = [row for row in generated.wrong_answers().to_pylist() if row["classifier"] == "b"]
    assert {row["image_id"] for row in rows} == {row["image_id"] for row in failed}
    assert not run_images(generated, "b").findings
    with pytest.raises(ConfigError, match="known: a, b"):
        run_images(generated, "c")


def test_files_stay_where_they_are_and_what_is_gone_is_left_out(labelled, tmp_path):
    run, folder = labelled
    dark = {f"photos/{n}.png" for n in range(48) if n % 2 and n // 2 % 2} - {"photos/3.png"}
    counted = export_images(run, "fiftyone", tmp_path / "fiftyone")
    samples = read(tmp_path / "fiftyone" / "samples.json")["samples"]
    there = {sample["filepath"] for sample in samples if sample["key"] != "photos/3.png"}
    assert there == {f"{folder}/{name}" for name in dark}
    # The report keeps a small copy of the images that it shows.
    gone = [sample for sample in samples if sample["key"] == "photos/3.png"]
    assert (counted.images, counted.copied) == (len(dark) + len(gone), len(gone))
    (field,) = {name for sample in samples for name in sample if name.startswith("predicted_")}
    assert {(one["ground_truth"]["label"], one[field]["label"]) for one in samples} == {("blue", "red")}


def test_label_studio_names_files_below_the_root_that_its_readme_tells_it(labelled, tmp_path):
    run, folder = labelled
    export_images(run, "label-studio", tmp_path / "out")
    tasks = read(tmp_path / "out" / "tasks.json")
    urls = {task["data"]["image"] for task in tasks if task["data"]["key"] != "photos/3.png"}
    assert all(url.startswith("/data/local-files/?d=photos/") for url in urls)
    assert f'DOCUMENT_ROOT="{folder}"' in (tmp_path / "out" / "README.md").read_text()
    choices = (tmp_path / "out" / "label_config.xml").read_text()
    for task in tasks:
        (prediction,) = task["predictions"]
        (choice,) = prediction["result"][0]["value"]["choices"]
        assert f'<Choice value="{choice}" />' in choices
        assert 0 < prediction["score"] <= 1


def test_coco_has_a_box_of_the_whole_image_and_results_per_classifier(labelled, tmp_path):
    run, folder = labelled
    export_images(run, "coco", tmp_path / "out")
    whole, results = read(tmp_path / "out" / "annotations.json"), read(tmp_path / "out" / "results-0.json")
    names = {one["id"]: one["name"] for one in whole["categories"]}
    sizes = {one["id"]: (one["width"], one["height"]) for one in whole["images"]}
    assert all(one["bbox"] == [0, 0, *sizes[one["image_id"]]] for one in whole["annotations"] + results)
    assert {names[one["category_id"]] for one in whole["annotations"]} == {"blue"}
    assert {names[one["category_id"]] for one in results} == {"red"}
    for one in whole["images"]:
        if one["c2b"]["key"] != "photos/3.png":
            with Image.open(folder / one["file_name"]) as picture:
                assert picture.size == sizes[one["id"]]


def test_hugging_face_holds_the_bytes_of_every_image(labelled, tmp_path):
    run, folder = labelled
    export_images(run, "huggingface", tmp_path / "out")
    (file,) = (tmp_path / "out" / "data").iterdir()
    table = pq.read_table(file)
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}
    assert list(features) == table.column_names
    for row in table.to_pylist():
        if row["key"] != "photos/3.png":
            assert row["image"]["bytes"] == (folder / row["key"]).read_bytes()
    assert f"num_examples: {table.num_rows}" in (tmp_path / "out" / "README.md").read_text()


def test_captions_failures_are_tagged_by_the_finding_that_their_answer_belongs_to(tmp_path):
    run = synthetic_failures.make_run(tmp_path / "run", failures_recipes.Recipe(classifiers=("a", "b"), blind=("b",)))
    images = run_images(run)
    rows = list(images.rows())
    tagged = [row for row in rows if row["tags"]]
    assert {row["truth"] for row in tagged} == {"fly", "crayfish", "Persian cat"}
    assert {one.classifier for one in images.findings} == {"a"}
    for row in tagged:
        (tag,) = row["tags"]
        (answer,) = [one for one in row["predictions"] if one["classifier"] == "a"]
        assert tag.startswith(f"{row['truth']}/{answer['label']}/")
        assert row["cells"][0] in row["text"]
    table = list(csv.DictReader(io.StringIO(export(run, "images").decode())))
    assert {(row["truth"], row["failed"]) for row in table} >= {("fly", "true")}
    counted = export_images(run, "huggingface", tmp_path / "out")
    assert counted.images == len(rows)


def test_directions_prompts_and_groups_have_their_images_too(tmp_path):
    direction = dict.fromkeys(DIRECTIONS.names) | {
        "direction_id": "d" * 16, "classifier": "net", "label": "boat", "verdict": "found", "name": "dark to bright",
        "effect": 0.3, "effect_low": 0.2, "effect_high": 0.4, "target": "boat",
    }  # fmt: skip
    strip = dict.fromkeys(STRIPS.names) | {"direction_id": "d" * 16, "latent": 0, "image": png((1, 2, 3))}
    with open_latent_run(tmp_path / "latent", "latent-1", {}) as run:
        run.write("directions", pa.Table.from_pylist([direction], DIRECTIONS))
        run.write("problems", PROBLEMS.empty_table())
        strips = [strip | {"position": at, "probability": (at + 1) / 2} for at in (-1.0, 0.0, 1.0)]
        run.write("strips", pa.Table.from_pylist(strips, STRIPS))
    rows = list(run_images(run).rows())
    assert [row["predictions"][0]["confidence"] for row in rows] == [0.0, 0.5, 1.0]
    assert {(row["truth"], row["predictions"][0]["failed"], len(row["tags"])) for row in rows} == {(None, None, 1)}
    assert {export_images(run, form, tmp_path / form).images for form in FORMATS} == {3}
    (view,) = read(tmp_path / "fiftyone" / "views.json")["views"]
    assert view["field"] is None  # no image of a strip failed: a view of those that did would be empty

    with open_prompts_run(tmp_path / "prompts", "prompts-1", {}) as run:
        run.write("prompts", PROMPTS.empty_table())
        run.write("gains", GAINS.empty_table())
        example = {"example_id": "e", "attribute": "time", "value": "night", "generator": "g", "prompt": "an owl"}
        shown = {"pictures": [png((1, 1, 1)), None, png((2, 2, 2))], "error": None}
        (tmp_path / "prompts" / "examples").mkdir()
        pq.write_table(
            pa.Table.from_pylist([example | shown], EXAMPLES), tmp_path / "prompts" / "examples" / "part-0.parquet"
        )
    assert [(row["text"], row["cells"]) for row in run_images(run).rows()] == [("an owl", ["time/night"])] * 2
    assert export_images(run, "coco", tmp_path / "coco-of-prompts").images == 2
    about = (tmp_path / "coco-of-prompts" / "README.md").read_text()
    assert "annotations.json" in about
    assert "results-0.json" not in about  # nobody answered about these images

    bias = {one.name: 0.1 if pa.types.is_floating(one.type) else None for one in CLIP_BIAS} | {
        "model": "clip", "dataset": "people", "metric": "kl_recall@5", "attribute": "gender", "view": "local",
        "group": "2", "stage": "pretraining", "q_value": 0.001,
    }  # fmt: skip
    dataset = {"table": "people.csv", "attributes": ["gender"], "texts": ["a person"]}
    config = {"models": {"clip": "world:clip"}, "datasets": {"people": dataset}}
    with open_clip_bias_run(tmp_path / "clip", "clip-1", config) as run:
        whole = {one.name: 1 for one in CLIP_BIAS if pa.types.is_integer(one.type)}
        rows = [bias | whole, bias | whole | {"model": "other"}]
        run.write("clip_bias", pa.Table.from_pylist(rows, CLIP_BIAS))
        examples = [
            {"dataset": "people", "group": group, "key": f"{group}.jpg", "caption": "a cook", "bytes": png((9, 9, 9))}
            for group in "12"
        ]
        run.write("examples", pa.Table.from_pylist(examples, GROUP_EXAMPLES))
    assert [row["tags"] for row in run_images(run).rows()] == [[], ["people/2"]]
    assert run_images(run, "clip").title == "Groups in which clip is biased"
    assert run_images(run).title == "Groups in which clip and other are biased"


def test_what_cannot_be_exported_says_why(generated, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'fiftyone'"):
        export_images(generated, "fiftyon", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    with pytest.raises(RunError, match="holds files already"):
        export_images(generated, "coco", tmp_path / "full")
    all_right = {
        ("a", target, value): 1.0
        for target in Recipe().classes
        for values in Recipe().attributes.values()
        for value in values
    }
    perfect = make_run(tmp_path / "perfect", Recipe(classifiers=("a",), accuracy=all_right, images_per_cell=4))
    with pytest.raises(RunError, match="no image to export"):
        export_images(perfect, "coco", tmp_path / "none")
    assert not (tmp_path / "none.unfinished").exists()
    with open_evaluate_run(tmp_path / "evaluate", "evaluate-1", {}) as run:
        pass
    with pytest.raises(ConfigError, match="holds no images"):
        run_images(run)
