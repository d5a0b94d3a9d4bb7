"""The head dies, and with it the whole cluster: the driver ends by itself, and the same rows go on without Ray."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from raylets import SOON, Hardware, program_environment, raylets
from test_stage_on_nodes import CONFIG, ROWS, named, source, written

from c2b_ray.engine.cluster import ADDRESS
from c2b_ray.engine.here import InProcess

PATIENCE_S = 240
# Ray's own setting has a driver wait for a minute.
DRIVER = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
pytestmark = pytest.mark.timeout(900)


def test_the_head_dies_and_the_same_rows_go_on_without_a_cluster(tmp_path: Path, meeting: str) -> None:
    out = tmp_path / "stage"
    program = str(Path(__file__).with_name("test_stage_on_nodes.py"))
    with raylets(Hardware(), {}, SOON) as cluster:
        environment = program_environment(**DRIVER, **{ADDRESS: cluster.address})
        driver = subprocess.Popen([sys.executable, program, str(out), meeting], env=environment)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not written(out):
                assert driver.poll() is None, "the driver ended before it had written rows"
                assert time.monotonic() < deadline, "no row was written"
                time.sleep(0.1)
            cluster.kill("head")
            assert driver.wait(PATIENCE_S) != 0
        finally:
            driver.kill()
    before = written(out)
    assert 0 < len(before) < ROWS
    result = InProcess().run(source(), named, lambda: "here", str(out), id_column="id", config=CONFIG)
    assert result.resumed == len(before)
    assert written(out) == Counter(dict.fromkeys([f"r{i}" for i in range(ROWS)], 1))
