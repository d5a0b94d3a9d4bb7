"""One Ray cluster for all tests of this folder: 2 CPUs, a small object store, stopped at the end.

There must be no __init__.py here or in tests/: with one, `import ray` could find this folder.
"""

from collections.abc import Iterator

import pytest
from ray import cloudpickle

from c2b_ray.pipelines.cluster import ensure_ray


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[None]:
    with ensure_ray(num_cpus=2, object_store_mb=300):
        yield


@pytest.fixture(scope="module", autouse=True)
def steps_travel_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ray's workers have no path to the test modules: functions in them are sent whole."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
