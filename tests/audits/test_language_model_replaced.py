"""A language model whose files are replaced under its name: no run goes on with the replies of two models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_configs import PROMPTS

import c2b_ray
from c2b_ray.errors import RunError
from c2b_ray.world.zoo import WEIGHTS

AUDIT: dict[str, Any] = {
    "task": "Recognise vehicles.",
    "classes": ["bus", "boat"],
    "classifier": "world:resnet-control-0",
    "images": {"source": "generate", "generator": "world:renderer"},
    "images_per_caption": 1,
    "captions_per_cell": 1,
}


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(WEIGHTS / name, folder / name))


def replace(model: Path) -> None:
    """Makes another model of it: the same weights, other settings."""
    settings = model / "generation_config.json"
    settings.write_text(settings.read_text() + "\n")


def test_an_audit_notes_its_language_model_and_refuses_another_one(tmp_path: Path) -> None:
    model = copied("lm", tmp_path)
    config = {**AUDIT, "language_model": f"hf:{model}"}
    run = c2b_ray.audit(config, tmp_path / "run", "here")
    noted = run.manifest["models"]["language_model"]
    assert noted["spec"] == f"hf:{model}"
    assert noted["revision"] in Path(run.report).read_text()
    assert c2b_ray.audit(config, tmp_path / "run", "here").manifest["status"] == "finished"
    replace(model)
    with pytest.raises(RunError, match=f"begun with another language_model: its revision was {noted['revision']}"):
        c2b_ray.audit(config, tmp_path / "run", "here")
    assert run.manifest["status"] == "finished"


@pytest.mark.parametrize("field", ["language_model", "reader"])
def test_a_search_for_prompts_refuses_another_language_model_or_reader(field: str, tmp_path: Path) -> None:
    model = copied("prompter" if field == "language_model" else "reader", tmp_path)
    config = {**PROMPTS, "methods": ["llm"], field: f"hf:{model}"}
    run = c2b_ray.search_prompts(config, tmp_path / "run", "here")
    replace(model)
    with pytest.raises(RunError, match=f"begun with another {field.replace('_', ' ')}: its revision was"):
        c2b_ray.search_prompts(config, tmp_path / "run", "here")
    assert run.manifest["status"] == "finished"
