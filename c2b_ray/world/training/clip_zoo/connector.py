"""A connector of two layers between a CLIP model's image embeddings and a frozen language model, trained in two stages.

As in Tiny-LLaVA, an embedding becomes a few soft tokens in front of a text: in the first stage the picture's caption,
in the second a question with its answer. CLIP model and language model are frozen. Knows torch and a transformers
model; does not know pictures, nor which CLIP model made an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from c2b_ray.roles import Floats

SOFT_TOKENS = 4
_LONGEST = 56  # tokens of a caption


@dataclass(frozen=True)
class Exercise:
    """A row of the embeddings, the prompt, and the text that the model should write."""

    row: int
    prompt: str
    reply: str


@dataclass(frozen=True)
class Stage:
    """A stage of training: its steps, exercises per step, and the initial rate, which falls to 0."""

    steps: int
    batch: int
    rate: float


class FrozenLanguageModel:
    """A frozen causal model of transformers that reads embeddings in place of tokens."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, use_safetensors=True)
        self.model = cast(Any, model)  # transformers types its classes only in part
        self.model.eval().requires_grad_(False)
        self.width = int(self.model.config.hidden_size)
        self._begin, self._end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def embed(self, ids: Tensor) -> Tensor:
        return cast(Tensor, self.model.get_input_embeddings()(ids))

    def before(self, soft: Tensor) -> Tensor:
        """Returns the begin token and the soft tokens, (rows, 1 + soft tokens, width)."""
        begin = self.embed(torch.full((len(soft), 1), self._begin))
        return torch.cat([begin, soft], dim=1)

    def loss(self, soft: Tensor, exercises: Sequence[Exercise]) -> Tensor:
        """Computes the mean negative log-likelihood of the replies' tokens and of the end after each."""
        texts = [(self.tokens(e.prompt), self._reply(e)) for e in exercises]
        length = max(len(prompt) + len(reply) for prompt, reply in texts)
        ids = torch.zeros(len(texts), length, dtype=torch.long)
        wanted = torch.zeros(len(texts), length, dtype=torch.bool)
        for row, (prompt, reply) in enumerate(texts):
            ids[row, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
            wanted[row, len(prompt) : len(prompt) + len(reply)] = True
        embedded = torch.cat([self.before(soft), self.embed(ids)], dim=1)
        # Padding is on the right, after every token to learn, so causal attention needs no mask for it.
        hidden = self.model.model(inputs_embeds=embedded).last_hidden_state[:, soft.shape[1] : -1]
        return functional.cross_entropy(self.model.lm_head(hidden[wanted]), ids[wanted])

    @torch.no_grad()
    def write(self, soft: Tensor, prompt: str, longest: int) -> list[str]:
        """Writes the reply greedily, after the same prompt for every row."""
        rows = self.before(soft)
        if ids := self.tokens(prompt):
            rows = torch.cat([rows, self.embed(torch.tensor([ids])).expand(len(rows), -1, -1)], dim=1)
        written = self.model.generate(
            inputs_embeds=rows,
            attention_mask=torch.ones(rows.shape[:2], dtype=torch.long),
            max_new_tokens=longest,
            do_sample=False,
            pad_token_id=self._end,
        )
        return [text.strip() for text in self.tokenizer.batch_decode(written, skip_special_tokens=True)]

    def _reply(self, exercise: Exercise) -> list[int]:
        return [*self.tokens(exercise.reply)[:_LONGEST], self._end]


class Connector(nn.Module):
    """Two linear layers with GELU between them: (rows, dimension) → (rows, SOFT_TOKENS, width)."""

    def __init__(self, dimension: int, hidden: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(nn.Linear(dimension, hidden), nn.GELU(), nn.Linear(hidden, SOFT_TOKENS * width))

    def forward(self, embeddings: Tensor) -> Tensor:
        return cast(Tensor, self.layers(embeddings)).view(len(embeddings), SOFT_TOKENS, self.width)


def connect(embeddings: Floats, language: FrozenLanguageModel, hidden: int, seed: int) -> tuple[Connector, Tensor]:
    """Returns an untrained connector for these embeddings, and the embeddings scaled to unit mean square, which it
    reads."""
    torch.manual_seed(seed)
    connector = Connector(embeddings.shape[1], hidden, language.width)
    return connector, scaled(embeddings)


def scaled(embeddings: NDArray[Any]) -> Tensor:
    """Multiplies unit-norm embeddings by the root of their dimension: linear layers are initialised for inputs of that
    size."""
    rows = torch.from_numpy(embeddings).float()
    result: Tensor = rows * rows.shape[1] ** 0.5
    return result


def fit(
    connector: Connector,
    rows: Tensor,
    language: FrozenLanguageModel,
    exercises: Sequence[Exercise],
    stage: Stage,
    seed: int,
) -> float:
    """Trains one stage in place; returns the mean loss of its last tenth, in nats per token."""
    random = Random(f"stage {seed}")  # noqa: S311 (no secret)
    optimizer = torch.optim.AdamW(connector.parameters(), lr=stage.rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, stage.rate, stage.steps, pct_start=0.1)
    losses = []
    for _ in range(stage.steps):
        batch = random.sample(exercises, stage.batch)
        loss = language.loss(connector(rows[[exercise.row for exercise in batch]]), batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(connector.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last)


def save(connector: Connector, path: Path) -> None:
    save_file({name: value.half().contiguous() for name, value in connector.state_dict().items()}, path)
