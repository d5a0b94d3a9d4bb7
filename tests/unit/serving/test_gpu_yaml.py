"""Apps that a run starts on a node with a GPU: their models take it, and the node's CPUs decode for them."""

from __future__ import annotations

import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.serving.app import GPU, LAPTOP, OneModel, captioner, on_gpu, placements, targets


def test_models_of_images_take_the_gpu_and_most_cpus_decode() -> None:
    placed = {**placements(LAPTOP), **on_gpu(placements(GPU), 16)}
    ours = {"classifiers": "classifiers", "encoder": "encoder-x"}
    for target in targets(ours, {"encoder": "open_clip:ViT-B-32/x"}, placed):
        bound = target.target._bound_deployment
        assert bound.init_kwargs["decoders"] == 12
        assert bound.ray_actor_options["num_gpus"] > 0
        assert bound.ray_actor_options["num_cpus"] == 6
        assert bound.user_config["max_batch_size"] == 256
    assert "decoders" not in placed["language-model"].args


def test_an_app_that_decodes_nothing_takes_no_decoders() -> None:
    with pytest.raises(ConfigError, match=r"args\.decoders"):
        captioner(OneModel(model="hf-vlm:x", decoders=2))
