"""`c2b init`: what it asks, the file that it writes, and that `c2b audit` runs it."""

import csv
import io

import pytest
import yaml
from PIL import Image

from c2b_ray.audits.init import InitAnswers, draft, kind_of
from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.world.table import write_sample

CONTROL = "world:resnet-control-0"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Eight pictures of two classes, with a side each, and a table of answers, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rows, answers = [("file_name", "side")], [("file", "label", "prediction")]
    for name in ("bus", "boat"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            buffer = io.BytesIO()
            Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(buffer, "PNG")
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(buffer.getvalue())
            rows.append((f"{name}/{number}.png", "ab"[number % 2]))
            answers.append((f"{name}/{number}.png", name, name))
    for path, lines in (("photos/metadata.csv", rows), ("answers.csv", answers)):
        with (tmp_path / path).open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    return tmp_path / "photos"


def test_options_alone_write_a_file_that_runs(photos, c2b):
    status, out, err = c2b("init", "--images", "photos", "--classifier", "table:answers.csv", "--yes")
    assert (status, out.strip()) == (0, "audit.yaml"), err
    text = (photos.parent / "audit.yaml").read_text()
    assert "# images: boat 4, bus 4" in text
    assert "# 2 labels: " in text
    status, _, err = c2b("audit", "audit.yaml", "--out", "run")
    assert status == 0, err
    status, _, err = c2b("init", "--images", "photos", "--classifier", "table:answers.csv", "--yes")
    assert status == 2
    assert "audit.yaml is there already" in err


def test_questions_are_asked_on_standard_error(photos, c2b, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"photos\n{CONTROL}\nTell buses from boats.\n"))
    status, out, err = c2b("init", "--out", "mine.yaml")
    assert (status, out.strip()) == (0, "mine.yaml"), err
    fields = yaml.safe_load((photos.parent / "mine.yaml").read_text())
    assert (fields["task"], fields["classifier"]) == ("Tell buses from boats.", CONTROL)
    assert "10 labels: bus, boat, airplane" in err
    text = (photos.parent / "mine.yaml").read_text()
    assert "# normalisation: mean 0.45 0.45 0.47, std 0.27 (config.json)" in text  # what, and where it was read


def test_a_generator_needs_a_language_model_and_takes_the_classes_named(c2b, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("init", "--images", "world:renderer", "--classifier", CONTROL, "--yes")
    status, _, err = c2b(*asked)
    assert status == 2
    assert "--language-model: needed with --yes" in err
    status, _, err = c2b(*asked, "--language-model", "world:lm", "--classes", "bus, boats")
    assert status == 0, err
    config = read_audit(tmp_path / "audit.yaml")
    assert (config.classes, config.label_map) == (["bus", "boats"], {"bus": ["bus"], "boats": ["boat"]})
    status, _, err = c2b(*asked, "--language-model", "world:lm", "--classes", "bus,bicicle", "--out", "b.yaml")
    assert status == 2
    assert "--classes: bicicle: no label is called so; the nearest: bicycle" in err


def test_an_index_is_described_by_its_manifest(tmp_path, c2b):
    write_sample(tmp_path / "scenes.parquet", 30, 1005)
    made = ("--images", tmp_path / "scenes.parquet", "--encoder", "world:clip", "--out", tmp_path / "index", "--json")
    assert c2b("index", "build", *made)[0] == 0
    from c2b_ray.audits.c2b.from_images import Choices

    written = draft(InitAnswers(f"{tmp_path}/index", [CONTROL], Choices(language_model="world:lm"), ["bus", "boat"]))
    assert written.fields["images"] == {"source": "retrieve", "index": f"{tmp_path}/index"}
    assert "30 images, encoder world:clip" in written.text
    assert read_audit(written.fields).images.sources == ("retrieve",)


def test_images_without_classes_are_told_to_be_indexed(tmp_path):
    (tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"no image has a class.*c2b index build"):
        draft(InitAnswers(str(tmp_path), [CONTROL]))
    with pytest.raises(SourceError, match="no folder, table or index is there"):
        kind_of(f"{tmp_path}/nowhere")


def test_all_labels_of_a_large_classifier_are_not_taken_at_once(monkeypatch):
    from c2b_ray.audits.c2b.from_images import Choices

    monkeypatch.setattr("c2b_ray.audits.init.MOST_CLASSES", 9)
    with pytest.raises(ConfigError, match="--classes: the classifier has 10 labels; name those to audit"):
        draft(InitAnswers("world:renderer", [CONTROL], Choices(language_model="world:lm")))
