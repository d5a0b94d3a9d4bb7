"""One Ray cluster for all tests of this folder: 2 CPUs, a small object store, stopped at the end.

There must be no __init__.py here or in tests/: with one, `import ray` could find this folder.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from ray import cloudpickle

from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.models import diffusers_generator, open_clip_encoder, timm_classifier, zero_shot
from c2b_ray.models.index import faiss_index


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


@pytest.fixture
def nothing_loads_here(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Within it this process loads no model, and opens an index for the report's pictures alone. Workers load, which
    import everything anew."""
    open_index = faiss_index.load

    def refuse(*_: Any) -> None:
        raise AssertionError("the driver loads a model")

    def refuse_but_for_a_page(*given: Any) -> Any:
        if not any(frame.function == "write_report" for frame in inspect.stack()):
            refuse()
        return open_index(*given)

    @contextmanager
    def refused() -> Iterator[None]:
        with monkeypatch.context() as patch:
            for module in (diffusers_generator, open_clip_encoder, timm_classifier):
                patch.setattr(module, "load", refuse)
            patch.setattr(zero_shot, "load_captioner", refuse)
            patch.setattr(faiss_index, "load", refuse_but_for_a_page)
            yield

    return refused
