"""The page as blocks: numbers in tables, what is left over, what went wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from audit_configs import audit_config
from score_rows import lines, row, scores, text

from c2b_ray import tables as schemas
from c2b_ray.audits.c2b.report.gallery import MOST, choose
from c2b_ray.audits.c2b.report.method import method
from c2b_ray.audits.c2b.report.page import page_of, shared_tables, shown_images
from c2b_ray.audits.c2b.report.ranking import cells_of, ranked, worst_first
from c2b_ray.audits.c2b.report.undetermined import clear_section, no_clear, notes, undetermined_section
from c2b_ray.audits.c2b.report.unused import unused_article
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.report.blocks import Article, Details, Findings, Page

NAMES = {"m": "m"}
NO_REPLIES = schemas.REJECTED.empty_table()


def whole_page(run: C2BRun) -> Page:
    tables = shared_tables(run)
    groups = ranked(tables.scores)
    return page_of(run, tables, groups, shown_images(run, tables, groups), {})


def undetermined(*rows: Any) -> Details:
    """Returns what the section says of these scores."""
    (details,) = undetermined_section(ranked(scores(*rows)), NAMES, 0.05, verified=False).blocks
    return details


def unused(*tables: pa.Table, names: dict[str, str]) -> Article:
    return unused_article([], *tables, names)


@pytest.mark.parametrize(
    ("verdict", "paper", "disagrees"),
    [("for", 1, False), ("against", -1, False), ("none", 0, False), ("undetermined", 0, False),
     ("undetermined", -1, True), ("none", 1, True), ("for", 0, True)],
)  # fmt: skip
def test_disagreement_with_the_paper(verdict: str, paper: int, disagrees: bool) -> None:
    (cell,) = cells_of(scores(row("a", 0.1, verdict, paper_verdict=paper)))
    assert cell.disagrees is disagrees


def test_no_effect_on_unverified_images_is_not_told_to_lie_next_to_tau() -> None:
    rows = [row("a", 0.0, basis="captions"), row("b", 0.0, basis="captions"), row("c", 0.05)]
    line = undetermined(*rows).summary
    assert "Of 2 of them φ lies within ±0.05, but on images of which it is not known what they show" in line
    assert "No number of images would settle 1 of them: φ lies next to" in line


def test_a_number_of_images_is_said_of_the_cells_for_which_it_is_known() -> None:
    cells = cells_of(scores(row("a", 0.08, images_to_settle=900), row("b", 0.0), row("c", 0.0)))
    assert any(
        "An undetermined cell of the 1 of which that is known holds 200" in note
        for note in notes(audit_config(), cells)
    )


def test_undetermined_counts_and_order() -> None:
    cells = [row(f"v{i}", i / 100, images_to_settle=i * 100) for i in range(1, 25)]
    tiny = [row("three", 0.3, n=3, correct=3), row("four", 0.3, n=4, correct=4)]
    because = row("five", 0.2, n=5, correct=5, undetermined_because="too few images")
    left = undetermined(*cells, row("empty"), row("done", 0.4, "for"))
    assert "25 of 26 cells stay open" in left.summary
    assert "1 of them has no image" in left.summary
    steps, listed = left.blocks
    assert (len(listed.rows), listed.more) == (24, "")  # the empty one is counted, not listed
    few = undetermined(*tiny, because)
    assert "2 of them have 4 images or fewer" in few.summary
    assert [(text(of.cells[1].text), of.cells[-1].text) for of in few.blocks[0].rows] == [
        ("weather: five", "too few images")
    ]
    assert [text(of.cells[1].text) for of in listed.rows[:2]] == ["weather: v24", "weather: v23"]
    assert listed.rows[0].cells[-2].text == "2,400"
    # ≤ 100: v1; ≤ 300: v1 to v3; ≤ 1000: v1 to v10; 2400 settle all 24 of the 25 that can be settled
    assert [step[:2] for step in steps.rows] == [
        ("100", "1"), ("300", "3"), ("1,000", "10"), ("2,400", "24"),
    ]  # fmt: skip
    assert steps.rows[-1][2].segments[0].width == "96.0"
    many = undetermined(row("a", 0.01, images_to_settle=4_120_415))
    assert [step[0] for step in many.blocks[0].rows] == ["more than 100,000"]


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
    (details,) = clear_section(ranked(table), NAMES, 0.05).blocks
    ((attribute, number, classes),) = details.blocks[0].rows
    assert (attribute, number) == ("weather", "3")
    assert text(classes.text) == "bus all 2 values · boat a"


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
    _, line, reasons = unused(NO_REPLIES, draws, images, predictions, names={"m": "m", "k": "k"}).blocks
    assert line.text == (
        "3 images could not be used by one classifier or more. 1 image of the draws was never fetched. "
        "1 image was never shown to m. 2 images were never shown to k."
    )
    assert reasons.rows == [("2", "… bytes missing", "every classifier"), ("1", "no answer", "m")]


def test_rejected_replies_are_counted_by_reason() -> None:
    rows = [{"step": "propose", "about": "bus", "reply": "x " * 200, "reason": f"not JSON at {i}"} for i in range(3)]
    rows.append({"step": "caption", "about": "bus", "reply": "y", "reason": "not JSON at 7"})
    rejected = pa.Table.from_pylist(rows, schemas.REJECTED)
    empty = (schemas.DRAWS.empty_table(), schemas.IMAGES.empty_table(), schemas.PREDICTIONS.empty_table())
    line, replies, _ = unused(rejected, *empty, names={}).blocks
    assert line.text == "4 replies of the language model could not be used."
    assert [reason[:3] for reason in replies.rows] == [
        ("3", "not JSON at …", "proposing attributes"), ("1", "not JSON at 7", "writing captions"),
    ]  # fmt: skip
    assert len(replies.rows[0][3].text) <= 140


def test_examples_are_the_nearest_of_the_lead_cell(showcase_run: C2BRun) -> None:
    groups = worst_first(ranked(showcase_run.scores))[:1]
    chosen = choose(groups, showcase_run.captions, showcase_run.draws, showcase_run.predictions)[groups[0].key]
    assert (len(chosen.wrong), len(chosen.right)) == (MOST, MOST)
    assert {e.caption for e in chosen.wrong} == {"a photo of a bus, weather: snow"}
    assert all(e.predicted_class != "bus" for e in chosen.wrong)
    rank = dict(zip(showcase_run.draws["image_id"].to_pylist(), showcase_run.draws["rank"].to_pylist(), strict=True))
    assert max(rank[e.image_id] for e in (*chosen.wrong, *chosen.right)) < 30  # of 240


def test_the_page_of_a_whole_run(showcase_run: C2BRun) -> None:
    page = whole_page(showcase_run)
    sections = {section.link: section for section in page.sections}
    verdicts = showcase_run.scores["verdict"].to_pylist()
    found = verdicts.count("for") + verdicts.count("against")
    clear_cells, open_cells = verdicts.count("none"), verdicts.count("undetermined")
    assert f"{found} findings, {clear_cells} clear, {open_cells} undetermined" in lines(sections["made"])
    (findings,) = [block for block in sections["found"].blocks if isinstance(block, Findings)]
    assert [text(row.sentence).split(": ")[0] for row in findings.rows] == [
        "world:resnet-planted-3 recognises a bus less well when weather is snow",
        "world:resnet-planted-3 recognises a boat less well when lighting is night",
        "world:resnet-planted-3 recognises an umbrella less well when size is small",
    ]
    of_classifiers = [block for block in sections["detail"].blocks if isinstance(block, Article)]
    assert [sum(isinstance(block, Details) for block in of.blocks) for of in of_classifiers] == [3, 0]
    assert any(line.startswith("5 images could not be used") for line in lines(sections["made"]))
    assert text(page.byline[-1]) == "20 November 2026, 17:11 UTC"
    assert [name for _, name in page.contents] == ["All findings", "Undetermined", "Ruled out", "How it was made"]


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
