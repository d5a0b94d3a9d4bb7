"""What feeds the actors of a stage is held back while many blocks wait for them."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from ray.data import DataContext
from ray.data._internal.execution.backpressure_policy import get_backpressure_policies
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator

from c2b_ray.pipelines.few_waiting import FEWEST, FOR_EACH_ACTOR, FewWaiting, hold_back

# Ray 2.60 warns of its own old fields where a context is made or copied.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Pool(ActorPoolMapOperator):
    """As much of a pool as the policy looks at."""

    def __init__(self, source: object) -> None:
        self._source = source

    @property
    def input_dependencies(self) -> list[Any]:
        return [self._source]


def context_of_its_own() -> DataContext:
    return deepcopy(DataContext.get_current())


@pytest.mark.parametrize(("actors", "most"), [(1, FEWEST), (100, 100 * FOR_EACH_ACTOR)])
def test_a_source_begins_no_task_while_as_many_blocks_wait_as_its_actors_need(actors: int, most: int) -> None:
    context = context_of_its_own()
    hold_back(context, actors)
    waiting: list[int] = [0]
    source, writer = object(), object()
    states = SimpleNamespace(total_enqueued_input_blocks=lambda: waiting[0])
    topology: Any = {source: None, Pool(source): states, writer: None}
    policy = FewWaiting(context, topology, SimpleNamespace())  # type: ignore[arg-type]
    allowed = []
    for waiting[0] in (0, most - 1, most, 10 * most):
        assert policy.can_add_input(writer)  # type: ignore[arg-type]
        allowed.append(policy.can_add_input(source))  # type: ignore[arg-type]
    assert allowed == [True, True, False, False]


def test_ray_asks_it_beside_its_own() -> None:
    before = get_backpressure_policies(DataContext.get_current(), {}, SimpleNamespace())  # type: ignore[arg-type]
    context = context_of_its_own()
    hold_back(context, 1)
    after = get_backpressure_policies(context, {}, SimpleNamespace())  # type: ignore[arg-type]
    assert [type(one) for one in after] == [*(type(one) for one in before), FewWaiting]
