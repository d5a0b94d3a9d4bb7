"""`Captioner` at a URL that speaks the OpenAI protocol and takes images: vLLM, llama.cpp, Ollama, a hosted service.

    openai:http://host/v1#model        the key is read from OPENAI_API_KEY

Answers are restricted to their choices by a JSON schema where the service supports response_format, and parsed from its
text otherwise. It knows messages with images; retries, timeouts and refusals are `OpenAILanguageModel`'s. The model
behind a URL can change unnoticed: the revision is a hash of the address and our prompts.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from c2b_ray.models import openai_lm
from c2b_ray.models.catalog import Spec
from c2b_ray.models.openai_lm import OpenAILanguageModel
from c2b_ray.models.spec_options import to_pil
from c2b_ray.models.text.captioned import CAPTION_TOKENS, answers, captions, question_prompt, wording
from c2b_ray.roles import Answer, CaptionReply, ChatReply, ChatRequest, Description, Message, Pixels, Question
from c2b_ray.tables import content_id

ANSWER_TOKENS = 64
LARGE = 4 * 2**20  # bytes of pixels from which an image travels as JPEG


def load(spec: Spec) -> OpenAICaptioner:
    """Loads the model of `openai:http://host/v1#model` without sending a request. Raises SpecError where the URL or the
    model is missing."""
    return OpenAICaptioner(openai_lm.load(spec), spec.name)


def describe(spec: Spec) -> Description:
    """Returns a description with a hash of the address and our prompts; no request is sent."""
    captioner = load(spec)
    captioner.close()
    return Description(captioner.revision)


class OpenAICaptioner:
    """Implements `roles.Captioner`. Raises ServiceError where the service is down, refuses the key or does not know the
    model."""

    def __init__(self, service: OpenAILanguageModel, address: str) -> None:
        self._service = service
        self._revision = content_id("openai_captioner", address, wording())

    @property
    def revision(self) -> str:
        return self._revision

    def close(self) -> None:
        self._service.close()

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns the service's captions; asks a second time where the label is missing."""
        return captions(images, labels, self._say)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns the choice that the service names, without probabilities."""
        return answers(images, questions, self._say_choice)

    def _say(self, images: Sequence[Pixels], texts: Sequence[str]) -> list[ChatReply]:
        requests = [ChatRequest((Message("user", text),), max_tokens=CAPTION_TOKENS) for text in texts]
        return self._service.chat_about([data_uri(image) for image in images], requests)

    def _say_choice(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[ChatReply]:
        requests = [
            ChatRequest((Message("user", question_prompt(q)),), schema=_schema(q), max_tokens=ANSWER_TOKENS)
            for q in questions
        ]
        return self._service.chat_about([data_uri(image) for image in images], requests)


def data_uri(image: Pixels) -> str:
    """Encodes the image as a PNG, a large one as a JPEG of quality 95."""
    kind, settings = ("JPEG", {"quality": 95}) if image.nbytes > LARGE else ("PNG", {"compress_level": 1})
    buffer = BytesIO()
    to_pil(image).save(buffer, kind, **settings)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _schema(question: Question) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(question.choices)}},
        "required": ["answer"],
        "additionalProperties": False,
    }
