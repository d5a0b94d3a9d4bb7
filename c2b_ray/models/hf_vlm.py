"""`Captioner` from a vision-language model of transformers in this process.

    hf-vlm:org/name    from the Hugging Face hub
    hf-vlm:PATH        a directory with config.json, model.safetensors, tokenizer and processor

Options: revision (of the repository), dtype (float32, float16, bfloat16), device, batch (rows at once, 8 by default),
unused (`tensor_names`).
Weights are read from safetensors alone, and no code of a repository is run. Only decoder-only models are supported:
encoder-decoder models (Florence-2, BLIP-2 on T5) are refused.

An answer is never sampled: the probability of a choice is that of the reply consisting of this choice alone (all its
tokens, then one that ends the reply), divided by the sum over all choices. So an answer always names a choice. Captions
are greedy. It knows prompts as text, tokens and padding, and no particular architecture.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from c2b_ray.errors import WeightsError
from c2b_ray.extras import hint_for
from c2b_ray.models import weights
from c2b_ray.models.captioned import (
    CAPTION_TOKENS,
    among_usable,
    captions,
    no_answer,
    probable,
    question_prompt,
    scores_among_usable,
    scoring_prompt,
    wording,
)
from c2b_ray.models.catalog import Spec
from c2b_ray.models.chat_tokens import stop_ids
from c2b_ray.models.spec_options import batches, options_of, positive, to_pil
from c2b_ray.models.tensor_names import selection_of
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.models.transformers_lm import dtype_of
from c2b_ray.models.transformers_weights import load_strictly
from c2b_ray.roles import Answer, CaptionReply, ChatReply, Description, Floats, Pixels, Question
from c2b_ray.tables import content_id

_OPTIONS = options_of("captioner", "hf-vlm")


def load(spec: Spec) -> TransformersCaptioner:
    """Loads the captioner of an `hf-vlm:` spec. Raises SpecError where there are no files and WeightsError where there
    are no usable safetensors."""
    options = spec.options_among(_OPTIONS)
    device, batch = device_of(spec), positive(spec, "batch", 8)
    dtype = dtype_of(spec, device)
    directory = weights.directory(spec.name, spec.text, options.get("revision"), weights.WITH_TOKENIZER)
    load_options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    try:
        processor = cast(Any, AutoProcessor).from_pretrained(directory, **load_options)
        model = load_strictly(
            AutoModelForImageTextToText, directory, selection_of(spec), dtype=dtype, **load_options
        ).model
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        lines = " ".join(str(error).split())
        reason = f"{lines[:500]}{hint_for(lines)}"
        raise WeightsError(f"{spec.text}: transformers makes no vision-language model of it: {reason}") from error
    revision = _revision(directory, model.dtype)
    return TransformersCaptioner(model.to(device), processor, revision, batch, spec.text)


def describe(spec: Spec) -> Description | None:
    """Returns the description from the files' hashes; None where only the weights tell the dtype."""
    options = spec.options_among(_OPTIONS)
    dtype = dtype_of(spec, device_of(spec))
    directory = weights.directory(spec.name, spec.text, options.get("revision"), weights.WITH_TOKENIZER)
    if not isinstance(dtype, torch.dtype):
        try:
            dtype = cast(Any, AutoConfig).from_pretrained(directory, local_files_only=True).dtype
        except (OSError, ValueError, KeyError) as error:
            raise WeightsError(f"{spec.text}: transformers makes no vision-language model of it: {error}") from error
        if not isinstance(dtype, torch.dtype):
            return None
    return Description(_revision(directory, dtype), of_device="dtype" not in options)


def _revision(directory: Path, dtype: torch.dtype) -> str:
    return content_id("hf-vlm", weights.directory_revision(directory), str(dtype), wording())


class TransformersCaptioner:
    """Implements `roles.Captioner` and `roles.CaptionScorer`. Safe to call from one thread at a time."""

    def __init__(self, model: Any, processor: Any, revision: str, batch: int, name: str = "the model") -> None:
        self._model, self._processor, self._batch = model.eval().requires_grad_(False), processor, batch
        self._tokenizer: Any = getattr(processor, "tokenizer", None)
        if self._tokenizer is None or model.config.is_encoder_decoder:
            raise WeightsError(
                f"{name}: not a model that continues a prompt with an image; its architecture is refused"
            )
        self._stops = stop_ids(self._tokenizer, model.generation_config)
        if not self._stops:
            raise WeightsError(
                f"{name}: neither its generation config nor its tokenizer names an end-of-sequence token"
            )
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.convert_ids_to_tokens(self._stops[0])
        self._model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        text = model.config.get_text_config()
        self._context: int = getattr(text, "max_position_embeddings", None) or 2**31
        self._takes_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._revision = revision
        try:
            self._prompt("What is this?")
        except (TemplateError, TypeError) as error:
            raise WeightsError(f"{name}: its chat template takes no message with an image: {error}") from error

    @property
    def revision(self) -> str:
        return self._revision

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns the model's captions; asks a second time where the label is missing."""
        return captions(images, labels, self._say)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns the likeliest choice, with the probabilities of all choices."""
        return among_usable(
            images, questions, lambda i, rows: [self._answer(*row) for row in zip(i, rows, strict=True)], no_answer
        )

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """Returns log P of each text as the whole reply to the prompt `image_sentences`, teacher-forced; (images,
        texts)."""
        return scores_among_usable(images, texts, lambda usable: np.stack([self._scores(i, texts) for i in usable]))

    def _scores(self, image: Pixels, texts: Sequence[str]) -> Floats:
        prompt = self._prompt(scoring_prompt())
        result = np.full(len(texts), np.nan, np.float32)
        try:
            inputs = self._inputs([prompt], [image])
        except ValueError:
            return result
        inputs, endings = self._with_endings(inputs, prompt, texts)
        fitting = [i for i, ids in enumerate(endings) if not self._too_long(inputs, len(ids))]
        for part in batches(fitting, self._batch):
            result[part] = self._score(inputs, [endings[i] for i in part])
        return result

    def _answer(self, image: Pixels, question: Question) -> Answer:
        prompt = self._prompt(question_prompt(question))
        try:
            inputs = self._inputs([prompt], [image])
        except ValueError as error:
            return no_answer(_refusal(error))
        inputs, endings = self._with_endings(inputs, prompt, question.choices)
        if reason := self._too_long(inputs, max(map(len, endings))):
            return no_answer(reason)
        likelihoods = [value for part in batches(endings, self._batch) for value in self._score(inputs, part)]
        return probable(question, torch.tensor(likelihoods, dtype=torch.float64).softmax(0).tolist())

    def _prompt(self, text: str) -> str:
        """Returns the prompt that follows an image, in the format of the model's chat template where it has one.

        A model that can think first is told not to, in the words of its template: thoughts are no caption.
        """
        template_options: Any = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        image_token = getattr(self._processor, "image_token", None) or ""
        if getattr(self._processor, "chat_template", None):
            chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
            return str(self._processor.apply_chat_template(chat, **template_options))
        if self._tokenizer.chat_template:
            plain_chat = [{"role": "user", "content": f"{image_token}\n{text}".strip()}]
            return str(self._tokenizer.apply_chat_template(plain_chat, **template_options))
        return f"{image_token}{text}\n"

    def _with_endings(self, inputs: Any, prompt: str, choices: Sequence[str]) -> tuple[Any, list[list[int]]]:
        """Returns the inputs of the prompt, and the tokens of each choice as the tokenizer encodes it after them.

        A tokenizer may join the end of the prompt with a choice. The inputs then end before the first joined token.
        """
        space = "" if prompt[-1:].isspace() or prompt.endswith(">") else " "
        prompt_ids = self._tokenizer(prompt, add_special_tokens=False)["input_ids"]
        full_ids = [self._tokenizer(f"{prompt}{space}{c}", add_special_tokens=False)["input_ids"] for c in choices]
        common = min(
            sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(prompt_ids, ids, strict=False))) for ids in full_ids
        )
        shape = inputs["input_ids"].shape
        width = shape[1] - (len(prompt_ids) - common)
        prefix = {name: _shortened(value, width, shape) for name, value in inputs.items()}
        return prefix, [ids[common:] for ids in full_ids]

    def _inputs(self, prompts: Sequence[str], images: Sequence[Pixels]) -> Any:
        """Returns the tensors of a batch, padded on the left; raises ValueError where the processor refuses an
        image."""
        starts_with_bos = bool(self._tokenizer.bos_token) and prompts[0].startswith(self._tokenizer.bos_token)
        inputs = self._processor(
            text=list(prompts),
            images=[[to_pil(image)] for image in images],
            add_special_tokens=not starts_with_bos,
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
        return inputs.to(device=self._model.device, dtype=self._model.dtype)

    def _too_long(self, inputs: Any, added: int) -> str | None:
        tokens = inputs["input_ids"].shape[1] + added
        if tokens <= self._context:
            return None
        return f"image, prompt and reply have {tokens} tokens; the model's context holds {self._context}"

    @torch.inference_mode()
    def _score(self, inputs: Any, endings: Sequence[Sequence[int]]) -> list[float]:
        """Returns log P of each ending followed by a stop, after the one prompt and image of `inputs`."""
        rows, width = len(endings), max(map(len, endings))
        tail = torch.full((rows, width), self._tokenizer.pad_token_id)
        mask = torch.zeros((rows, width), dtype=torch.long)
        for row, ids in enumerate(endings):
            tail[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = 1
        tail, mask = tail.to(self._model.device), mask.to(self._model.device)
        replaced = {"input_ids": tail, "attention_mask": mask}
        keep_option = {"logits_to_keep": width + 1} if self._takes_keep else {}
        shape = inputs["input_ids"].shape
        repeated = {
            name: _repeated(value, rows, replaced.get(name, torch.zeros_like(mask)), shape)
            for name, value in inputs.items()
        }
        logits: Tensor = self._model(**repeated, use_cache=False, **keep_option).logits[:, -(width + 1) :]
        log_probs = logits.float().log_softmax(-1)
        of_tokens = log_probs[:, :width].gather(-1, tail[:, :, None]).squeeze(-1).double() * mask
        ends = log_probs[torch.arange(rows), mask.sum(1)][:, self._stops].double().logsumexp(-1)
        return cast(list[float], (of_tokens.sum(1) + ends).tolist())

    def _say(self, images: Sequence[Pixels], texts: Sequence[str]) -> list[ChatReply]:
        rows = list(zip(images, [self._prompt(text) for text in texts], strict=True))
        return [reply for part in batches(rows, self._batch) for reply in self._generated(part)]

    def _generated(self, rows: Sequence[tuple[Pixels, str]]) -> list[ChatReply]:
        try:
            inputs = self._inputs([prompt for _, prompt in rows], [image for image, _ in rows])
        except ValueError as error:
            if len(rows) == 1:
                return [ChatReply("", _refusal(error))]
            return [reply for row in rows for reply in self._generated([row])]
        if reason := self._too_long(inputs, CAPTION_TOKENS):
            if len(rows) == 1:
                return [ChatReply("", reason)]
            return [reply for row in rows for reply in self._generated([row])]
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=CAPTION_TOKENS,
            eos_token_id=self._stops,
            pad_token_id=self._tokenizer.pad_token_id,
        )
        with torch.inference_mode():
            output = self._model.generate(**inputs, generation_config=config)
        return [self._reply(new) for new in output[:, inputs["input_ids"].shape[1] :].tolist()]

    def _reply(self, tokens: Sequence[int]) -> ChatReply:
        end = next((i for i, token in enumerate(tokens) if token in self._stops), None)
        text = str(self._tokenizer.decode(tokens[:end], skip_special_tokens=True)).strip()
        return ChatReply(
            text, f"the caption was cut after {len(tokens)} tokens: {text[:80]!r}" if end is None else None
        )


def _repeated(value: Any, rows: int, tail: Tensor, shape: Any) -> Any:
    """Repeats one row's input `rows` times: inputs with a value for each token are extended by the tail's, all others
    are repeated."""
    if not isinstance(value, Tensor):
        return list(value) * rows
    if value.shape == shape:
        return torch.cat([value.expand(rows, -1), tail.to(value.dtype)], 1)
    return torch.cat([value] * rows)


def _shortened(value: Any, length: int, shape: Any) -> Any:
    """Returns the first values of an input that has one for each token; all others as they are."""
    return value[:, :length] if isinstance(value, Tensor) and value.shape == shape else value


def _refusal(error: ValueError) -> str:
    return f"the model's processor refuses the image: {' '.join(str(error).split())[:200]}"
