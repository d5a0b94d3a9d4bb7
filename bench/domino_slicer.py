"""Runs the slicer of PyPI's `domino` 0.1.5 (Eyuboglu et al. 2022) on arrays of a file; for an environment of its own.

    python3.11 -m venv D && D/bin/pip install scikit-learn==1.1.3 numpy==1.23.5 scipy==1.9.3 tqdm
    D/bin/pip install --no-deps domino==0.1.5
    D/bin/python bench/domino_slicer.py IN.npz OUT.npy

The package pins scikit-learn 0.24.2, which has no wheel for this Python, and imports `meerkat` and `torch` for names of
types alone. So these two are empty modules here, and scikit-learn's `_check_X`, which 1.0 removed, is its public
`check_array`. The slicer itself is the package's file as published.

IN: `vectors` (n, d), `labels` (n,), `answers` (n,) of class numbers, `fitted` (n,) whether the mixture sees the image.
OUT: (n, 10) bool: the slice that an image belongs to by its embedding and label, none for images that were fitted.
"""

from __future__ import annotations

import importlib.util
import sys
import types

import numpy as np
from sklearn.mixture import _base
from sklearn.utils import check_array

SLICES, COMPONENTS, WEIGHT, AXES = 10, 25, 10, 128  # as in the paper's experiments


def _check_x(x, n_components=None, n_features=None, ensure_min_samples=1):
    return check_array(x, dtype=[np.float64, np.float32], ensure_min_samples=ensure_min_samples)


def slicer_class():
    """Returns the package's class, without the modules of the package that need what is not here."""
    _base._check_X = _check_x
    meerkat, torch, nn = (types.ModuleType(name) for name in ("meerkat", "torch", "torch.nn"))
    meerkat.DataPanel, nn.Module, torch.nn = dict, object, nn
    package = types.ModuleType("domino")
    package.__path__ = list(importlib.util.find_spec("domino").submodule_search_locations)
    sys.modules.update({"meerkat": meerkat, "torch": torch, "torch.nn": nn, "domino": package})
    from domino._slice.domino import DominoSlicer

    return DominoSlicer


def main() -> None:
    arrays = np.load(sys.argv[1])
    vectors, labels, answers = (arrays[name] for name in ("vectors", "labels", "answers"))
    fitted = arrays["fitted"]
    slicer = slicer_class()(
        n_slices=SLICES,
        n_pca_components=min(AXES, vectors.shape[1]),
        n_mixture_components=COMPONENTS,
        y_log_likelihood_weight=WEIGHT,
        y_hat_log_likelihood_weight=WEIGHT,
        random_state=0,
    )
    probabilities = np.eye(labels.max() + 1)[answers]
    slicer.fit(embeddings=vectors[fitted], targets=labels[fitted], pred_probs=probabilities[fitted])
    # Without the answers: a slice that images belong to by the answers to them is less accurate by definition.
    component = slicer.mm.predict_proba(slicer.pca.transform(vectors), y=labels).argmax(axis=1)
    inside = (component[:, None] == slicer.slice_cluster_indices[None, :]) & ~fitted[:, None]
    np.save(sys.argv[2], inside)


if __name__ == "__main__":
    main()
