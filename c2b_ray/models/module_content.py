"""Identifies a torch module in memory by its content: tensors, structure, and the code of its classes.

It does not know what the module is for.
"""

from __future__ import annotations

import hashlib
import re
from inspect import isfunction
from types import CodeType

import torch
from torch import nn

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""What an object's `repr` says of its place in memory, which differs from process to process."""
# Their classes are identified by name, so upgrading these libraries does not change a model's revision.
_LIBRARIES = ("torch", "torchvision", "timm", "transformers", "open_clip")


def content_of(module: nn.Module) -> str:
    """Returns 20 hexadecimal digits that change with a module's tensors, its structure and its classes' code."""
    digest = hashlib.blake2b(digest_size=10)
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{name} {ADDRESS.sub('', repr(tensor))}".encode())
    digest.update(ADDRESS.sub("", repr(module)).encode())
    kinds = {type(part) for part in module.modules() if type(part).__module__.partition(".")[0] not in _LIBRARIES}
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        digest.update(f"{kind.__module__}.{kind.__qualname__}".encode())
        for name, method in sorted(vars(kind).items()):
            if isfunction(method):
                digest.update(f"{name} {_content_of_code(method.__code__)}".encode())
    return digest.hexdigest()


def _content_of_code(code: CodeType) -> str:
    """Describes a function's code: its instructions, names and constants, and not its position in a file."""
    constants = (
        _content_of_code(value)
        if isinstance(value, CodeType)
        else repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
        for value in code.co_consts
    )
    return f"{code.co_code.hex()} {code.co_names} {code.co_freevars} {' '.join(constants)}"
