"""Functions of arrays in machine code: numba compiles them once per machine, and processes load the result without it.

    kernel(module, name) → the machine code that is kept, or numba's, which is then kept → a callable on arrays

To import numba and to have it load one function takes .45 s, in every process that resizes a picture; llvmlite, in
which numba makes its code, loads an object file in .05 s (docs/decisions/061-machine-code-without-numba.md). What a
function may do follows from that: it writes into the arrays that it is called with, makes none and raises nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

_LONGEST_COMPILATION_S = 60.0
_MOST_KEPT = 8 * 2**20
"""Bytes that a thread keeps between two calls: those that a photograph of 12 megapixels takes, several times."""
_NUMBER = "number"
_DIGEST = hashlib.sha256().digest_size
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Without numba's runtime, which counts references to arrays: a kernel makes none."""
_WRAPPERS = re.compile(r"^define [^\n]*@\"?(?:cfunc\.|_ZN7cpython)[^\n]*\{$.*?^\}$", re.MULTILINE | re.DOTALL)
"""What numba adds to a function so that Python can call it. It refers to numba's own functions."""
_lock = threading.Lock()
_engines: list[Any] = []
"""What owns the machine code: it must live as long as the process."""


@cache
def kernel(module: str, name: str) -> Callable[..., None]:
    """Returns the function `name` of `module`, which is decorated with `compilable`, as machine code.

    It is called with arrays in one piece, or `Held`, of the types that it was declared with, and whole numbers. Calls
    do not hold Python's lock.
    """
    with _lock:
        types, _, code = _code(module, name).partition(b"\n")
        return _call(_loaded(code, name), name, types.decode().split(","))


def compilable(*types: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator of a function that `kernel` compiles, with its numba types; it returns nothing."""
    from numba import njit

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        compiled: Callable[..., None] = njit(types, **_OPTIONS)(function)
        return compiled

    return decorate


def part(function: Callable[..., None]) -> Callable[..., None]:
    """Decorates a function that kernels call."""
    from numba import njit

    compiled: Callable[..., None] = njit(**_OPTIONS)(function)
    return compiled


class Held:
    """An array that many calls take, and what a kernel is told of it, which takes 2 µs to find out."""

    __slots__ = ("array", "numbers")

    def __init__(self, array: NDArray[Any]) -> None:
        self.array, self.numbers = array, _numbers(array)


class Room:
    """The arrays that a kernel works in, made by their sizes. Each thread keeps its last ones, if they are small."""

    def __init__(self, arrays: Callable[..., tuple[NDArray[Any], ...]]) -> None:
        self._arrays, self._last = arrays, threading.local()

    def __call__(self, *sizes: int) -> tuple[Held, ...]:
        last_sizes, arrays = getattr(self._last, "room", ((), ()))
        if last_sizes != sizes:
            arrays = tuple(Held(array) for array in self._arrays(*sizes))
            if sum(one.array.nbytes for one in arrays) <= _MOST_KEPT:
                self._last.room = sizes, arrays
        return arrays


def _numbers(array: NDArray[Any]) -> tuple[int, ...]:
    """Returns an array as numba hands it on: two owners, size, bytes of an item, address, shape and strides."""
    assert array.flags.c_contiguous, "a kernel takes arrays in one piece"
    return (0, 0, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides)


def _call(address: int, name: str, types: Sequence[str]) -> Callable[..., None]:
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)(address)
    kinds = [
        None if declared == _NUMBER else (np.dtype(declared.split()[0]), int(declared.split()[1])) for declared in types
    ]

    def call(*arguments: Any) -> None:
        numbers: list[int] = []
        for kind, argument in zip(kinds, arguments, strict=True):
            if kind is None:
                numbers.append(argument)
                continue
            array, of_array = (argument.array, argument.numbers) if isinstance(argument, Held) else (argument, None)
            if (array.dtype, array.ndim) != kind:
                raise TypeError(f"{name} takes {kind[0]} of {kind[1]} dimensions, not {array.dtype} of {array.ndim}")
            numbers += of_array or _numbers(array)
        if status := function(struct.pack(f"{len(numbers)}q", *numbers)):
            raise RuntimeError(f"{name} ended with status {status}")

    return call


@cache
def _llvm() -> Any:
    """Returns llvmlite's binding. It is imported here: most of what this package serves calls no kernel."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _loaded(code: bytes, name: str) -> int:
    llvm = _llvm()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(name))


def _code(module: str, name: str) -> bytes:
    """Returns a function's types, in a line, and its object file; compiles and keeps them where no process has yet."""
    file_name = f"{module}.{name}.{_key(module)}.o"
    folders = [Path(__file__).parent / "__pycache__", *_user_caches()]
    for folder in folders:
        if (code := _kept(folder / file_name)) is not None:
            return code
    writable = next((folder for folder in folders if _is_writable(folder)), None)
    if writable is None:
        return _compiled(module, name)
    with _one_process_at_a_time(writable):
        if (code := _kept(writable / file_name)) is None:
            code = _compiled(module, name)
            with suppress(OSError):  # a full disk
                _keep(writable / file_name, code)
        return code


def _kept(file: Path) -> bytes | None:
    """Returns what `_keep` wrote; None where there is no such file, one that a crash cut short, or one of another user,
    whose code is not run."""
    try:
        data = file.read_bytes()
        if file.stat().st_uid not in (0, os.geteuid(), Path(__file__).stat().st_uid):
            return None
    except OSError:
        return None
    digest, code = data[:_DIGEST], data[_DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(file: Path, code: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as written:
            written.write(hashlib.sha256(code).digest() + code)
        Path(temporary).replace(file)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _key(module: str) -> str:
    """Returns what the machine code follows from, as a digest: the source, the compilers, the processor."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    llvm = _llvm()
    sources = [Path(spec.origin).read_bytes(), Path(__file__).read_bytes()]
    settings = [version("numba"), version("llvmlite"), llvm.get_default_triple(), llvm.get_host_cpu_name()]
    text = "\0".join([*settings, llvm.get_host_cpu_features().flatten()])
    return hashlib.sha256(b"\0".join([*sources, text.encode()])).hexdigest()[:16]


def _compiled(module: str, name: str) -> bytes:
    """Returns a function's types, in a line, and its object file, from what numba hands to LLVM."""
    function = getattr(import_module(module), name)
    ((signature, compiled),) = function.overloads.items()
    llvm = _llvm()
    intermediate = llvm.parse_assembly(_WRAPPERS.sub("", function.inspect_llvm(signature)))
    foreign = [f.name for f in intermediate.functions if f.is_declaration and not f.name.startswith("llvm.")]
    used = [f for f in foreign if f"@{f}(" in re.sub(r"^declare .*$", "", str(intermediate), flags=re.MULTILINE)]
    if used:
        raise RuntimeError(f"{module}.{name} calls {', '.join(used)}: it must work in the arrays that it is given")
    text = f"{intermediate}\n{_entry(intermediate.get_function(compiled.fndesc.llvm_func_name), name)}"
    types = [f"{one.dtype} {one.ndim}" if hasattr(one, "ndim") else _NUMBER for one in signature]
    return ",".join(types).encode() + b"\n" + bytes(_machine().emit_object(llvm.parse_assembly(text)))


def _entry(function: Any, name: str) -> str:
    """Returns a function in LLVM's language that calls `function` with the numbers at one address: sixty arguments by
    themselves take ctypes 15 µs."""
    # numba's first two say where a result and an exception go.
    lines = [f"define i32 @{name}(ptr %numbers) {{", "  %nowhere = alloca [2 x i64]"]
    passed = ["ptr %nowhere", "ptr %nowhere"]
    for number, argument in enumerate(list(function.arguments)[2:]):
        kind = str(argument.type)
        lines += [
            f"  %at{number} = getelementptr i64, ptr %numbers, i64 {number}",
            f"  %value{number} = load {kind}, ptr %at{number}",
        ]
        passed.append(f"{kind} %value{number}")
    lines += [f"  %status = call i32 @{function.name}({', '.join(passed)})", "  ret i32 %status", "}"]
    return "\n".join(lines)


def _machine() -> Any:
    llvm = _llvm()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


def _user_caches() -> list[Path]:
    """Returns the folder for what a user keeps; none where the user has no home, as in some containers."""
    with suppress(RuntimeError):
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "c2b-ray"]
    return []


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@contextmanager
def _one_process_at_a_time(folder: Path) -> Iterator[None]:
    """Lets processes that start together wait for the first one's result rather than all compile the same."""
    lock = FileLock(folder / "compiled.lock", timeout=_LONGEST_COMPILATION_S)
    try:
        lock.acquire()
    except (OSError, Timeout):  # a process that hangs
        yield
        return
    try:
        yield
    finally:
        lock.release()
