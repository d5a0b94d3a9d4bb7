from collections.abc import Iterator

import pytest
from endpoint_app import Endpoint, started


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    endpoint = started(tmp_path_factory.mktemp("endpoint"))
    yield endpoint
    endpoint.db.close()
