"""A placement changes how an audit's work is done and nothing of the run: neither its name nor its rows."""

import json
from pathlib import Path

import pytest

import c2b_ray
from c2b_ray.errors import ConfigError
from c2b_ray.world.table import write_sample


@pytest.fixture
def config(tmp_path):
    write_sample(tmp_path / "scenes.parquet", 40, seed=1009)
    return {
        "task": "Tell buses from boats.",
        "classes": ["bus", "boat"],
        "classifier": "world:resnet-control-0",
        "images": {"source": "labelled", "table": str(tmp_path / "scenes.parquet")},
        "attributes": {"lighting": ["day", "night"]},
    }


def test_a_placement_is_recorded_and_names_no_run(config, tmp_path):
    file = tmp_path / "placement.yaml"
    file.write_text("stages: {classify: {batch: 5, threads: 1}}")
    placed = c2b_ray.audit(config, tmp_path / "placed", "here", placement=file)
    assert (
        placed.manifest["placement"]["classify"] | {"batch": 5, "threads": 1, "cpus": 0.0}
        == (placed.manifest["placement"]["classify"])
    )
    before = Path(placed.location("run.json")).read_bytes()

    # With another placement it is the same run, of which nothing is left to do: what it ran with stays.
    again = c2b_ray.audit(config, tmp_path / "placed", "here", placement={"stages": {"classify": {"batch": 7}}})
    assert again.manifest["placement"] == json.loads(before)["placement"]

    plain = c2b_ray.audit(config, tmp_path / "plain", "here")
    assert plain.manifest["run_id"] == placed.manifest["run_id"]
    ids = [sorted(run.predictions["prediction_id"].to_pylist()) for run in (placed, plain)]
    assert ids[0] == ids[1]


def test_a_wrong_placement_is_named_before_anything_is_made(config, tmp_path, c2b):
    (tmp_path / "audit.json").write_text(json.dumps(config))
    (tmp_path / "placement.yaml").write_text("stages:\n  clasify: {batch: 5}\n")
    status, _, err = c2b(
        "audit", tmp_path / "audit.json", "--out", tmp_path / "run", "--placement", tmp_path / "placement.yaml"
    )
    assert status == 2
    assert "placement.yaml: stages.clasify: unknown key; did you mean 'classify'?" in " ".join(err.split())
    assert not (tmp_path / "run").exists()
    (tmp_path / "placement.yaml").write_text("stages:\n  classify: {batch: 5}\n  classify: {batch: 6}\n")
    with pytest.raises(ConfigError, match="the key 'classify' is given twice"):
        c2b_ray.audit(config, tmp_path / "run", placement=tmp_path / "placement.yaml")
