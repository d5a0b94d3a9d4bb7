"""Every file of deployments/placement: it can be read, and it fits the machines that its header is written for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from c2b_ray.config.placement import StagePlacement, read_placement
from c2b_ray.engine.placement import NEEDS, Cluster, NodeResources, defaults, matches, placed
from c2b_ray.errors import SourceError

FOLDER = Path(__file__).parents[3] / "deployments" / "placement"
MACHINES = {
    "laptop": Cluster((NodeResources(cpus=2),)),
    "one-gpu": Cluster((NodeResources(cpus=16, gpus=1),)),
    "cluster": Cluster(
        (
            NodeResources(cpus=0),
            NodeResources(cpus=64, gpus=8, labels={"pool": "gpu"}),
            *(NodeResources(cpus=32, labels={"pool": "cpu"}) for _ in range(2)),
        )
    ),
}


def test_each_file_has_its_machines_here():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(MACHINES)


def test_each_has_a_name_that_a_file_of_ones_own_goes_before(tmp_path, monkeypatch):
    for name in MACHINES:
        assert read_placement(name) == read_placement(FOLDER / f"{name}.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "laptop").write_text("stages: {classify: {max_actors: 7}}")
    assert read_placement("laptop").stages.classify.max_actors == 7
    with pytest.raises(SourceError, match="no such file"):
        read_placement("mainframe")


@pytest.mark.parametrize("stage", NEEDS)
@pytest.mark.parametrize("name", MACHINES)
def test_a_stage_fits_its_machines_and_leaves_cpus_to_the_reads(name, stage):
    cluster = MACHINES[name]
    placement = placed(stage, read_placement(FOLDER / f"{name}.yaml"), cluster)
    nodes = [node for node in cluster.nodes if matches(placement.labels, node.labels)]
    fitting = [
        min(node.gpus // placement.gpus if placement.gpus else 1e9, node.cpus // placement.cpus) for node in nodes
    ]
    assert sum(fitting) >= placement.min_actors
    # At its largest, whichever nodes it gets, it leaves a quarter of their cores to what reads and writes. Processes
    # that make shards read and write by themselves.
    taken = 1.0 if stage == "shards" else 0.75
    for node, most in zip(nodes, fitting, strict=True):
        assert node.cpus == 0 or min(most, placement.max_actors) * placement.cpus <= taken * node.cpus
        assert min(most, placement.max_actors) * max(1, placement.threads) <= max(node.cpus, 1)


def test_the_laptops_file_says_what_a_laptop_gets_without_one():
    config = read_placement(FOLDER / "laptop.yaml")
    for stage in NEEDS:
        assert placed(stage, config, MACHINES["laptop"]) == defaults(stage, MACHINES["laptop"])


@pytest.mark.parametrize("name", MACHINES)
def test_the_readme_says_what_each_field_is_for(name):
    text = (FOLDER.parent / "README.md").read_text()
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    used = {field for section in data["stages"].values() for field in section} | {"serve", "stages"}
    assert [field for field in used | set(StagePlacement.model_fields) if f"`{field}`" not in text] == []
    assert f"`placement/{name}.yaml`" in text
    assert Path(read_placement(FOLDER / f"{name}.yaml").serve or "").is_file()
