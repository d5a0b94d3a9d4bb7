"""The view model: ranking, folding, numbers in sentences, what is left over, what went wrong."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from c2b_ray import schemas
from c2b_ray.report.c2b.examples import MOST, choose
from c2b_ray.report.c2b.findings import finding
from c2b_ray.report.c2b.method import method
from c2b_ray.report.c2b.problems import problems
from c2b_ray.report.c2b.ranking import Group, cells_of, folded, leading, ranked, worst_first
from c2b_ray.report.c2b.remainder import clear, no_clear, undetermined
from c2b_ray.report.c2b.view import Tables, View, build_view, plan
from c2b_ray.store.run import Run

NAN = float("nan")
NAMES = {"m": "m"}
NO_REPLIES = schemas.REJECTED.empty_table()


def row(value: str, phi: float = NAN, verdict: str = "undetermined", **more: Any) -> dict[str, Any]:
    """A row of scores whose accuracy is such that the others' mean is 0.9."""
    accuracy = 0.9 + phi
    low, high = (phi - 0.06, phi + 0.06)
    return {
        "classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": value,
        "n": 0 if math.isnan(phi) else 200, "correct": 0 if math.isnan(phi) else round(200 * accuracy), "errors": 0,
        "accuracy": accuracy, "accuracy_low": accuracy - 0.05, "accuracy_high": accuracy + 0.05,
        "phi": phi, "phi_low": low, "phi_high": high, "p_value": 0.01, "q_value": 0.01,
        "verdict": verdict, "paper_verdict": 0, "images_to_settle": None,
    } | {"mistaken_for": None, "mistaken": 0, "answered_bias_class": None} | more  # fmt: skip


def scores(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schemas.SCORES)


def only(*rows: dict[str, Any]) -> Group:
    (group,) = ranked(scores(*rows))
    return group


def text(spans: Any) -> str:
    return "".join(span.text for span in spans)


def view_of(run: Run) -> View:
    tables = Tables(run.rejected, run.captions, run.draws, run.images, run.predictions, run.scores).of_draws()
    return build_view(run.manifest, tables, plan(tables), {})


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
    told = finding(group, "m", 0.95, "g")
    assert told is not None
    assert told.verdict == "against"
    assert told.beneath == ("Mirrored: better with rain (+0.20) and fog (+0.14).",)


def test_findings_in_the_lead_s_own_direction_are_not_called_mirrored() -> None:
    group = only(row("snow", -0.3, "against"), row("fog", -0.2, "against"), row("clear", 0.5, "for"))
    told = finding(group, "m", 0.95, "g")
    assert told is not None
    assert told.verdict == "for"
    assert told.beneath == ("Mirrored: less well with snow (−0.30) and fog (−0.20).",)
    group = only(row("snow", -0.5, "against"), row("fog", -0.2, "against"), row("clear", 0.3))
    told = finding(group, "m", 0.95, "g")
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
    told = finding(groups["lighting"], "m", 0.95, "g", beneath[groups["lighting"].key])
    assert told is not None
    assert told.beneath == (
        "Mirrored: better with day (+0.50).",
        f"Says the same: sky is dark (−0.40), {reason}.",
        "Says the same: air is hazy (−0.10), goes with sky: bright (Cramér’s V 0.71).",
    )


def test_a_finding_of_a_group_of_its_own_is_not_called_a_mirror() -> None:
    group = only(row("rain", -0.3, "against", group=1), row("clear", 0.15, "for", group=2), row("fog", 0.15))
    told = finding(group, "m", 0.95, "g")
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
    told = finding(only(row("snow", -0.55, "against"), row("rain", 0.2), row("clear", 0.2)), "m", 0.95, "g")
    assert told is not None
    assert text(told.sentence).replace("\u202f", " ").replace("\u00a0", " ") == (
        "m recognises a bus less well when weather is snow: 35 % right against 90 % for the other values "
        "(φ −0.55, 95 % interval −0.61 to −0.49, 200 images)."
    )
    assert [span.text for span in told.sentence if span.strong] == ["bus", "weather is snow"]


def test_sentence_names_the_only_other_value() -> None:
    told = finding(only(row("small", -0.3, "against"), row("large", 0.3, "for"), row("empty")), "m", 0.9, "g")
    assert told is not None
    assert "90\u202f% for large" in text(told.sentence)
    assert "90\u202f% interval" in text(told.sentence)


def test_lead_says_what_the_class_is_taken_for() -> None:
    lead = row("zebra", -0.4, "against", mistaken_for="boat", mistaken=60, answered_bias_class=25)
    told = finding(only(lead, row("b", 0.4)), "m", 0.95, "g")
    assert told is not None
    assert told.mistaken == (
        "Most often taken for boat: 60 of 100 wrong answers. "
        "The value’s own name, zebra, was the answer 25 of 200 times."
    )


def test_no_finding_no_sentence() -> None:
    assert finding(only(row("a", -0.5), row("b", 0.5)), "m", 0.95, "g") is None


@pytest.mark.parametrize(
    ("verdict", "paper", "disagrees"),
    [("for", 1, False), ("against", -1, False), ("none", 0, False), ("undetermined", 0, False),
     ("undetermined", -1, True), ("none", 1, True), ("for", 0, True)],
)  # fmt: skip
def test_disagreement_with_the_paper(verdict: str, paper: int, disagrees: bool) -> None:
    (cell,) = cells_of(scores(row("a", 0.1, verdict, paper_verdict=paper)))
    assert cell.disagrees is disagrees


def test_undetermined_counts_and_order() -> None:
    cells = [row(f"v{i}", i / 100, images_to_settle=i * 100) for i in range(1, 25)]
    tiny = [row("three", 0.3, n=3, correct=3), row("four", 0.3, n=4, correct=4)]
    because = row("five", 0.2, n=5, correct=5, undetermined_because="too few images")
    groups = ranked(scores(*cells, row("empty"), row("done", 0.4, "for")))
    left = undetermined(groups, NAMES, 0.05)
    assert "25 of 26 cells stay open" in left.line
    assert "1 of them has no image" in left.line
    assert (len(left.cells), left.more) == (24, 0)  # the empty one is counted, not listed
    few = undetermined(ranked(scores(*tiny, because)), NAMES, 0.05)
    assert "2 of them have 4 images or fewer" in few.line
    assert [(cell.bias_class, cell.because) for cell in few.cells] == [("five", "too few images")]
    assert [cell.bias_class for cell in left.cells[:2]] == ["v24", "v23"]
    assert left.cells[0].settle == "2,400"
    # ≤ 100: v1; ≤ 300: v1 to v3; ≤ 1000: v1 to v10; 2400 settle all 24 of the 25 that can be settled
    assert [(step.images, step.cells) for step in left.steps] == [
        ("100", "1"), ("300", "3"), ("1,000", "10"), ("2,400", "24"),
    ]  # fmt: skip
    assert left.steps[-1].share == "96.0"
    many = undetermined(ranked(scores(row("a", 0.01, images_to_settle=4_120_415))), NAMES, 0.05)
    assert [step.images for step in many.steps] == ["more than 100,000"]


def test_nothing_clear_is_told_with_what_it_would_take() -> None:
    far, near = row("a", 0.02, images_to_settle=900), row("b", -0.02, images_to_settle=400)
    line = no_clear(cells_of(scores(far, near, row("c", 0.2, images_to_settle=50))), 0.05)
    assert line.endswith("the nearest to it holds 200 and would need about 400.")
    unverified = no_clear(cells_of(scores(far | {"basis": "captions"}, near | {"basis": "verifier"})), 0.05)
    assert unverified.endswith("labels, or a verifier that was calibrated.")


def test_clear_is_told_by_attribute_and_whole_groups_in_short() -> None:
    table = scores(
        row("a", 0.01, "none"),
        row("b", -0.01, "none"),
        row("a", 0.0, "none", target_class="boat"),
        row("b", 0.0, target_class="boat"),
    )
    (section,) = clear(ranked(table), NAMES)
    (attribute,) = section.attributes
    assert (attribute.attribute, attribute.number) == ("weather", "3")
    assert [(c.target_class, c.values) for c in attribute.classes] == [("bus", "all 2 values"), ("boat", "a")]


def test_errors_are_counted_once_an_image_and_by_reason_without_names_and_numbers() -> None:
    ids = ["i0", "i1", "i2", "i3"]
    draws = pa.Table.from_pylist(
        [{"caption_id": "c", "image_id": i, "rank": 0} for i in [*ids, "never"]], schemas.DRAWS
    )
    errors = ["a/x0.jpg: 10 bytes missing", "a/x1.jpg: 12 bytes missing", None, None]
    images = pa.Table.from_pylist(
        [{"image_id": i, "key": f"a/x{n}.jpg", "error": e} for n, (i, e) in enumerate(zip(ids, errors, strict=True))],
        schemas.IMAGES,
    )
    answers = [
        {"image_id": i, "classifier": c, "error": e} for c in ("m", "k") for i, e in zip(ids, errors, strict=True)
    ]
    answers[2]["error"] = "no answer"  # of m alone
    predictions = pa.Table.from_pylist(
        [{"prediction_id": "", "revision": "r1", **a} for a in answers[:-1]], schemas.PREDICTIONS
    )
    found = problems(NO_REPLIES, draws, images, predictions, {"m": "m", "k": "k"})
    assert found.unusable == 3
    assert [(r.number, r.reason, r.where) for r in found.reasons] == [
        ("2", "… bytes missing", "every classifier"), ("1", "no answer", "m"),
    ]  # fmt: skip
    assert found.missing == (
        "1 image of the draws was never fetched.", "1 image was never shown to m.", "2 images were never shown to k.",
    )  # fmt: skip


def test_rejected_replies_are_counted_by_reason() -> None:
    rows = [{"step": "propose", "about": "bus", "reply": "x " * 200, "reason": f"not JSON at {i}"} for i in range(3)]
    rows.append({"step": "caption", "about": "bus", "reply": "y", "reason": "not JSON at 7"})
    rejected = pa.Table.from_pylist(rows, schemas.REJECTED)
    empty = (schemas.DRAWS.empty_table(), schemas.IMAGES.empty_table(), schemas.PREDICTIONS.empty_table())
    found = problems(rejected, *empty, {})
    assert found.rejected == 4
    assert [(r.number, r.reason, r.where) for r in found.rejections] == [
        ("3", "not JSON at …", "proposing attributes"), ("1", "not JSON at 7", "writing captions"),
    ]  # fmt: skip
    assert len(found.rejections[0].sample) <= 140


def test_examples_are_the_nearest_of_the_lead_cell(showcase_run: Run) -> None:
    groups = worst_first(ranked(showcase_run.scores))[:1]
    chosen = choose(groups, showcase_run.captions, showcase_run.draws, showcase_run.predictions)[groups[0].key]
    assert (len(chosen.wrong), len(chosen.right)) == (MOST, MOST)
    assert {e.caption for e in chosen.wrong} == {"a photo of a bus, weather: snow"}
    assert all(e.predicted_class != "bus" for e in chosen.wrong)
    rank = dict(zip(showcase_run.draws["image_id"].to_pylist(), showcase_run.draws["rank"].to_pylist(), strict=True))
    assert max(rank[e.image_id] for e in (*chosen.wrong, *chosen.right)) < 30  # of 240


def test_view_of_a_whole_run(showcase_run: Run) -> None:
    view = view_of(showcase_run)
    verdicts = showcase_run.scores["verdict"].to_pylist()
    found = verdicts.count("for") + verdicts.count("against")
    clear_cells, open_cells = verdicts.count("none"), verdicts.count("undetermined")
    assert view.headline.tally == f"{found} findings, {clear_cells} clear, {open_cells} undetermined"
    assert [text(f.sentence).split(": ")[0] for f in view.findings.sentences] == [
        "world:resnet-planted-3 recognises a bus less well when weather is snow",
        "world:resnet-planted-3 recognises a boat less well when lighting is night",
        "world:resnet-planted-3 recognises an umbrella less well when size is small",
    ]
    assert [len(section.detailed) for section in view.sections] == [3, 0]
    assert view.problems.unusable == 5
    assert view.headline.date == "20 November 2026, 17:11 UTC"


def test_method_hides_places_and_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "verysecretvalue")
    manifest = {
        "config": {
            "task": "see verysecretvalue",
            "images": {"source": "labelled", "table": "/home/me/my data/labels.csv"},
            "language_model": "openai:https://me:pw@host/v1?api_key=abc#model",
            "classifier": ["onnx:/home/me/a/model.onnx", "onnx:/home/me/b/model.onnx"],
            "label_map": None,
        },
        "models": {
            "language_model": {"spec": None},
            "classifier onnx:/home/me/a/model.onnx": {"spec": "onnx:/home/me/a/model.onnx", "revision": "r1"},
            "classifiers": {"named": "r2"},
        },
        "seconds": {"classify: onnx:/home/me/a/model.onnx": 61.0, "score": 0.25},
    }
    made = method(manifest)
    for hidden in ("verysecretvalue", "/home", "pw@", "abc", "label_map"):
        assert hidden not in repr(made)
    assert made.shortened
    assert [(m.role, m.spec, m.revision) for m in made.models] == [
        ("Classifier", "onnx:model.onnx", "r1"), ("Classifier", "named", "r2"),
    ]  # fmt: skip
    assert [value.replace("\u202f", " ") for _, value in made.seconds] == ["1 min 1 s", "0.2 s", "1 min 1 s"]
