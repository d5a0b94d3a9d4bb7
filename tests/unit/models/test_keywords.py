"""Keywords of captions."""

from __future__ import annotations

from c2b_ray.models.group_guessers import keywords, sentence


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
