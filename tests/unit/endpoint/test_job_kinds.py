import importlib
import inspect

import pytest
from pydantic import BaseModel

from c2b_ray.endpoint.kinds import kind_named, kinds
from c2b_ray.errors import ConfigError


@pytest.mark.parametrize("kind", kinds().values(), ids=kinds())
def test_what_a_kind_names_exists_and_takes_what_a_runner_passes(kind):
    assert issubclass(kind.config_class, BaseModel)
    module, _, name = kind.run.partition(":")
    taken = list(inspect.signature(getattr(importlib.import_module(module), name)).parameters)
    assert taken[:5] == ["config", "out", "via", "listener", "placement"]


def test_another_kind_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match="did you mean 'failures'"):
        kind_named("failure")
