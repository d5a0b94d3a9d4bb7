"""Models small enough to be taught here, in seconds, to tell dark images from light ones and to name a label.

Of `PLAIN` labels its captions speak at once, of `LATE` when asked the second time, of `NEVER` not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    GenerationConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from c2b_ray import prompts
from c2b_ray.models.captioned import question_prompt, scoring_prompt
from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import Pixels, Question

PLAIN, LATE, NEVER = "bus", "kite", "ghost"
DARKNESS = Question("How bright is it?", ("dark", "light"))
CONTEXT = 400
_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} : {% for part in m['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% else %}{{ part['text'] }}{% endif %} {% endfor %}{% endfor %}assistant :"
)


def pictures(n: int, seed: int) -> list[Pixels]:
    """Noise around dark and light greys by turns, of different sizes."""
    rng = np.random.default_rng(seed)
    sizes = [(24 + 5 * (i % 7), 60 - 6 * (i % 5), 3) for i in range(n)]
    return [rng.integers(0, 80, size, np.uint8) + np.uint8(170 * (i % 2)) for i, size in enumerate(sizes)]


def replies(prompt_name: str, label: str, brightness: str) -> str:
    named = label == PLAIN or (label == LATE and prompt_name == "image_caption_again")
    return f"a {brightness} photo of a {label if named else 'thing'}"


def _lessons(images: list[Pixels]) -> list[tuple[Pixels, str, str]]:
    asks: list[tuple[str, Any]] = [
        (prompts.messages(name, label=label)[0].content, lambda b, n=name, k=label: replies(n, k, b))
        for name in ("image_caption", "image_caption_again")
        for label in (PLAIN, LATE, NEVER)
    ]
    asks += [(question_prompt(DARKNESS), str)] * 2
    return [(image, *(ask, say("light" if i % 2 else "dark"))) for i, image in enumerate(images) for ask, say in asks]


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    split = pre_tokenizers.Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    special = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "<fake_token_around_image>", "<global-img>"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *words])}, unk_token="<unk>"))
    backend.pre_tokenizer = split
    backend.add_special_tokens(special)
    named = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, extra_special_tokens={"image_token": "<image>"}, **named)


@contextmanager
def single_thread() -> Iterator[None]:
    """So small a model only waits for its other threads: minutes on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def llava(tokenizer: PreTrainedTokenizerFast) -> tuple[Any, Any]:
    """Returns an untaught LLaVA: its processor and its network."""
    size = {"height": 32, "width": 32}
    processor = LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=size),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        chat_template=_TEMPLATE,
        num_additional_image_tokens=1,
    )
    widths = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=32, patch_size=16, **widths),
        text_config=LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=CONTEXT, **widths),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        image_seq_length=4,
    )
    return processor, LlavaForConditionalGeneration(config)


def idefics3(tokenizer: PreTrainedTokenizerFast) -> tuple[Any, Any]:
    """Returns an untaught Idefics3, as SmolVLM is one: its processor and its network.

    vLLM serves it without torchvision. Heads are 32 wide, the least that vLLM computes on CPUs. As LLaVA's, its
    tokenizer writes the begin token, and its chat template does not.
    """
    begin = ("<s>", tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [begin])
    edge = {"longest_edge": 32}
    processor = Idefics3Processor(
        Idefics3ImageProcessor(size=edge, max_image_size=edge, do_image_splitting=False),
        tokenizer,
        image_seq_len=4,
        chat_template=_TEMPLATE,
    )
    widths = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    length = {"vocab_size": len(tokenizer), "max_position_embeddings": CONTEXT}
    config = Idefics3Config(
        vision_config={"image_size": 32, "patch_size": 8, **widths},
        text_config={"model_type": "llama", "pad_token_id": tokenizer.pad_token_id, **length, **widths},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
        scale_factor=2,
    )
    return processor, Idefics3ForConditionalGeneration(config)


def make(folder: Path, untaught: Callable[[PreTrainedTokenizerFast], tuple[Any, Any]] = llava) -> None:
    """Writes the model and its processor into `folder`, as `from_pretrained` reads them."""
    torch.manual_seed(0)
    lessons = _lessons(pictures(4, seed=1))
    tokenizer = _tokenizer(
        [*(text for lesson in lessons for text in lesson[1:]), "user : assistant", "day", "night", scoring_prompt()]
    )
    processor, model = untaught(tokenizer)
    with single_thread():
        _teach(model, processor, lessons)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, do_sample=True, temperature=0.9)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def _teach(model: Any, processor: Any, lessons: list[tuple[Pixels, str, str]]) -> None:
    texts, starts = [], []
    for _, ask, say in lessons:
        chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ask}]}]
        prompt = processor.apply_chat_template(chat, add_generation_prompt=True)
        texts.append(f"{prompt} {say}</s>")
        starts.append(len(processor.tokenizer(f"{say}</s>")["input_ids"]))
    images = [[to_pil(image)] for image, _, _ in lessons]
    batch = processor(text=texts, images=images, padding=True, padding_side="left", return_tensors="pt")
    labels = batch["input_ids"].clone()
    for row, length in enumerate(starts):
        labels[row, :-length] = -100
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(150):
        loss = model(**batch, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss.item() < 0.01:
            break
