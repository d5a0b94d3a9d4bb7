"""What an ImageGenerator shows of its activations, and how adapters and steering change what it draws."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_pipeline import REQUESTS, difference

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models.activation_heads import LinearHead, decoded, encoded
from c2b_ray.roles import GenerationRequest
from c2b_ray.tables import seed_of


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

    def test_an_adapter_that_lacks_a_tensor_is_refused(
        self, make: Callable[[str, str], Any], adapter: Path, tmp_path: Path
    ) -> None:
        """peft would draw one at random and only warn."""
        folder = Path(shutil.copytree(adapter, tmp_path / "copy"))
        file = folder / "adapter_model.safetensors"
        tensors = load_file(file)
        gone = next(name for name in tensors if name.endswith("lora_A.weight"))
        save_file({name: tensor for name, tensor in tensors.items() if name != gone}, file)
        with pytest.raises(WeightsError, match=r"1 missing \(.*lora_A\.weight"):
            make("diffusers", f"lora={folder}")
        save_file({**tensors, "extra": torch.zeros(1)}, file)
        with pytest.raises(WeightsError, match=r"1 unexpected \(extra\)"):
            make("diffusers", f"lora={folder}")

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
