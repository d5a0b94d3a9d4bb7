"""The head of a page: which findings come first, in which words, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from run_recipes import Recipe
from score_rows import row, scores, text
from synthetic_run import make_run

from c2b_ray import tables
from c2b_ray.audits.c2b.report.answers import answers, in_counts, nothing_found
from c2b_ray.audits.c2b.report.look_answers import Candidate, named_by_attributes
from c2b_ray.audits.c2b.report.method import DerivedValues
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.ranking import cells_of, ranked
from c2b_ray.report.page import Answer
from c2b_ray.report.pictures import ThumbnailSet
from c2b_ray.report.words import Span
from c2b_ray.steps.draw import ImageIds
from c2b_ray.tables import INTERSECTIONS, PERTURBATIONS, POOLED

NONE = tuple(schema.empty_table() for schema in (POOLED, INTERSECTIONS, PERTURBATIONS))


def told(*rows, named=(), names=None, others=()):
    groups = ranked(scores(*rows))
    links = {group.key: f"group-{i}" for i, group in enumerate(groups)}
    thumbnails, levels, derived = ThumbnailSet({}, {}), (0.05, 0.05), DerivedValues({})
    return answers(groups, named, NONE, names or {"m": "m"}, {}, thumbnails, links, levels, derived, others)


def fog(phi=-0.48, correct=104, verdict="against", **more):
    return row("fog", phi, verdict, correct=correct, accuracy=correct / 200, **more)


def test_a_finding_is_told_as_what_was_counted():
    (answer,) = told(fog(), row("clear", 0.48, "undetermined", correct=200, accuracy=1.0))
    assert answer.text == "104 of 200 images of bus are right when weather is fog, against all 200 when it is clear."
    assert "φ\u00a0−0.48, 95\u202f% interval −0.54 to −0.42" in answer.beneath[0]


def test_accuracies_that_are_no_shares_of_the_counts_are_not_told_as_counts():
    # Corrected for what the images show, 52 % is 40 %; and the mean of two unequal cells is not their images' share.
    group = ranked(
        scores(
            fog(phi=-0.5, correct=104) | {"accuracy": 0.4},
            row("clear", 0.3, correct=200, accuracy=1.0, n=200),
            row("rain", 0.2, correct=16, accuracy=0.8, n=20),
        )
    )[0]
    lead = next(cell for cell in group.cells if cell.bias_class == "fog")
    said = text(in_counts(group, lead))
    assert "40\u202f% (corrected; 104 of 200 as counted) of the images of bus" in said
    assert "90\u202f% with its other values on average" in said


def test_values_of_another_metric_are_named_and_are_no_counts_of_images():
    rows = [fog() | {"metric": "precision"}, row("clear", 0.48, correct=200, accuracy=1.0) | {"metric": "precision"}]
    (answer,) = told(*rows)
    assert answer.text == "Precision for bus is 52\u202f% when weather is fog, against 100\u202f% when it is clear."


def test_the_strongest_comes_first_and_a_value_is_told_once():
    rows = [
        fog(target_class="bus", group=1),
        fog(phi=-0.2, correct=140, target_class="boat", group=1),
        row("dark", -0.3, "against", attribute="light", group=2),
        row("small", -0.1, "against", attribute="size", group=3),
        row("red", -0.07, "against", attribute="colour", group=4),
    ]
    found = told(*rows)
    assert [one.text.split(" is ")[0].split(" when ")[1] for one in found] == ["weather", "light", "size"]
    assert "The same of boat (−0.20)." in found[0].beneath


@pytest.mark.parametrize(("images", "first"), [(4, "15 %"), (2000, "None of 2,000")])
def test_what_explains_more_answers_than_any_cell_comes_first_however_large_the_effect_in_the_cell(images, first):
    look = Candidate(0.15, 0.15 * 600, Answer("against", "▼", (Span("15 % follow the texture."),), link="looks"))
    found = told(fog(phi=-0.5, correct=0, n=images), row("clear", 0.5, n=images, correct=images), others=[look])
    assert len(found) == 2
    assert found[0].text.startswith(first)


def test_a_sentence_without_a_name_before_it_begins_with_a_capital():
    (answer,) = told(fog(phi=-1.0, correct=0), row("clear", 1.0, "undetermined", correct=200, accuracy=1.0))
    assert answer.text.startswith("None of 200 images of bus are right")


def test_classifiers_that_fail_alike_are_one_sentence():
    found = told(fog(group=1), fog(classifier="n", group=1), names={"m": "first", "n": "second", "o": "third"})
    assert len(found) == 1
    assert found[0].text.startswith("first (second alike): 104 of 200")


def test_without_a_finding_it_says_what_is_ruled_out_and_what_the_rest_would_take():
    cells = cells_of(
        scores(
            row("fog", 0.01, "none"),
            row("clear", -0.01, "none"),
            row("small", -0.08, attribute="size", images_to_settle=900),
            row("large", 0.08, attribute="size", images_to_settle=900),
        )
    )
    answer = nothing_found(cells, {"m": "m"}, 0.05, 0.95)
    assert answer.text == "No difference of more than 5 points was found."
    said = " ".join(answer.beneath)
    assert "Ruled out is a difference of more than 5 points in 2 of 4 values of a class: weather (2)." in said
    assert "2 values of a class stay open: they may differ by more than 5 points or not. A value has " in said
    assert "A value has 200 images, and would need about 900 (medians)." in said
    assert "The largest difference that is not settled: bus when size is" in said
    all_clear = nothing_found(cells[:2], {"m": "m"}, 0.05, 0.95)
    assert "ruled out for every value" in all_clear.text
    assert all_clear.verdict == "none"
    assert nothing_found([], {}, 0.05, 0.95).text.startswith("Nothing was scored")


def test_a_number_of_images_is_said_of_the_values_for_which_it_is_known():
    cells = cells_of(scores(row("fog", -0.08, images_to_settle=900), *(row(f"v{i}", 0.01) for i in range(9))))
    said = " ".join(nothing_found(cells, {"m": "m"}, 0.05, 0.95).beneath)
    assert "10 values of a class stay open" in said
    assert "1 of them has 200 images, and would need about 900." in said
    open_rows = [row("fog", -0.08, n=n, correct=n // 2, images_to_settle=10 * n) for n in (30, 50)]
    cells = cells_of(scores(*open_rows, *(row(f"v{i}", 0.01) for i in range(9))))
    said = " ".join(nothing_found(cells, {"m": "m"}, 0.05, 0.95).beneath)
    assert "2 of them, with 40 images in the median, would need about 400." in said


def test_the_largest_open_difference_names_its_classifier_where_there_are_several():
    cells = cells_of(scores(row("fog", -0.08, images_to_settle=900)))
    said = " ".join(nothing_found(cells, {"m": "first", "n": "second"}, 0.05, 0.95).beneath)
    assert "not settled: first: bus when weather is fog" in said


def test_a_class_that_several_classifiers_fail_is_listed_once():
    more = [
        fog(phi=-0.3 + i / 100, target_class="boat", classifier=name, group=1) for i, name in enumerate(("m", "n", "o"))
    ]
    (found,) = told(fog(group=1), *more, names={name: name for name in ("m", "n", "o")})
    assert "The same of boat (−0.30)." in found.beneath


def shapes_and_textures(follow: float, seed: int = 1) -> tuple[pa.Table, ...]:
    """Eight images of each pair of four shapes and textures; `follow`: the share answered with the texture, the rest by
    shape, or with anything at random."""
    random, names = np.random.default_rng(seed), ("cat", "dog", "clock", "car")
    captions, draws, predictions, rows = [], [], [], []
    for shape in names:
        for texture in names:
            caption = tables.content_id(shape, texture)
            captions.append(
                {"caption_id": caption, "proposal_id": shape, "kind": "attribute", "target_class": shape, "number": 0}
                | {"attribute": "texture", "bias_class": texture.title(), "text": f"{shape}, texture: {texture}"}
            )
            named = right = 0
            for i in range(8):
                image = tables.content_id(caption, i)
                draws.append({"caption_id": caption, "image_id": image, "rank": i, "source": "labelled"})
                others = [name for name in names if name != shape]
                answer = texture if random.random() < follow else str(random.choice([shape, *others]))
                named, right = named + (answer == texture), right + (answer == shape)
                predictions.append(
                    {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "r", "label": answer}
                    | {"label_probability": 0.5, "predicted_class": answer, "class_probability": 0.5}
                )
            rows.append(
                row(texture.title(), 0.0, target_class=shape, attribute="texture", n=8, correct=right)
                | {"answered_bias_class": named}
            )
    made = (scores(*rows), captions, draws, predictions)
    schemas = (tables.CAPTIONS, tables.DRAWS, tables.PREDICTIONS)
    return (made[0], *(pa.Table.from_pylist(r, schema) for r, schema in zip(made[1:], schemas, strict=True)))


def test_a_column_that_names_the_wrong_answers_is_the_headline_though_no_cell_is_a_finding():
    table, captions, draws, predictions = shapes_and_textures(0.6)
    (named,) = named_by_attributes(cells_of(table), captions, draws, predictions, 0.05, 0.05)
    assert named.images == 12 * 8
    assert named.test.p_value < 0.001
    assert named.test.named > 2 * named.test.expected
    assert len(named.examples.wrong) == len(named.examples.right) == 2
    assert {example.label for example in named.examples.wrong} <= {"cat", "dog", "clock", "car"}
    groups = ranked(table)
    links = {group.key: "" for group in groups}
    (answer,) = answers(
        groups, [named], NONE, {"m": "m"}, {}, ThumbnailSet({}, {}), links, (0.05, 0.05), DerivedValues({})
    )
    assert "% of the answers that name the class or the texture of the image name the texture: " in answer.text
    assert [gallery.verdict for gallery in answer.galleries] == ["wrong", "right"]
    assert "by chance" in answer.beneath[0]


def test_copies_of_an_image_count_once_in_what_a_column_names() -> None:
    table, captions, draws, predictions = shapes_and_textures(0.6)
    (once,) = named_by_attributes(cells_of(table), captions, draws, predictions, 0.05, 0.05)
    ids = draws["image_id"].to_pylist()
    copies = pa.array([f"{name} again" for name in ids])

    def with_copies(of: pa.Table) -> pa.Table:
        return pa.concat_tables(
            [of, of.set_column(of.schema.get_field_index("image_id"), of.schema.field("image_id"), copies)]
        )

    class Copies:
        def pictures(self, of: ImageIds) -> np.ndarray:
            names = [name.removesuffix(" again") for name in of.names(np.arange(len(of))).to_pylist()]
            return np.unique(names, return_inverse=True)[1]

    twice = with_copies(draws), with_copies(predictions)
    (found,) = named_by_attributes(cells_of(table), captions, *twice, 0.05, 0.05, Copies)
    assert (found.images, found.test) == (once.images, once.test)


def test_a_column_without_a_part_in_the_answers_is_none():
    found = 0
    for seed in range(20):
        table, captions, draws, predictions = shapes_and_textures(0.0, seed)
        found += len(named_by_attributes(cells_of(table), captions, draws, predictions, 0.05, 0.05))
    assert found <= 2


def test_images_that_come_in_clusters_are_not_tested_as_independent():
    table, captions, draws, predictions = shapes_and_textures(0.6)
    clustered = [replace(cell, clusters=2) for cell in cells_of(table)]
    assert not named_by_attributes(clustered, captions, draws, predictions, 0.05, 0.05)


def test_a_significant_share_that_does_not_matter_is_none():
    # 8 % of very many images: beyond chance, but less than τ at the lower limit.
    table, captions, draws, predictions = shapes_and_textures(0.6)
    assert not named_by_attributes(cells_of(table), captions, draws, predictions, 0.5, 0.05)


def test_the_page_shows_four_pictures_with_each_answer(tmp_path: Path) -> None:
    recipe = Recipe(classifiers=("m",), images_per_cell=60, accuracy={("m", "bus", "snow"): 0.3})
    html = Path(write_report(make_run(tmp_path / "run", recipe))).read_text()
    head = html[html.index('aria-label="The answer"') : html.index("<nav")]
    assert head.count("<img") == 4
    assert "18 of 60 images of <b>bus</b> are right when <b>weather is snow</b>" in head
    assert "confidence 0." in head
