"""How many blocks may wait for a stage's actors in Ray Data. It knows Ray Data's executor alone, nothing of rows.

Ray keeps a block of less than 100 kB in the process that started the work, and what makes the blocks of a stage is much
faster than its actors: the ids of a million rows all lay there before a tenth of the rows was answered. By itself Ray
Data holds a source back only where half of the object store is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray.data import DataContext
from ray.data._internal.execution.backpressure_policy import (
    ENABLED_BACKPRESSURE_POLICIES,
    ENABLED_BACKPRESSURE_POLICIES_CONFIG_KEY,
)
from ray.data._internal.execution.backpressure_policy.backpressure_policy import BackpressurePolicy
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator

if TYPE_CHECKING:
    from ray.data._internal.execution.interfaces.physical_operator import PhysicalOperator
    from ray.data._internal.execution.resource_manager import ResourceManager
    from ray.data._internal.execution.streaming_executor_state import Topology

MOST_WAITING = "c2b_ray.most_waiting"
FEWEST, FOR_EACH_ACTOR = 32, 8


def hold_back(context: DataContext, most_actors: int) -> None:
    """Of datasets of this context, few blocks wait for actors, yet enough that none of `most_actors` waits for one."""
    context.set_config(MOST_WAITING, max(FEWEST, FOR_EACH_ACTOR * most_actors))
    context.set_config(ENABLED_BACKPRESSURE_POLICIES_CONFIG_KEY, [*ENABLED_BACKPRESSURE_POLICIES, FewWaiting])


class FewWaiting(BackpressurePolicy):
    """Begins no task of what feeds a pool of actors while so many blocks wait for the pool, which takes any as it is.

    The output of a task that runs is still read: held up, it would keep a processor that writing parts needs. Where
    nothing at all runs, as while the actors load, Ray begins another task all the same, one at a time.
    """

    def __init__(self, data_context: DataContext, topology: Topology, resource_manager: ResourceManager) -> None:
        super().__init__(data_context, topology, resource_manager)
        self._most = int(data_context.get_config(MOST_WAITING))
        pools = [op for op in topology if isinstance(op, ActorPoolMapOperator)]
        self._fed = {source: topology[pool] for pool in pools for source in pool.input_dependencies}

    def can_add_input(self, op: PhysicalOperator) -> bool:
        pool = self._fed.get(op)
        return pool is None or pool.total_enqueued_input_blocks() < self._most
