"""Groups of texts and keywords of captions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models.group_guessers import keywords, load, sentence

WORDS = ["a", "red", "blue", "dog", "cat", "on", "the", "beach"]


def texts(count, seed):
    """Texts whose group is told by red or blue, most of the time."""
    random = np.random.default_rng(seed)
    groups = random.integers(0, 2, count)
    said = np.where(random.random(count) < 0.9, groups, 1 - groups)
    return [f"a {['red', 'blue'][one]} {random.choice(WORDS[3:])} on the beach" for one in said], groups


def test_bag_of_words_is_scikit_learns_logistic_regression():
    train, groups = texts(80, 0)
    others, _ = texts(20, 1)
    ours = load("bag-of-words").probabilities(train, groups, others, 2, 0)
    counts = CountVectorizer(binary=True, ngram_range=(1, 2), min_df=2, token_pattern=r"\S+")
    x = counts.fit_transform(train)
    # Two classes of one penalty each are a binary regression of twice the inverse penalty.
    theirs = (
        LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(x, groups).predict_proba(counts.transform(others))
    )
    assert np.abs(ours - theirs).max() < 1e-3
    assert np.allclose(ours.sum(axis=1), 1)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(str(vocabulary), do_lower_case=True).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=13, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.long
def test_bert_learns_from_texts_and_a_seed_fixes_it(bert):
    train, groups = texts(60, 2)
    others, true = texts(30, 3)
    guesser = load(f"bert:local-dir:{bert}?epochs=12&rate=0.01&batch=16&device=cpu")
    first = guesser.probabilities(train, groups, others, 2, 5)
    assert np.allclose(first.sum(axis=1), 1)
    assert (first.argmax(axis=1) == true).mean() >= 0.7
    assert np.array_equal(first, guesser.probabilities(train, groups, others, 2, 5))


def test_what_is_no_guesser_is_refused(bert, tmp_path):
    with pytest.raises(SpecError, match="expected bag-of-words"):
        load("timm:resnet50")
    with pytest.raises(SpecError, match="epochs=0: expected a whole number"):
        load(f"bert:local-dir:{bert}?epochs=0")
    with pytest.raises(WeightsError, match="no BERT can be read"):
        load(f"bert:local-dir:{tmp_path}")


def test_what_captions_repeat_are_the_keywords():
    text = " ".join(["a photo of a bird in a bamboo forest"] * 5 + ["a photo of a bird on green grass"])
    found = keywords(text, most=5)
    assert len(found) <= 5
    assert "bamboo forest" in found
    assert all(len(word.split()) <= 3 for word in found)
    assert keywords("  ") == []
    assert keywords("a of the") == []


def test_no_keyword_goes_on_from_one_caption_into_the_next():
    captions = ["a photo of a red bus in the fog", "a small bus near dogs", "a bus with two dogs in fog."] * 20
    found = keywords(" ".join(map(sentence, captions)))
    assert {"fog", "dogs", "red bus"} <= set(found)
    assert all(any(word in caption for caption in captions) for word in found)
    assert not all(any(word in caption for caption in captions) for word in keywords(" ".join(captions)))
