"""Tells from a spec alone which classifiers have no gradients, and chooses the label that a search watches.

It imports no library of models, so a config can be refused where it is submitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.roles import Head

_ZERO_SHOT = "zero-shot answers come from packed weights, which have no gradients"
WITHOUT = {
    "onnx": "ONNX Runtime gives no gradients of a graph's outputs; give the model it was exported from",
    "http": "no gradients pass through a URL; give the model behind it",
    "https": "no gradients pass through a URL; give the model behind it",
    "open_clip": _ZERO_SHOT,
    "world:clip": _ZERO_SHOT,
    "table": "a table of predictions has no gradients, nor answers for images that are yet to be made",
}
"""By scheme, or scheme and name."""


def refuse_without_gradients(text: str) -> None:
    """Raises SpecError where the spec alone shows that there are no gradients."""
    spec = catalog.parse(text)
    reason = WITHOUT.get(spec.scheme) or WITHOUT.get(f"{spec.scheme}:{spec.name}")
    if reason is not None:
        raise SpecError(f"{text}: {reason} (timm:, torchvision:, hf: or a torch module)")


def refuse_independent_labels(name: str, head: Head) -> None:
    """Raises SpecError where the labels of a classifier do not exclude each other."""
    if head == "sigmoid":
        raise SpecError(
            f"{name}: each of its labels is on its own (head=sigmoid), and directions are searched for labels that "
            "exclude each other; give a module with two outputs: for the logit z of the label, (0, z)"
        )


def chosen_label(labels: Sequence[str], label: str | None) -> str:
    """Returns the label to watch; where none is named, the second of two. SpecError lists the classifier's labels."""
    if label is None and len(labels) == 2:
        return labels[1]
    if label is None or label not in labels:
        label_list = ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")
        problem = "has no" if label is not None else f"has {len(labels)} labels: name one as"
        raise SpecError(f"the classifier {problem} label{'' if label is None else f' {label!r}'}; it has {label_list}")
    return label
