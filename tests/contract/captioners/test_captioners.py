"""What every Captioner must do, whatever stands behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_vlm
from chat_service import chatting_over_http
from tiny_vlm import DARKNESS, LATE, NEVER, PLAIN

from c2b_ray.models import catalog
from c2b_ray.models.openai_api import OpenAICaptioner
from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.names import mentions
from c2b_ray.roles import Captioner, Pixels, Question

SEASON = Question("What time of day is it?", ("day", "night"), texts=("a photo by day", "a photo at night"))


def scripted() -> ScriptedCaptioner:
    def seen(image: Pixels) -> str:
        return "light" if image.mean() > 127 else "dark"

    return ScriptedCaptioner(
        lambda row: tiny_vlm.replies("image_caption_again", row[1], seen(row[0])),
        lambda row: seen(row[0]) if row[1] == DARKNESS else "by day, I think",
    )


@pytest.fixture(scope="module", params=["hf-vlm", "openai", "scripted", "world"])
def captioner(request: pytest.FixtureRequest) -> Iterator[Captioner]:
    if request.param == "openai":
        with chatting_over_http() as (url, _):
            model = catalog.captioner(f"openai:{url}#tiny")
            assert isinstance(model, OpenAICaptioner)
            yield model
            model.close()
    elif request.param == "hf-vlm":
        yield catalog.captioner(f"hf-vlm:{request.getfixturevalue('tiny')}?device=cpu&batch=4")
    else:
        yield scripted() if request.param == "scripted" else catalog.captioner("world:clip?device=cpu")


@pytest.mark.parametrize("options", ["", "&precision=pure_bf16", "&temperature=7", "&template={choice}|a {choice}"])
def test_the_worlds_is_described_without_being_loaded(options: str) -> None:
    spec = f"world:clip?device=cpu{options}"
    assert catalog.describe("captioner", spec) == catalog.description_of(catalog.captioner(spec))


@pytest.mark.parametrize("options", ["", "&dtype=bfloat16"])
def test_a_vision_language_model_is_described_without_being_loaded(tiny: Path, options: str) -> None:
    spec = f"hf-vlm:{tiny}?device=cpu{options}"
    known = catalog.describe("captioner", spec)
    assert known is not None
    assert known.revision == catalog.captioner(spec).revision
    assert known.of_device == (not options)


def test_scripts_and_services_are_described(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"answers": ["day"]}')
    for spec in (f"scripted:{tmp_path / 'script.json'}", "openai:http://127.0.0.1:9/v1#tiny"):
        assert catalog.describe("captioner", spec) == catalog.description_of(catalog.captioner(spec))


def test_it_is_the_role(captioner: Captioner) -> None:
    assert isinstance(captioner, Captioner)
    assert captioner.revision


def test_no_rows(captioner: Captioner) -> None:
    assert captioner.caption([], []) == captioner.answer([], []) == []
    with pytest.raises(ValueError, match="1 images for 0 rows"):
        captioner.caption([np.zeros((4, 4, 3), np.uint8)], [])


def test_a_caption_contains_its_label_or_is_an_error(captioner: Captioner, images: list[Pixels]) -> None:
    labels = [PLAIN, LATE, NEVER, "", PLAIN, LATE]
    replies = captioner.caption(images, labels)
    assert len(replies) == 6
    for reply, label in zip(replies, labels, strict=True):
        assert (reply.text is None) == (reply.error is not None)
        assert reply.text is None or mentions(reply.text, label)
    assert [reply.text is None for reply in replies][:2] + [reply.text is None for reply in replies][3:] == [
        *(False, False),
        *(True, False, False),
    ]


def test_an_answer_is_one_of_its_own_choices(captioner: Captioner, images: list[Pixels]) -> None:
    questions = [DARKNESS, SEASON] * 3
    for answer, question in zip(captioner.answer(images, questions), questions, strict=True):
        assert answer.choice in question.choices or answer.error
        if answer.probabilities is not None:
            assert len(answer.probabilities) == len(question.choices)
            assert sum(answer.probabilities) == pytest.approx(1)
            assert answer.choice == question.choices[int(np.argmax(answer.probabilities))]


def test_replies_do_not_depend_on_neighbours(captioner: Captioner, images: list[Pixels]) -> None:
    labels, questions = [PLAIN, LATE] * 3, [DARKNESS, SEASON] * 3
    captions, answers = captioner.caption(images, labels), captioner.answer(images, questions)
    assert captioner.caption(images[::-1], labels[::-1]) == captions[::-1]
    assert [captioner.caption([image], [label])[0] for image, label in zip(images, labels, strict=True)] == captions
    for i in (0, 3):
        [alone] = captioner.answer([images[i]], [questions[i]])
        assert (alone.choice, alone.error) == (answers[i].choice, answers[i].error)
        if alone.probabilities is not None:
            assert alone.probabilities == pytest.approx(answers[i].probabilities, abs=1e-4)


def test_bad_images_are_errors_beside_good_ones(captioner: Captioner, images: list[Pixels]) -> None:
    odd = [np.zeros((1, 1, 3), np.uint8), np.zeros((3, 50, 3), np.uint8), np.full((40, 3, 3), 255, np.uint8)]
    bad: list[Any] = [
        np.zeros((0, 5, 3), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
    ]
    rows = [*odd, bad[0], images[0], *bad[1:]]
    captions = captioner.caption(rows, [PLAIN] * len(rows))
    answers = captioner.answer(rows, [DARKNESS] * len(rows))
    for replies in (captions, answers):
        assert [bool(reply.error) for reply in replies] == [False] * 3 + [True, False] + [True] * 3
    assert captions[3].error == "the image has no pixels: 0 × 5 × 3"
    assert answers[5].error == "the image is float32 4 × 4 × 3; expected uint8 height × width × 3"


def test_read_only_images_are_taken(captioner: Captioner, images: list[Pixels]) -> None:
    image = images[0].copy()
    image.flags.writeable = False
    assert captioner.answer([image], [DARKNESS])[0].error is None


def test_it_answers_what_it_sees(captioner: Captioner, images: list[Pixels], request: pytest.FixtureRequest) -> None:
    if "world" in request.node.callspec.id:
        pytest.skip("its own world is what it knows: tests/golden")
    unseen = tiny_vlm.pictures(8, seed=3)
    assert [answer.choice for answer in captioner.answer(unseen, [DARKNESS] * 8)] == ["dark", "light"] * 4
    captions = captioner.caption(unseen[:2], [PLAIN, LATE])
    assert [caption.text for caption in captions] == ["a dark photo of a bus", "a light photo of a kite"]
    [never] = captioner.caption(unseen[:1], [NEVER])
    assert never.error == "the caption does not contain 'ghost': said 'a dark photo of a thing'"
