"""`Captioner` from a vision-language model in vLLM, in this process.

    vllm:Qwen/Qwen2.5-VL-3B-Instruct
    vllm:PATH?max_model_len=4096&gpu_memory_utilization=0.6

Options: revision (of a hub repository), and vLLM's own dtype, max_model_len, gpu_memory_utilization and
tensor_parallel_size. Weights are read from safetensors alone, and no code of a repository is run. Answers are held to
their choices by vLLM's structured outputs and have no probabilities. It knows vLLM's chat; a vLLM that serves elsewhere
is reached by `openai:URL#model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from c2b_ray.errors import WeightsError
from c2b_ray.models.captioned import CAPTION_TOKENS, answers, captions, question_prompt
from c2b_ray.models.catalog import Spec
from c2b_ray.models.openai_api import ANSWER_TOKENS, data_uri
from c2b_ray.models.vllm_revision import captioner_of
from c2b_ray.roles import Answer, CaptionReply, ChatReply, Pixels, Question


def load(spec: Spec) -> VLLMCaptioner:
    """Loads the captioner of a `vllm:` spec. Raises SpecError where there are no files or a setting is no number, and
    WeightsError for unusable weights."""
    files = captioner_of(spec)
    try:
        engine = LLM(
            str(files.directory),
            trust_remote_code=False,
            load_format="safetensors",
            limit_mm_per_prompt={"image": 1},
            **files.settings,
        )
    except (OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: vLLM cannot serve it: {lines[:500]}") from error
    return VLLMCaptioner(engine, files.revision)


class VLLMCaptioner:
    """Implements `roles.Captioner`. vLLM gathers the rows of a call into batches itself."""

    def __init__(self, engine: Any, revision: str) -> None:
        self._engine, self._revision = engine, revision

    @property
    def revision(self) -> str:
        return self._revision

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns the model's captions; asks a second time where the label is missing."""
        return captions(images, labels, self._say)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns the choice that the model names, without probabilities."""
        return answers(images, questions, self._say_choice)

    def _say(self, images: Sequence[Pixels], texts: Sequence[str]) -> list[ChatReply]:
        settings = SamplingParams(temperature=0.0, max_tokens=CAPTION_TOKENS)
        return self._chat(images, texts, [settings] * len(texts))

    def _say_choice(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[ChatReply]:
        settings = [
            SamplingParams(
                temperature=0.0,
                max_tokens=ANSWER_TOKENS,
                structured_outputs=StructuredOutputsParams(choice=list(question.choices)),
            )
            for question in questions
        ]
        return self._chat(images, [question_prompt(question) for question in questions], settings)

    def _chat(self, images: Sequence[Pixels], texts: Sequence[str], settings: list[Any]) -> list[ChatReply]:
        chats = [_chat(image, text) for image, text in zip(images, texts, strict=True)]
        try:
            # Where the model could think first, its thoughts would be the answer.
            outputs = self._engine.chat(
                chats, settings, use_tqdm=False, chat_template_kwargs={"enable_thinking": False}
            )
        except ValueError as error:  # a prompt beyond the context, an image that the processor refuses: ends all rows
            if len(chats) == 1:
                return [ChatReply("", f"vLLM refuses the image or prompt: {' '.join(str(error).split())[:200]}")]
            rows = zip(images, texts, settings, strict=True)
            return [reply for image, text, row in rows for reply in self._chat([image], [text], [row])]
        return [_reply(output.outputs[0]) for output in outputs]


def _chat(image: Pixels, text: str) -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": data_uri(image)}}
    return [{"role": "user", "content": [picture, {"type": "text", "text": text}]}]


def _reply(output: Any) -> ChatReply:
    text = str(output.text)
    if output.finish_reason == "length":
        return ChatReply(text, f"the reply was cut after {len(output.token_ids)} tokens: {text[:80]!r}")
    return ChatReply(text, None if text.strip() else "the reply is empty")
