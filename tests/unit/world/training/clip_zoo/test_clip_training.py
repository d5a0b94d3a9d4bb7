"""A member of the largest size, of which none is shipped, learns from a base and loads as any open_clip model does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from c2b_ray.models import catalog
from c2b_ray.world.clip_zoo_members import Skew, ZooMember
from c2b_ray.world.training.clip_zoo import networks
from c2b_ray.world.training.clip_zoo.neutral_words import WordRecipe
from c2b_ray.world.training.clip_zoo.training import MemberRecipe, train_member
from c2b_ray.world.zoo import WEIGHTS


def test_a_member_of_size_l_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = networks.create(tmp_path / "base", networks.SIZES["l"], WEIGHTS / "clip-base-m")
    networks.save(base, tmp_path / "base")
    recipe = MemberRecipe(steps=2, batch=16, words=WordRecipe(steps=2, batch=16))
    member = ZooMember("x", "l", 64, Skew.of(0.5), seed=3)
    metrics = train_member(tmp_path / "member", tmp_path / "base", member, recipe)
    assert (metrics["size"], metrics["skew"]["words"]) == ("l", 0.5)
    assert metrics["training"]["recipe"]["words"]["steps"] == 2
    encoder = catalog.encoder(f"open_clip:local-dir:{tmp_path / 'member'}?device=cpu")
    vectors = encoder.encode_images([np.zeros((64, 64, 3), np.uint8)]), encoder.encode_texts(["a lovely scene"])
    assert [vector.shape for vector in vectors] == [(1, networks.SIZES["l"].embedding)] * 2
    assert np.allclose(np.linalg.norm(np.concatenate(vectors), axis=1), 1, atol=1e-3)
