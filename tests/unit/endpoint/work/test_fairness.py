"""Shares, starvation and credit over thousands of slices of simulated work."""

from __future__ import annotations

import random

import pytest

from c2b_ray.endpoint.work.dispatcher import EXPRESS_S, MOST_SHORT, FairShare, RunningJob, WaitingJob

SLICE = 10.0


class Machine:
    """Slots that work a second a tick; a tenant in `busy` always has one more job waiting."""

    def __init__(self, weights: dict[str, float], slots: int = 1) -> None:
        self.share, self.weights, self.slots = FairShare(SLICE), weights, slots
        self.busy = set(weights)
        self.running: dict[str, tuple[str, float, bool]] = {}
        self.used = dict.fromkeys(weights, 0.0)
        self.time, self.count = 0.0, 0
        self.first_run: dict[str, float] = {}

    def tick(self) -> None:
        waiting = [WaitingJob(f"{tenant}-{self.count}", tenant, 0.0, 1) for tenant in sorted(self.busy)]
        running = [
            RunningJob(job, tenant, 0.0, 1, age, end, images=int(age))
            for job, (tenant, age, end) in self.running.items()
        ]
        decision = self.share.decide(waiting, running, self.slots, self.weights)
        for job in decision.grants:
            tenant = job.partition("-")[0]
            self.running[job] = (tenant, 0.0, False)
            self.first_run.setdefault(tenant, self.time)
        self.count += 1
        after = {}
        for job, (tenant, age, ending) in self.running.items():
            self.used[tenant] += 1.0
            self.share.charge({tenant: 1.0}, self.weights)
            if not ending:
                after[job] = (tenant, age + 1.0, job in decision.yields)
        self.running = after
        self.time += 1.0

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()


@pytest.mark.parametrize("slots", [1, 4])
def test_tenants_get_their_weights_share(slots):
    machine = Machine({"a": 1.0, "b": 2.0, "c": 5.0}, slots)
    machine.run(4000)
    total = sum(machine.used.values())
    for tenant, weight in machine.weights.items():
        # Off by a slice or so of each tenant: their virtual times differ by no more than a slice over a weight.
        assert machine.used[tenant] == pytest.approx(total * weight / 8, abs=3 * SLICE * slots)


def test_at_every_moment_no_tenant_is_further_behind_than_two_slices():
    machine = Machine(dict.fromkeys("abcdef", 1.0))
    for _ in range(2000):
        machine.tick()
        if machine.time > 6 * 2 * SLICE:
            assert max(machine.used.values()) - min(machine.used.values()) <= 2 * SLICE + 2


def test_nobody_starves_beside_fifty_others():
    machine = Machine({f"t{number}": random.Random(number).choice([1.0, 10.0]) for number in range(50)})
    machine.run(50 * 15 * 2)
    assert set(machine.first_run) == set(machine.weights)


def test_a_tenant_that_was_idle_comes_back_without_a_hoard():
    machine = Machine({"idle": 1.0, "busy": 1.0})
    machine.busy = {"busy"}
    machine.run(5000)
    machine.busy = {"busy", "idle"}
    before = dict(machine.used)
    machine.run(200)
    gained = {tenant: machine.used[tenant] - before[tenant] for tenant in before}
    assert gained["idle"] == pytest.approx(gained["busy"], abs=2 * SLICE + 2)


def test_one_that_used_much_and_left_does_not_begin_anew():
    share, weights = FairShare(SLICE), {}
    share.decide([], [RunningJob("j1", "greedy", 0), RunningJob("j2", "modest", 0)], 2, weights)
    share.charge({"greedy": 1000.0, "modest": 10.0}, weights)
    share.decide([], [RunningJob("j2", "modest", 0)], 2, weights)
    decision = share.decide([WaitingJob("j3", "greedy", 1), WaitingJob("j4", "modest", 2)], [], 1, weights)
    assert decision.grants == ("j4",)


def test_the_first_job_of_a_tenant_soon_ends_a_slice_that_is_young():
    share = FairShare(60.0)
    big = RunningJob("big", "a", 0.0, slices=7, seconds=EXPRESS_S)
    share.decide([], [big], 1, {})
    share.charge({"a": 5.0}, {})
    share.decide([WaitingJob("small", "b", 9.0)], [big], 1, {})
    share.charge({"a": 0.5}, {})
    assert share.decide([WaitingJob("small", "b", 9.0)], [big], 1, {}).yields == ("big",)


def test_a_stream_of_first_jobs_leaves_a_large_one_whole_slices():
    """Else a tenant could have any other's job interrupted every two seconds, and it would only ever load and read."""
    share, slices, since = FairShare(60.0), [], 0
    for second in range(1200):
        big = RunningJob("big", "a", 0.0, slices=len(slices), seconds=second - since)
        decision = share.decide([WaitingJob(f"s{second}", "b", second)], [big], 1, {})
        share.charge({"a": 1.0}, {})
        if decision.yields:
            slices.append(second - since)
            since = second + 1
            share.decide([WaitingJob(f"s{second}", "b", second), WaitingJob("big", "a", 0.0, 1)], [], 1, {})
    assert min(slices) >= EXPRESS_S
    assert (
        max(sum(length < 60 for length in slices[start : start + MOST_SHORT + 1]) for start in range(10)) == MOST_SHORT
    )
    assert sum(length for length in slices if length >= 60) > 0.7 * 1200


def test_a_running_job_of_the_least_served_is_never_asked():
    share = FairShare(SLICE)
    running = [RunningJob("x", "small", 0.0, 1, 1000.0)]
    share.decide([WaitingJob("y", "large", 0.0, 1)], running, 1, {})
    share.charge({"large": 500.0, "small": 1.0}, {})
    assert share.decide([WaitingJob("y", "large", 0.0, 1)], running, 1, {}).yields == ()


def test_a_tenants_own_jobs_take_turns():
    share = FairShare(SLICE)
    big = RunningJob("big", "a", created=0.0, slices=0, seconds=SLICE)
    assert share.decide([WaitingJob("next", "a", created=5.0)], [big], 1, {}).yields == ("big",)
    late = WaitingJob("next", "a", created=100.0)
    assert share.decide([late], [big], 1, {}).yields == (), "in the order of their submission, slice by slice"


def test_one_job_yields_at_a_time_and_nobody_where_nobody_waits():
    share = FairShare(SLICE)
    running = [RunningJob("x", "a", 0.0, 1, 99.0, ending=True), RunningJob("y", "a", 0.0, 1, 99.0)]
    share.decide([], running, 2, {})
    share.charge({"a": 99.0}, {})
    assert share.decide([WaitingJob("w", "b", 0.0)], running, 2, {}).yields == ()
    assert share.decide([], [RunningJob("y", "a", 0.0, 1, 99.0)], 1, {}).yields == ()


def answered(tenants: dict[str, str], ticks: int) -> dict[str, int]:
    """Images by job, of one slot, where every slice loads for three slices and a half before it answers."""
    loads, share = 3.5 * SLICE, FairShare(SLICE)
    images, slices, age, runs, ending = dict.fromkeys(tenants, 0), dict.fromkeys(tenants, 0), 0.0, "", False
    for _ in range(ticks):
        waiting = [WaitingJob(job, tenants[job], 0.0, slices[job]) for job in tenants if job != runs]
        running = [RunningJob(runs, tenants[runs], 0.0, slices[runs], age, ending, images[runs])] if runs else []
        decision = share.decide(waiting, running, 1, {"a": 1.0, "b": 1.0})
        if ending:
            slices[runs] += 1
            runs, ending = "", False
        elif runs:
            age, images[runs] = age + 1.0, images[runs] + (age >= loads)
            share.charge({tenants[runs]: 1.0}, {})
            ending = runs in decision.yields
        if not runs and decision.grants:
            runs, age = decision.grants[0], 0.0
    return images


@pytest.mark.parametrize("other", ["a", "b"])
def test_jobs_that_load_for_longer_than_a_slice_take_turns_and_still_come_to_answer(other):
    images = answered({"x": "a", "y": other}, 400)
    assert min(images.values()) > 20, images


def test_a_busy_machine_with_many_jobs_learns_once_how_long_they_load():
    images = answered({f"j{number:02d}": "ab"[number % 2] for number in range(20)}, 1000)
    assert sum(images.values()) > 200, images
