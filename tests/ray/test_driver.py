"""What the process that starts an audit does not do: load a model. Workers do, which import everything anew."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.kit.backend import ActorsBackend, HereBackend
from c2b_ray.audits.kit.session import Session
from c2b_ray.commands import index
from c2b_ray.errors import SpecError
from c2b_ray.models import catalog, clip_captioner, diffusers_generator, open_clip_encoder, timm_classifier
from c2b_ray.models.index import faiss_index
from c2b_ray.pipelines.images import CLASSIFY
from c2b_ray.pipelines.ray_stage import OnRay
from c2b_ray.world.table import write_sample


@pytest.fixture
def nothing_loads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the driver loads a model")

    for module in (clip_captioner, diffusers_generator, open_clip_encoder, timm_classifier, faiss_index):
        monkeypatch.setattr(module, "load", refuse)


def test_a_call_runs_in_another_process_and_raises_what_it_raises() -> None:
    runner = OnRay()
    assert runner.call(os.getpid, CLASSIFY) != os.getpid()
    with pytest.raises(SpecError, match="no classifier has the scheme 'timn'; did you mean 'timm'"):
        runner.call(partial(catalog.described, "classifier", "timn:resnet50"), CLASSIFY)


def test_a_model_that_no_file_describes_is_described_where_it_would_run(
    tmp_path: Path, nothing_loads_here: None
) -> None:
    rows = (f"images/{i:040d}.jpg,cat,1.0" for i in range(400_000))
    (tmp_path / "p.csv").write_text("\n".join(["file,class,probability", *rows]))
    spec = f"table:{tmp_path / 'p.csv'}"
    assert catalog.describe("classifier", spec) is None
    assert ActorsBackend().describe("classifier", spec) == HereBackend().describe("classifier", spec)


def test_an_audit_with_index_verifier_and_calibration_loads_no_model_in_its_driver(
    tmp_path: Path, nothing_loads_here: None
) -> None:
    for name, seed in (("scenes", 100_001), ("known", 100_002)):
        write_sample(tmp_path / f"{name}.parquet", 80, seed)
    index.build(str(tmp_path / "scenes.parquet"), "world:clip", str(tmp_path / "index"), Session("actors"))
    config = {
        "task": "Tell buses from boats.",
        "classes": "all",
        "classifier": {"planted": "world:resnet-planted-3", "zero-shot": "world:clip"},
        "images": {"source": "retrieve", "index": str(tmp_path / "index"), "pool": 20},
        "attributes": {"lighting": ["day", "night"]},
        "images_per_caption": 2,
        "captions_per_cell": 1,
        "verification": {"model": "world:clip", "calibration": str(tmp_path / "known.parquet")},
    }
    there = audit(config, tmp_path / "there", "actors")
    assert there.manifest["status"] == "finished"
    assert set(there.predictions["classifier"].to_pylist()) == {"planted", "zero-shot"}
    here = _audited_here(config, tmp_path / "here")
    for name, key in (("draws", "image_id"), ("calibration", "answer"), ("predictions", "prediction_id")):
        by = [(column, "ascending") for column in (key, *there.read(name).column_names[:2])]
        assert there.read(name).sort_by(by).equals(here.read(name).sort_by(by)), name
    assert np.isfinite(there.scores["accuracy"].to_numpy(zero_copy_only=False)).any()


def _audited_here(config: dict[str, Any], out: Path) -> Any:
    """The same in another process, where models may load."""
    return OnRay().call(partial(audit, config, out, "here"), CLASSIFY)
