"""The head of a page of CLIP models: who is favoured, and by how much."""

from dataclasses import replace

from c2b_ray.audits.clip_bias.facts import Bias, Facts, Rate
from c2b_ray.audits.clip_bias.report import answers


def told(biases, rates=()):
    return answers(Facts({}, {"m": "m"}, 0.05, 0.0, biases, [], [], [], [], [], [], list(rates)))


def bias(metric, value, expected, q_value=0.001):
    return Bias("m", "people", metric, "gender", "all", value, 0.2, 0.7, 500, expected, q_value, "pretraining", None)


def test_unequal_performance_names_both_values_and_their_images():
    rates = [
        Rate("m", "people", "recall@5", "gender", name, "all", rate, 250)
        for name, rate in (("man", 0.5), ("woman", 0.8))
    ]
    (answer,) = told([bias("kl_recall@5", 0.3, 0.01)], rates)
    assert "m favours gender: woman: it is right on 80\u202f% of 250 such images" in answer.text
    assert "against 50\u202f% of 250 of man" in answer.text
    assert "chance alone gives 0.01" in answer.beneath[0]


def test_a_rate_of_few_images_is_no_headline():
    rates = [
        Rate("m", "people", "recall@5", "gender", name, "all", rate, n)
        for name, rate, n in (("man", 0.0, 1), ("woman", 0.8, 250))
    ]
    (answer,) = told([bias("kl_recall@5", 0.3, 0.01)], rates)
    assert "favours" not in answer.text
    assert "of gender is 0.3" in answer.text


def test_a_skew_is_told_as_how_many_times_more_frequent():
    (answer,) = told([bias("max_skew@100", 0.693147, 0.0953)])
    assert "it is 2.00 times as frequent as among all, on average; chance alone gives 1.10 times" in answer.text


def test_a_skew_names_the_value_that_most_texts_favour():
    skewed = replace(bias("max_skew@100", 0.693147, 0.0953), favoured="man", favoured_texts=9, texts=12)
    (answer,) = told([skewed])
    assert "m favours gender: man, the most over-represented value for 9 of 12 neutral texts." in answer.text
    assert "2.00 times as frequent as among all" in answer.text
    for apart in (replace(skewed, favoured_texts=6), replace(skewed, favoured=None, favoured_texts=None)):
        (answer,) = told([apart])
        assert "favours one value of gender for some neutral texts, and another for others" in answer.text


def test_no_bias_beyond_chance_is_said():
    (answer,) = told([bias("max_skew@100", 0.2, 0.19, q_value=0.4)])
    assert answer.text == "None of 1 bias is beyond what chance alone gives."
    assert answer.verdict == "undetermined"


def test_where_no_bias_has_a_number_none_is_said_to_be_explained_by_chance():
    (answer,) = told([bias("max_skew@100", float("nan"), 0.19, q_value=float("nan"))])
    assert answer.text == "No bias could be measured."
