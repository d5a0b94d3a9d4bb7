"""Whose apps a run uses: declared ones are left alone; those of a run end with their last user, killed or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import ray
from ray import serve

from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.serving.app import placements, targets
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import VARIABLE, Served, ensure, leased, running
from c2b_ray.serving.handles import ServedEncoder

DRIVER = """
import sys
from pathlib import Path
from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.serving.ensure import ensure
with ensure_ray() as started, ensure(encoder="toy:lent", placement=Path(sys.argv[1])) as served:
    print(started, served.encoder.encode_texts(["x"]).shape, flush=True)
    sys.stdin.read()
"""


def driver(placement: Path, toys: str) -> subprocess.Popen[str]:
    """A run of its own, on this cluster, that has started and uses an app of its own."""
    address = ray.get_runtime_context().gcs_address
    paths = os.pathsep.join([toys, os.environ.get("PYTHONPATH", ""), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(placement)],
        env={**os.environ, "RAY_ADDRESS": address, VARIABLE: "own", "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "False (1, 6)\n"
    return process


def until(there: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not there() and time.monotonic() < deadline:
        time.sleep(0.5)
    return there()


def apps() -> set[str]:
    return set(serve.status().applications)


def test_an_app_of_two_runs_outlives_the_first_and_ends_when_the_last_is_killed(
    served: Served, placement: Path, toys: str
) -> None:
    with driver(placement, toys) as other:  # which closes its pipes at the end, and waits for it
        with ensure(encoder="toy:lent", placement=placement) as ours:
            assert ours.encoder is not None
            app = ours.encoder.channel.app
            assert ours.started == []
            assert app in leased()
        assert app in apps()  # the other run still uses it
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert until(lambda: app not in apps())
        assert until(lambda: app not in leased())


def test_declared_apps_are_used_and_left_alone_and_a_missing_one_is_refused(
    served: Served, placement: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "declared")
    before = apps()
    with pytest.raises(ServiceError, match=r"lacks an app 'encoder' or 'encoder-…' with 'toy:eye'.*serve deploy"):
        ensure(encoder="toy:eye", placement=placement)  # one runs, and it ends with the run that leased it
    assert apps() == before
    theirs = targets({"encoder": "encoder-theirs"}, {"encoder": "toy:eye"}, placements(placement))
    serve.run_many(theirs)
    try:
        with ensure(encoder="toy:eye", placement=placement) as found:
            assert found.encoder is not None
            assert found.encoder.channel.app == "encoder-theirs"
            with pytest.raises(ServiceError, match="'encoder-theirs' serves 'toy:eye'"):
                ensure(encoder="toy:other", placement=placement)
        assert running(["encoder"])["encoder-theirs"] == "toy:eye"
        deleted = Channel("encoder-theirs", grace_s=60)
        there = ServedEncoder("toy:eye", deleted)
        assert there.dimension == 6
        serve.delete("encoder-theirs")
        serve.run_many(theirs, wait_for_applications_running=False)
        expected = catalog.encoder("toy:eye").encode_texts(["x", "y"])
        np.testing.assert_array_equal(there.encode_texts(["x", "y"]), expected)  # by a handle to what was deleted
        deleted.grace_s = 0.5
    finally:
        serve.delete("encoder-theirs")
    with pytest.raises(ServiceError, match="'encoder-theirs' was deleted while it was in use"):
        there.encode_texts(["z"])
