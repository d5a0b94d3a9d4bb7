"""The first look at labelled images in actors: it is the beginning of the stage, whose processes load the models."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import c2b_ray
from c2b_ray.audits.c2b import first_look
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.world.table import write_sample

CLASSIFIER = "world:resnet-control-0"
PLACEMENT = {"stages": {"classify": {"min_actors": 1, "max_actors": 1}}}


def noted_load(noted: Path, make: Callable[[], Any]) -> Any:
    (noted / uuid.uuid4().hex).touch()
    return make()


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns how often the classifier was loaded, in whichever process."""
    noted = tmp_path / "loads"
    noted.mkdir()
    run = OnRay.run

    def noting(self: OnRay, rows: Any, step: Any, role_factory: Callable[[], Any], *args: Any, **more: Any) -> Any:
        if more["config"].stage == "classify":
            role_factory = partial(noted_load, noted, role_factory)
            more["config"] = replace(more["config"], rows_per_file=128)
        return run(self, rows, step, role_factory, *args, **more)

    monkeypatch.setattr(OnRay, "run", noting)
    return lambda: len(list(noted.iterdir()))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(first_look, "IMAGES", 100)
    write_sample(tmp_path / "scenes.parquet", 600, 1011)
    return {
        "task": "Name the thing.",
        "classes": list(catalog.described("classifier", CLASSIFIER).labels),
        "classifier": CLASSIFIER,
        "attributes": {"weather": ["clear", "fog"]},
        "images": {"source": "labelled", "table": str(tmp_path / "scenes.parquet")},
    }


def test_models_are_loaded_once(config: dict[str, Any], tmp_path: Path, loads: Callable[[], int]) -> None:
    run = c2b_ray.audit(config, tmp_path / "actors", via="actors", placement=PLACEMENT)
    assert loads() == 1
    here = c2b_ray.audit(config, tmp_path / "here", via="here")
    assert run.draws.equals(here.draws)
    assert run.scores["n"].equals(here.scores["n"])
    assert sorted(run.predictions["prediction_id"].to_pylist()) == sorted(here.predictions["prediction_id"].to_pylist())


def test_a_hopeless_audit_stops_after_the_look_and_goes_on_where_it_is_told_to(
    config: dict[str, Any], tmp_path: Path, loads: Callable[[], int]
) -> None:
    names = config["classes"]
    turned = {name: [names[(at + 1) % len(names)]] for at, name in enumerate(names)}
    with pytest.raises(ConfigError, match=r"first look at 100 images"):
        c2b_ray.audit({**config, "label_map": turned}, tmp_path / "run", via="actors", placement=PLACEMENT)
    run = c2b_ray.load_run(tmp_path / "run")
    answered = set(run.predictions["image_id"].to_pylist())
    assert run.manifest["status"] == "failed"
    assert len(run.draws["image_id"].unique()) == 100
    assert set(run.draws["image_id"].to_pylist()) <= answered
    again = {**config, "label_map": turned, "check": False}
    whole = c2b_ray.audit(again, tmp_path / "run", via="actors", placement=PLACEMENT)
    images = whole.draws["image_id"].unique().to_pylist()
    assert whole.predictions.num_rows == len(images) == len(set(whole.predictions["image_id"].to_pylist()))
    assert loads() <= 2  # none the second time, where all was answered before the stage ended
