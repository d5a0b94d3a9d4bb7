from dataclasses import replace

import pyarrow as pa
import pytest
from pictured_answers import WEATHER, asked_of, png, see

from c2b_ray.audits.c2b.verification.calibration import (
    BATCH,
    CALIBRATED_ON,
    VerifierSource,
    ask,
    check_calibration,
    to_ask,
    uncalibrated,
)
from c2b_ray.audits.c2b.verification.calibration import calibrate as stage
from c2b_ray.audits.c2b.verification.calibration import counted as answers_counted
from c2b_ray.audits.c2b.verification.verified import SELF_TRUST, self_assessed_calibration
from c2b_ray.engine.here import InProcess
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.steps.observe import CLASS
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import CALIBRATION, VERIFICATIONS


def calibrate(labels, source, captioner, checks, seed):
    """The step without a stage: the questions, asked in batches, counted."""
    questions, verifier_source = to_ask(labels, source.revision, checks, seed), VerifierSource(captioner, source)
    parts = [questions.slice(start, BATCH) for start in range(0, max(1, questions.num_rows), BATCH)]
    return answers_counted(pa.concat_tables([ask(part, verifier_source, checks) for part in parts]))


class Source:
    revision = "s"

    def __init__(self, data):
        self.data = data
        self.fetched = []

    def fetch(self, ids):
        self.fetched += ids
        return pa.table({"key": [str(i) for i in ids], "bytes": pa.array([self.data[i] for i in ids], pa.binary())})


#            truth                  what the picture shows
KNOWN = [
    ("bus", "snow", png(0, 0)),
    ("bus", "snow", png(0, 0)),
    ("bus", "snow", png(0, 1)),  # said to be rain
    ("Bus ", "Rain", png(0, 1)),
    ("bus", "rain", b"no image"),
    ("boat", "snow", png(0, 0)),  # said to be a bus
    ("boat", "rain", png(1, 7)),  # no value is named
    ("boat", None, png(1, 0)),
    ("mug", "snow", png(0, 1)),
    (None, "snow", png(0, 1)),
]


def known(rows=KNOWN, **columns):
    labels = {"target_class": [row[0] for row in rows], "weather": [row[1] for row in rows], **columns}
    return pa.table(labels), Source([row[2] for row in rows])


def counted(table):
    return {(row["attribute"], row["value"], row["answer"]): row["images"] for row in table.to_pylist()}


def test_calibration_counts_what_was_said_of_known_images():
    labels, source = known()
    found = calibrate(labels, source, see(0.9), asked_of(), seed=0)
    assert found.schema == CALIBRATION
    assert set(found["source"].to_pylist()) == {"table"}
    assert counted(found) == {
        (CLASS, "bus", "bus"): 4,
        (CLASS, "boat", "bus"): 1,
        (CLASS, "boat", "boat"): 2,
        (CLASS, "something else", "bus"): 1,  # the mug; a row without a class is of none
        ("weather", "snow", "snow"): 3,  # two buses, and the boat
        ("weather", "snow", "rain"): 1,
        ("weather", "rain", "rain"): 1,
    }
    assert sorted(source.fetched) == sorted(set(source.fetched))  # 4 to 7 rows and one batch
    assert 9 not in source.fetched
    labels, source = known()
    found = counted(calibrate(labels, source, see(0.9), asked_of(["bus"]), seed=0))
    assert found[CLASS, "bus", "bus"] == 4
    assert (found[CLASS, "something else", "bus"], found[CLASS, "something else", "something else"]) == (2, 2)


def test_the_stage_counts_the_same_and_goes_on_where_it_stopped(tmp_path):
    labels, source = known()
    asked, out = asked_of(), str(tmp_path / "answers")
    whole = calibrate(labels, source, see(0.9), asked, seed=0)
    questions = to_ask(labels, source.revision, asked, seed=0)

    def ask(part, captioner):
        return stage(InProcess(), part, lambda: VerifierSource(captioner, source), asked, out)

    ask(questions.slice(0, 6), see(0.9))
    rest = see(0.9)
    assert answers_counted(ask(questions, rest)).equals(whole)
    readable = sum(row["error"] is None for row in read_stage(out).to_pylist())
    assert 0 < len(rest.requests) < readable
    # Other weights are asked anew, beside what is there.
    other = see(0.9)
    newer = replace(asked, revision="other")
    asked_anew = to_ask(labels, source.revision, newer, seed=0)
    assert (
        stage(InProcess(), asked_anew, lambda: VerifierSource(other, source), newer, out).num_rows == questions.num_rows
    )
    assert len(other.requests) == readable


def test_a_null_is_not_the_value_none():
    rows = [("bus", "none", png(0, 0)), ("bus", None, png(0, 1)), ("bus", "dog", png(0, 1))]
    labels, source = known(rows, companion=[row[1] for row in rows])
    asked = asked_of(attributes={"companion": ["none", "dog"]})
    found = counted(calibrate(labels, source, see(), asked, seed=0))
    assert found == {(CLASS, "bus", "bus"): 3, ("companion", "none", "none"): 1, ("companion", "dog", "dog"): 1}


def test_a_column_that_is_missing_is_left_out_and_a_class_that_is_named():
    labels, source = known()
    asked = asked_of(attributes={"weather": WEATHER, "size": ["small", "large"]})
    assert set(calibrate(labels, source, see(), asked, 0)["attribute"].to_pylist()) == {CLASS, "weather"}
    with pytest.raises(ConfigError, match=r"verification\.calibration"):
        check_calibration(labels, ["house", "chair"])


def test_attributes_and_values_that_a_calibration_lacks_are_named_with_the_nearest():
    labels, _ = known()
    asked = {"weather": ["snow", "rainy", "RAIN"], "wether": ["snow", "rain"]}
    assert uncalibrated(labels, asked) == [
        "calibration has no image with weather: 'rainy'; did you mean 'rain'?",
        "calibration has no column 'wether'; did you mean 'weather'?",
    ]
    assert uncalibrated(labels, {"weather": ["snow", "Rain"]}) == []


def test_a_table_whose_images_cannot_be_read_is_refused():
    labels, source = known([("bus", "snow", b"no image"), ("boat", "rain", b"")])
    with pytest.raises(SourceError, match=r"verification\.calibration: none .*the first is 0: not an image"):
        calibrate(labels, source, see(), asked_of(), seed=0)
    source.fetch = lambda ids: pa.table(
        {"key": ["a.png"] * len(ids), "bytes": pa.nulls(len(ids), pa.binary()), "error": ["no such file"] * len(ids)}
    )
    with pytest.raises(SourceError, match=r"the first is a\.png: no such file"):
        calibrate(labels, source, see(), asked_of(), seed=0)


def test_no_more_images_are_looked_at_than_needed():
    most = CALIBRATED_ON
    rows = [("bus", "snow", png(0, 0))] * (most + 20) + [("boat", "rain", png(1, 1))] * (most + 20)
    labels, source = known(rows)
    found = counted(calibrate(labels, source, see(), asked_of(), seed=3))
    assert found[CLASS, "bus", "bus"] == most
    assert found["weather", "snow", "snow"] == most // 2  # two classes answer for the attribute together
    same, other = known(rows)[1], known(rows)[1]
    calibrate(labels, same, see(), asked_of(), seed=3)
    calibrate(labels, other, see(), asked_of(), seed=4)
    assert same.fetched == source.fetched != other.fetched


def test_the_images_of_a_value_do_not_depend_on_order_nor_on_what_else_is_asked():
    rows = [(name, value, png(0, 0)) for name in ("bus", "boat", "mug") for value in WEATHER] * (2 * CALIBRATED_ON)
    labels, source = known(rows, size=["small", "large", "large"] * (len(rows) // 3))

    def looked_at(classes, attributes):
        rows = to_ask(labels, source.revision, asked_of(classes, attributes), seed=3).to_pylist()
        return {(row["row"], row["target_class"], row["attribute"], row["value"]) for row in rows}

    whole = looked_at(["bus", "boat"], {"weather": ["snow", "rain"], "size": ["small", "large"]})
    assert looked_at(["boat", "bus"], {"size": ["large", "small"], "weather": ["rain", "snow"]}) == whole
    assert looked_at(["boat", "bus"], {"weather": ["rain", "snow"]}) == {one for one in whole if one[2] != "size"}


def said(rows):
    """Verifications of (target class, value, certainty), of the attribute weather."""
    return pa.Table.from_pylist(
        [
            {
                "verification_id": str(i),
                "image_id": str(i),
                "target_class": target,
                "attributes": ["weather"],
                "values": [value],
                "certainties": [certainty],
            }
            for i, (target, value, certainty) in enumerate(rows)
        ],
        VERIFICATIONS,
    )


def test_certainty_is_counted_in_images():
    # three answers: snow with .75 and .5, rain with .75; the rest of each goes to the other value
    found = self_assessed_calibration(
        said([("bus", "snow", 0.75), ("bus", "snow", 0.5), ("bus", "rain", 0.75), ("bus", None, None)])
    )
    assert counted(found) == {
        ("weather", "snow", "snow"): 1.25,
        ("weather", "rain", "snow"): 0.75,
        ("weather", "rain", "rain"): 0.75,
        ("weather", "snow", "rain"): 0.25,
    }
    assert set(found["source"].to_pylist()) == {"self"}


def test_a_value_s_doubt_is_shared_among_the_values_of_its_own_class():
    rows = [("bus", "snow", 0.75), ("bus", "rain", 0.75), ("boat", "fog", 0.5), ("boat", "clear", 0.5)]
    found = counted(self_assessed_calibration(said(rows)))
    assert found[("weather", "rain", "snow")] == 0.25  # not a third of that
    assert ("weather", "fog", "snow") not in found


def test_a_model_s_opinion_of_itself_counts_for_few_images():
    # snow: 300 * .75 + 100 * .25 = 250 images' worth, scaled to 40; rain: 75 + 75 = 150, scaled to 40
    found = counted(self_assessed_calibration(said([("bus", "snow", 0.75)] * 300 + [("bus", "rain", 0.75)] * 100)))
    assert found[("weather", "snow", "snow")] == pytest.approx(SELF_TRUST * 225 / 250)
    assert found[("weather", "snow", "rain")] == pytest.approx(SELF_TRUST * 25 / 250)
    assert found[("weather", "rain", "rain")] == pytest.approx(SELF_TRUST * 75 / 150)


def test_nothing_said_with_certainty_promises_nothing():
    assert self_assessed_calibration(said([("bus", "snow", None), ("bus", None, None)])).num_rows == 0
