"""The endpoint asked for everything that its OpenAPI document allows, and for what it does not allow."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from endpoint_app import started
from live_endpoint import served
from run_recipes import Recipe
from synthetic_run import make_run

ROOT = Path(__file__).parents[3]
EXAMPLES = int(os.environ.get("C2B_SCHEMATHESIS_EXAMPLES", "2"))


KEYS = ("/v1/admin/keys/{key_id}", "/v1/admin/keys/{key_id}/rotate")
"""What would end the key that asks; these come last."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """An endpoint of its own, which has much to lose: its URL and a key."""
    quotas = {"requests_per_second": 100_000.0, "burst": 100_000, "concurrent_jobs": 100_000}
    endpoint = started(tmp_path_factory.mktemp("asked"), {"quotas": quotas})
    job = endpoint.finish()
    Path(str(job.run_path)).parent.mkdir(parents=True)
    make_run(Path(str(job.run_path)), Recipe())
    with served(endpoint.app) as url:
        yield url, endpoint.keys["admin"]
    endpoint.db.close()


@pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("option", ["--exclude-path", "--include-path"])
def test_schemathesis_finds_no_violation(asked, option, tmp_path):
    url, key = asked
    program = Path(sys.executable).with_name("schemathesis")
    command = [
        program, "--config-file", ROOT / "schemathesis.toml", "run", f"{url}/openapi.json", "--url", url, "-c", "all",
        "-n", EXAMPLES, "--seed", 7, "--request-timeout", 2, "-H", f"Authorization: Bearer {key}",
        *(text for path in KEYS for text in (option, path)),
    ]  # fmt: skip
    ended = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:]
    assert " passed" in ended.stdout
    if option == "--exclude-path":  # else whatever was asked may have been answered by 401
        assert httpx.get(f"{url}/v1/audits", headers={"Authorization": f"Bearer {key}"}).status_code == 200
