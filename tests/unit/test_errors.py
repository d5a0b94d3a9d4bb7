import pickle

import pytest

from c2b_ray import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError("images.index", "no such index", location="audit.yaml"),
        errors.ReplyError("empty reply", "…"),
        errors.SpecError("x"),
        errors.RunError("damaged", run="runs/1", location="runs/1/run.json"),
        errors.ServiceError("silent", app="classifiers"),
    ],
)
def test_errors_cross_processes_as_themselves(error):
    again = pickle.loads(pickle.dumps(error))  # as Ray carries them; no weights are ever read so
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
