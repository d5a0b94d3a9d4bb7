"""What a classifier's outputs mean: labels that exclude each other, scores of each label on its own, or one score.

    softmax    the labels of a picture exclude each other: the usual head, and the default
    sigmoid    each output is the score of a label on its own (multi-label): a picture may show several, or none

One output alone is the score z of one label against all else, whose probability is sigmoid(z). It becomes two labels
that exclude each other, with the logits 0 and z: softmax((0, z)) = (1 − sigmoid(z), sigmoid(z)). With `?head=sigmoid`
it stays one label, whose negatives are all images that do not show it, whatever they show.

`?head=` of a spec states it; where it does not, what the model's files say holds. Classifiers that cannot be trained,
or searched by gradients, are refused here. It knows no library of models, so a config can be refused where it is
submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from c2b_ray.errors import SpecError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import label_names, read_labels
from c2b_ray.roles import Description, Floats, Head, ModelFact

HEADS: tuple[Head, ...] = get_args(Head)
ONE_OUTPUT = "it has one output"


@dataclass(frozen=True)
class Outputs:
    """The labels of a classifier, and their `head`. `single`: whether one output gives both of two labels. `fact`: the
    head and who states it, for people; None of a softmax that nothing states."""

    labels: tuple[str, ...]
    head: Head = "softmax"
    single: bool = False
    fact: ModelFact | None = None

    @property
    def facts(self) -> tuple[ModelFact, ...]:
        return () if self.fact is None else (self.fact,)

    @property
    def identity(self) -> list[str]:
        """What the head adds to a revision: nothing for a softmax, whose revisions are those of earlier releases."""
        return ["one sigmoid"] if self.single else [] if self.head == "softmax" else [self.head]

    def logits(self, rows: Floats) -> Floats:
        """Returns a logit for each label, of the model's own numbers: float32 (images, labels)."""
        return np.concatenate([np.zeros_like(rows), rows], axis=1) if self.single and rows.shape[1] == 1 else rows


def stated_head(spec: Spec) -> Head | None:
    """Returns `?head=` of a spec. Raises SpecError for another word."""
    text = spec.options.get("head")
    for head in HEADS:
        if text == head:
            return head
    if text is None:
        return None
    raise SpecError(f"{spec.text}: head={text!r}; {nearest(text, HEADS)}")


def outputs_of(
    spec: Spec, count: int, usual: Sequence[str] | None, read: Head | None = None, source: str = ""
) -> Outputs:
    """Returns the labels and head of a model with `count` outputs.

    `usual`: the model's own label names; `read`: the head that its files tell, and `source`, which of them.
    Raises SpecError for label names that do not fit the outputs, and for a softmax over one output.
    """
    stated = stated_head(spec)
    head = stated or read or "softmax"
    source = "?head=sigmoid" if stated else source
    if count == 1:
        if stated == "softmax":
            raise SpecError(f"{spec.text}: head=softmax, but {ONE_OUTPUT}, whose softmax is 1 for every picture")
        low, high = _two_labels(spec, usual)
        if stated and low == _not(high):
            return Outputs((high,), head, fact=ModelFact("head", f"one sigmoid, of {high!r}", source, option="head"))
        value = f"one sigmoid: the score of {high!r}, against {low!r}"
        return Outputs((low, high), "softmax", True, ModelFact("head", value, source or ONE_OUTPUT, option="head"))
    labels = label_names(spec, count, usual)
    if head == "softmax":
        return Outputs(labels)
    return Outputs(labels, head, fact=ModelFact("head", "a sigmoid for each label", source, option="head"))


def _two_labels(spec: Spec, usual: Sequence[str] | None) -> tuple[str, str]:
    path = spec.options.get("labels")
    names = read_labels(path) if path else tuple(usual or ("label_0",))
    if len(names) == 1:
        return _not(names[0]), names[0]
    if len(names) == 2:
        return names[0], names[1]
    raise SpecError(
        f"{spec.text}: {len(names)} label names for one output; give one with ?labels=PATH, of the label whose "
        "score it is, or two: first that of a low score"
    )


def _not(name: str) -> str:
    return f"not {name}"


def refuse_other_heads(spec: Spec, known: Description, outputs: int) -> None:
    """Raises SpecError for a model that cannot be trained further: training is by the cross entropy of labels that
    exclude each other, an output each."""
    if known.head != "softmax" or outputs == 1:
        raise SpecError(
            f"{spec.text}: training needs an output for each of two labels or more that exclude each other, and its "
            f"{'one output is' if outputs == 1 else 'outputs are'} for sigmoids"
        )


# Which classifiers can be searched by gradients (`c2b latent`), and which label the search watches.


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
