"""Which tensor of a file is which tensor of a module, and whether all of both have their counterpart.

It compares names, shapes and kinds (floating or not), so a file's header and a module without memory are enough. A
prefix that training scripts leave before every name (`module.`, `_orig_mod.`, `model.`) is taken off where the names
fit without it alone. Two copies of the weights in one file, such as raw and averaged ones (EMA), are a question. Where
anything is left over, the file is refused: nothing is filled with random numbers.

Options of specs: tensors (the prefix of the tensors to read, or `unprefixed`), unused (prefixes, with commas between,
of tensors that may stay unread).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ModelFact

OPTIONS = ("tensors", "unused")
UNPREFIXED = "unprefixed"
COUNTERS = ("num_batches_tracked",)
"""Ends of the names of buffers that inference does not read, so that a file may lack them."""
OWN_MODULE = (
    "A module of your own making (fastai, or a backbone with your own head): export it to ONNX (torch.onnx.export) "
    "and write onnx:FILE"
)
"""What to do with weights of a module that no library has."""
_OF_PIXELS = re.compile(r"(^|\.)((pixel|image|norm)_)?(mean|std)$")
"""Names of buffers with which modules of one's own normalise pixels."""
_OF_POSITIONS = re.compile(r"pos(ition(al)?)?_embed|position_bias_table")
"""Tensors whose size follows that of the pictures."""
_COPY = 0.5
"""The share of a module's names from which tensors under one prefix are a copy of its weights."""


class TensorKind(NamedTuple):
    """The shape of a tensor, and whether its numbers are floating-point."""

    shape: tuple[int, ...]
    floating: bool


def kinds_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, TensorKind]:
    return {name: TensorKind(tuple(tensor.shape), tensor.is_floating_point()) for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Selection:
    """`tensors=` and `unused=` of a spec; empty for all of a file."""

    prefix: str = ""
    unused: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """Returns what a revision depends on beside the file: nothing where all of the file is read."""
        return (self.prefix, self.unused) if self.prefix or self.unused else ()


def selection_of(spec: Spec) -> Selection:
    unused = tuple(part.strip() for part in spec.options.get("unused", "").split(",") if part.strip())
    return Selection(spec.options.get("tensors", "").strip(), unused)


@dataclass(frozen=True)
class TensorNames:
    """`names`: a module's name of a tensor → the file's. `prefix`: what the file's names begin with and the module's do
    not. `rest`: the file's other tensors. `selection`: what the spec says about it."""

    names: dict[str, str]
    prefix: str
    rest: tuple[str, ...] = ()
    selection: Selection = Selection()

    def of(self, tensors: Mapping[str, TensorKind]) -> dict[str, TensorKind]:
        return {name: tensors[source] for name, source in self.names.items()}

    def facts(self, source: str | Path) -> tuple[ModelFact, ...]:
        """Returns what a person is told about the names; nothing where the module has the file's."""
        file = Path(source).name
        facts = []
        if self.selection.prefix:
            facts.append(ModelFact("tensor names", self._selected(), f"?tensors={self.selection.prefix}"))
        elif self.prefix:
            facts.append(ModelFact("tensor names", f"without the prefix '{self.prefix}'", file, option="tensors"))
        if self.selection.unused:
            value = f"those that begin with {', '.join(self.selection.unused)} are not read"
            facts.append(ModelFact("tensor names", value, f"?unused={','.join(self.selection.unused)}"))
        return tuple(facts)

    def _selected(self) -> str:
        if self.selection.prefix == UNPREFIXED:
            return "those without a prefix"
        return f"those that begin with '{self.prefix}', without it"


def naming(expected: Collection[str], names: Collection[str], source: str | Path, selection: Selection) -> TensorNames:
    """Returns which tensors of a file are which of a module's `expected` names.

    Raises SpecError where `source`, the file, has no tensor that begins as the spec says, and WeightsError where it
    holds several copies of the weights and the spec does not choose one.
    """
    used = [name for name in names if not name.startswith(selection.unused)] if selection.unused else list(names)
    if selection.prefix == UNPREFIXED:
        return TensorNames({name: name for name in used if name in expected}, "", (), selection)
    if selection.prefix:
        start = _started(selection.prefix, used, source)
        inner = [name.removeprefix(start) for name in used if name.startswith(start)]
        start += _prefix(expected, inner, source)
        return TensorNames(_without(start, used), start, (), selection)
    start = _prefix(expected, used, source)
    if not start:
        return TensorNames({name: name for name in used}, "", (), selection)
    return TensorNames(_without(start, used), start, tuple(n for n in used if not n.startswith(start)), selection)


def _without(prefix: str, names: Iterable[str]) -> dict[str, str]:
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def _started(prefix: str, names: Collection[str], source: str | Path) -> str:
    """Returns the prefix of a spec, completed by a dot where names go on with one."""
    for start in (prefix, f"{prefix}."):
        if start.endswith(".") and any(name.startswith(start) for name in names):
            return start
    if any(name.startswith(prefix) for name in names):
        return prefix
    begins = listed(sorted({name.partition(".")[0] + "." for name in names}), 6)
    raise SpecError(f"{source}: no tensor begins with tensors={prefix!r}; its tensors begin with {begins}")


def _prefix(expected: Collection[str], names: Collection[str], source: str | Path) -> str:
    """Returns what all names of a copy of the weights begin with; "" where there is no copy, or one without a
    prefix."""
    copies = _copies(set(expected), names)
    refuse_copies(copies, names, source)
    return copies[0] if copies else ""


def refuse_copies(copies: Collection[str], names: Collection[str], source: str | Path) -> None:
    """Raises WeightsError where a file holds several copies of the weights, each under a prefix or without one ("")."""
    if len(copies) < 2:
        return
    named = [f"{len([n for n in names if n.startswith(copy)])} tensors {copy}*" for copy in copies if copy]
    plain = ["tensors without a prefix"] if "" in copies else []
    choices = [f"?tensors={copy or UNPREFIXED}" for copy in copies]
    raise WeightsError(
        f"{source} holds {len(copies)} copies of the weights ({', '.join([*plain, *named])}), such as raw and averaged "
        f"(EMA) ones; which shall answer? Write {' or '.join(choices)}"
    )


def twins(tensors: Collection[str]) -> list[str]:
    """Returns the prefixes (up to the first dot, "" for none) of equally named groups of tensors; [] where no two
    groups are."""
    names = set(tensors)
    prefixes = dict.fromkeys(name.partition(".")[0] + "." for name in tensors if "." in name)
    groups = {first: {name.removeprefix(first) for name in names if name.startswith(first)} for first in prefixes}
    for first, group in groups.items():
        if len(group) < 2:
            continue
        similar = [other for other, names_of in groups.items() if len(group & names_of) > 0.9 * len(group | names_of)]
        if len(similar) > 1:
            return similar
        if len(group & names) > 0.9 * len(group):
            return ["", first]
    return []


def _copies(expected: set[str], names: Collection[str]) -> list[str]:
    """Returns the prefixes under which a file holds most of the wanted names, the most complete first.

    Each tensor counts for one copy only: CLIP's `visual.transformer.…` is no copy of its `transformer.…`.
    """
    remaining, copies = set(names), list[str]()
    while True:
        counts = Counter(start for name in remaining for start in _starts(name, expected))
        if not counts:
            return copies
        # Of two prefixes with equally many names the shorter one: `module.` rather than `module.visual.`.
        start, count = max(counts.items(), key=lambda entry: (entry[1], -len(entry[0])))
        if count < _COPY * len(expected) or count < 1:
            return copies
        copies.append(start)
        remaining -= {start + name for name in expected}


def _starts(name: str, expected: set[str]) -> Iterable[str]:
    """Yields each prefix (up to a dot) behind which a tensor's name is one of the wanted ones."""
    if name in expected:
        yield ""
    start = name.find(".") + 1
    while start > 0:
        if name[start:] in expected:
            yield name[:start]
        start = name.find(".", start) + 1


def check_fit(
    wanted: Mapping[str, TensorKind],
    tensors: Mapping[str, TensorKind],
    source: str | Path,
    what: str,
    head: Collection[str] = (),
    rest: Collection[str] = (),
) -> None:
    """Checks that a file has every tensor of a module, and no other. Raises WeightsError that names the first of each
    kind, the likeliest cause and the remedy.

    `tensors` has the module's names; `rest` are tensors of the file without any. `what` is the architecture. `head`:
    the names of its last layer, such as `fc`, whose tensors may be told apart in the message.
    """
    missing = [n for n in wanted if n not in tensors and not n.endswith(COUNTERS)]
    unexpected = [*(n for n in tensors if n not in wanted), *rest]
    shared = [n for n in wanted if n in tensors]
    shapes = [n for n in shared if wanted[n].shape != tensors[n].shape]
    kinds = [n for n in shared if wanted[n].floating != tensors[n].floating]
    if not (missing or unexpected or shapes or kinds):
        return
    described = {
        "missing": missing,
        "unexpected": unexpected,
        "of another shape": [f"{n} {tensors[n].shape} for {wanted[n].shape}" for n in shapes],
        "of another kind": [f"{n} {_numbers(tensors[n])} for {_numbers(wanted[n])}" for n in kinds],
    }
    complaints = [f"{len(names)} {problem} ({listed(names)})" for problem, names in described.items() if names]
    misfit = TensorMismatch(
        missing, unexpected, [(n, tensors[n].shape, wanted[n].shape) for n in shapes], kinds, len(wanted)
    )
    raise WeightsError(f"{source} does not fit {what}: {'; '.join(complaints)}. {remedy(misfit, head)}")


def _numbers(kind: TensorKind) -> str:
    return "floating-point" if kind.floating else "whole numbers"


@dataclass(frozen=True)
class TensorMismatch:
    """What a file lacks and has too many; `shapes`: a name, the file's shape, the module's; `kinds`: tensors of other
    numbers; `wanted`: the module's number of tensors."""

    missing: Collection[str]
    unexpected: Collection[str]
    shapes: Collection[tuple[str, tuple[int, ...], tuple[int, ...]]] = ()
    kinds: Collection[str] = ()
    wanted: int = 0


def remedy(misfit: TensorMismatch, head: Collection[str] = ()) -> str:
    """Returns the likeliest cause of a misfit, and what to write."""
    missing, unexpected, shapes = misfit.missing, misfit.unexpected, misfit.shapes
    of_head = tuple(f"{name}." for name in head)
    if any(".lora_" in name or name.startswith("base_model.model.") for name in unexpected):
        return "Likeliest cause: a PEFT adapter that is not merged; save the model that `merge_and_unload()` returns"
    if misfit.kinds and not (missing or unexpected or shapes):
        return "Likeliest cause: quantised weights; give them in floating-point numbers"
    if shapes and not missing and not unexpected:
        if of_head and all(name.startswith(of_head) for name, _, _ in shapes):
            return _other_head(shapes)
        if all(_OF_POSITIONS.search(name) for name, _, _ in shapes):
            return (
                "Likeliest cause: it was trained on pictures of another size; state the size of its training (timm: "
                "?size=; elsewhere image_size of its config.json)"
            )
        return "Likeliest cause: another size or version of the architecture; name the one that the weights are of"
    if len(missing) + len(shapes) > misfit.wanted / 2:
        return (
            "Likeliest cause: weights of another architecture, or named by another library; name the architecture that "
            f"they are of, or convert their names. {OWN_MODULE}"
        )
    weight_of_head = {f"{name}.weight" for name in head} & set(missing)
    if weight_of_head and all(name.startswith(of_head) for name in missing) and not unexpected and not shapes:
        return (
            "Likeliest cause: a backbone without its classification head, which gives no answers; give the weights of "
            "the whole classifier"
        )
    if missing and not unexpected and not shapes:
        return "Likeliest cause: a file that was cut, or a shard of it that is absent; give all tensors"
    if unexpected and not missing and not shapes:
        return (
            "Likeliest cause: another variant of the architecture, tensors of training, or a module of your own making "
            f"around it{_that_matter(unexpected)}; where they do not matter, write ?unused={_common(unexpected)}"
        )
    return (
        "Likeliest cause: another variant of the architecture; name the one that the weights are of, or export the "
        "model to ONNX and write onnx:FILE"
    )


def _that_matter(unexpected: Collection[str]) -> str:
    """Returns what to do about tensors that change answers: layers, and the normalisation of pixels."""
    layers = [name for name in unexpected if name.endswith(".weight")]
    pixels = [name for name in unexpected if _OF_PIXELS.search(name)]
    about_layers = (
        f"; if {layers[-1]} gives the answers, export all of it to ONNX and write onnx:FILE" if layers else ""
    )
    about_pixels = f"; if {listed(pixels)} normalise pixels, state them as mean= and std=" if pixels else ""
    return about_layers + about_pixels


def _other_head(shapes: Collection[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> str:
    sizes = {(f[0], w[0]) for _, f, w in shapes if len(f) == len(w) > 1 and f[1:] == w[1:]}
    if len(sizes) == 1:
        outputs, expected = sizes.pop()
        return (
            f"Likeliest cause: a head of another size: the file has {outputs} outputs, its config says {expected}; let "
            f"the config say {outputs}"
        )
    return "Likeliest cause: a head that is damaged, or of another architecture"


def _common(names: Collection[str]) -> str:
    """Returns the first parts of names, as `unused=` takes them; at most three, else an example."""
    prefixes = list(dict.fromkeys(name.partition(".")[0] + ("." if "." in name else "") for name in names))
    return ",".join(prefixes) if len(prefixes) <= 3 else "PREFIX,PREFIX"


def last_layers(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Returns the last linear layers of a file by their names, among which its classification layer may be."""
    layers = [name for name, shape in shapes.items() if len(shape) == 2]
    return listed((layers or list(shapes))[-3:])


def listed(names: Collection[str], count: int = 3) -> str:
    first = list(names)[:count]
    return ", ".join(first) + (", …" if len(names) > count else "")
