"""A diffusers pipeline's inner activations, read step by step, and linear heads on them: trained, kept as safetensors.

The nearest published recipe is DiffLens's: the mid-block of the UNet, one head for each denoising step, Adam at 1e-3
for 30 epochs. Here the same linear head is trained to its optimum by L-BFGS, features standardised, every value
counting alike however rare, and weights decaying: hundreds of examples are too few for 30 epochs of small steps.
It knows torch, pipelines and files, and does not know what the heads guide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor, nn

from c2b_ray.errors import ServiceError, SpecError, WeightsError, nearest
from c2b_ray.roles import Floats

DECAY = 0.1
"""The weight of the squared weights in the loss: our choice, not tuned; the notes on the paper name none."""
MOST_ITERATIONS = 200


@dataclass(frozen=True)
class LinearHead:
    """A linear head with the fields of `audits.prompts.steps.search.Head`: `weight` (dimension, values), `bias`
    (values,), `mean`, `scale` (dimension,), all float32."""

    weight: Floats
    bias: Floats
    mean: Floats
    scale: Floats

    def logits(self, activations: Floats) -> Floats:
        """Returns logits (rows, values) of activations (rows, dimension)."""
        features = (activations - self.mean) / self.scale
        return np.asarray(features @ self.weight + self.bias, np.float32)


def train_head(activations: Floats, labels: NDArray[np.int64], values: int) -> LinearHead:
    """Trains a head that predicts the value of each row. activations: (rows, dimension); labels: (rows,), below
    `values`.

    Every value counts alike, so that the head's probabilities are those under equal shares of values.
    """
    mean = activations.mean(axis=0)
    scale = activations.std(axis=0) + 1e-3 * max(float(activations.std()), 1e-6)
    features = torch.from_numpy((activations - mean) / scale)
    targets = torch.from_numpy(labels)
    counts = torch.bincount(targets, minlength=values).clamp(min=1)
    class_weights = len(labels) / (values * counts.float())
    gain = features.shape[1] ** -0.5  # so that one decay serves layers of any width
    features = gain * features
    weight = torch.zeros(activations.shape[1], values, requires_grad=True)
    bias = torch.zeros(values, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        result = F.cross_entropy(features @ weight + bias, targets, class_weights)
        result = result + DECAY / (2 * len(targets)) * (weight**2).sum()
        result.backward()  # type: ignore[no-untyped-call]
        return result

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    trained = (gain * weight.detach()).numpy().astype(np.float32)
    return LinearHead(trained, bias.detach().numpy(), mean.astype(np.float32), scale.astype(np.float32))


def encoded(heads: Mapping[int, LinearHead], metadata: Mapping[str, Any]) -> bytes:
    """Encodes heads by denoising step as safetensors, with `metadata` (JSON values) in their metadata."""
    tensors = {
        f"{step}.{name}": np.ascontiguousarray(getattr(head, name))
        for step, head in heads.items()
        for name in ("weight", "bias", "mean", "scale")
    }
    return save(tensors, {name: json.dumps(value) for name, value in metadata.items()})


def decoded(data: bytes, name: str) -> tuple[dict[int, LinearHead], dict[str, Any]]:
    """Decodes heads by denoising step and the metadata stored with them. Raises WeightsError where the bytes of file
    `name` are something else."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        encoded_metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        metadata = {key: json.loads(value) for key, value in encoded_metadata.items()}
        heads = {
            step: LinearHead(*(tensors[f"{step}.{part}"] for part in ("weight", "bias", "mean", "scale")))
            for step in sorted({int(key.split(".")[0]) for key in tensors})
        }
        if missing := {"attribute", "values", "activation", "step"} - set(metadata):
            raise KeyError(*missing)
    except (KeyError, ValueError, SafetensorError) as error:
        raise WeightsError(f"{name} holds no heads as c2b prompts heads writes them ({error})") from error
    return heads, metadata


# Reads a diffusers pipeline's inner activations: the outputs of a module of its denoiser, step by step, by a
# forward hook.


DENOISERS = ("unet", "transformer")
_DEPTH = 2

Denoise = Callable[[], object]
"""One call of the pipeline, which the reader ends once it has read the last step it needs."""


class _EverythingReadError(Exception):
    """Ends a pipeline's call after the last requested step has been read."""


def denoiser_name(pipeline: Any) -> str:
    """Returns the name of the pipeline's denoiser. Raises SpecError where it is none of the known ones."""
    for name in DENOISERS:
        if isinstance(getattr(pipeline, name, None), nn.Module):
            return name
    raise SpecError(f"{type(pipeline).__name__} has no {' or '.join(DENOISERS)}, so its activations cannot be read")


def names_of(pipeline: Any) -> tuple[str, ...]:
    """Returns the names of the denoiser's modules, two levels deep; a list of modules is replaced by its members."""
    first = denoiser_name(pipeline)
    return tuple(_names(getattr(pipeline, first), first, _DEPTH))


def _names(module: nn.Module, prefix: str, depth: int) -> Iterator[str]:
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList):
            yield from (f"{prefix}.{name}.{number}" for number in range(len(child)))
        else:
            yield f"{prefix}.{name}"
            if depth > 1:
                yield from _names(child, f"{prefix}.{name}", depth - 1)


def module_of(pipeline: Any, name: str) -> nn.Module:
    """Returns the module of that name. SpecError lists the existing names."""
    names = names_of(pipeline)
    if name not in names:
        raise SpecError(f"the generator has no activation {name!r}; {nearest(name, names)} (all: {', '.join(names)})")
    first, _, path = name.partition(".")
    module: nn.Module = getattr(pipeline, first).get_submodule(path)
    return module


def read(pipeline: Any, name: str, steps: Sequence[int], rows: int, denoise: Denoise) -> Floats:
    """Returns the module's output at the denoising steps while `denoise` runs: float32 (rows, steps, dimension)."""
    steps_wanted, outputs = set(steps), dict[int, Floats]()

    def hook(step: int, output: Tensor) -> None:
        if step in steps_wanted:
            outputs[step] = conditional(output, rows).flatten(1).float().cpu().numpy()
        if len(outputs) == len(steps_wanted):
            raise _EverythingReadError

    with watched(pipeline, name, hook), suppress(_EverythingReadError):
        denoise()
    if missing := steps_wanted - set(outputs):
        raise ServiceError(f"{name} was not computed at the denoising steps {sorted(missing)}")
    return np.stack([outputs[step] for step in steps], axis=1)


@contextmanager
def watched(
    pipeline: Any, name: str, observe: Callable[[int, Tensor], Tensor | None], first: bool = False
) -> Iterator[None]:
    """Calls `observe` with each output of the module and its denoising step while the block runs, and replaces the
    module's output with the result.

    `first`: runs before existing hooks, which then receive the new output. A step is one call of the denoiser; of
    several calls of a module in a step only the first is seen.
    """
    module, denoiser = module_of(pipeline, name), getattr(pipeline, denoiser_name(pipeline))
    step, seen = -1, -1

    def begin(*_: Any) -> None:
        nonlocal step
        step += 1

    def after(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        nonlocal seen
        if seen == step:
            return None
        seen = step
        tensor = output if isinstance(output, Tensor) else output[0]
        changed = observe(step, tensor)
        if changed is None or isinstance(output, Tensor):
            return changed
        return (changed, *output[1:])

    handles = [denoiser.register_forward_pre_hook(begin), module.register_forward_hook(after, prepend=first)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def conditional(output: Tensor, rows: int) -> Tensor:
    """Returns the half of a guided batch that sees the prompts, which diffusers puts last; the whole batch without
    guidance."""
    if output.shape[0] not in (rows, 2 * rows):
        raise ServiceError(f"a module of the denoiser gave {output.shape[0]} rows for {rows} prompts")
    return output[output.shape[0] - rows :]


def checked_steps(steps: Sequence[int], count: int) -> None:
    """Raises SpecError for a step that the generator does not take."""
    wrong = [step for step in steps if not 0 <= step < count]
    if wrong or not steps:
        raise SpecError(f"denoising steps {list(steps)}: expected one or more of 0 to {count - 1}")


def step_count(pipeline: Any, default: int) -> int:
    """Returns how many times the denoiser is called for `default` steps: some schedulers add steps."""
    scheduler = getattr(pipeline, "scheduler", None)
    if scheduler is None or not hasattr(scheduler, "timesteps"):
        return default
    with torch.inference_mode():
        try:
            scheduler.set_timesteps(default)
        except (TypeError, ValueError):  # this scheduler needs the image's size first
            return default
    return len(scheduler.timesteps)
