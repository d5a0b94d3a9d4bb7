import pyarrow as pa
import pytest
from pictured_answers import CLASSES, WEATHER, asked_of, captions_of, images_of, png, see

from c2b_ray.errors import ServiceError
from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.roles import Answer
from c2b_ray.steps.observe import LIKELIER, Checks, checks, verify, wanted
from c2b_ray.tables import CAPTIONS, DRAWS, VERIFICATIONS


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
