"""A chat model's tokenizer: encodes conversations as prompts and decodes the tokens of replies.

It knows chat templates, the tokens that end a reply and the length of the context, and nothing of what runs the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedTokenizerBase

from c2b_ray.errors import ServiceError, WeightsError
from c2b_ray.roles import ChatReply, ChatRequest, Message


@dataclass(frozen=True)
class Prompt:
    """A request in tokens, and the most tokens of its reply: `max_tokens`, or the rest of the context."""

    tokens: list[int]
    request: ChatRequest
    limit: int


class ChatTokens:
    """The tokenizer of the model `name` (as error messages call it), whose context holds so many tokens.

    A base model without a chat template reads texts all the same, as for their perplexity; it cannot be asked.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig | None, context: int, name: str
    ) -> None:
        self.stops = stop_ids(tokenizer, generation)
        self.tokenizer, self.context, self._name = tokenizer, context, name

    def check(self) -> None:
        """Raises WeightsError where the model cannot chat: without a chat template or a token that ends a reply."""
        if not self.tokenizer.chat_template:
            raise WeightsError(
                f"{self._name}: its tokenizer has no chat template, so it cannot be asked in a chat; take an "
                "instruction-tuned variant, or put chat_template.jinja into its folder"
            )
        if not self.stops:
            raise WeightsError(
                f"{self._name}: neither its generation config nor its tokenizer names an end-of-sequence token, so no "
                "reply would end; set eos_token_id in its generation_config.json"
            )

    def prompt(self, request: ChatRequest) -> Prompt | ChatReply:
        """Returns the request in tokens, or a reply with the reason why it cannot be sent."""
        try:
            tokens = self.conversation(request.messages)
        except TemplateError as error:
            return ChatReply("", f"the model's chat template refused the messages: {error}")
        free_tokens = self.context - len(tokens)
        if request.max_tokens < 1:
            return ChatReply("", f"max_tokens is {request.max_tokens}; a reply needs at least one")
        if free_tokens < 1:
            return ChatReply("", f"the prompt has {len(tokens)} tokens; the model's context holds {self.context}")
        return Prompt(tokens, request, min(request.max_tokens, free_tokens))

    def conversation(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of a conversation up to the start of the reply. Raises TemplateError where the template
        refuses it, and WeightsError as `check`.

        A model that can think first, such as Qwen3, is told not to, in the words of its template: its thoughts would
        be the reply. Templates that know no such setting ignore it.
        """
        self.check()
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Like `conversation`, but raises ServiceError where the template refuses it."""
        try:
            return tuple(self.conversation(messages))
        except TemplateError as error:
            raise ServiceError(f"the model's chat template refused the messages: {error}") from error

    def reply(self, prompt: Prompt, tokens: Sequence[int]) -> ChatReply:
        """Returns the text before the first token that ends a reply; its `error` tells if no such token came in
        time."""
        end = next((i for i, token in enumerate(tokens) if token in self.stops), None)
        text = self.text(tokens[: prompt.limit if end is None else end])
        if end is not None and end < prompt.limit:
            return ChatReply(text)
        reason = "max_tokens" if prompt.limit == prompt.request.max_tokens else "the end of the model's context"
        return ChatReply(text, f"the reply was cut after {prompt.limit} tokens, at {reason}")

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text that is no chat, with the begin token where the tokenizer puts one."""
        return list(self.tokenizer(text)["input_ids"])

    def text(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        return str(
            self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False)
        )


class Tokenised:
    """The methods of `roles.ReplyContinuer` and `roles.TokenCounter` that a tokenizer answers without its model."""

    def __init__(self, tokens: ChatTokens) -> None:
        self._tokens = tokens

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return tuple(self._tokens.stops)

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the tokens of a conversation up to the start of the reply. Raises ServiceError where the template
        refuses it."""
        return self._tokens.reply_start(messages)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        return [max(0, len(self._tokens.encode(text)) - 1) for text in texts]

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return [self._tokens.text(row) for row in tokens]


def no_language_model(spec: str, reason: object) -> WeightsError:
    return WeightsError(
        f"{spec}: no causal language model with a tokenizer and safetensors weights was found there ({reason}). Give a "
        "folder that holds config.json, model.safetensors and tokenizer.json, or the name of such a model on the "
        "Hugging Face hub"
    )


def stop_ids(tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig | None) -> list[int]:
    """Returns every token that ends a reply: those of the generation config (chat models name several) and the
    tokenizer's."""
    eos_ids = generation.eos_token_id if generation is not None else None
    ids = list(eos_ids) if isinstance(eos_ids, list) else [eos_ids]
    return list(dict.fromkeys(i for i in [*ids, tokenizer.eos_token_id] if i is not None))
