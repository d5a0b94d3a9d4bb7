import numpy as np
import pyarrow as pa
import pytest
from cell_tables import cell_images
from verified_images import PERFECT, Made

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import SELF_TRUST, VerifierSkill
from c2b_ray.steps.observe import CLASS, OTHER
from c2b_ray.tables import CALIBRATION, DRAWS, PREDICTIONS, VERIFICATIONS


def test_a_value_that_no_known_image_has_rests_on_the_verifier_s_certainty():
    made = Made().add("snow", "snow", 50, 25).add("rain", "rain", 50, 50)
    for row in made.verifications:
        row["certainties"] = [None, 0.8]
    known = {("snow", "snow"): 100.0}
    verified = made.verified(known)
    assert verified._verifier.values("weather", ["snow", "rain"]).tolist() == [
        [100.0, 0.0],
        pytest.approx([SELF_TRUST / 5, SELF_TRUST * 4 / 5], rel=1e-6),
    ]
    assert made.verified({})._verifier.values("weather", ["snow"])[0, 0] == pytest.approx(SELF_TRUST * 4 / 5)


def shared(random, accuracy, purity, n=200, calibration=PERFECT, verifier=1.0):
    """Images of two weathers of which a share shows the class; the rest the classifier takes for it once in ten."""
    made = Made()
    for drawn, own, share in zip(("snow", "rain"), accuracy, purity, strict=True):
        for _ in range(n):
            bus = random.random() < share
            said = drawn if random.random() < verifier else {"snow": "rain", "rain": "snow"}[drawn]
            made.add(drawn, said, 1, random.random() < (own if bus else 0.1), "bus" if bus else "boat")
    return list(made.scores(calibration).values())


@pytest.mark.long
def test_cells_that_differ_in_how_many_images_show_the_class_give_no_false_finding():
    # Nine in ten and 99 in 100 show a bus; an unbiased classifier, a perfect verifier: 45 % of such runs had one.
    random = np.random.default_rng(11)
    runs = [shared(random, (0.9, 0.9), (0.9, 0.99)) for _ in range(30)]
    assert sum(any(row["verdict"] in ("for", "against") for row in run) for run in runs) <= 3
    assert np.mean([row["phi_low"] <= 0 <= row["phi_high"] for run in runs for row in run]) >= 0.85
    assert sum(row["doubt"] is not None for run in runs for row in run) <= 6
    strong = shared(random, (0.6, 0.9), (0.9, 0.99))
    assert [row["verdict"] for row in strong] == ["against", "for"]
    assert strong[0]["accuracy"] == pytest.approx(0.6, abs=0.08)
    assert strong[0]["class_shown"] == pytest.approx(0.9, abs=0.06)
    assert {row["basis"] for row in strong} == {"calibrated"}


def test_a_finding_that_an_unknown_share_of_the_class_could_explain_is_in_doubt():
    # No calibration and no certainty: the verifier's word that 12 in 100 images show no bus may be wrong.
    made = Made().add("snow", "snow", 176, 132).add("snow", "snow", 24, 2, "boat").add("rain", "rain", 200, 182)
    snow, rain = made.scores({}).values()
    for row in (snow, rain):
        assert row["verdict"] == "undetermined"
        assert "how many images show a bus, which is possible, would explain it" in row["doubt"]
        assert row["basis"] == "verifier"
    strong = Made().add("snow", "snow", 176, 60).add("snow", "snow", 24, 2, "boat").add("rain", "rain", 200, 182)
    assert [row["verdict"] for row in strong.scores({}).values()] == ["against", "for"]


def test_a_verifier_that_is_wrong_more_often_than_it_was_doubts_the_attribute_and_no_interval_rests_on_it():
    random = np.random.default_rng(3)
    sure = {("bus", "bus"): 100, ("boat", "boat"): 100} | {
        (a, b): 98.0 if a == b else 2.0 for a in ("snow", "rain") for b in ("snow", "rain")
    }
    doubted, covered, fitting = 0, 0, 0
    for _ in range(20):
        rows = shared(random, (0.5, 0.95), (1.0, 1.0), 200, sure, verifier=0.6)
        doubted += all("the calibration does not fit this run" in (row["doubt"] or "") for row in rows)
        covered += rows[0]["phi_low"] <= -0.45 <= rows[0]["phi_high"]
        fitting += any(row["doubt"] for row in shared(random, (0.5, 0.95), (1.0, 1.0), 200, sure, verifier=0.98))
    assert doubted >= 18
    assert covered >= 15  # with the calibration taken for true, none
    assert fitting <= 3


def test_images_drawn_from_those_that_the_verifier_accepted_are_corrected_by_their_pool():
    # Of each pool half shows snow; the verifier errs on a fifth. What it accepts as rain shows snow in one of 5 images.
    random = np.random.default_rng(4)
    known = {("bus", "bus"): 4000.0, ("boat", "boat"): 4000.0} | {
        (a, b): 400.0 if a == b else 100.0 for a in ("snow", "rain") for b in ("snow", "rain")
    }
    made, pool = Made(), {"snow": set(), "rain": set()}
    for drawn in ("snow", "rain"):
        for i in range(1000):
            shows = random.choice(["snow", "rain"])
            said = shows if random.random() < 0.8 else {"snow": "rain", "rain": "snow"}[shows]
            made.add(drawn, said, 1, random.random() < {"snow": 0.6, "rain": 0.95}[shows], name=f"{drawn} {i}")
            pool[drawn].add(f"{drawn} {i}")
            if said != drawn:
                made.draws.pop()
    tables = pa.Table.from_pylist(made.draws, DRAWS), pa.Table.from_pylist(made.predictions, PREDICTIONS)
    verified = made.verified(known).drawn_from(cell_images({("bus", "weather"): pool}))
    snow, rain = scored(made.captions, *tables, ["m"], Thresholds(0.05, 0.05), verified)[0].to_pylist()
    assert snow["phi_observed"] == pytest.approx(-0.35 * 0.6, abs=0.06)
    assert snow["phi_low"] < -0.35 < snow["phi_high"]
    assert snow["shown"] == pytest.approx(0.8, abs=0.03)
    assert (snow["shown_low"] < 0.8 < snow["shown_high"], snow["shown_high"] - snow["shown_low"] < 0.15) == (True, True)
    assert (snow["verdict"], rain["verdict"]) == ("against", "for")


def test_what_shows_no_class_of_the_audit_counts_as_often_as_the_run_has_it():
    """Of a calibration 600 images of other classes are never taken for a bus, 3 of 150 of something else are: a run
    whose other images all show something else meets the second rate."""
    rows = [
        {"attribute": CLASS, "value": value, "answer": answer, "images": n, "source": "table"}
        for value, answer, n in (
            ("bus", "bus", 150.0),
            ("boat", "boat", 600.0),
            (OTHER, "bus", 3.0),
            (OTHER, OTHER, 147.0),
        )
    ]
    verifier = VerifierSkill(VERIFICATIONS.empty_table(), pa.Table.from_pylist(rows, CALIBRATION))

    def taken(share):
        row = verifier.classes("bus", share)[1]
        return row[0] / row.sum(), row.sum()

    assert taken(1.0) == (pytest.approx(3.5 / 151), pytest.approx(150))
    assert taken(0.0)[0] == pytest.approx(0.5 / 601)
    assert taken(0.5)[0] == pytest.approx((3.5 / 151 + 0.5 / 601) / 2)
    assert verifier.classes("bus")[1].tolist() == [3.0, 747.0]
