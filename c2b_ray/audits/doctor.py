"""What this machine has for audits, and the command that mends each lack.

`examine` looks; the checks are functions of what it saw, and return rows. Nothing is installed, started or changed but
a probe file that is removed at once, and no secret is read.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import c2b_ray
from c2b_ray.engine import cluster, machine
from c2b_ray.errors import C2BError
from c2b_ray.models import nvml, surroundings
from c2b_ray.models.devices import why_unused
from c2b_ray.models.surroundings import Hub, Torch
from c2b_ray.storage import files, is_remote
from c2b_ray.text import without_credentials

State = Literal["ok", "note", "broken"]
PYTHON = (3, 11)
LOCK = Path(c2b_ray.__file__).parents[1] / "requirements.lock"
"""Only in a checkout: an installed package has its ranges alone."""
LEAST_DISK = 2**30
ENOUGH_DISK = 20 * 2**30
ENOUGH_MEMORY = 4 * 2**30
ENOUGH_SHARED = machine.STORE_MB * 2**20 * 10 // 9
ENOUGH_FILES = 4096
_EVERY_EXTRA = "all"
_LISTED = 4


@dataclass(frozen=True)
class Row:
    """One thing that was looked at.

    `state`: "ok"; "note", where something is missing that only some users want, or is tight; "broken", where an audit
    cannot run. `remedy`: the command, or what to do; "" where nothing is to be done.
    """

    subject: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Gpu:
    """A GPU now. `programs`: the names of the processes that compute on it, with their numbers."""

    name: str
    total: int | None
    used: int | None
    programs: Sequence[str]


def examine(runs: str = "runs") -> list[Row]:
    """Returns a row for everything that an audit depends on. `runs`: where runs will go, a folder or an s3:// URI."""
    installed, required = _installed(), _required()
    torch = surroundings.torch_here()
    gpus_found = machine.gpus()
    address = os.environ.get(cluster.ADDRESS)
    rows = [
        system(sys.platform, sys.version_info[:2], platform.python_version()),
        packages(installed, required),
        *([] if not LOCK.is_file() else [locked(installed, _locked(LOCK.read_text(encoding="utf-8")))]),
        torch_row(torch),
        *extras(installed, required, metadata.metadata("c2b-ray").get_all("Provides-Extra") or ()),
        gpus(_gpus(), why_unused(torch.cuda, torch.seen) if not torch.seen or not gpus_found else None),
        hub(surroundings.hub_here()),
        ray(installed.get("ray", ""), address, address is None or cluster.answers(address), cluster.here()),
        cores(machine.cores(), os.cpu_count() or 1, machine.cpu_quota()),
        memory(machine.memory_bytes()),
        shared_memory(shutil.disk_usage(machine.SHARED).total if os.path.isdir(machine.SHARED) else None, gpus_found),
        open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        place(runs),
    ]
    # Of URLs in the environment.
    return [replace(row, text=without_credentials(row.text)) for row in rows]


def is_sound(rows: Iterable[Row]) -> bool:
    """Returns whether an audit can run here."""
    return all(row.state != "broken" for row in rows)


def system(name: str, version: tuple[int, ...], text: str) -> Row:
    """`name`: as `sys.platform`; `version`: Python's; `text`: the same, as it is shown."""
    if tuple(version) < PYTHON:
        least = ".".join(map(str, PYTHON))
        return Row("Python", "broken", f"{text}, and c2b-ray needs {least} or newer", f"python{least} -m venv .venv")
    if name == "darwin":
        return Row(
            "Python",
            "note",
            f"{text} on macOS, where c2b-ray was never tested: audits need nothing that only Linux has; the shared "
            "endpoint isolates its jobs by Linux's own means",
            "for c2b endpoint use Linux, in a container or a virtual machine",
        )
    if name != "linux":
        return Row("Python", "broken", f"{text} on {name}, and c2b-ray needs Linux", "use Linux, in a container or WSL")
    return Row("Python", "ok", f"{text} on Linux")


def packages(installed: Mapping[str, str], required: Sequence[Requirement]) -> Row:
    """Checks what c2b-ray cannot do without. `installed`: canonical name → version; `required`: all requirements of
    c2b-ray, of which those of extras are left out."""
    core = [requirement for requirement in required if _applies(requirement.marker, "")]
    wrong = [problem for requirement in core if (problem := _wrong(requirement, installed))]
    if not wrong:
        return Row("packages", "ok", f"all {len(core)} that c2b-ray needs, in versions that fit")
    return Row(
        "packages", "broken", _listed(wrong), "make setup" if LOCK.is_file() else "pip install --upgrade c2b-ray"
    )


def locked(installed: Mapping[str, str], pinned: Mapping[str, str]) -> Row:
    """Compares with the versions that the tests ran with; packages that are not installed are no difference."""
    other = [
        f"{name} {installed[name]} (lock: {version})"
        for name, version in sorted(pinned.items())
        if name in installed and installed[name] != version
    ]
    if not other:
        return Row("versions", "ok", "those of requirements.lock, with which the tests ran")
    return Row("versions", "note", f"{len(other)} differ from requirements.lock: {_listed(other)}", "make setup")


def torch_row(torch: Torch) -> Row:
    if torch.problem:
        return Row("PyTorch", "broken", torch.problem, "docs/install.md has the commands for CPUs and for CUDA")
    return Row("PyTorch", "ok", f"built for CUDA {torch.cuda}" if torch.cuda else "built for CPUs")


def extras(installed: Mapping[str, str], required: Sequence[Requirement], names: Iterable[str]) -> list[Row]:
    """Returns a row with the extras that are complete, and one for each of `names` that lacks a package."""
    complete, rows = [], []
    for name in sorted(set(names) - {_EVERY_EXTRA}):
        of_extra = [
            requirement
            for requirement in required
            if not _applies(requirement.marker, "") and _applies(requirement.marker, name)
        ]
        missing = [problem for requirement in of_extra if (problem := _wrong(requirement, installed))]
        if missing:
            rows.append(Row(f"extra {name}", "note", _listed(missing), f"pip install 'c2b-ray[{name}]'"))
        else:
            complete.append(name)
    return [Row("extras", "ok", ", ".join(complete) or "none is installed"), *rows]


def gpus(visible: Sequence[Gpu], unused: str | None) -> Row:
    """`unused`: why this process cannot use the GPUs that are there."""
    if not visible:
        return Row("GPU", "ok", "none; everything but vLLM runs on CPUs")
    text = "; ".join(map(_gpu_text, visible))
    if unused:
        return Row("GPU", "note", f"{text}; {unused}", unused.rpartition(": ")[2])
    full = [gpu for gpu in visible if gpu.total and gpu.used is not None and gpu.used > gpu.total / 2]
    if full:
        return Row("GPU", "note", text, "nvidia-smi lists what holds their memory; end it, or set CUDA_VISIBLE_DEVICES")
    return Row("GPU", "ok", text)


def hub(status: Hub) -> Row:
    """Where weights come from that are named by a hub's name: none is needed for models that lie on this machine."""
    token = "a token is there" if status.signed_in else "no token"
    if status.offline:
        return Row(
            "model hub",
            "note",
            f"offline (HF_HUB_OFFLINE): only models that lie in {status.cache} load by a hub's name",
            "unset HF_HUB_OFFLINE",
        )
    if status.reached:
        return Row("model hub", "ok", f"{status.url} answers; {token}; models are kept in {status.cache}")
    return Row(
        "model hub",
        "note",
        f"{status.url} does not answer: only models of your own files and of {status.cache} load",
        "export HF_HUB_OFFLINE=1 (no waiting for it), or HF_ENDPOINT=URL of a mirror, or HTTPS_PROXY",
    )


def ray(version: str, address: str | None, answers: bool, running: Sequence[str]) -> Row:
    """`address`: RAY_ADDRESS; `running`: addresses of the clusters of which this machine has a node."""
    if address and address != "local" and not answers:
        return Row(
            "Ray",
            "broken",
            f"{version}, and nothing answers at {cluster.ADDRESS}={address}",
            f"unset {cluster.ADDRESS}, or start the cluster: ray start --head",
        )
    if address and address != "local":
        return Row("Ray", "ok", f"{version}; the cluster at {cluster.ADDRESS}={address} answers")
    if running:
        return Row(
            "Ray",
            "ok",
            f"{version}; a cluster runs here ({', '.join(running)}), which audits leave alone",
            f"export {cluster.ADDRESS}=auto to use it",
        )
    return Row("Ray", "ok", f"{version}; no cluster: audits run in this process, or start one for as long as they run")


def cores(usable: int, present: int, quota: float | None) -> Row:
    if usable >= present:
        return Row("cores", "ok", str(usable))
    why = "by the limit of its container" if quota is not None and quota <= usable else "by its affinity"
    return Row("cores", "ok", f"{usable} of the machine's {present}, {why}")


def memory(usable: int) -> Row:
    text = f"{_size(usable)} that this process may use"
    if usable >= ENOUGH_MEMORY:
        return Row("memory", "ok", text)
    return Row(
        "memory", "note", f"{text}, little for more than one model", "raise the container's limit, or --via here"
    )


def shared_memory(total: int | None, gpus: int) -> Row:
    """`total`: bytes of /dev/shm, None where there is none; `gpus`: those that this process may use."""
    if total is None:
        return Row("shared memory", "ok", f"no {machine.SHARED} here: Ray keeps its objects in files")
    text = f"{machine.SHARED} has {_size(total)}"
    if total >= ENOUGH_SHARED:
        return Row("shared memory", "ok", text)
    fed = ", too little to hand pictures to a GPU" if gpus else ""
    return Row(
        "shared memory",
        "note",
        f"{text}: Ray keeps its objects in files, which is slower{fed}",
        "start the container with --shm-size=8g, or run with --via here",
    )


def open_files(soft: int, hard: int) -> Row:
    if soft == resource.RLIM_INFINITY or soft >= ENOUGH_FILES:
        return Row("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} at once")
    most = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
    remedy = f"ulimit -n {most}" if most > soft else "raise the limit of your user (nofile) or container (--ulimit)"
    return Row("open files", "note", f"{soft:,} at once, few for a Ray cluster with many workers", remedy)


def place(runs: str) -> Row:
    """Checks that runs can be written, by a probe file that is removed, and what is free."""
    if is_remote(runs):
        try:
            probe = f"{runs.rstrip('/')}/.c2b-doctor-{uuid.uuid4().hex[:8]}"
            files.write_bytes(probe, b"")
            files.remove_file(probe)
        except C2BError as error:
            return Row("runs", "broken", str(error), "check the bucket's name and your credentials, or --runs FOLDER")
        return Row("runs", "ok", f"{runs} can be written")
    # The folder may not exist yet: then its nearest parent that does counts.
    folder = next(above for above in (Path(runs).absolute(), *Path(runs).absolute().parents) if above.is_dir())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Row("runs", "broken", f"{folder} cannot be written", f"chmod u+wx {folder}, or name another --out")
    free = shutil.disk_usage(folder).free
    text = f"{_size(free)} free in {folder}"
    if free < LEAST_DISK:
        return Row("runs", "broken", f"{text}, too little for a run", "free some, or name another --out")
    if free < ENOUGH_DISK:
        return Row(
            "runs", "note", f"{text}; generated images and indices take gigabytes", "name another --out for such"
        )
    return Row("runs", "ok", text)


def _installed() -> dict[str, str]:
    return {
        canonicalize_name(name): distribution.version
        for distribution in metadata.distributions()
        if (name := distribution.metadata["Name"])
    }


def _required() -> list[Requirement]:
    """Returns c2b-ray's requirements, and those of extras that they name, such as ray[serve]."""
    direct = [Requirement(line) for line in metadata.requires("c2b-ray") or ()]
    return [*direct, *(nested for requirement in direct for nested in _of_extras(requirement))]


def _of_extras(requirement: Requirement) -> Iterator[Requirement]:
    try:
        lines = metadata.requires(requirement.name) or () if requirement.extras else ()
    except metadata.PackageNotFoundError:  # the row of the package itself reports it
        return
    for nested in map(Requirement, lines):
        if not _applies(nested.marker, "") and any(_applies(nested.marker, extra) for extra in requirement.extras):
            nested.marker = requirement.marker
            yield nested


def _locked(text: str) -> dict[str, str]:
    """Returns what a lock file pins for this Python and platform: canonical name → version."""
    pinned: dict[str, str] = {}
    for line in text.splitlines():
        if line and not line[0].isspace() and line[0] != "#":
            requirement = Requirement(line.rstrip("\\ "))
            if _applies(requirement.marker, ""):
                pinned[canonicalize_name(requirement.name)] = str(next(iter(requirement.specifier)).version)
    return pinned


def _applies(marker: Marker | None, extra: str) -> bool:
    return marker is None or marker.evaluate({"extra": extra})


def _wrong(requirement: Requirement, installed: Mapping[str, str]) -> str:
    version = installed.get(canonicalize_name(requirement.name))
    if version is None:
        return f"{requirement.name} is missing"
    return (
        ""
        if requirement.specifier.contains(version, prereleases=True)
        else f"{requirement.name} {version}, not {requirement.specifier}"
    )


def _gpus() -> list[Gpu]:
    states = [state for number in range(nvml.count()) if (state := nvml.state(str(number))) is not None]
    return [Gpu(state.name, state.total, state.used, [_program(pid) for pid in state.pids]) for state in states]


def _program(pid: int) -> str:
    """Returns the name of a process, without its arguments, which may hold secrets."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # of another container or user, or ended
        name = "a process"
    return f"{name} ({pid})"


def _gpu_text(gpu: Gpu) -> str:
    has_memory = gpu.total is not None and gpu.used is not None
    memory = f", {_size(gpu.used or 0)} of {_size(gpu.total or 0)} in use" if has_memory else ""
    return f"{gpu.name}{memory}{' by ' + ', '.join(gpu.programs) if gpu.programs else ''}"


def _listed(items: Sequence[str]) -> str:
    remainder = f", and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return ", ".join(items[:_LISTED]) + remainder


def _size(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number >> 20} MiB"
