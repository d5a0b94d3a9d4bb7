"""An audit that is stopped while a language model writes its captions asks for the rest of them when it resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import c2b_ray
from c2b_ray.audits.kit.progress import Event
from c2b_ray.models import catalog
from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.roles import ChatRequest
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

CONFIG: dict[str, Any] = {
    "task": "Recognise things.",
    "classes": list(CLASSES[:5]),
    "classifier": "world:resnet-control-0",
    "images": {"source": "generate", "generator": "world:renderer"},
    "images_per_caption": 1,
    "captions_per_cell": 5,
}


class Stopped(Exception):
    pass


def reply(request: ChatRequest) -> str:
    said = request.messages[-1].content
    if "attributes" in (request.schema or {})["properties"]:
        return json.dumps({"attributes": [{"name": "weather", "values": list(ATTRIBUTES["weather"])}]})
    return json.dumps({"template": "a photo of a [CLASS] in [VALUE]", "caption": f"nothing: {len(said)}"})


def test_captions_that_are_written_are_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedLanguageModel(reply)
    monkeypatch.setattr(catalog, "language_model", lambda spec: model)
    (tmp_path / "replies.json").write_text("[]")  # the model above stands in for it
    config = {**CONFIG, "language_model": f"scripted:{tmp_path}/replies.json"}
    whole = c2b_ray.audit(config, tmp_path / "whole", "here")
    asked, model.requests = len(model.requests), []

    def stop(event: Event) -> None:
        if event.step == "caption" and event.kind == "progress":
            raise Stopped

    with pytest.raises(Stopped):
        c2b_ray.audit(config, tmp_path / "run", "here", listener=stop)
    before = len(model.requests)
    assert before < asked
    run = c2b_ray.audit(config, tmp_path / "run", "here")
    proposed_again = 1 + len(CONFIG["classes"])  # the template, and a request of each class: a call of few
    assert len(model.requests) == asked + proposed_again
    assert run.captions.equals(whole.captions)
    assert run.read("rejected").equals(whole.read("rejected"))
    assert not (tmp_path / "run" / "replies").exists()
