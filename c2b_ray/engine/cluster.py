"""Connects to a Ray cluster or starts a small one, and reads what its nodes have and its autoscaler can start."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ray
import ray._private.state
import ray.exceptions
from ray._private import auto_init_hook, services
from ray._private.node import Node
from ray.job_config import JobConfig
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tenacity import (
    Retrying,
    retry_if_not_exception_type,
    retry_if_not_result,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)

from c2b_ray.engine import machine
from c2b_ray.engine.placement import Cluster, NodeResources
from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.storage import is_remote
from c2b_ray.storage.parts import few_heaps

ADDRESS = "RAY_ADDRESS"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no report to Ray's makers
    "RAY_worker_niceness": "0",  # by default 15, with which workers starve beside anything else that runs
    # Seconds, enough for a busy machine; Ray 2.60 gives up after 30 and 60.
    "RAY_gcs_server_port_wait_time_s": "180",
    "RAY_worker_register_timeout_seconds": "300",
}
"""Environment variables for a cluster that is started here and for its driver. Variables that are set win."""
STARTS = 5
RETRY_WAIT = wait_exponential(min=1, max=15)
LISTENS_WITHIN_S = 10.0
"""How long a cluster's head that was just started may take to listen. Ray 2.60 itself waits for minutes, and then ends
the process."""


@contextmanager
def ensure_ray(num_cpus: int | None = None, object_store_mb: int | None = None) -> Iterator[bool]:
    """Runs the body with Ray: over this process's connection, else the cluster at RAY_ADDRESS, else a new one here.

    `num_cpus` (None: all) and `object_store_mb` (None: `machine.object_store_mb`) apply to a new cluster only. At the
    end, only a connection made by this call is closed, and only a cluster started by it is stopped. Yields whether it
    started one, so that what runs on it can end with it. Raises ServiceError where the cluster at RAY_ADDRESS does not
    answer.
    """
    starts_ray = not ray.is_initialized()
    try:
        if starts_ray:
            few_heaps()
            with _environment(), _handlers_kept():
                _connect(num_cpus, object_store_mb or machine.object_store_mb())
        _quiet()
        yield starts_ray and not _elsewhere()
    finally:
        if starts_ray:
            # Threads of Serve 2.60 that report to its controller keep running, and log that it has ended.
            logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
            _stay_down()
            ray.shutdown()


def _stay_down() -> None:
    """Keeps Ray 2.60 from starting a cluster for threads that call it without one, as Serve's remaining threads do.

    Code that needs Ray after this must call `ray.init`.
    """
    if "ray.serve" in sys.modules:
        auto_init_hook.enable_auto_connect = False


def reachable() -> bool:
    """Returns whether `ensure_ray` would join a cluster rather than start one."""
    return bool(ray.is_initialized()) or _elsewhere() is not None


def here() -> list[str]:
    """Returns the addresses of the Ray clusters of which this machine has a node, by its processes."""
    return sorted(map(str, services.find_gcs_addresses()))  # type: ignore[no-untyped-call]


def answers(address: str, seconds: float = 2.0) -> bool:
    """Returns whether something listens at an address as of RAY_ADDRESS: auto, host:port or ray://host:port."""
    if address == "auto":
        return any(answers(address_here, seconds) for address_here in here())
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds):
            return True
    except (OSError, ValueError):
        return False


@contextmanager
def _environment() -> Iterator[None]:
    """Applies our settings, and hides the terminal output of Ray's C++ side unless its variable is set."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    # Ray 2.60 prints an error for every actor pool of Ray Data, about arguments that are Ray's own; with printing off,
    # it prints that it is off. It bypasses Python's streams, so the file descriptor must be redirected meanwhile.
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as null_device:
            os.dup2(null_device.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        del os.environ["RAY_BACKEND_LOG_LEVEL"]


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restores the process's signal handlers after Ray's start: Ray 2.60 sets a C++ handler that prints a stack
    trace."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)


def _elsewhere() -> str | None:
    address = os.environ.get(ADDRESS)
    return address if address != "local" else None


def _connect(num_cpus: int | None, object_store_mb: int) -> None:
    if address := _elsewhere():
        if not _listens(address):
            raise ServiceError(_refusal(address, ConnectionError("nothing listens there")))
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, job_config=_job(address))
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ServiceError(_refusal(address, error)) from error
        return
    # Ray 2.60 raises a bare Exception where one of its processes is not up within 30 seconds; the limit is fixed.
    # Wrong arguments are not tried again.
    wrong = retry_if_not_exception_type((ValueError, TypeError))
    try:
        for attempt in Retrying(stop=stop_after_attempt(STARTS), wait=RETRY_WAIT, retry=wrong, reraise=True):
            with attempt:
                _start(num_cpus, object_store_mb)
    except Exception as error:
        raise ServiceError(
            f"Ray did not start, the last of up to {STARTS} times because: {error} Is the machine busy, or short of "
            "memory? A small run does without Ray: via here"
        ) from error


def _listens(address: str) -> bool:
    """Returns whether something listens at an address, if it names a host and a port."""
    if not re.fullmatch(r"(ray://)?[^/]+:\d+", address):
        return True
    waiting = Retrying(
        stop=stop_after_delay(LISTENS_WITHIN_S),
        wait=wait_fixed(0.5),
        retry=retry_if_not_result(bool),
        retry_error_callback=lambda _: False,
    )
    return bool(waiting(answers, address))


class _Job(JobConfig):
    """A job whose workers import from where this process does, and from nowhere else.

    Ray 2.60 puts the working directory first for workers, where a user's `random.py` would stand for Python's. A
    command does not look there.
    """

    def _serialize(self) -> str:
        searched = {os.path.abspath(folder) for folder in sys.path}
        self._py_driver_sys_path = [folder for folder in self._py_driver_sys_path if folder in searched]
        return super()._serialize()


def _job(address: str) -> JobConfig:
    """Returns a job's settings. A server of Ray's client starts the driver itself, in a folder of its own."""
    return JobConfig() if address.startswith("ray://") else _Job()


def _start(num_cpus: int | None, object_store_mb: int) -> None:
    try:
        # Without address="local" Ray would join whichever cluster `ray start` last left running on this machine,
        # another user's included.
        ray.init(
            address="local",
            num_cpus=num_cpus,
            object_store_memory=object_store_mb * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            job_config=_Job(),
        )
    except Exception as error:
        ray.shutdown()
        _end_half_started(error)
        raise


def _end_half_started(error: Exception) -> None:
    """Ends the processes of a node that failed while it started: Ray 2.60 forgets it, and they would run, and slow the
    next start, until this process ends. Only the error's traceback still holds it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node) and hasattr(node, "all_processes"):
            node.kill_all_processes(check_alive=False, allow_graceful=True)
            return


def _refusal(address: str, error: BaseException) -> str:
    """Returns why the cluster at the address could not be joined, and what to do."""
    cause: BaseException | None = error
    while cause is not None:
        # Ray 2.60 passes its AuthenticationError on as text. `ray start` asks for a token where the home folder has
        # one, as after any local run; a driver with an address sends it only on request.
        if "AuthenticationError" in str(cause):
            return (
                f"the Ray cluster at {ADDRESS}={address} asks for a token: set RAY_AUTH_MODE=token, with the cluster's "
                "token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
            )
        cause = cause.__cause__
    return f"no Ray cluster at {ADDRESS}={address}: {error}; unset it to run here alone"


def _quiet() -> None:
    import ray.data

    # Ray 2.60 logs the whole of a user's exception three times over, in Ray's own words; it still reaches the log file.
    for handler in logging.getLogger("ray.data").handlers:
        if handler.get_name() == "console":
            handler.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # Ray 2.60's own defaults set options that it deprecates: the first look at the context warns three times.
        warnings.simplefilter("ignore", DeprecationWarning)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.enable_stats_summary_collection = False


# Checks that local paths exist on every node: a path that only one node has would fail in the middle of a stage.


PATIENCE_S = 60.0
ADVICE = "put it on s3://, or on a disk that all nodes mount at the same path"


def check_on_every_node(out: str | None, read: Mapping[str, str]) -> None:
    """Raises ConfigError where a node of the cluster lacks a path that this process has. On one node it checks nothing.

    `out`: the directory that workers write into, which must be the same directory on every node; this process has made
    it. `read`: file or folder that workers read, of which each node may have a copy → the field that names it.
    """
    field_of_path = {
        os.path.abspath(os.path.expanduser(path)): field for path, field in read.items() if not is_remote(path)
    }
    field_of_path = {
        path: field for path, field in field_of_path.items() if os.path.exists(path)
    }  # an absent one is refused for that
    nonce = None if out is None or is_remote(out) else os.path.join(os.path.abspath(out), f".nodes-{uuid.uuid4().hex}")
    if nonce is not None:
        open(nonce, "xb").close()
    try:
        missing = node_without([*field_of_path, *([nonce] if nonce else [])])
    finally:
        if nonce is not None:
            with suppress(FileNotFoundError):
                os.unlink(nonce)
    if missing is None:
        return
    path, address = missing
    if path == nonce:
        raise ConfigError("out", not_shared(str(out), address))
    raise ConfigError(
        field_of_path[path], f"node {address} of the cluster does not have {path}, which this one has; {ADVICE}"
    )


def not_shared(directory: str, address: str) -> str:
    return f"{directory} is not the same directory on every node of the cluster: node {address} differs; {ADVICE}"


def node_without(paths: list[str], nodes: Iterable[str] | None = None) -> tuple[str, str] | None:
    """Returns a path that some node lacks, and the address of that node; None where all nodes have all of them.

    `nodes`: the ids of the nodes, by default all `working_nodes`. A node that does not answer in time is taken to be
    leaving.
    """
    working = working_nodes()
    addresses = {node: working[node] for node in (working if nodes is None else nodes) if node in working}
    if not paths or not addresses:
        return None
    looks = {
        _look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(paths): address
        for node, address in addresses.items()
    }
    ready, late = ray.wait(list(looks), num_returns=len(looks), timeout=PATIENCE_S)
    for task in late:
        ray.cancel(task, force=True)
    for task in ready:
        with suppress(ray.exceptions.RayError):  # its node has gone
            if missing := ray.get(task):
                return missing[0], looks[task]
    return None


def working_nodes() -> dict[str, str]:
    """Returns id → address of the nodes with CPUs except this process's; nodes without CPUs run no stage's work."""
    own_node = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {
        node["NodeID"]: node["NodeManagerAddress"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("CPU") and node["NodeID"] != own_node
    }


def absent(paths: list[str]) -> list[str]:
    """Returns the paths that are not on this machine."""
    return [path for path in paths if not os.path.exists(path)]


@ray.remote(num_cpus=0, max_retries=0)
def _look(paths: list[str]) -> list[str]:
    return absent(paths)


# Reads what the nodes of the connected Ray cluster have, and what its autoscaler can start. It decides nothing.


SETTLE_S = 3.0
MOST_STARTABLE = 1000
"""The most nodes of one group that are counted; an autoscaler may allow any number."""


def cluster() -> Cluster:
    """Returns the cluster as it is now.

    Where GPUs are reserved it looks again for a few seconds: processes of a stage that has just ended, or of an index
    build before the audit, release their GPUs within seconds; replicas of Serve do not.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        nodes = _nodes()
        if all(node.gpus_left == node.gpus for node in nodes) or time.monotonic() > deadline:
            return Cluster(tuple(nodes), startable(nodes, ray._private.state.state.get_cluster_config()))
        time.sleep(0.25)


def present() -> Cluster:
    """Returns the cluster as it is at this moment, whoever holds its GPUs."""
    nodes = _nodes()
    return Cluster(tuple(nodes), startable(nodes, ray._private.state.state.get_cluster_config()))


def _nodes() -> list[NodeResources]:
    free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    nodes = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            resources, free_resources = node["Resources"], free.get(node["NodeID"], {})
            gpus = float(resources.get("GPU", 0.0))
            nodes.append(
                NodeResources(
                    float(resources.get("CPU", 0.0)), gpus, float(free_resources.get("GPU", 0.0)), dict(node["Labels"])
                )
            )
    return nodes


def object_store_bytes() -> int | None:
    """Returns the size of the smallest object store of a node with CPUs; None where no node says."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    sizes = [
        int(resources_of_node.get("object_store_memory", 0))
        for resources_of_node in resources
        if resources_of_node.get("CPU")
    ]
    return min((size for size in sizes if size), default=None)


def free_cpus() -> list[float]:
    """Returns the free CPUs of each node."""
    free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return [float(resources.get("CPU", 0.0)) for resources in free.values()]


def startable(nodes: Sequence[NodeResources], config: Any) -> tuple[NodeResources, ...]:
    """Returns nodes that an autoscaler can start besides the present ones, by its `ClusterConfig`; none without one.

    It names groups of nodes by their resources, because Ray Data, too, tells a node's group by them.
    """
    startable_nodes: list[NodeResources] = []
    for group in config.node_group_configs if config else ():
        cpus, gpus = float(group.resources.get("CPU", 0)), float(group.resources.get("GPU", 0))
        n_present = sum((node.cpus, node.gpus) == (cpus, gpus) for node in nodes)
        limit = group.max_count if group.max_count >= 0 else MOST_STARTABLE  # -1 where there is no limit
        startable_nodes += [NodeResources(cpus, gpus)] * max(0, min(limit, MOST_STARTABLE) - n_present)
    return tuple(node for node in startable_nodes if node.cpus)
