"""A plan is arithmetic: every draw in one batch of one shard, whatever the sizes."""

import numpy as np
import pytest

from c2b_ray.audits.dataset.steps.plan import Plan, caption_of, seed_of_draw


@pytest.mark.parametrize(("draws", "shard_draws", "batch"), [(1, 1, 1), (100, 7, 3), (100, 100, 32), (5000, 7, 100)])
def test_every_draw_is_in_one_batch_of_one_shard_of_one_group(draws, shard_draws, batch):
    plan = Plan("d", draws, shard_draws, batch)
    positions = [p for n in range(plan.shards) for first, end in plan.batches(n) for p in range(first, end)]
    assert positions == list(range(draws))
    grouped = [number for group in range(plan.groups) for number in plan.shards_of_group(group)]
    assert grouped == list(range(plan.shards))
    for group in range(plan.groups):
        bounds = [p for number in plan.shards_of_group(group) for p in range(*plan.bounds(number))]
        assert (plan.groups_of(np.array(bounds)) == group).all()


def test_captions_without_draws_have_no_positions():
    numbers, draws = caption_of(np.array([0, 3, 3, 5]), np.arange(7))
    assert numbers.tolist() == [0, 0, 0, 2, 2, 3, 3]
    assert draws.tolist() == [0, 1, 2, 0, 1, 0, 1]


def test_a_shard_has_another_name_in_another_dataset_and_a_draw_its_own_seed():
    assert Plan("a", 9, 3, 1).name(2) != Plan("b", 9, 3, 1).name(2)
    seeds = {seed_of_draw(seed, text, draw) for seed in (0, 1) for text in ("a", "b") for draw in range(50)}
    assert len(seeds) == 200
