"""Hard prompts by gradients through the text tower of the world's CLIP."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.models.pez import hard_prompt


@pytest.mark.long
def test_it_comes_nearer_to_a_target_than_any_plain_sentence() -> None:
    encoder = catalog.encoder("world:clip?device=cpu")
    texts = ["a bus at night", "a mug on a beach", "a photo"]
    target, *others = encoder.encode_texts(texts)
    found = encoder.encode_texts([hard_prompt(encoder, target, 0, steps=40)])[0]
    assert found @ target > max(other @ target for other in others)
    assert np.isfinite(found).all()


def test_an_encoder_without_gradients_is_refused() -> None:
    with pytest.raises(SpecError, match="pez needs an open_clip encoder"):
        hard_prompt(object(), np.zeros(4, np.float32), 0)
