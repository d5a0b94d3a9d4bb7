from collections.abc import Callable, Iterator

import pytest
from endpoint_app import Endpoint, started
from failures_recipes import Recipe as FailuresRecipe
from run_recipes import Recipe
from signed_in import Visitor
from synthetic_dataset import write_dataset
from synthetic_failures import make_run as make_failures
from synthetic_run import make_run

HOSTILE = "<img src=x onerror=alert(1)>'\"\u202egpj"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    endpoint = started(
        tmp_path_factory.mktemp("pages"),
        {"quotas": {"requests_per_second": 10_000.0, "burst": 10_000, "concurrent_jobs": 1000}},
    )
    yield endpoint
    endpoint.db.close()


@pytest.fixture(scope="module")
def visitor(endpoint: Endpoint) -> Callable[[str], Visitor]:
    """Signed in once with each key."""
    known: dict[str, Visitor] = {}

    def of(who: str) -> Visitor:
        if who not in known:
            known[who] = Visitor(endpoint, who)
        return known[who]

    return of


@pytest.fixture(scope="module")
def job_id(endpoint: Endpoint) -> str:
    """A finished audit of tenant a, with a class that is markup."""
    job = endpoint.finish()
    recipe = Recipe(classes=("bus", HOSTILE), attributes={"weather": ("clear", "snow")}, images_per_cell=6)
    run = make_run(endpoint.run_path(job.id), recipe)
    run.kind.write_report(run)
    return job.id


@pytest.fixture(scope="module")
def dataset_id(endpoint: Endpoint) -> str:
    """A finished dataset of tenant a, of several shards."""
    job = endpoint.finish("dataset")
    write_dataset(endpoint.run_path(job.id))
    return job.id


@pytest.fixture(scope="module")
def failures_id(endpoint: Endpoint) -> str:
    """A finished search for failures of tenant a."""
    job = endpoint.finish("failures")
    make_failures(endpoint.run_path(job.id), FailuresRecipe())
    return job.id
