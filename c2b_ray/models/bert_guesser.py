"""Guesses groups from texts by a BERT of transformers with a classification head, fine-tuned on the given texts.

    bert:org/name           config, tokenizer and model.safetensors of a hub repository
    bert:local-dir:PATH     the same in a directory

Options: device, epochs (10), rate (5e-5), batch (64). Hirota et al. 2022 fine-tune bert-base-uncased so. Only
safetensors are read. It knows nothing of captions or attributes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.tensor_names import Selection
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.models.transformers_weights import load_strictly

OPTIONS = ("device", "epochs", "rate", "batch")
LOCAL_DIR = "local-dir:"
LONGEST = 64  # tokens
Floats = NDArray[np.float64]


class BertGuesser:
    """Implements `roles.GroupGuesser`."""

    def __init__(self, spec: Spec) -> None:
        options = spec.options_among(OPTIONS)
        self.name = spec.text
        self._source = spec.name.removeprefix(LOCAL_DIR)
        self._local = spec.name.startswith(LOCAL_DIR)
        self._device = device_of(spec)
        self._epochs, self._batch = _whole(spec, options, "epochs", 10), _whole(spec, options, "batch", 64)
        self._rate = _positive(spec, options, "rate", 5e-5)
        self._tokenizer = self._loaded(AutoTokenizer)

    def probabilities(
        self, texts: Sequence[str], groups: NDArray[np.int64], others: Sequence[str], number: int, seed: int
    ) -> Floats:
        """Returns the group probabilities of each of the `others`: float64 (others, number), rows summing to 1; `seed`
        fixes head, order, dropout."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = self._loaded(AutoConfig, num_labels=number)
            model = self._model(config).to(self._device).train()
            optimiser = torch.optim.AdamW(model.parameters(), lr=self._rate)
            target = torch.as_tensor(groups, device=self._device)
            for _ in range(self._epochs):
                order = torch.randperm(len(texts))
                for start in range(0, len(texts), self._batch):
                    rows = order[start : start + self._batch]
                    logits = model(**self._tokens([texts[row] for row in rows.tolist()])).logits
                    loss = torch.nn.functional.cross_entropy(logits, target[rows.to(self._device)])
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
        model.eval()
        with torch.inference_mode():
            parts = [
                model(**self._tokens(others[start : start + self._batch])).logits.double().softmax(dim=1).cpu().numpy()
                for start in range(0, len(others), self._batch)
            ]
        return np.concatenate(parts) if parts else np.zeros((0, number))

    def _tokens(self, texts: Sequence[str]) -> Any:
        tokens = self._tokenizer(list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        return tokens.to(self._device)

    def _model(self, config: Any) -> Any:
        """Returns the model with a new head, which is trained here; everything below it comes from the file."""
        kind: Any = AutoModelForSequenceClassification
        arguments: dict[str, Any] = {"local_files_only": self._local, "config": config}
        try:
            base = re.escape(kind._model_mapping[type(config)].base_model_prefix)
            optional = (rf"^(?!{base}\.)", rf"^{base}\.pooler\.")
            return load_strictly(kind, self._source, Selection(), optional=optional, **arguments).model
        except (OSError, ValueError, KeyError) as error:
            raise WeightsError(f"{self.name}: no BERT can be read from it (safetensors alone): {error}") from error

    def _loaded(self, kind: Any, **arguments: Any) -> Any:
        try:
            return kind.from_pretrained(self._source, local_files_only=self._local, **arguments)
        except (OSError, ValueError, KeyError) as error:
            raise WeightsError(f"{self.name}: no BERT can be read from it (safetensors alone): {error}") from error


def load(spec: Spec) -> BertGuesser:
    """Loads the guesser of a `bert:` spec. Raises SpecError for wrong options and WeightsError for files that cannot be
    used."""
    return BertGuesser(spec)


def _whole(spec: Spec, options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise SpecError(f"{spec.text}: {name}={text}: expected a whole number, 1 or more")
    return int(text)


def _positive(spec: Spec, options: dict[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise SpecError(f"{spec.text}: {name}={options.get(name)}: expected a number between 0 and 1")
    return value
