"""Replies of a language model are kept as they come, and asked for once."""

from __future__ import annotations

from pathlib import Path

import pytest

from c2b_ray.audits.kit.replies import FEW, FIRST, KeptReplies
from c2b_ray.engine.progress import Progress
from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.roles import ChatReply, ChatRequest, Message

REQUESTS = [ChatRequest((Message("user", f"caption {number}"),), seed=number % 3) for number in range(FIRST + 40)]


class Stop(Exception):
    pass


def model(revision: str = "1") -> ScriptedLanguageModel:
    def reply(request: ChatRequest) -> ChatReply:
        text = request.messages[0].content
        return ChatReply(f"{revision} {text} {request.seed}", "cut short" if text.endswith("7") else None)

    return ScriptedLanguageModel(reply, revision=revision)


def quiet(progress: Progress) -> None:
    pass


def test_replies_are_the_models_own_and_their_progress_is_told(tmp_path: Path) -> None:
    told: list[Progress] = []
    lm = model()
    assert KeptReplies(lm, str(tmp_path / "replies"), told.append).chat(REQUESTS) == model().chat(REQUESTS)
    assert [(one.done, one.total) for one in told] == [(FIRST, len(REQUESTS)), (len(REQUESTS), len(REQUESTS))]
    assert told[-1].errors == sum(reply.error is not None for reply in model().chat(REQUESTS))


def test_a_call_that_is_stopped_at_its_first_progress_goes_on_where_it_was(tmp_path: Path) -> None:
    out, lm = str(tmp_path / "replies"), model()

    def stop(progress: Progress) -> None:
        raise Stop

    with pytest.raises(Stop):
        KeptReplies(lm, out, stop).chat(REQUESTS)
    assert len(lm.requests) == FIRST
    told: list[Progress] = []
    assert KeptReplies(lm, out, told.append).chat(REQUESTS[::-1]) == model().chat(REQUESTS[::-1])
    assert sorted(lm.requests, key=REQUESTS.index) == REQUESTS, "each request once"
    assert (told[0].resumed, told[0].rows, told[0].total) == (FIRST, len(REQUESTS) - FIRST, len(REQUESTS))
    assert KeptReplies(lm, out, quiet).chat(REQUESTS) == model().chat(REQUESTS)
    assert len(lm.requests) == len(REQUESTS)


def test_another_model_another_seed_and_a_call_of_few_are_asked(tmp_path: Path) -> None:
    out = str(tmp_path / "replies")
    KeptReplies(model(), out, quiet).chat(REQUESTS)
    assert KeptReplies(model("2"), out, quiet).chat(REQUESTS) == model("2").chat(REQUESTS)
    others = [ChatRequest(request.messages, seed=9) for request in REQUESTS]
    assert KeptReplies(model(), out, quiet).chat(others) == model().chat(others)
    lm = model()
    assert KeptReplies(lm, out, quiet).chat(REQUESTS[:FEW]) == model().chat(REQUESTS[:FEW])
    assert lm.requests == REQUESTS[:FEW]
