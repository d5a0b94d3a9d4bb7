from dataclasses import replace
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from c2b_ray.errors import ConfigError, ServiceError, SourceError
from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.pipelines.calibrate import calibrate as stage
from c2b_ray.pipelines.here import Here
from c2b_ray.roles import Answer
from c2b_ray.schemas import CALIBRATION, CAPTIONS, DRAWS, IMAGES, VERIFICATIONS
from c2b_ray.steps.calibrate import CALIBRATED_ON, Beholder, calibrate, check_calibration, to_ask
from c2b_ray.steps.calibrate import counted as answers_counted
from c2b_ray.steps.caption import caption
from c2b_ray.steps.propose import propose
from c2b_ray.steps.self_assessed import SELF_TRUST, self_assessed
from c2b_ray.steps.verify import (
    CLASS,
    LIKELIER,
    Checks,
    checks,
    verify,
    wanted,
)
from c2b_ray.store.parts import read_stage

CLASSES = ["bus", "boat"]
WEATHER = ["snow", "rain"]


def captions_of(classes=CLASSES, attributes=None):
    proposals, _ = propose("task", classes, None, attributes or {"weather": WEATHER}, seed=0)
    return caption("task", proposals, None, 1, seed=0)[0]


def asked_of(classes=CLASSES, attributes=None):
    return checks("toy:eye", "r1", classes, captions_of(classes, attributes))


def png(target, value):
    """A picture whose first pixel says what it shows, as places among the choices."""
    pixels = np.zeros((9, 9, 3), np.uint8)
    pixels[0, 0, :2] = target, value
    data = BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def see(certainty=None):
    """A captioner that reads those pictures; with a certainty it gives probabilities."""

    def answer(asked):
        pixels, question = asked
        place = int(pixels[0, 0, 0 if question.text == "What does the picture show?" else 1])
        if place >= len(question.choices):
            return Answer(None, error="named no choice")
        if certainty is None:
            return Answer(question.choices[place])
        rest = (1 - certainty) / (len(question.choices) - 1)
        probabilities = tuple(certainty if i == place else rest for i in range(len(question.choices)))
        return Answer(question.choices[place], probabilities)

    return ScriptedCaptioner(answers=answer)


def images_of(rows, asked):
    """`rows`: (name, bytes, error, target class)."""
    names, data, errors, targets = zip(*rows, strict=True)
    table = pa.table({"image_id": names, "key": names, "bytes": pa.array(data, pa.binary()), "error": errors})
    ids = [asked.verification_id(name, target) for name, target in zip(names, targets, strict=True)]
    table = pa.Table.from_pylist(table.to_pylist(), IMAGES)
    return table.append_column("target_class", [targets]).append_column("verification_id", [ids])


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
        return stage(Here(), part, lambda: Beholder(captioner, source), asked, out)

    ask(questions.slice(0, 6), see(0.9))
    rest = see(0.9)
    assert answers_counted(ask(questions, rest)).equals(whole)
    readable = sum(row["error"] is None for row in read_stage(out).to_pylist())
    assert 0 < len(rest.requests) < readable
    # Other weights are asked anew, beside what is there.
    other = see(0.9)
    newer = replace(asked, revision="other")
    asked_anew = to_ask(labels, source.revision, newer, seed=0)
    assert stage(Here(), asked_anew, lambda: Beholder(other, source), newer, out).num_rows == questions.num_rows
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


def test_a_table_whose_images_cannot_be_read_is_refused():
    labels, source = known([("bus", "snow", b"no image"), ("boat", "rain", b"")])
    with pytest.raises(SourceError, match=r"verification\.calibration: none .*the first is 0: not an image"):
        calibrate(labels, source, see(), asked_of(), seed=0)
    source.fetch = lambda ids: pa.table(
        {"key": ["a.png"] * len(ids), "bytes": pa.nulls(len(ids), pa.binary()), "error": ["no such file"] * len(ids)}
    )
    with pytest.raises(SourceError, match=r"the first is a\.png: no such file"):
        calibrate(labels, source, see(), asked_of(), seed=0)


def test_a_captioner_that_gives_too_few_answers_is_named():
    asked, captioner = asked_of(), see()
    captioner.answer = lambda images, questions: [Answer(question.choices[0]) for question in questions[1:]]
    with pytest.raises(ServiceError, match="answered 2 questions with 1 answers"):
        verify(images_of([("a", png(0, 1), None, "bus")], asked), captioner, asked)


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
    found = self_assessed(
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
    found = counted(self_assessed(said(rows)))
    assert found[("weather", "rain", "snow")] == 0.25  # not a third of that
    assert ("weather", "fog", "snow") not in found


def test_a_model_s_opinion_of_itself_counts_for_few_images():
    # snow: 300 * .75 + 100 * .25 = 250 images' worth, scaled to 40; rain: 75 + 75 = 150, scaled to 40
    found = counted(self_assessed(said([("bus", "snow", 0.75)] * 300 + [("bus", "rain", 0.75)] * 100)))
    assert found[("weather", "snow", "snow")] == pytest.approx(SELF_TRUST * 225 / 250)
    assert found[("weather", "snow", "rain")] == pytest.approx(SELF_TRUST * 25 / 250)
    assert found[("weather", "rain", "rain")] == pytest.approx(SELF_TRUST * 75 / 150)


def test_nothing_said_with_certainty_promises_nothing():
    assert self_assessed(said([("bus", "snow", None), ("bus", None, None)])).num_rows == 0
