import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.scoring.comparison import ComparisonSide, SharedImages, compare, compare_pooled
from c2b_ray.audits.c2b.verification.verified import VerifierAnswers
from c2b_ray.errors import RunError
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import CAPTIONS, COMPARISON, DRAWS, PREDICTIONS, VERIFICATIONS

TAU, ALPHA = 0.05, 0.05


def side(cells, classifier="m", prefix=""):
    """`cells`: (class, attribute, value) → a string of answers, one letter an image: r right, w wrong, . none."""
    captions, draws, predictions = [], [], []
    for target, attribute, value in cells:
        caption = f"{target}/{attribute}/{value}"
        names = {"kind": "attribute", "target_class": target, "attribute": attribute, "bias_class": value}
        captions.append({"caption_id": caption, "proposal_id": "p", **names, "number": 0, "text": caption})
        for i, letter in enumerate(cells[target, attribute, value]):
            image = f"{prefix}{caption}-{i}"
            draws.append({"caption_id": caption, "image_id": image, "rank": i})
            if letter != "_":
                row = {"prediction_id": image, "image_id": image, "classifier": classifier, "revision": "1"}
                answer = {"r": target, "w": "other", ".": None}[letter]
                predictions.append({**row, "predicted_class": answer, "error": None if answer else "broken"})
    return ComparisonSide(
        pa.Table.from_pylist(captions, CAPTIONS),
        pa.Table.from_pylist(draws, DRAWS),
        pa.Table.from_pylist(predictions, PREDICTIONS),
        classifier,
    )


def rows(a, b, tau=TAU):
    table = compare(SharedImages(a, b), tau, ALPHA)
    assert table.schema == COMPARISON
    return {row["bias_class"]: row for row in table.to_pylist()}


def weather(**answers):
    return {("bus", "weather", value): letters for value, letters in answers.items()}


def test_what_got_worse_better_and_stayed():
    a = side(weather(fog="r" * 100, rain="r" * 20 + "w" * 80, clear="r" * 380 + "w" * 20), "a")
    b = side(weather(fog="r" * 60 + "w" * 40, rain="r" * 90 + "w" * 10, clear="r" * 380 + "w" * 20), "b")
    found = rows(a, b)
    assert {name: row["change"] for name, row in found.items()} == {"fog": "worse", "rain": "better", "clear": "same"}
    fog = found["fog"]
    assert (fog["n"], fog["only_a"], fog["only_b"]) == (100, 40, 0)
    assert (fog["accuracy_a"], fog["accuracy_b"], fog["difference"]) == pytest.approx((1.0, 0.6, -0.4))
    assert fog["difference_low"] < -0.4 < fog["difference_high"] < -TAU
    # phi of fog: 1 - (.2 + .95)/2 = .425 for A, .6 - (.9 + .95)/2 = -.325 for B
    assert (fog["phi_a"], fog["phi_b"], fog["phi_difference"]) == pytest.approx((0.425, -0.325, -0.75))
    assert fog["phi_q_value"] < ALPHA
    assert fog["q_value"] >= fog["p_value"]


def by_captions(**answers):
    """`answers`: value → the answers of each of its captions, separated by spaces."""
    parts = []
    for value, texts in answers.items():
        for number, letters in enumerate(texts.split()):
            one = side({("bus", "weather", f"{value}"): letters}, prefix=f"{value}{number}-")
            names = pa.array([f"{value}-{number}"] * len(one.draws))
            draws = one.draws.set_column(
                one.draws.schema.get_field_index("caption_id"), DRAWS.field("caption_id"), names
            )
            captions = [{**one.captions.to_pylist()[0], "caption_id": f"{value}-{number}", "number": number}]
            parts.append((pa.Table.from_pylist(captions, CAPTIONS), draws, one.predictions))
    return ComparisonSide(*map(pa.concat_tables, zip(*parts, strict=True)), "m")


def test_a_change_on_one_of_two_captions_is_no_change_of_the_cell():
    half, right, wrong = "rw" * 25, "r" * 50, "w" * 50
    before = by_captions(fog=f"{half} {half}", clear=f"{half} {half}")
    one = rows(before, by_captions(fog=f"{wrong} {right}".replace(right, half), clear=f"{half} {half}"))["fog"]
    assert (one["change"], one["n"], one["captions"], one["only_a"]) == ("undetermined", 100, 2, 25)
    assert one["effective"] < 10
    assert one["difference_low"] < -0.5
    assert one["difference_high"] > 0
    both = rows(before, by_captions(fog=f"{wrong} {wrong}", clear=f"{half} {half}"))["fog"]
    assert both["change"] == "worse"
    assert one["effective"] < both["effective"] < 100


def test_changes_on_one_caption_a_cell_are_marked():
    half = "rw" * 25
    one = rows(side(weather(fog=half, clear=half)), side(weather(fog="w" * 50, clear=half)))["fog"]
    assert (one["change"], one["captions"], one["effective"]) == ("worse", 1, 50)
    assert math.isnan(one["caption_spread"])


def test_copies_of_one_picture_are_one_pair():
    a, b = (side(weather(fog=own * 100, clear="r" * 100), name) for own, name in (("r", "a"), ("w", "b")))
    shown = [
        (row["image_id"], str(i % 25 if "fog" in row["image_id"] else i)) for i, row in enumerate(a.draws.to_pylist())
    ]
    marks = {content: np.random.default_rng(int(content)).bytes(200) for _, content in shown}
    images = [{"image_id": name, "content": of, "fingerprint": marks[of]} for name, of in shown]
    found = rows(replace(a, distinct=Distinct(pa.Table.from_pylist(images))), b)
    assert (found["fog"]["n"], found["fog"]["only_a"], found["fog"]["repeats"]) == (25, 25, 75)
    assert (found["clear"]["n"], found["clear"]["repeats"]) == (100, 0)
    assert rows(a, b)["fog"]["repeats"] == 0


def test_pairs_not_totals_decide():
    # Both are right on half of the images; on other ones. Nothing got better, and that is not shown to be small.
    found = rows(
        side(weather(fog="r" * 10 + "w" * 10, rain="r" * 20)), side(weather(fog="w" * 10 + "r" * 10, rain="r" * 20))
    )
    fog = found["fog"]
    assert (fog["difference"], fog["only_a"], fog["only_b"]) == (0.0, 10, 10)
    assert fog["change"] == "undetermined"
    assert (
        fog["difference_high"] - fog["difference_low"]
        > found["rain"]["difference_high"] - found["rain"]["difference_low"]
    )


def test_few_images_are_held_to_the_exact_test():
    # 6 against 0: the score test says .014, the exact one 2/2^6 = .03125
    found = rows(side(weather(fog="r" * 6, rain="r" * 6)), side(weather(fog="w" * 6, rain="r" * 6)), tau=0.0)
    assert found["fog"]["p_value"] == pytest.approx(0.03125)


def test_what_only_one_drew_or_answered_is_left_out_and_counted():
    a = side({**weather(fog="rrrrr", rain="rr"), ("bus", "size", "small"): "rr"}, "a")
    b = side({**weather(fog="rw._", rain="rr"), ("bus", "size", "large"): "rrr"}, "b")
    found = rows(a, b)
    fog = found["fog"]
    # A drew 5, B 4 of them; of the shared 4 B answered 2
    assert (fog["n"], fog["unshared"], fog["unanswered"]) == (2, 1, 2)
    assert (fog["accuracy_a"], fog["accuracy_b"]) == (1.0, 0.5)
    for value, unshared in (("small", 2), ("large", 3)):
        row = found[value]
        assert (row["n"], row["unshared"], row["change"]) == (0, unshared, "undetermined")
        assert all(math.isnan(row[name]) for name in ("accuracy_a", "difference", "p_value", "phi_b", "phi_q_value"))


def test_groups_of_unequal_size_are_kept_apart():
    cells = {("bus", "size", "small"): "rw", ("bus", "size", "large"): "rr", **weather(fog="rr", rain="ww", clear="rw")}
    found = rows(side(cells, "a"), side(cells, "b"))
    assert list(found) == ["small", "large", "fog", "rain", "clear"]
    assert found["small"]["phi_a"] == pytest.approx(-0.5)
    assert found["fog"]["phi_a"] == pytest.approx(1 - (0 + 0.5) / 2)


def test_runs_without_a_common_image_say_what_to_do():
    cells = weather(fog="rr", rain="rr")
    with pytest.raises(RunError, match="same index, seed"):
        compare(SharedImages(side(cells), side(cells, prefix="other-")), TAU, ALPHA)


def test_nothing_compares_to_nothing():
    empty = side({})
    assert compare(SharedImages(empty, empty), TAU, ALPHA).num_rows == 0


def test_one_effect_over_ten_classes_is_found_where_no_class_alone_shows_it():
    """Blur costs B 4 points in each of ten classes of 60 images: McNemar's exact p of 24 against 0 is 1.2e-7."""
    clear = {(f"c{i}", "blur", "sharp"): "r" * 57 + "w" * 3 for i in range(10)}
    a = side(clear | {(f"c{i}", "blur", "blurred"): "r" * 50 + "w" * 10 for i in range(10)}, "a")
    worse = {(f"c{i}", "blur", "blurred"): "r" * (48 if i < 4 else 47) + "w" * (12 if i < 4 else 13) for i in range(10)}
    b = side(clear | worse, "b")
    assert not {row["change"] for row in compare(SharedImages(a, b), TAU, ALPHA).to_pylist()} & {"worse", "better"}
    rows = {row["bias_class"]: row for row in compare_pooled(SharedImages(a, b), TAU, ALPHA).to_pylist()}
    blurred = rows["blurred"]
    assert (blurred["classes"], blurred["n"], blurred["only_a"], blurred["only_b"]) == (10, 600, 26, 0)
    assert blurred["p_value"] == pytest.approx(2 * 0.5**26)
    assert blurred["change"] == "worse"
    assert rows["sharp"]["change"] == "same"


def test_images_that_the_verifier_refused_and_cells_in_doubt_say_nothing():
    a = side(weather(fog="r" * 100, rain="r" * 100, clear="r" * 100), "a")
    b = side(weather(fog="w" * 60 + "r" * 40, rain="w" * 60 + "r" * 40, clear="r" * 100), "b")
    refused = {f"bus/weather/fog-{i}" for i in range(60)}
    looked = [
        {"verification_id": image, "image_id": image, "target_class": "bus", "class_shown": "bus", "revision": "1"}
        | {"attributes": ["weather"], "values": ["mist" if image in refused else value], "certainties": [None]}
        for image in a.draws["image_id"].to_pylist()
        for value in [image.split("/")[2].split("-")[0]]
    ]
    shows = replace(a, verifier_answers=VerifierAnswers(pa.Table.from_pylist(looked, VERIFICATIONS)))
    doubted = replace(b, doubts={("bus", "weather", "rain"): "38 % of its images show a goldfish"})
    found = rows(shows, doubted)
    assert (found["fog"]["n"], found["fog"]["refused"], found["fog"]["difference"]) == (40, 60, 0.0)
    assert (found["rain"]["change"], found["rain"]["difference"]) == ("undetermined", -0.6)
    assert "goldfish" in found["rain"]["doubt"]
    assert math.isnan(found["rain"]["q_value"])
    pooled = {row["bias_class"]: row for row in compare_pooled(SharedImages(shows, doubted), TAU, ALPHA).to_pylist()}
    assert set(pooled) == {"fog", "clear"}


def test_a_change_of_one_class_is_not_one_of_all_classes():
    classes = [f"c{i}" for i in range(9)]
    cells = {(name, "weather", "fog"): "r" * 57 + "w" * 3 for name in ("bus", *classes)}
    a, b = side(cells, "a"), side(cells | {("bus", "weather", "fog"): "r" * 20 + "w" * 40}, "b")
    (row,) = compare_pooled(SharedImages(a, b), TAU, ALPHA).to_pylist()
    assert row["q_value"] < 1e-9
    assert (row["change"], row["doubt"]) == ("undetermined", "bus alone makes the difference")


def test_an_open_change_says_how_many_images_would_settle_it():
    def found(times):
        a = weather(fog="r" * 20 * times, rain="r" * 18 * times + "w" * 2 * times, clear="r" * 400, hail="")
        b = weather(fog="r" * 17 * times + "w" * 3 * times, rain="r" * 18 * times + "w" * 2 * times, clear="r" * 400)
        return rows(side(a, "a"), side({**b, ("bus", "weather", "hail"): ""}, "b"))

    few = found(1)
    assert {name: row["change"] for name, row in few.items() if row["change"] == "undetermined"}.keys() == {
        "fog",
        "rain",
        "hail",
    }
    needed = {name: few[name]["pairs_to_settle"] for name in ("fog", "rain")}
    assert few["clear"]["pairs_to_settle"] is few["hail"]["pairs_to_settle"] is None
    for name, images in needed.items():
        # An outcome as expected is settled by somewhat fewer images than settle four of five outcomes.
        assert found(math.ceil(images / 20))[name]["change"] == {"fog": "worse", "rain": "same"}[name]
        assert found(max(1, images // 80))[name]["change"] == "undetermined"
    # Images do not settle a cell in doubt.
    doubted = SharedImages(
        side(weather(fog="r" * 20), "a"),
        replace(side(weather(fog="r" * 17 + "w" * 3), "b"), doubts={("bus", "weather", "fog"): "impure"}),
    )
    assert compare(doubted, TAU, ALPHA).to_pylist()[0]["pairs_to_settle"] is None
