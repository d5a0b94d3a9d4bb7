"""A Ray cluster to run on: the one that is there, or a small one on this machine that ends with the work.

It does not know what runs on it. Nothing is printed: what a person should see comes as progress or as an exception.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray._private import auto_init_hook
from tenacity import Retrying, retry_if_not_exception_type, stop_after_attempt, wait_exponential

from c2b_ray.errors import ServiceError

ADDRESS = "RAY_ADDRESS"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no report to Ray's makers
    "RAY_worker_niceness": "0",  # by default 15, with which workers starve beside anything else that runs
    # Seconds, so many that a busy machine gets there; Ray 2.60 gives up after 30 and 60.
    "RAY_gcs_server_port_wait_time_s": "180",
    "RAY_worker_register_timeout_seconds": "300",
}
"""What a cluster that is started here, and its driver, find in the environment, unless it says otherwise."""
STARTS = 5
RETRY_WAIT = wait_exponential(min=1, max=15)


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
            _stay_down()
            ray.shutdown()


def _stay_down() -> None:
    """Ray 2.60 starts a cluster for any thread that calls it without one. Serve's, which go on, would be such a thread;
    who wants Ray after this calls `ray.init`."""
    if "ray.serve" in sys.modules:
        auto_init_hook.enable_auto_connect = False


def reachable() -> bool:
    """Whether `ensure_ray` would join a cluster rather than start one."""
    return bool(ray.is_initialized()) or _elsewhere() is not None


@contextmanager
def _environment() -> Iterator[None]:
    """Our settings, and nothing on the terminal from Ray's C++ side unless its variable asks for it."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    # Ray 2.60 prints an error for every actor pool of Ray Data, about arguments that are Ray's own; with printing off,
    # it prints that it is off. Past Python's own streams, so the descriptor is what must be closed for the moment.
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
            raise ServiceError(_refusal(address, error)) from error
        return
    # Ray 2.60 raises a bare Exception where a process of its is not up within 30 seconds, a limit that cannot be set.
    # What is wrong with the arguments stays wrong.
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
        )
    except Exception:
        ray.shutdown()
        raise


def _refusal(address: str, error: BaseException) -> str:
    """Why the cluster at the address could not be joined, and what to do."""
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
