"""How stages are placed on clusters of every size, by default and by a file. No Ray: nodes are numbers here."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.engine.machine import Machine, on_this_machine
from c2b_ray.engine.placement import NEEDS, Cluster, NodeResources, Placement, check, defaults, matches, placed, within
from c2b_ray.errors import ConfigError

LAPTOP = Cluster((NodeResources(cpus=2),))
SIXTEEN = Cluster((NodeResources(cpus=16),))
ONE_GPU = Cluster((NodeResources(cpus=16, gpus=1),))
EIGHT_GPUS = Cluster((NodeResources(cpus=128, gpus=8),))
GPU_NODES = Cluster(
    (NodeResources(cpus=0), *(NodeResources(cpus=64, gpus=8, labels={"pool": "gpu"}) for _ in range(3)))
)
HEAD_ALONE = Cluster((NodeResources(cpus=0),))
GROWING = Cluster((NodeResources(cpus=0),), startable=(NodeResources(cpus=16),) * 10)
CLUSTERS = {
    "laptop": LAPTOP,
    "sixteen": SIXTEEN,
    "one GPU": ONE_GPU,
    "3 × 8 GPUs": GPU_NODES,
    "head alone": HEAD_ALONE,
    "growing": GROWING,
    "eight GPUs": EIGHT_GPUS,
}


@pytest.mark.parametrize(
    ("cluster", "stage", "expected"),
    [
        ("laptop", "classify", Placement(batch=32, threads=2, max_actors=1, cpus=0.5)),
        ("laptop", "verify", Placement(batch=64, threads=1, max_actors=1, cpus=0.5)),
        ("laptop", "fetch", Placement(batch=256, threads=1, max_actors=1, cpus=0.25)),
        ("laptop", "search", Placement(batch=256, threads=1, max_actors=1, cpus=0.5)),
        ("sixteen", "classify", Placement(batch=32, threads=16, max_actors=1, cpus=11.0)),
        ("sixteen", "generate", Placement(batch=64, threads=1, max_actors=2, cpus=5.0)),
        ("one GPU", "classify", Placement(batch=256, threads=16, max_actors=1, cpus=11.0, gpus=1.0)),
        ("one GPU", "fetch", Placement(batch=256, threads=1, max_actors=2, cpus=0.25)),
        ("3 × 8 GPUs", "classify", Placement(batch=256, threads=8, max_actors=24, cpus=5.0, gpus=1.0)),
        ("3 × 8 GPUs", "generate", Placement(batch=64, threads=1, max_actors=24, cpus=5.0, gpus=1.0)),
        ("3 × 8 GPUs", "search", Placement(batch=256, threads=1, max_actors=3, cpus=47.0)),
        # Nobody knows the nodes that will come: a CPU and a thread each fits all.
        ("head alone", "classify", Placement(batch=32, threads=1, max_actors=16, cpus=1.0)),
        ("growing", "classify", Placement(batch=32, threads=16, max_actors=10, cpus=11.0)),
    ],
)
def test_defaults_come_from_what_the_cluster_has(cluster, stage, expected):
    assert defaults(stage, CLUSTERS[cluster]) == expected


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        # On two cores a process that decodes would take its time from the model.
        (Machine(2), Placement(batch=32, threads=2, cpus=0.0)),
        (Machine(16), Placement(batch=32, threads=16, cpus=0.0, decoders=8)),
        (Machine(16, gpus=1), Placement(batch=256, threads=3, cpus=0.0, decoders=15)),
        (Machine(2, gpus=1), Placement(batch=256, threads=3, cpus=0.0, decoders=1)),
    ],
)
def test_one_process_shares_its_machine_with_those_that_decode(machine, expected):
    assert on_this_machine("classify", PlacementConfig(), machine, prepared=True) == expected
    assert on_this_machine("classify", PlacementConfig(), machine).decoders == 0  # a model that decodes itself
    assert on_this_machine("classify", PlacementConfig(), machine, prepared=True, rows=600).decoders == 0
    file = read_placement({"stages": {"classify": {"decoders": 0, "batch": 8}}})
    assert on_this_machine("classify", file, machine, prepared=True).decoders == 0


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("laptop", Placement(batch=32, threads=2, max_actors=1, cpus=0.5)),
        ("sixteen", Placement(batch=32, threads=16, max_actors=1, cpus=11.0)),
        # Every GPU has one process, which starts at once; all other CPUs decode, but for one that reads and writes.
        ("one GPU", Placement(batch=256, threads=3, max_actors=1, cpus=1.0, gpus=1.0, decoders=14)),
        ("eight GPUs", Placement(256, threads=3, min_actors=8, max_actors=8, cpus=1.0, gpus=1.0, decoders=119)),
        ("3 × 8 GPUs", Placement(256, threads=3, min_actors=24, max_actors=24, cpus=1.0, gpus=1.0, decoders=167)),
        ("growing", Placement(batch=32, threads=16, max_actors=10, cpus=11.0)),
    ],
)
def test_processes_decode_for_those_that_own_a_gpu(cluster, expected):
    placement = placed("classify", PlacementConfig(), CLUSTERS[cluster], prepared=True)
    assert placement == expected
    assert placed("classify", PlacementConfig(), CLUSTERS[cluster], served=True, prepared=True).decoders == 0


def test_a_placement_file_says_otherwise():
    config = read_placement({"stages": {"classify": {"decoders": 4}}})
    assert placed("classify", config, SIXTEEN, prepared=True).decoders == 4
    none = read_placement({"stages": {"classify": {"decoders": 0}}})
    assert placed("classify", none, ONE_GPU, prepared=True) == replace(defaults("classify", ONE_GPU), decoders=0)


@pytest.mark.parametrize("stage", NEEDS)
@pytest.mark.parametrize("cluster", [name for name in CLUSTERS if name != "head alone"])
def test_pools_at_their_largest_leave_cpus_to_the_reads(cluster, stage):
    nodes = (*CLUSTERS[cluster].nodes, *CLUSTERS[cluster].startable)
    placement = defaults(stage, CLUSTERS[cluster])
    reserved = placement.max_actors * placement.cpus
    assert reserved <= sum(node.cpus for node in nodes) - NEEDS[stage].reads
    assert placement.max_actors * placement.gpus <= sum(node.gpus for node in nodes)
    # Ray puts no more processes on a node than it has cores for their threads.
    for node in nodes if NEEDS[stage].model else ():
        fitting = node.gpus // placement.gpus if placement.gpus else node.cpus // placement.cpus
        assert min(fitting, placement.max_actors) * placement.threads <= node.cpus


def test_nodes_of_many_cores_get_several_processes_and_small_ones_none():
    cluster = Cluster((NodeResources(cpus=4), NodeResources(cpus=64), NodeResources(cpus=24)))
    assert defaults("classify", cluster) == Placement(batch=32, threads=16, max_actors=5, cpus=11.0)


def test_gpus_that_others_hold_are_not_taken():
    busy = Cluster((NodeResources(cpus=16, gpus=1, free_gpus=0.4), NodeResources(cpus=16, gpus=1, free_gpus=0.0)))
    shared = defaults("classify", busy)
    assert (shared.gpus, shared.max_actors, shared.threads) == (0.4, 1, 6)
    full = Cluster((NodeResources(cpus=16, gpus=1, free_gpus=0.05),))
    assert defaults("classify", full) == defaults("classify", SIXTEEN)


def test_a_stage_that_asks_serve_takes_neither_gpus_nor_many_cpus():
    placement = defaults("classify", GPU_NODES, served=True)
    assert (placement.gpus, placement.cpus, placement.max_actors) == (0.0, 0.25, 12)


@pytest.mark.parametrize(
    ("min_actors", "cpus", "free", "expected"),
    [
        (1, 0.5, [2], 0.5),
        (2, 0.5, [2], 0.5),
        (3, 0.5, [2], 0.33),
        (1, 0.5, [1.25], 0.25),  # replicas of Serve have the others
        (1, 0.5, [1.5], 0.5),  # a process of the stage before is still leaving
        (1, 0.5, [0.5], 0.0),
        (1, 0.5, [1], 0.0),
        (1, 11.0, [16], 11.0),
        (4, 0.5, [64], 0.5),
        (2, 0.5, [1, 1, 1], 0.5),
        (3, 0.5, [1, 1, 1], 0.0),  # one on each would leave three halves, and no task of one CPU fits into halves
        (3, 1.1, [2, 2, 2], 1.0),
        (6, 0.8, [2, 2, 2], 0.5),
        (9, 0.5, [0, 0.9], 0.0),
    ],
)
def test_the_first_processes_leave_one_cpu_on_some_node(min_actors, cpus, free, expected):
    fitting = within(Placement(batch=1, min_actors=min_actors, max_actors=9, cpus=cpus), free)
    result = fitting.cpus
    assert result == pytest.approx(expected)
    # Ray Data bounds no pool of processes that reserve less than they take.
    assert fitting.max_actors == (9 if expected == cpus else min_actors)
    for nodes in combinations_with_replacement(range(len(free)), min_actors):  # wherever each of them runs
        left = [cpus - nodes.count(node) * result for node, cpus in enumerate(free)]
        assert result == 0 or max(left) > 1 - 1e-9


def test_what_is_free_says_little_where_nodes_are_still_to_come():
    assert within(Placement(batch=1, cpus=4.0), [0.0], elastic=True).cpus == 4.0


def test_a_file_overrides_the_defaults_field_by_field():
    config = read_placement({"stages": {"classify": {"gpus": 0.25, "precision": "bf16", "labels": {"pool": "gpu"}}}})
    placement = placed("classify", config, GPU_NODES)
    assert placement == Placement(256, 2, 1, 96, cpus=0.5, gpus=0.25, labels={"pool": "gpu"}, precision="bf16")
    assert placed("verify", config, GPU_NODES) == defaults("verify", GPU_NODES)


def test_without_a_gpu_by_file_a_stage_is_placed_as_on_a_cluster_without():
    config = read_placement({"stages": {"classify": {"gpus": 0}}})
    assert placed("classify", config, ONE_GPU) == defaults("classify", SIXTEEN)


@pytest.mark.parametrize(
    ("section", "least", "most"),
    [
        ({"min_actors": 4}, 4, 4),
        ({"max_actors": 3}, 1, 3),
        ({"min_actors": 2, "max_actors": 8}, 2, 8),
    ],
)
def test_a_pool_is_never_smaller_than_its_beginning(section, least, most):
    placement = placed("classify", read_placement({"stages": {"classify": section}}), SIXTEEN)
    assert (placement.min_actors, placement.max_actors) == (least, most)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"gpus": 1}, "stages.classify.gpus: 1 for one process is more than the 0 of any node"),
        ({"cpus": 32}, "stages.classify.cpus: 32 for one process is more than the 16 of any node"),
        ({"labels": {"pool": "gpu"}}, "stages.classify.labels: no node of this cluster has pool=gpu"),
    ],
)
def test_what_a_fixed_cluster_cannot_have_is_refused_and_what_may_come_is_not(section, field, tmp_path):
    file = tmp_path / "placement.yaml"
    file.write_text(f"stages: {{classify: {section}}}".replace("'", '"'))
    config = read_placement(file)
    with pytest.raises(ConfigError, match=field) as refused:
        placed("classify", config, SIXTEEN)
    assert refused.value.location == str(file)
    with pytest.raises(ConfigError, match=field):  # also before the stages that come first
        check(config, SIXTEEN)
    placed("classify", config, HEAD_ALONE)
    check(config, HEAD_ALONE)


def test_labels_are_matched_as_ray_matches_them():
    gpu = {"pool": "gpu", "zone": "a"}
    assert matches({}, {})
    assert matches({"pool": "gpu"}, gpu)
    assert matches({"pool": "in(cpu, gpu)", "zone": "!b"}, gpu)
    assert matches({"zone": "!b"}, {})
    assert not matches({"pool": "gpu"}, {})
    assert not matches({"pool": "!in(gpu, cpu)"}, gpu)
    assert not matches({"pool": "gpu", "zone": "b"}, gpu)
