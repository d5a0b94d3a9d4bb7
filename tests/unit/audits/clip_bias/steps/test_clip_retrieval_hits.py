from __future__ import annotations

import numpy as np

from c2b_ray.audits.clip_bias.steps.measure import Gallery, alike_of, copies_of, recalled
from c2b_ray.stats import recall_at


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_recall_is_the_metric_s_of_each_image():
    random = np.random.default_rng(0)
    captions = [[f"t{random.integers(30)}" for _ in range(random.integers(0, 4))] for _ in range(50)]
    gallery = Gallery.of(captions)
    images, texts = unit(random.normal(size=(50, 8))), unit(random.normal(size=(len(gallery.texts), 8)))
    totals, counts = recalled(images, texts, gallery, 5, "share")
    found, _ = recalled(images, texts, gallery, 5, "any")
    for row, own in enumerate(gallery.of_image):
        if not own:
            assert (totals[row], counts[row]) == (0, 0)
            continue
        ranked = np.argsort(-(texts.astype(float) @ images[row].astype(float)))
        expected = recall_at(ranked, own, 5)
        assert totals[row] == expected
        assert found[row] == (expected > 0)


def test_a_caption_that_two_images_share_is_right_for_both():
    gallery = Gallery.of([["a dog"], ["a dog"], ["a cat"]])
    assert gallery.texts == ("a dog", "a cat")
    images = np.eye(2, dtype=np.float32)[[0, 0, 1]]
    totals, _ = recalled(images, np.eye(2, dtype=np.float32), gallery, 1, "share")
    assert totals.tolist() == [1, 1, 1]


def test_of_texts_that_are_equally_near_the_first_are_retrieved():
    gallery = Gallery.of([["a"], ["b"], ["c"], ["d"]])
    texts = np.eye(2, dtype=np.float32)[[1, 0, 0, 0]]  # of the first image b, c and d are equally near
    totals, _ = recalled(np.eye(2, dtype=np.float32)[[0, 0, 0, 0]], texts, gallery, 2, "share")
    assert totals.tolist() == [0, 1, 1, 0]


def test_copies_are_images_that_no_model_tells_apart():
    random = np.random.default_rng(0)
    pictures = unit(random.normal(size=(4, 8)))
    one = pictures[[0, 1, 2, 1, 3]] + np.float32(1e-8)
    other = one.copy()
    assert alike_of(other).tolist() == [0, 1, 2, 1, 4]
    assert copies_of(np.stack([alike_of(one), alike_of(other)])).tolist() == [0, 1, 2, 1, 4]
    other[3] = pictures[3]
    assert copies_of(np.stack([alike_of(one), alike_of(other)])).tolist() == [0, 1, 2, 3, 4]
    # a model to which all is one says nothing of pictures
    assert copies_of(alike_of(np.ones((5, 8), np.float32))[None]).tolist() == [0, 1, 2, 3, 4]
