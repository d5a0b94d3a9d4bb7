"""Labelled latents: which labels are missing."""

import numpy as np
import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.steps.latent_labels import Labelled


def test_an_empty_label_is_none_of_the_two_values():
    labelled = Labelled(
        np.zeros((5, 2), np.float32),
        {"hat": ["yes", "", "no", None, " "], "one": ["yes", "", "yes", "", ""], "size": [1.0, np.nan, 2.0, 3.0, None]},
    )
    rows, second = labelled.two_valued("hat")
    assert (rows.tolist(), second.tolist()) == ([0, 2], [True, False])
    with pytest.raises(ConfigError, match=r"latents.one: has one value, 'yes'"):
        labelled.two_valued("one")
    assert labelled.two_valued("size")[0].tolist() == [0, 2, 3]
