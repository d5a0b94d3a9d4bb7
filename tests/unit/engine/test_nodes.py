"""What an autoscaler can start, as it says itself; reading a cluster is tested on one."""

from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

from c2b_ray.engine.cluster import MOST_STARTABLE, startable
from c2b_ray.engine.placement import NodeResources


def test_an_autoscaler_can_start_what_its_groups_still_lack():
    config = ClusterConfig(
        node_group_configs=[
            NodeGroupConfig(name="head", resources={"memory": 2**34}, max_count=1),
            NodeGroupConfig(name="cpu", resources={"CPU": 16}, max_count=3),
            NodeGroupConfig(name="gpu", resources={"CPU": 64, "GPU": 8}, max_count=2),
            NodeGroupConfig(name="none of these", resources={"CPU": 4}, max_count=0),
        ]
    )
    here = [NodeResources(cpus=0), NodeResources(cpus=16), NodeResources(cpus=64, gpus=8)]
    assert startable(here, config) == (NodeResources(cpus=16), NodeResources(cpus=16), NodeResources(cpus=64, gpus=8))
    assert startable(here, None) == ()


def test_a_group_without_a_limit_is_large():
    config = ClusterConfig(node_group_configs=[NodeGroupConfig(name="cpu", resources={"CPU": 4}, max_count=-1)])
    assert startable([], config) == (NodeResources(cpus=4),) * MOST_STARTABLE
