"""What every ImageGenerator must do: the world's renderer, its trained pipeline, and a tiny one made here."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, DDIMScheduler, DiffusionPipeline, StableDiffusionPipeline, UNet2DConditionModel
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.activation_heads import LinearHead, decoded, encoded
from c2b_ray.models.diffusers_generator import DiffusersGenerator
from c2b_ray.roles import GeneratedImage, GenerationRequest, ImageGenerator
from c2b_ray.schemas import seed_of

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


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pipeline")
    pipeline().save_pretrained(place, safe_serialization=True)
    return place


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


@pytest.fixture(scope="module")
def make(directory: Path) -> Callable[[str, str], ImageGenerator]:
    """The generator of a kind, with options."""

    def made(kind: str, options: str) -> ImageGenerator:
        names = {"renderer": "world:renderer?", "world": f"world:diffusion?{STEPS}&"}
        return catalog.image_generator(names.get(kind, f"diffusers:local-dir:{directory}?{STEPS}&") + options)

    return made


@pytest.fixture(scope="module", params=["renderer", "world", "diffusers"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("options", ["", "&scheduler=EulerDiscreteScheduler&size=16x16&dtype=bf16"])
def test_it_is_described_without_being_loaded(kind: str, directory: Path, options: str) -> None:
    names = {"renderer": "world:renderer?mislabel=0.5", "world": f"world:diffusion?device=cpu{options}"}
    spec = names.get(kind, f"diffusers:local-dir:{directory}?{STEPS}{options}")
    known = catalog.describe("image_generator", spec)
    assert known is not None
    assert known == catalog.description_of(catalog.image_generator(spec))


@pytest.fixture(scope="module")
def whole(kind: str, make: Callable[[str, str], ImageGenerator]) -> list[GeneratedImage]:
    return make(kind, "batch=5").generate(REQUESTS)


def difference(one: GeneratedImage, other: GeneratedImage) -> int:
    """In levels, the largest of any pixel; a batch's size changes the last bits of floats, never a visible level."""
    assert one.pixels is not None
    assert other.pixels is not None
    return int(np.abs(one.pixels.astype(int) - other.pixels.astype(int)).max())


def test_it_is_the_role(kind: str, make: Callable[[str, str], ImageGenerator]) -> None:
    generator = make(kind, "batch=2")
    assert isinstance(generator, ImageGenerator)
    assert len(generator.revision) == 20
    assert generator.revision == make(kind, "batch=3").revision
    assert generator.generate([]) == []


def test_one_picture_a_request(whole: list[GeneratedImage]) -> None:
    assert len(whole) == len(REQUESTS)
    for image in whole:
        assert image.error is None
        assert image.pixels is not None
        assert image.pixels.dtype == np.uint8
        assert image.pixels.shape == whole[0].pixels.shape  # type: ignore[union-attr]
        assert image.pixels.shape[2] == 3


def test_a_row_is_the_same_in_any_batch_and_beside_any_neighbour(
    kind: str, make: Callable[[str, str], ImageGenerator], whole: list[GeneratedImage]
) -> None:
    order = [3, 1, 4, 0, 2]
    swapped = make(kind, "batch=2").generate([REQUESTS[i] for i in order])
    for i, image in zip(order, swapped, strict=True):
        assert difference(image, whole[i]) <= 1


def test_seed_and_prompt_both_count(whole: list[GeneratedImage]) -> None:
    assert difference(whole[1], whole[4]) > 1  # the same prompt, another seed
    assert difference(whole[0], whole[1]) > 1  # the same seed, another prompt


def test_the_renderer_says_what_it_cannot_draw() -> None:
    found = catalog.image_generator("world:renderer").generate(
        [GenerationRequest("a red zebra", 1), GenerationRequest("a red bus", 1)]
    )
    assert found[0].pixels is None
    assert "names none of the world's classes (bus" in str(found[0].error)
    assert found[1].error is None


def damaged(directory: Path, part: str, names: Callable[[str], bool], value: float) -> ImageGenerator:
    file = directory / part / "diffusion_pytorch_model.safetensors"
    tensors = {name: torch.full_like(t, value) if names(name) else t for name, t in load_file(file).items()}
    save_file(tensors, file)
    return catalog.image_generator(f"diffusers:local-dir:{directory}?{STEPS}")


def test_nan_black_and_single_colour_are_errors_of_their_rows(copy: Path) -> None:
    def last(name: str) -> bool:
        return name.startswith("decoder.conv_out")

    def bias(name: str) -> bool:
        return name == "decoder.conv_out.bias"

    for names, value, reason in [(last, 0.0, "single colour"), (bias, -1.0, "all black"), (bias, math.nan, "NaN")]:
        found = damaged(copy, "vae", names, value).generate(REQUESTS[:3])
        assert [image.pixels for image in found] == [None] * 3
        assert [reason in str(image.error) for image in found] == [True] * 3


def test_a_pipeline_that_answers_with_another_number_of_images_is_refused() -> None:
    def one(**_: Any) -> Any:
        return SimpleNamespace(images=np.zeros((1, 8, 8, 3)))

    with pytest.raises(ServiceError, match="answered 2 prompts with 1 images"):
        DiffusersGenerator(one, {}, None, "r", batch=4).generate(REQUESTS[:2])


def test_what_a_safety_checker_blanks_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = catalog.image_generator(f"diffusers:local-dir:{directory}?{STEPS}")

    def censor(self: Any, image: torch.Tensor, device: Any, dtype: Any) -> tuple[torch.Tensor, list[bool]]:
        image[1] = 0
        return image, [False, True]

    monkeypatch.setattr(StableDiffusionPipeline, "run_safety_checker", censor)
    fine, blank = generator.generate(REQUESTS[:2])
    assert fine.error is None
    assert (blank.pixels, blank.error) == (None, "the pipeline's safety checker blanked the image")


def test_options_reach_the_pipeline(make: Callable[[str, str], ImageGenerator]) -> None:
    found = make("diffusers", "size=8x24&scheduler=EulerAncestralDiscreteScheduler").generate(REQUESTS[:2])
    assert [image.pixels.shape for image in found if image.pixels is not None] == [(8, 24, 3)] * 2
    revisions = {make("diffusers", o).revision for o in ("", "size=8x24", "dtype=bf16", "scheduler=PNDMScheduler")}
    assert len(revisions) == 4


def test_noise_of_a_scheduler_is_of_the_row_too(make: Callable[[str, str], ImageGenerator]) -> None:
    generator = make("diffusers", "scheduler=EulerAncestralDiscreteScheduler&batch=2")
    both, alone = generator.generate(REQUESTS[:2]), generator.generate(REQUESTS[1:2])
    assert difference(both[1], alone[0]) <= 1


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model.safetensors", "scheduler/scheduler_config.json"])
def test_the_revision_follows_weights_and_settings(copy: Path, part: str) -> None:
    spec = f"diffusers:local-dir:{copy}?{STEPS}"
    before = catalog.image_generator(spec).revision
    path = copy / part
    if path.suffix == ".json":
        path.write_text(path.read_text().replace('"beta_end": 0.02', '"beta_end": 0.03'))
    else:
        tensors = load_file(path)
        save_file({**tensors, "conv_out.bias": tensors["conv_out.bias"] + 1}, path)
    assert catalog.image_generator(spec).revision != before
    assert catalog.image_generator(spec.replace("steps=2", "steps=3")).revision != before


def test_pickles_and_code_are_refused(copy: Path) -> None:
    spec = f"diffusers:local-dir:{copy}"
    (copy / "unet" / "model.py").write_text("")
    with pytest.raises(WeightsError, match=r"brings code of its own \(model.py\)"):
        catalog.image_generator(spec)
    (copy / "unet" / "model.py").unlink()
    whole = copy / "vae" / "diffusion_pytorch_model.safetensors"
    torch.save(load_file(whole), whole.with_suffix(".bin"))
    whole.unlink()
    with pytest.raises(WeightsError, match="are pickles"):
        catalog.image_generator(spec)
    whole.with_suffix(".bin").unlink()
    with pytest.raises(WeightsError, match="cannot build its pipeline"):
        catalog.image_generator(spec)
    whole.write_bytes(b"\x80\x04.")
    with pytest.raises(WeightsError):
        catalog.image_generator(spec)


def test_a_pipeline_that_takes_no_text_is_refused(copy: Path) -> None:
    index = json.loads((copy / "model_index.json").read_text())
    unconditional = {k: index[k] for k in ("_diffusers_version", "unet", "scheduler")}
    (copy / "model_index.json").write_text(json.dumps({"_class_name": "DDIMPipeline", **unconditional}))
    with pytest.raises(SpecError, match="makes no images from texts"):
        catalog.image_generator(f"diffusers:local-dir:{copy}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("dtype=fp23", "did you mean 'fp32'"),
        ("size=64", "not HEIGHTxWIDTH"),
        ("guidance=-1", "not a number of 0 or above"),
        ("steps=0", "whole number above 0"),
        ("scheduler=DDIMSheduler", "did you mean 'DDIMScheduler'"),
        ("compile=yes", "neither true nor false"),
        ("stebs=3", "did you mean 'steps'"),
    ],
)
def test_options_that_mean_nothing_are_refused(directory: Path, options: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.image_generator(f"diffusers:local-dir:{directory}?{options}")


def test_the_hub_is_asked_for_safetensors_alone(
    directory: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str, str], ImageGenerator]
) -> None:
    asked = []

    def hub(name: str, **how: Any) -> str:
        asked.append((name, how))
        if name != "org/name":
            raise OSError("offline\nand more")
        return str(directory)

    monkeypatch.setattr(DiffusionPipeline, "download", hub)
    generator = catalog.image_generator(f"diffusers:org/name@main?{STEPS}")
    assert generator.revision == make("diffusers", "").revision
    assert asked == [("org/name", {"revision": "main", "use_safetensors": True})]
    with pytest.raises(SpecError, match=r"org/other cannot be fetched from the model hub \(offline\); a directory"):
        catalog.image_generator("diffusers:org/other")


def test_names_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"holds no model_index.json"):
        catalog.image_generator(f"diffusers:local-dir:{tmp_path}")
    with pytest.raises(SpecError, match="did you mean 'renderer'"):
        catalog.image_generator("world:rendrer")
    with pytest.raises(SpecError, match="between 0 and 1"):
        catalog.image_generator("world:renderer?mislabel=2")


@pytest.mark.parametrize("kind", ["world", "diffusers"])
class TestActivations:
    """What the pipelines compute inside, read by a hook."""

    def test_rows_do_not_depend_on_their_batch(self, kind: str, make: Callable[[str, str], Any]) -> None:
        whole = make(kind, "batch=5").activations(REQUESTS, "unet.mid_block", [0, 1])
        parts = make(kind, "batch=2").activations(REQUESTS, "unet.mid_block", [1])
        assert whole.dtype == np.float32
        assert whole.shape[:2] == (5, 2)
        np.testing.assert_allclose(parts[:, 0], whole[:, 1], atol=1e-4)

    def test_the_noise_is_that_of_the_images(self, kind: str, make: Callable[[str, str], Any]) -> None:
        """Read beside a whole generation by a hook of the test's own, the rows of the prompts are the same."""
        generator = make(kind, "batch=5")
        seen: list[torch.Tensor] = []
        hook = generator._pipeline.unet.mid_block.register_forward_hook(lambda _m, _i, out: seen.append(out))
        generator.generate(REQUESTS)
        hook.remove()
        read = generator.activations(REQUESTS, "unet.mid_block", [1])
        np.testing.assert_array_equal(read[:, 0], seen[1][5:].flatten(1).numpy())

    def test_it_stops_at_the_last_step_that_is_wanted(self, kind: str, make: Callable[[str, str], Any]) -> None:
        generator, calls = make(kind, "batch=5"), []
        hook = generator._pipeline.unet.register_forward_pre_hook(lambda *_: calls.append(1))
        generator.activations(REQUESTS, "unet.mid_block", [0])
        hook.remove()
        assert len(calls) == 1
        assert generator.denoising_steps == 2

    def test_an_unknown_name_lists_those_that_exist(self, kind: str, make: Callable[[str, str], Any]) -> None:
        generator = make(kind, "")
        assert "unet.mid_block" in generator.activation_names
        with pytest.raises(SpecError, match=r"no activation 'unet\.mid'.*unet\.mid_block"):
            generator.activations(REQUESTS, "unet.mid", [0])
        with pytest.raises(SpecError, match="expected one or more of 0 to 1"):
            generator.activations(REQUESTS, "unet.mid_block", [2])


@pytest.fixture(scope="module")
def adapter(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    unet: Any = UNet2DConditionModel.from_pretrained(directory / "unet")
    adapted: Any = get_peft_model(unet, LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False))
    folder = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture(scope="module")
def heads(make: Callable[[str, str], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = make("diffusers", "").activations(REQUESTS[:1], "unet.mid_block", [0]).shape[2]
    weight = np.random.default_rng(0).normal(size=(size, 2)).astype(np.float32)
    zero, one = np.zeros(size, np.float32), np.ones(size, np.float32)
    about = {"attribute": "a", "values": ["x", "y"], "activation": "unet.mid_block", "step": 0}
    path = tmp_path_factory.mktemp("heads") / "a.safetensors"
    path.write_bytes(encoded({0: LinearHead(weight, zero[:2], zero, one)}, about))
    return path


class TestDebiasing:
    """Adapters and steering change what is drawn, and nothing else."""

    def test_an_adapter_is_merged(self, make: Callable[[str, str], Any], adapter: Path) -> None:
        plain, adapted = make("diffusers", "batch=5"), make("diffusers", f"batch=5&lora={adapter}")
        assert adapted.revision != plain.revision
        assert difference(adapted.generate(REQUESTS[:1])[0], plain.generate(REQUESTS[:1])[0]) > 1
        assert adapted.activation_names == plain.activation_names

    def test_a_folder_without_an_adapter_is_refused(self, make: Callable[[str, str], Any], tmp_path: Path) -> None:
        with pytest.raises(SpecError, match=r"holds no adapter_model\.safetensors"):
            make("diffusers", f"lora={tmp_path}")

    def test_steering_makes_the_head_name_the_value_of_the_seed(
        self, make: Callable[[str, str], Any], heads: Path
    ) -> None:
        generator = make("diffusers", f"batch=5&debias={heads}")
        requests = [GenerationRequest("a mug", seed) for seed in range(6)]
        read = generator.activations(requests, "unet.mid_block", [0, 1])
        [head] = decoded(heads.read_bytes(), "x")[0].values()
        chosen = [seed_of("debias", request.seed) % 2 for request in requests]
        for step in (0, 1):
            assert head.logits(read[:, step]).argmax(axis=1).tolist() == chosen
        alone = generator.activations(requests[3:4], "unet.mid_block", [1])
        np.testing.assert_allclose(alone[0], read[3, 1:], atol=1e-4)
        assert len(set(chosen)) == 2
