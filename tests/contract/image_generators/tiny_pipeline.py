"""A Stable Diffusion pipeline of random weights, small enough to be made here; requests, and how far images differ."""

from __future__ import annotations

import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

from c2b_ray.roles import GeneratedImage, GenerationRequest

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", "red", "bus", "mug"]
REQUESTS = [
    GenerationRequest("a red bus at night", 5),
    GenerationRequest("a mug", 5),
    GenerationRequest("a photo of a mug", 6),
    GenerationRequest("a bus", 2**40),
    GenerationRequest("a mug", 7),
]
STEPS = "steps=2&guidance=1.5&device=cpu"


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=12, **special)


def pipeline() -> StableDiffusionPipeline:
    torch.manual_seed(0)
    text = CLIPTextConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        projection_dim=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=12,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return StableDiffusionPipeline(
        vae=AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            block_out_channels=(8, 16),
            norm_num_groups=4,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=tokenizer(),
        unet=UNet2DConditionModel(
            sample_size=8,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            block_out_channels=(8, 16),
            layers_per_block=1,
            cross_attention_dim=16,
            attention_head_dim=2,
            norm_num_groups=4,
        ),
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def difference(one: GeneratedImage, other: GeneratedImage) -> int:
    """In levels, the largest of any pixel; a batch's size changes the last bits of floats, never a visible level."""
    assert one.pixels is not None
    assert other.pixels is not None
    return int(np.abs(one.pixels.astype(int) - other.pixels.astype(int)).max())
