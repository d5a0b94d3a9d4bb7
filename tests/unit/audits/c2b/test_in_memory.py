"""Audits of classifiers that the calling program holds: in this process, noted as such, resumed by their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import c2b_ray
from c2b_ray.audits.c2b.run import CLASSIFIER
from c2b_ray.errors import ConfigError, RunError, SpecError
from c2b_ray.models import catalog

RED, BLUE = (200, 20, 20), (20, 20, 200)


class Redness(nn.Module):
    """Its two logits are ten times the means of red and of blue."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.calls = 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return pixels.mean(dim=(2, 3))[:, [0, 2]] * self.scale * 10


PLAIN = c2b_ray.Preprocess(16, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
LABELS = ["red", "blue"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Red and blue squares; of the blue ones those in the dark are red."""
    rows = ["image,target_class,light"]
    for n in range(24):
        light, name = ("day", "dark")[n % 2], LABELS[n // 2 % 2]
        colour = RED if name == "red" or light == "dark" else BLUE
        pixels = np.full((20 + n, 24, 3), colour, np.uint8) + np.uint8(n)
        Image.fromarray(pixels).save(tmp_path / f"{n}.png")
        rows.append(f"{n}.png,{name},{light}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    return {"task": "Tell red from blue.", "classes": LABELS, "images": {"source": "labelled", "table": "table.csv"}}


def brightness(images: list[Any]) -> Any:
    return np.stack([image.mean(axis=(0, 1))[[0, 2]] for image in images])


def accuracies(run: Any) -> dict[tuple[str, str, str], float]:
    columns = ("classifier", "target_class", "bias_class", "accuracy")
    return {(a, b, c): d for a, b, c, d in zip(*(run.scores[name].to_pylist() for name in columns), strict=True)}


def test_a_module_and_a_callable_are_audited_alike(config: dict[str, Any]) -> None:
    models = {"module": c2b_ray.InMemory(Redness(), LABELS, PLAIN), "callable": c2b_ray.InMemory(brightness, LABELS)}
    run = c2b_ray.audit(config, "run", classifier=models)
    for name in models:
        found = {key[1:]: value for key, value in accuracies(run).items() if key[0] == name}
        assert found == {("red", "day"): 1, ("red", "dark"): 1, ("blue", "day"): 1, ("blue", "dark"): 0}
    assert run.manifest["via"] == "here"
    noted = run.manifest["models"]
    for name in models:
        model = noted[f"{CLASSIFIER}{name}"]
        assert model["spec"] == f"in-memory:{model['revision']}"
    with pytest.raises(SpecError, match="pass it again"):
        catalog.classifier(noted[f"{CLASSIFIER}module"]["spec"])


def test_the_same_module_resumes_and_another_one_does_not_enter_its_run(config: dict[str, Any]) -> None:
    first = Redness()
    c2b_ray.audit(config, "run", classifier=c2b_ray.InMemory(first, LABELS, PLAIN))
    assert first.calls > 1
    again = Redness()
    c2b_ray.audit(config, "run", classifier=c2b_ray.InMemory(again, LABELS, PLAIN))
    assert again.calls == 1  # the trial pictures of the beginning
    other = Redness()
    other.scale.data[:] = 2
    with pytest.raises(RunError):
        c2b_ray.audit(config, "run", classifier=c2b_ray.InMemory(other, LABELS, PLAIN))


def test_a_function_resumes_by_its_revision_and_without_one_the_refusal_says_so(config: dict[str, Any]) -> None:
    c2b_ray.audit(config, "run", classifier=brightness, labels=LABELS)
    with pytest.raises(RunError, match=r"its classifier differs.*InMemory\(model, labels, revision=\.\.\.\)"):
        c2b_ray.audit(config, "run", classifier=brightness, labels=LABELS)
    named = c2b_ray.InMemory(brightness, LABELS, revision="1")
    first = accuracies(c2b_ray.audit(config, "named", classifier=named))
    assert accuracies(c2b_ray.audit(config, "named", classifier=named)) == first


def test_it_stands_in_for_the_files_classifier_and_gives_all_classes(config: dict[str, Any]) -> None:
    config = {**config, "classifier": "world:resnet-control-0", "classes": "all"}
    run = c2b_ray.audit(config, "run", classifier=brightness, labels=LABELS)
    assert run.record.config["classes"] == LABELS
    assert list(run.record.config["classifier"]) == ["brightness"]


def test_answers_that_are_no_numbers_are_errors_of_their_rows(config: dict[str, Any]) -> None:
    def now_and_then(images: list[Any]) -> Any:
        return np.where([[image.shape[0] < 30] for image in images], np.nan, brightness(images))

    run = c2b_ray.audit(config, "run", classifier=now_and_then, labels=LABELS)
    errors = [error for error in run.predictions["error"].to_pylist() if error is not None]
    assert errors == ["the classifier gave no answer (its logits are not numbers)"] * 10


def test_what_cannot_be_is_refused_before_anything_is_written(config: dict[str, Any]) -> None:
    for via in ("serve", "actors"):
        with pytest.raises(ConfigError, match=f"via: '{via}': a classifier in memory answers in this process alone"):
            c2b_ray.audit(config, "run", via=via, classifier=brightness, labels=LABELS)
    with pytest.raises(ConfigError, match="labels: are for a classifier in memory"):
        c2b_ray.audit(config, "run", labels=LABELS)
    with pytest.raises(ConfigError, match="classes"):
        c2b_ray.audit({**config, "classes": ["green", "red"]}, "run", via="here", classifier=brightness, labels=LABELS)
    assert not Path("run").exists()
