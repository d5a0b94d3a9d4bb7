from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint_app import Endpoint, started
from live_endpoint import served
from run_recipes import Recipe
from synthetic_run import make_run


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    endpoint = started(tmp_path_factory.mktemp("endpoint"), {"quotas": {
        "requests_per_second": 100_000.0, "burst": 100_000, "concurrent_jobs": 100_000}})  # fmt: skip
    yield endpoint
    endpoint.db.close()


@pytest.fixture(scope="session")
def url(endpoint: Endpoint) -> Iterator[str]:
    with served(endpoint.app) as url:
        yield url


@pytest.fixture(scope="session")
def audited(endpoint: Endpoint) -> str:
    """The id of a finished job of tenant a, with a run."""
    job = endpoint.finish()
    assert job.run_path is not None
    Path(job.run_path).parent.mkdir(parents=True, exist_ok=True)
    make_run(Path(job.run_path), Recipe())
    return job.id
