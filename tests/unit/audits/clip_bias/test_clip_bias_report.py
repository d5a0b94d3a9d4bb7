"""The page of CLIP models: who is favoured, and by how much; which findings come first, and what is not known."""

from __future__ import annotations

from typing import Any

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.clip_bias.facts import Facts
from c2b_ray.audits.clip_bias.report import answers, findings, page
from c2b_ray.report.blocks import Section, Strips, Table
from c2b_ray.tables.clip_bias import (
    CLIP_BIAS,
    GROUP_EXAMPLES,
    RATES,
    TRANSFER,
    BiasRow,
    GroupExampleRow,
    RateRow,
    TransferRow,
)

CONFIG = ClipBiasConfig(
    models={"m": "world:clip"}, datasets={"people": {"table": "people.csv", "attributes": ["gender"]}}
)


def facts(**rows: Any) -> Facts:
    return Facts({}, CONFIG, {"m": "m"}, **rows)


def told(biases, rates=()):
    return answers(facts(biases=biases, rates=list(rates)))


def row_of(schema: Any, **fields: Any) -> Any:
    return {**dict.fromkeys(schema.names), "model": "m", "dataset": "people", "attribute": "gender"} | fields


def bias(metric: str, value: float, expected: float, q_value: float = 0.001, **fields: Any) -> BiasRow:
    numbers = {"value": value, "value_low": 0.2, "value_high": 0.7, "n": 500, "expected": expected, "q_value": q_value}
    return row_of(CLIP_BIAS, metric=metric, **({"group": "all", "stage": "pretraining"} | numbers | fields))


def rate(name: str, share: float, n: int) -> RateRow:
    return row_of(RATES, metric="recall@5", attribute_value=name, group="all", rate=share, n=n)


def section(of: Facts, link: str, pictures: dict[str, str] | None = None) -> Section:
    (found,) = (one for one in page(of, pictures or {}).sections if one.link == link)
    return found


def test_unequal_performance_names_both_values_and_their_images():
    rates = [rate("man", 0.5, 250), rate("woman", 0.8, 250)]
    (answer,) = told([bias("kl_recall@5", 0.3, 0.01)], rates)
    assert "m favours gender: woman: it is right on 80\u202f% of 250 such images" in answer.text
    assert "against 50\u202f% of 250 of man" in answer.text
    assert "chance alone gives 0.01" in answer.beneath[0]


def test_a_rate_of_few_images_is_no_headline():
    rates = [rate("man", 0.0, 1), rate("woman", 0.8, 250)]
    (answer,) = told([bias("kl_recall@5", 0.3, 0.01)], rates)
    assert "favours" not in answer.text
    assert "of gender is 0.3" in answer.text


def test_a_score_of_captions_is_no_share_of_right_answers():
    rates = [rate(name, score, 250) | {"metric": "cider"} for name, score in (("man", 0.6), ("woman", 0.9))]
    (answer,) = told([bias("kl_cider", 0.3, 0.01)], rates)
    assert answer.text == "m: KL of CIDEr of gender is 0.3, where chance alone gives 0.01."


def test_a_skew_is_told_as_how_many_times_more_frequent():
    (answer,) = told([bias("max_skew@100", 0.693147, 0.0953)])
    assert "it is 2.00 times as frequent as among all, on average; chance alone gives 1.10 times" in answer.text


def test_a_skew_names_the_value_that_most_texts_favour():
    skewed = bias("max_skew@100", 0.693147, 0.0953, favoured="man", favoured_texts=9, texts=12)
    (answer,) = told([skewed])
    assert "m favours gender: man, the most over-represented value for 9 of 12 neutral texts." in answer.text
    assert "2.00 times as frequent as among all" in answer.text
    for apart in (skewed | {"favoured_texts": 6}, skewed | {"favoured": None, "favoured_texts": None}):
        (answer,) = told([apart])
        assert "favours one value of gender for some neutral texts, and another for others" in answer.text


def test_no_bias_beyond_chance_is_said():
    (answer,) = told([bias("max_skew@100", 0.2, 0.19, q_value=0.4)])
    assert answer.text == "None of 1 bias is beyond what chance alone gives."
    assert answer.verdict == "undetermined"


def test_where_no_bias_has_a_number_none_is_said_to_be_explained_by_chance():
    (answer,) = told([bias("max_skew@100", float("nan"), 0.19, q_value=float("nan"))])
    assert answer.text == "No bias could be measured."


def test_a_bias_that_a_group_alone_has_comes_first():
    everywhere, nowhere = bias("dba", 0.4, 0.1, q_value=0.0001), bias("lic", 0.2, 0.1, q_value=0.6)
    local = bias("lic", 0.3, 0.1, q_value=0.02, group="2")
    first, second = findings(facts(biases=[everywhere, nowhere, local]))
    assert [span.text for span in first.sentence] == [
        "m",
        " (local alone): LIC of gender is 0.3 on group 2 of people (0.2 to 0.7; chance alone gives 0.1).",
    ]
    assert first.beneath == ["Over all images it is 0.2 (0.2 to 0.7), which chance explains."]
    assert (second.sentence[1].text[:18], second.beneath) == (": directional bias", [])


def test_numbers_begin_with_the_surest_and_end_with_what_is_not_known():
    nan = float("nan")
    unknown = bias("cider", nan, nan, q_value=nan, value_low=nan, value_high=nan, note="too few images")
    rows = [unknown, bias("lic", 0.2, 0.1, q_value=0.6), bias("dba", 0.4, 0.1)]
    _, table = section(facts(biases=rows), "numbers").blocks
    assert isinstance(table, Table)
    shown = list(table.lines)
    assert [row.cells[2].text for row in shown] == ["directional bias amplification", "LIC", "CIDEr"]
    assert [row.cells[6].text[0].strong for row in shown] == [True, False, False]
    assert (shown[2].cells[3].lines, shown[2].cells[4].text) == (["too few images"], "—")
    assert shown[0].data == {"model": "m", "attribute": "gender"}


def correlation(rho: float, p_value: float, q_value: float) -> TransferRow:
    sides = {f"{side}_{name}": name for side in ("pretraining", "downstream") for name in ("attribute", "dataset")}
    numbers = {"rho": rho, "rho_low": -0.1, "rho_high": 0.9, "p_value": p_value, "q_value": q_value, "n_models": 5}
    return row_of(TRANSFER, **sides, pretraining_metric="max_skew@9", downstream_metric="lic", view="global",
                  models=[], **numbers)  # fmt: skip


def test_the_surest_correlation_is_named_and_none_where_none_is_established():
    weak, sure = correlation(0.9, 0.2, 0.3), correlation(0.5, 0.001, 0.01)
    line = section(facts(transfer=[weak, sure]), "transfer").blocks[0].text
    assert line.startswith("1 of 2 correlations established at q ≤ 0.05. The strongest: ρ = +0.50")
    assert section(facts(transfer=[weak]), "transfer").blocks[0].text.startswith("None of 1 correlation is established")
    unknown = correlation(float("nan"), 1.0, 1.0)
    assert section(facts(transfer=[unknown]), "transfer").blocks[0].text.startswith("No correlation is known")


def test_groups_show_the_pictures_that_are_there():
    examples: list[GroupExampleRow] = [
        row_of(GROUP_EXAMPLES, group="1", key=key, caption=caption) for key, caption in (("a", "a <b>"), ("gone", "b"))
    ]
    _, article = section(facts(examples=examples), "groups", {"people a": "data:,a"}).blocks
    (strips,) = article.blocks
    assert isinstance(strips, Strips)
    assert [(frame.alt, frame.texts) for frame in strips.strips[0]] == [("a", ["a <b>"])]
    assert section(facts(examples=examples), "groups").blocks[1].blocks == []
