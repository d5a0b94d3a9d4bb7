"""A Ray cluster to run on: the one that is there, or a small one on this machine that ends with the work.

It does not know what runs on it. Nothing is printed: what a person should see comes as progress or as an exception.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from c2b_ray.errors import ServiceError

ADDRESS = "RAY_ADDRESS"


@contextmanager
def ensure_ray(num_cpus: int | None = None, object_store_mb: int = 512) -> Iterator[bool]:
    """Runs the body with Ray: as this process is connected, else the cluster at RAY_ADDRESS, else a new one here.

    `num_cpus` (all, where None) and `object_store_mb` hold for a new cluster alone. Only what this call connected is
    disconnected at the end, and only a cluster that it started is stopped. Yields whether it started one, so that what
    runs on it ends with it. ServiceError where RAY_ADDRESS is silent.
    """
    ours = not ray.is_initialized()
    try:
        if ours:
            with _environment(), _handlers_kept():
                _connect(num_cpus, object_store_mb)
        _quiet()
        yield ours and not _elsewhere()
    finally:
        if ours:
            # Threads of Serve 2.60 that report to its controller go on, and complain of what has ended.
            logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
            ray.shutdown()


def reachable() -> bool:
    """Whether `ensure_ray` would join a cluster rather than start one."""
    return bool(ray.is_initialized()) or _elsewhere() is not None


@contextmanager
def _environment() -> Iterator[None]:
    """No report to Ray's makers, and nothing on the terminal from Ray's C++ side unless its variable asks for it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    # Ray 2.60 prints an error for every actor pool of Ray Data, about arguments that are Ray's own; told not to, it
    # prints that it was told. Past Python's own streams, so the descriptor is what must be closed for the moment.
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        del os.environ["RAY_BACKEND_LOG_LEVEL"]


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """The process's own handlers of signals after Ray's start: Ray 2.60 sets one of C++ that prints a stack trace."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)


def _elsewhere() -> str | None:
    address = os.environ.get(ADDRESS)
    return address if address != "local" else None


def _connect(num_cpus: int | None, object_store_mb: int) -> None:
    if address := _elsewhere():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ServiceError(f"no Ray cluster at {ADDRESS}={address}: {error}; unset it to run here alone") from error
        return
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
        )
    except Exception as error:  # Ray 2.60 raises a bare Exception where a process of its is not up within 30 seconds
        ray.shutdown()
        raise ServiceError(f"Ray did not start: {error} Is the machine busy, or short of memory?") from error


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
