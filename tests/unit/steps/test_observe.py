"""What models say of images, and their verification."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pictured_answers import CLASSES, WEATHER, asked_of, captions_of, images_of, png, see
from PIL import Image
from verified_images import LEVELS, PERFECT, Made, mark

from c2b_ray.audits.c2b.verification.false_accepts import corrections_of
from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.roles import Answer, Question
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.observe import AT_ONCE, LIKELIER, Checks, checks, describe, embed, read, verify, wanted, with_files
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import CAPTIONS, DRAWS, PREDICTIONS, VERIFICATIONS, content_of
from c2b_ray.world import render, sample


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Buses at night and by day, more than are decoded at once, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "bus").mkdir()
    light = ["night", "day"] * (AT_ONCE // 2 + 2)
    for n, lighting in enumerate(light):
        Image.fromarray(render(sample(1, 40 + n, target_class="bus", lighting=lighting)[0])).save(
            folder / f"bus/{n:03}.png"
        )
    (folder / "bus" / "zzz.png").write_bytes(b"no picture")
    count = len(light) + 1
    table = pa.table(
        {
            "observation_id": [f"o{n}" for n in range(count)],
            "image_id": [f"i{n}" for n in range(count)],
            "row": np.arange(count),
            "target_class": ["bus"] * count,
        }
    )
    return with_files(table, partial(LabelledTable, str(folder)))


def test_files_are_read_with_the_hash_of_their_bytes(rows):
    assert rows["key"].to_pylist()[:2] == ["bus/000.png", "bus/001.png"]
    assert rows["content"].to_pylist() == [content_of(data) for data in rows["bytes"].to_pylist()]


def test_values_are_read_off_each_image(rows):
    texts = ("a photo of a bus by day", "a photo of a bus at night")
    question = Question("Which lighting does the picture of a bus show?", ("day", "night"), texts)
    found = read(rows, catalog.captioner("world:clip"), {"bus": {"lighting": question}})
    values = [of[0] if of else None for of in found["values"].to_pylist()]
    right = [value == expected for value, expected in zip(values, ["night", "day"] * len(values), strict=False)]
    assert np.mean(right[:-1]) >= 0.9
    assert values[-1] is None
    assert found["error"].to_pylist()[-1] is not None
    assert found["error"].null_count == found.num_rows - 1
    assert found["attributes"].to_pylist()[0] == ["lighting"]
    assert 0.5 <= found["certainties"].to_pylist()[0][0] <= 1


def test_captions_mention_the_class_and_embeddings_have_length_one(rows):
    said = describe(rows, catalog.captioner("world:clip"))
    assert all("bus" in caption for caption in said["caption"].to_pylist()[:-1])
    assert said["caption"].to_pylist()[-1] is None
    assert said["error"].to_pylist()[-1] is not None
    vectors = embed(rows, catalog.encoder("world:clip"))["vector"].to_pylist()
    assert vectors[-1] is None
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-3)


def test_an_image_is_asked_for_its_class_and_every_attribute_of_it():
    asked = asked_of(attributes={"weather": WEATHER, "size": ["small", "large", "tiny"]})
    captioner = see(0.75)
    found = verify(images_of([("a", png(0, 1), None, "bus"), ("b", png(1, 0), None, "bus")], asked), captioner, asked)
    assert found.schema == VERIFICATIONS
    a, b = found.to_pylist()
    assert (a["class_shown"], a["attributes"], a["values"]) == ("bus", ["weather", "size"], ["rain", "large"])
    assert (b["class_shown"], b["values"]) == ("boat", ["snow", "small"])
    assert a["certainties"] == [0.75, 0.75]
    assert a["error"] is b["error"] is None
    questions = captioner.requests[:3]
    assert [question.choices for question in questions] == [
        ("bus", "boat", "something else"),
        ("snow", "rain"),
        ("small", "large", "tiny"),
    ]
    assert questions[1].texts == ("a photo of a bus in the snow", "a photo of a bus in the rain")


def test_bad_images_are_errors_of_their_rows_and_ask_nothing():
    asked = asked_of()
    captioner = see()
    rows = [
        ("none", None, "the image is all black", "bus"),
        ("cut", png(0, 0)[:40], None, "boat"),
        ("good", png(0, 1), None, "bus"),
        ("told", png(0, 1), "the source doubts it", "bus"),
    ]
    none, cut, good, told = verify(images_of(rows, asked), captioner, asked).to_pylist()
    assert none["error"] == "the image is all black"
    assert "damaged" in cut["error"]
    assert (good["error"], good["values"]) == (None, ["rain"])
    assert told["error"] == "the source doubts it"
    for row in (none, cut, told):
        assert (row["class_shown"], row["values"], row["certainties"]) == (None, [None], [None])
        assert row["attributes"] == ["weather"]
    assert len(captioner.requests) == 2


def test_a_captioner_without_probabilities_and_one_that_names_nothing():
    asked = asked_of()
    rows = [("a", png(0, 1), None, "bus"), ("no value", png(1, 7), None, "bus"), ("no class", png(7, 0), None, "bus")]
    a, no_value, no_class = verify(images_of(rows, asked), see(), asked).to_pylist()
    assert (a["values"], a["certainties"]) == (["rain"], [None])
    assert (no_value["class_shown"], no_value["values"], no_value["error"]) == ("boat", [None], None)
    assert (no_class["class_shown"], no_class["values"], no_class["error"]) == (None, ["snow"], "named no choice")


def test_a_task_of_one_class_is_asked_for_it_too():
    asked = asked_of(["bus"])
    assert asked.classes.choices == ("bus", "something else")
    assert asked.classes.texts == ("a photo of a bus", "a photo of a thing")
    rows = [("bus", png(0, 1), None, "bus"), ("car", png(1, 1), None, "bus")]
    bus, car = verify(images_of(rows, asked), see(0.95), asked).to_pylist()
    assert (bus["class_shown"], bus["values"]) == ("bus", ["rain"])
    assert bus["class_certainty"] == pytest.approx(0.95 / (0.95 + 0.05 / LIKELIER))
    assert (car["class_shown"], car["error"]) == ("something else", None)


class Sure:
    """Says of every image which class it shows with these probabilities."""

    revision = "r"

    def __init__(self, *probabilities):
        self.probabilities = probabilities

    def answer(self, images, questions):
        likely = [self.probabilities[: len(q.choices)] for q in questions]
        return [Answer(q.choices[p.index(max(p))], p) for q, p in zip(questions, likely, strict=True)]


@pytest.mark.parametrize(
    ("probabilities", "shown"),
    [((0.02, 0.28, 0.70), "boat"), ((0.02, 0.02, 0.96), "something else"), ((0.7, 0.3, 0.0), "bus")],
)
def test_what_an_index_holds_beside_the_classes_is_something_else_where_the_verifier_is_sure(probabilities, shown):
    asked = asked_of()
    assert asked.classes.texts == ("a photo of a bus", "a photo of a boat", "a photo of a thing")
    (row,) = verify(images_of([("a", png(0, 1), None, "bus")], asked), Sure(*probabilities), asked).to_pylist()
    assert row["class_shown"] == shown


def test_a_class_that_is_called_something_else_is_a_class():
    assert asked_of(["bus", "Something  else"]).classes.choices == ("bus", "Something  else")


def test_no_images_ask_nothing():
    asked = asked_of()
    empty = images_of([("a", png(0, 1), None, "bus")], asked).slice(0, 0)
    assert verify(empty, ScriptedCaptioner(), asked).num_rows == 0


def test_captions_of_equal_text_are_no_statements():
    captions = captions_of(attributes={"weather": WEATHER, "size": ["small", "large"]})
    same = [row | {"text": "a bus"} if row["attribute"] == "weather" else row for row in captions.to_pylist()]
    found = checks("toy:eye", "r1", CLASSES, pa.Table.from_pylist(same, CAPTIONS)).attributes["bus"]
    assert found["weather"].texts is None
    assert found["weather"].choices == ("snow", "rain")
    assert found["size"].texts is not None


def test_an_id_depends_on_all_that_is_asked():
    asked = asked_of()
    assert asked.verification_id("a", "bus") == asked_of().verification_id("a", "bus")
    others = [
        asked.verification_id("b", "bus"),
        asked.verification_id("a", "boat"),
        asked_of(["bus"]).verification_id("a", "bus"),
        asked_of(attributes={"weather": ["snow", "fog"]}).verification_id("a", "bus"),
        Checks("toy:eye", "r2", asked.classes, asked.attributes).verification_id("a", "bus"),
    ]
    assert len({asked.verification_id("a", "bus"), *others}) == 6


def test_wanted_is_each_image_once_for_each_class_those_of_intersections_too():
    captions = captions_of()
    snow, rain, other = captions["caption_id"].to_pylist()[:3]
    pair = captions.to_pylist()[0] | {"caption_id": "pair", "proposal_id": "x × y", "kind": "intersection"}
    draws = pa.Table.from_pylist(
        [
            {"caption_id": caption_id, "image_id": image, "rank": 0, "source": "retrieve"}
            for caption_id, image in [(snow, "a"), (rain, "a"), (other, "a"), (rain, "b"), ("pair", "c")]
        ],
        DRAWS,
    )
    asked = asked_of()
    found = wanted(pa.concat_tables([captions, pa.Table.from_pylist([pair], CAPTIONS)]), draws, asked).to_pylist()
    assert [(row["image_id"], row["target_class"]) for row in found] == [
        ("a", "bus"),
        ("a", "boat"),
        ("b", "bus"),
        ("c", "bus"),
    ]
    assert found[2]["verification_id"] == asked.verification_id("b", "bus")


def test_a_captioner_that_gives_too_few_answers_is_named():
    asked, captioner = asked_of(), see()
    captioner.answer = lambda images, questions: [Answer(question.choices[0]) for question in questions[1:]]
    with pytest.raises(ServiceError, match="answered 2 questions with 1 answers"):
        verify(images_of([("a", png(0, 1), None, "bus")], asked), captioner, asked)


def test_with_a_perfect_verifier_scores_equal_those_without():
    made = Made().add("snow", "snow", 300, 180).add("rain", "rain", 300, 270)
    plain, checked = made.scores(), made.scores(PERFECT)
    for cell, row in checked.items():
        assert row["verdict"] == plain[cell]["verdict"] != "undetermined"
        assert row["doubt"] is None
        for name in ("n", "correct", "accuracy_observed", "phi_observed", "repeats"):
            assert row[name] == plain[cell][name]
        for name in ("accuracy", "accuracy_low", "accuracy_high", "phi", "phi_low", "phi_high"):
            assert row[name] == pytest.approx(plain[cell][name], abs=0.01)
        assert row["shown"] == pytest.approx(1, abs=0.01)
        assert row["class_shown"] == pytest.approx(1, abs=0.01)
    assert plain["bus", "snow"]["shown"] is None


def test_corrected_columns_are_of_what_images_show():
    # A third of the "snow" images show rain, where the classifier is right 9 times in 10; in snow it is half the time.
    made = Made().add("snow", "snow", 200, 100).add("snow", "rain", 100, 90).add("rain", "rain", 300, 270)
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["n"], row["correct"]) == (300, 190)
    assert row["accuracy_observed"] == pytest.approx(190 / 300)
    assert row["phi_observed"] == pytest.approx(190 / 300 - 0.9)
    assert row["accuracy"] == pytest.approx(0.5, abs=0.01)
    assert row["phi"] == pytest.approx(-0.4, abs=0.01)
    assert row["shown"] == pytest.approx(2 / 3, abs=0.01)
    assert row["shown_low"] < 2 / 3 < row["shown_high"]
    assert row["verdict"] == "against"


def test_a_verifier_that_cannot_tell_the_class_trusts_no_cell():
    made = Made().add("snow", "snow", 200, 100).add("rain", "rain", 200, 180)
    blind = PERFECT | {("bus", "bus"): 50, ("bus", "boat"): 50, ("boat", "bus"): 50, ("boat", "boat"): 50}
    for row in made.scores(blind).values():
        if row["target_class"] == "bus":
            assert row["doubt"].startswith(
                "the verifier cannot tell a bus from the other classes (Youden's index 0.00)"
            )
            assert row["verdict"] == "undetermined"


def test_a_difference_that_another_attribute_explains_is_no_finding():
    # Right by day and wrong at night, whatever the weather; the images of snow show fewer nights than those of rain.
    made = Made().add("snow", "snow", 190, 190, light="day").add("snow", "snow", 10, 0, light="night")
    made.add("rain", "rain", 120, 120, light="day").add("rain", "rain", 80, 0, light="night")
    row = made.scores(PERFECT)["bus", "snow"]
    assert row["phi"] == pytest.approx(0.35, abs=0.01)
    assert row["doubt"] == "explained by lighting: +0.35 on the images of 'snow', +0.00 on images alike in lighting"
    assert row["verdict"] == "undetermined"
    # Wrong in rain, by day and at night: what remains within lighting is a finding.
    made = Made().add("snow", "snow", 190, 190, light="day").add("snow", "snow", 10, 10, light="night")
    made.add("rain", "rain", 120, 80, light="day").add("rain", "rain", 80, 50, light="night")
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["doubt"], row["verdict"]) == (None, "for")


def test_an_attribute_that_means_the_same_explains_nothing():
    made = Made().add("snow", "snow", 200, 100, light="white").add("rain", "rain", 195, 190, light="grey")
    made.add("rain", "rain", 5, 5, light="white")
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["doubt"], row["verdict"]) == (None, "against")


def test_a_doubt_withholds_the_verdict_and_the_p_value():
    wrong_class = Made().add("snow", "snow", 120, 0, "boat").add("snow", "snow", 80, 80).add("rain", "rain", 200, 200)
    row = wrong_class.scores(PERFECT)["bus", "snow"]
    assert row["class_shown"] == pytest.approx(0.4, abs=0.01)
    assert (row["verdict"], row["doubt"]) == ("undetermined", "only 40% of the images show a bus")
    assert math.isnan(row["p_value"])
    assert math.isnan(row["q_value"])
    assert row["images_to_settle"] is None
    wrong_value = Made().add("snow", "rain", 160, 160).add("snow", "snow", 40, 40).add("rain", "rain", 200, 200)
    found = wrong_value.scores(PERFECT)
    assert found["bus", "snow"]["doubt"].endswith("of the images show 'snow'")
    assert "'snow'" in found["bus", "rain"]["doubt"]  # the only value to compare it with
    guess = dict.fromkeys([(a, b) for a in ("snow", "rain") for b in ("snow", "rain")], 500.0)
    made = Made().add("snow", "snow", 100, 50).add("snow", "rain", 100, 50)
    guessed = made.add("rain", "rain", 100, 100).add("rain", "snow", 100, 100).scores(guess)
    assert {row["doubt"][:24] for row in guessed.values()} == {"the verifier cannot tell"}
    blind = Made().add("snow", None, 50, 20).add("rain", None, 50, 50).scores(PERFECT)
    assert {row["doubt"] for row in blind.values()} == {"the verifier named no value of any image"}
    assert {row["verdict"] for row in blind.values()} == {"undetermined"}


def test_the_share_of_the_class_allows_for_the_verifier_s_errors():
    # .73 are said to be buses: sensitivity .8, specificity .9: (.73 + .9 - 1)/(.8 + .9 - 1) = .9
    made = Made().add("snow", "snow", 73, 73).add("snow", "snow", 27, 27, "boat")
    cells = made.cells()
    known = {("bus", "bus"): 80.0, ("bus", "boat"): 20.0, ("boat", "boat"): 90.0, ("boat", "bus"): 10.0}
    assert made.verified(known).of(cells).share_of_class(0) == pytest.approx(0.9)
    assert made.verified({}).of(cells).share_of_class(0) == pytest.approx(0.73)  # uncalibrated: as it is said
    assert math.isnan(made.verified(known).of(cells).share_of_class(1))  # no image of rain was drawn


def differing(boats):
    """Five captions of snow of which some are harder; of rain none is. `boats`: wrong images of no bus, each."""
    made = Made(captions=5)
    for number, right in enumerate([27, 30, 33, 36, 39]):
        made.add("snow", "snow", 40, right, number=number).add("rain", "rain", 40, 36, number=number)
        for value in ("snow", "rain"):
            made.add(value, value, boats, 0, "boat", number=number)
    return made


def test_what_captions_add_to_chance_is_part_of_verified_scores_and_of_what_would_settle_them():
    made = differing(boats=0)
    plain, checked = made.scores()["bus", "snow"], made.scores(PERFECT)["bus", "snow"]
    assert plain["images_to_settle"] > 200
    for name in ("phi_low", "phi_high", "accuracy_low", "accuracy_high"):
        assert checked[name] == pytest.approx(plain[name], abs=0.01)
    assert checked["images_to_settle"] == pytest.approx(plain["images_to_settle"], rel=0.1)


def test_captions_differ_no_less_where_other_images_water_that_down():
    # As many images of boats as of buses: counted accuracies differ by half as much, corrected ones as before.
    pure, impure = (differing(boats).scores(PERFECT)["bus", "snow"] for boats in (0, 40))
    assert impure["class_shown"] == pytest.approx(0.5, abs=0.01)
    assert impure["phi"] == pytest.approx(pure["phi"], abs=0.01)
    # It is .95 as wide: the less clearly captions are seen, the more of their spread is what its prior expects.
    assert impure["phi_high"] - impure["phi_low"] >= 0.9 * (pure["phi_high"] - pure["phi_low"])


def test_repeats_of_a_picture_count_once():
    made = Made().add("snow", "snow", 5, 5).add("snow", "snow", 4, 0, marks=mark(999)).add("rain", "rain", 6, 6)
    snow = made.scores(PERFECT)["bus", "snow"]
    assert (snow["n"], snow["correct"], snow["repeats"]) == (6, 5, 3)
    plain = made.scores()["bus", "snow"]  # without a verifier as well
    assert (plain["n"], plain["correct"], plain["repeats"]) == (6, 5, 3)


def test_a_repeat_of_another_class_s_picture_still_counts_for_its_own():
    # The same picture, saved twice: one copy was drawn for boats, the other for buses.
    made = Made(classes=("boat", "bus"))
    for target in ("boat", "bus"):
        made.add("snow", "snow", 1, 1, target, mark(999), target, name=f"{target} copy")
        made.add("snow", "snow", 5, 5, target, target=target).add("rain", "rain", 6, 6, target, target=target)
    for row in made.scores(PERFECT).values():
        assert (row["n"], row["repeats"], row["doubt"]) == (6, 0, None)


def test_what_is_kept_of_a_group_for_further_classifiers_is_of_the_same_cells_and_pools():
    made = Made().add("snow", "snow", 100, 60).add("snow", "rain", 30, 20).add("rain", "rain", 120, 100)
    cells = made.cells()
    fewer = cells.where(np.arange(len(cells.cell)) % 130 >= 20)
    other = [row | {"predicted_class": "mug"} if i % 3 else row for i, row in enumerate(made.predictions)]
    kept = made.verified(PERFECT)
    pooled = kept.drawn_from(cells)
    seen = {}
    for verified, drawn, rows in (
        (kept, cells, made.predictions),
        (kept, cells, other),
        (kept, fewer, made.predictions),
        (pooled, fewer, made.predictions),
        (kept, cells, made.predictions),
    ):
        known = seen.setdefault((verified, id(drawn)), verified.of(drawn))
        answers = answers_of(pa.Table.from_pylist(rows, PREDICTIONS), "m").to(drawn)
        fresh = made.verified(PERFECT)
        fresh = fresh.drawn_from(cells) if verified is pooled else fresh
        (group,) = drawn.groups
        found, expected = (
            corrections_of(one, [group], answers, LEVELS)[group.name] for one in (known, fresh.of(drawn))
        )
        np.testing.assert_array_equal(found.scores.accuracy, expected.scores.accuracy)
        np.testing.assert_array_equal(found.total, expected.total)
        assert found.misfit == expected.misfit
