"""Trains the world's language model from a seed: a byte-level BPE tokenizer and a small Llama; measures its quality.

Knows tokens, the network and the optimiser. `lm_corpus` writes the chats; `c2b_ray.models.transformers_lm` loads the
result as it loads any other model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from c2b_ray.roles import Message
from c2b_ray.world.training import lm_corpus
from c2b_ray.world.training.lm_quality import evaluate

STEPS = 1800
VOCABULARY = 1536
POSITIONS = 1024
TOKENS_PER_BATCH = 1536
LEARNING_RATE = 3e-3
MATRIX_LEARNING_RATE = 0.02

# GPT-2's pattern of words, after two that make copying easy to learn: a placeholder and the name of a field.
PATTERN = r" ?\[[A-Z]+\]|\n[A-Z][a-z]+:|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PAD, BEGIN, END = "<|pad|>", "<|begin|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(seed: int, examples: int = 6000) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE on the corpus: any text encodes. Ids 0, 1, 2 are pad, begin (before every text) and end.

    Sentences that the prompts always hold are one token each: that halves the length of a prompt.
    """
    rng = Random(f"tokenizer {seed}")  # noqa: S311 (reproducible, no secret)
    texts = (text for _ in range(examples) for text in lm_corpus.texts(lm_corpus.example(rng)))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[PAD, BEGIN, END, *ROLES],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return as_chat_tokenizer(tokenizer, lm_corpus.fixed_wording(), POSITIONS)


def as_chat_tokenizer(tokenizer: Tokenizer, fixed: Iterable[str], positions: int) -> PreTrainedTokenizerFast:
    """Wraps a tokenizer with the world's chat template. `fixed`: texts that are one token each; `positions`: its
    model's longest text."""
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in fixed])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def pieces(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Returns the words and parts of words in the vocabulary, of which made-up names are built."""
    decoded = (str(tokenizer.decode([i])).strip() for i in range(len(tokenizer)))
    return sorted({text for text in decoded if text.isascii() and text.isalpha()})


def encode(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], reply: str) -> tuple[list[int], int]:
    """Returns the token ids of a chat and its reply, and the index of the first one that the model shall learn to
    write; without messages, of a plain text."""
    if not messages:
        return tokenizer(reply + END)["input_ids"], 1
    chat = [{"role": m.role, "content": m.content} for m in messages]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompt_ids, reply_ids = tokenizer([prompt, reply + END], add_special_tokens=False)["input_ids"]
    return prompt_ids + reply_ids, len(prompt_ids)


def batches(tokenizer: PreTrainedTokenizerFast, seed: int, exercises: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields endless pairs (ids, learn), int64 and bool (rows, tokens), padded right; rows of one batch are of similar
    length.

    About the first `exercises` batches are mostly `lm_corpus.exercise`: without them the model learns to copy in twice
    the time.
    """
    rng = Random(f"batches {seed}")  # noqa: S311 (reproducible, no secret)
    parts = pieces(tokenizer)
    copied = 0
    while True:
        share = 0.6 if copied < exercises else 0.05
        examples = [
            lm_corpus.exercise(rng, parts) if rng.random() < share else lm_corpus.example(rng, parts)
            for _ in range(512)
        ]
        pool = sorted((encode(tokenizer, one.messages, one.reply) for one in examples), key=lambda entry: len(entry[0]))
        pool = [entry for entry in pool if len(entry[0]) <= POSITIONS]
        cuts: list[list[tuple[list[int], int]]] = [[]]
        for entry in pool:
            if len(entry[0]) * (len(cuts[-1]) + 1) > TOKENS_PER_BATCH:
                cuts.append([])
            cuts[-1].append(entry)
        rng.shuffle(cuts)
        copied += len(cuts)
        yield from (padded(cut) for cut in cuts)


def padded(rows: Sequence[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    width = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    learn = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, (tokens, start) in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        learn[row, start : len(tokens)] = True
    return ids, learn


def build(seed: int, vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=160,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=5,
        num_key_value_heads=5,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    # On one core and at this size the plain matrix products are a quarter faster than the fused kernel.
    config._attn_implementation = "eager"
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]


class Muon(torch.optim.Optimizer):
    """Momentum that makes each matrix's update orthogonal (Jordan et al. 2024): it takes about half of AdamW's steps
    here.

    torch.optim.Muon computes in bfloat16, which is slow on a CPU without instructions for it; this one computes in
    float32.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                average = self.state[matrix].setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(average, group["momentum"]))
                scale = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - 0.05 * group["lr"]).add_(update, alpha=-group["lr"] * scale)


def orthogonal(matrix: Tensor) -> Tensor:
    """Returns `matrix` with its singular values brought near 1, by five steps of a quintic Newton-Schulz iteration."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / (matrix.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    result: Tensor = x.T if tall else x
    return result


def fit(model: LlamaForCausalLM, data: Iterator[tuple[Tensor, Tensor]], steps: int) -> Iterator[float]:
    """Trains for `steps` batches; yields each one's mean negative log-likelihood of the tokens to be learned,
    in nats."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    adam = torch.optim.AdamW(others, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = [(Muon(matrices, MATRIX_LEARNING_RATE), MATRIX_LEARNING_RATE), (adam, LEARNING_RATE)]
    for step, (ids, learn) in zip(range(steps), data, strict=False):
        factor = min(1.0, (step + 1) / 60, (steps - step) / (0.45 * steps))
        for optimizer, rate in schedule:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
        wanted = learn[:, 1:]
        # Padding is on the right, after every token to learn, so causal attention needs no mask for it.
        hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state[wanted]
        loss = functional.cross_entropy(model.lm_head(hidden), ids[:, 1:][wanted])
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in schedule:
            optimizer.step()
        model.zero_grad()
        yield loss.item()


def train(out: Path, seed: int = 0, steps: int | None = None) -> dict[str, float]:
    """Writes config, float16 safetensors, tokenizer and metrics.json to `out`; returns the metrics (see `evaluate`).

    Takes about 12 minutes on one core; the same seed on the same machine gives the same weights.
    """
    steps = steps or STEPS
    torch.set_num_threads(1)
    started, on_cpu = time.monotonic(), time.process_time()
    tokenizer = train_tokenizer(seed)
    model = build(seed, len(tokenizer)).train()
    losses = []
    for step, loss in enumerate(fit(model, batches(tokenizer, seed, steps // 3), steps)):
        losses.append(loss)
        if step % 50 == 49:
            print(
                f"step {step + 1}: loss {sum(losses[-50:]) / 50:.4f}, {time.process_time() - on_cpu:.0f} s", flush=True
            )
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model.config._attn_implementation = "sdpa"
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    metrics = {
        "steps": len(losses),
        "loss": round(sum(losses[-50:]) / len(losses[-50:]), 4),
        "parameters": sum(p.numel() for p in model.parameters()),
        "wall_seconds": round(time.monotonic() - started),
        "cpu_seconds": round(time.process_time() - on_cpu),
    } | evaluate(out, seed)
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    return metrics
