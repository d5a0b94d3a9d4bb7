"""A chat model's tokenizer: from a conversation to the tokens of its prompt, from the tokens of a reply to its text.

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
    """A request in tokens, and how many its reply may have: `max_tokens`, or what the context has room for."""

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
        """WeightsError where it cannot be asked: without a chat template, or a token that ends a reply."""
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
        """The request in tokens, or the reply that says why it cannot be asked."""
        try:
            tokens = self.conversation(request.messages)
        except TemplateError as error:
            return ChatReply("", f"the model's chat template refused the messages: {error}")
        room = self.context - len(tokens)
        if request.max_tokens < 1:
            return ChatReply("", f"max_tokens is {request.max_tokens}; a reply needs at least one")
        if room < 1:
            return ChatReply("", f"the prompt has {len(tokens)} tokens; the model's context holds {self.context}")
        return Prompt(tokens, request, min(request.max_tokens, room))

    def conversation(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation up to where its reply begins. TemplateError where its template refuses it,
        WeightsError as `check`."""
        self.check()
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """As `conversation`. ServiceError where the template refuses it."""
        try:
            return tuple(self.conversation(messages))
        except TemplateError as error:
            raise ServiceError(f"the model's chat template refused the messages: {error}") from error

    def reply(self, prompt: Prompt, tokens: Sequence[int]) -> ChatReply:
        """The text before the first token that ends a reply; its `error` says so where none of them came in time."""
        end = next((i for i, token in enumerate(tokens) if token in self.stops), None)
        text = self.text(tokens[: prompt.limit if end is None else end])
        if end is not None and end < prompt.limit:
            return ChatReply(text)
        why = "max_tokens" if prompt.limit == prompt.request.max_tokens else "the end of the model's context"
        return ChatReply(text, f"the reply was cut after {prompt.limit} tokens, at {why}")

    def encode(self, text: str) -> list[int]:
        """The tokens of a text that is no chat, with the begin token where the tokenizer puts one."""
        return list(self.tokenizer(text)["input_ids"])

    def text(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        return str(
            self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False)
        )


def stop_ids(tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig | None) -> list[int]:
    """Every token that ends a reply: those of the generation config (chat models name several) and the tokenizer's."""
    named = generation.eos_token_id if generation is not None else None
    ids = list(named) if isinstance(named, list) else [named]
    return list(dict.fromkeys(i for i in [*ids, tokenizer.eos_token_id] if i is not None))
