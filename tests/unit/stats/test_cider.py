from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.cider.cider import Cider

from c2b_ray.stats.retrieval import cider

WORDS = ["a", "dog", "cat", "on", "the", "red", "blue", "beach", "house", "runs", "sits", "with", "tree"]


def test_scores_are_those_of_the_coco_evaluation():
    random = np.random.default_rng(0)

    def text():
        return " ".join(random.choice(WORDS, random.integers(1, 12)))

    candidates = [text() for _ in range(40)]
    references = [[text() for _ in range(random.integers(1, 6))] for _ in range(40)]
    candidates[0] = references[0][0]
    _, theirs = Cider().compute_score(dict(enumerate(references)), {at: [one] for at, one in enumerate(candidates)})
    ours = cider([one.split() for one in candidates], [[one.split() for one in some] for some in references])
    assert np.abs(ours - theirs).max() < 1e-12


def test_edges():
    assert cider([["a", "b", "c", "d"], ["x"]], [[["a", "b", "c", "d"]], [["y"]]]).tolist() == pytest.approx(
        [10.0, 0.0]
    )
    assert cider([["a"]], [[["a"]]]).tolist() == [0.0]  # one image: every word is in every image
    assert cider([[], ["b"]], [[["a"]], [["b"]]])[0] == 0.0
    with pytest.raises(ValueError, match="image 1 has no reference"):
        cider([["a"], ["b"]], [[["a"]], []])
