"""The view of findings: their ranking and folding, and the numbers in their sentences."""

from __future__ import annotations

from score_rows import only, row, scores, text

from c2b_ray.audits.c2b.report.findings import found_row
from c2b_ray.audits.c2b.report.ranking import folded, leading, ranked, worst_first


def test_groups_with_findings_come_before_larger_phi_without_them() -> None:
    table = scores(
        row("a", -0.10, "against", attribute="size"),
        row("b", 0.10, "for", attribute="size"),
        row("a", -0.50, attribute="colour"),  # large, but not established
        row("b", 0.50, attribute="colour"),
        row("a", -0.30, "against", attribute="weather"),
        row("b", 0.30, attribute="weather"),
        row("a", attribute="empty"),
        row("b", attribute="empty"),
    )
    assert [group.attribute for group in ranked(table)] == ["weather", "size", "colour", "empty"]
    assert [group.attribute for group in worst_first(ranked(table))] == ["weather", "size"]


def test_ranking_keeps_classifiers_in_order_and_worst_first_mixes_them() -> None:
    table = scores(
        row("a", -0.1, "against", classifier="z"),
        row("b", 0.1, classifier="z"),
        row("a", -0.4, "against", classifier="m"),
        row("b", 0.4, classifier="m"),
    )
    assert [group.classifier for group in ranked(table)] == ["z", "m"]
    assert [group.classifier for group in worst_first(ranked(table))] == ["m", "z"]


def test_cells_are_ordered_by_phi_with_the_unknown_last() -> None:
    group = only(row("empty"), row("high", 0.2), row("low", -0.2))
    assert [cell.bias_class for cell in group.cells] == ["low", "high", "empty"]


def test_of_two_equal_findings_the_one_against_leads() -> None:
    lead = only(row("large", 0.25, "for"), row("small", -0.25, "against")).lead
    assert lead is not None
    assert lead.bias_class == "small"


def test_mirrored_findings_are_folded_beneath_the_lead() -> None:
    group = only(row("snow", -0.54, "against"), row("fog", 0.14, "for"), row("rain", 0.2, "for"), row("clear", 0.2))
    told = found_row(group, "m", 0.95, "g")
    assert told is not None
    assert told.verdict == "against"
    assert told.beneath == ("Mirrored: better with rain (+0.20) and fog (+0.14).",)


def test_findings_in_the_lead_s_own_direction_are_not_called_mirrored() -> None:
    group = only(row("snow", -0.3, "against"), row("fog", -0.2, "against"), row("clear", 0.5, "for"))
    told = found_row(group, "m", 0.95, "g")
    assert told is not None
    assert told.verdict == "for"
    assert told.beneath == ("Mirrored: less well with snow (−0.30) and fog (−0.20).",)
    group = only(row("snow", -0.5, "against"), row("fog", -0.2, "against"), row("clear", 0.3))
    told = found_row(group, "m", 0.95, "g")
    assert told is not None
    assert told.beneath == ("Also less well: fog (−0.20).",)


def test_findings_on_the_same_images_are_folded_beneath_the_strongest() -> None:
    reason = "mostly the same images as lighting: night (Jaccard 0.82)"
    table = scores(
        row("night", -0.5, "against", attribute="lighting", group=1),
        row("day", 0.5, "for", attribute="lighting", group=1, group_reason="complement of lighting: night"),
        row("dark", -0.4, "against", attribute="sky", group=1, group_reason=reason),
        row("bright", 0.3, "for", attribute="sky", group=3),
        row("red", -0.2, "against", attribute="colour", group=2),
        row("hazy", -0.1, "against", attribute="air", group=3, group_reason="goes with sky: bright (Cramér’s V 0.71)"),
    )
    groups = {group.attribute: group for group in ranked(table)}
    beneath = folded(list(groups.values()))
    # air is led by a value of sky, which is itself told beneath lighting
    assert beneath == {groups["lighting"].key: [groups["sky"], groups["air"]]}
    told = found_row(groups["lighting"], "m", 0.95, "g", beneath[groups["lighting"].key])
    assert told is not None
    assert told.beneath == (
        "Mirrored: better with day (+0.50).",
        f"Says the same: sky is dark (−0.40), {reason}.",
        "Says the same: air is hazy (−0.10), goes with sky: bright (Cramér’s V 0.71).",
    )


def test_a_finding_of_a_group_of_its_own_is_not_called_a_mirror() -> None:
    group = only(row("rain", -0.3, "against", group=1), row("clear", 0.15, "for", group=2), row("fog", 0.15))
    told = found_row(group, "m", 0.95, "g")
    assert told is not None
    assert told.beneath == ("Also better: clear (+0.15).",)


def test_of_groups_that_each_say_the_same_as_the_other_one_is_told() -> None:
    # Fresh images turned the order round: the lead of either attribute now belongs to the group of the other's.
    table = scores(
        row("night", -0.5, "against", attribute="lighting", group=1, phi_confirmed=-0.1),
        row("day", 0.4, "for", attribute="lighting", group=2, group_reason="goes with sky: bright", phi_confirmed=0.3),
        row("dark", -0.4, "against", attribute="sky", group=1, group_reason="goes with lighting: night",
            phi_confirmed=-0.4),
        row("bright", 0.3, "for", attribute="sky", group=2, phi_confirmed=0.2),
    )  # fmt: skip
    assert [(g.attribute, [b.attribute for b in beneath]) for g, beneath in leading(ranked(table))] == [
        ("sky", ["lighting"])
    ]


def test_sentence_states_the_lead_s_numbers() -> None:
    # accuracy 0.9 − 0.55 = 0.35; the others' mean is accuracy − φ = 0.9; interval −0.61 to −0.49
    told = found_row(only(row("snow", -0.55, "against"), row("rain", 0.2), row("clear", 0.2)), "m", 0.95, "g")
    assert told is not None
    assert text(told.sentence).replace("\u202f", " ").replace("\u00a0", " ") == (
        "m recognises a bus less well when weather is snow: 35 % right against 90 % for the other values "
        "(φ −0.55, 95 % interval −0.61 to −0.49, 200 images)."
    )
    assert [span.text for span in told.sentence if span.strong] == ["bus", "weather is snow"]


def test_sentence_names_the_only_other_value() -> None:
    told = found_row(only(row("small", -0.3, "against"), row("large", 0.3, "for"), row("empty")), "m", 0.9, "g")
    assert told is not None
    assert "90\u202f% for large" in text(told.sentence)
    assert "90\u202f% interval" in text(told.sentence)


def test_lead_says_what_the_class_is_taken_for() -> None:
    lead = row("zebra", -0.4, "against", mistaken_for="boat", mistaken=60, answered_bias_class=25)
    told = found_row(only(lead, row("b", 0.4)), "m", 0.95, "g")
    assert told is not None
    assert told.beneath == (
        "Most often taken for boat: 60 of 100 wrong answers. "
        "The value’s own name, zebra, was the answer 25 of 200 times.",
    )


def test_no_finding_no_sentence() -> None:
    assert found_row(only(row("a", -0.5), row("b", 0.5)), "m", 0.95, "g") is None
