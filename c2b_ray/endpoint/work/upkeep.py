"""Runs the sender of webhooks and retention beside a dispatcher, in threads of its process. See `operate`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.operate.retention import Retention
from c2b_ray.endpoint.operate.webhooks import Sender

_log = logging.getLogger(__name__)


@contextmanager
def upkeep(db: Database, config: EndpointConfig, owner: str) -> Iterator[None]:
    """Runs both during the block; afterwards they have ended. `owner`: a unique name of this process."""
    with running([Sender(db, config).run, Retention(db, config, owner).run]):
        yield


@contextmanager
def running(work: list[Callable[[threading.Event], None]]) -> Iterator[None]:
    """Runs each function in a thread, until the block ends."""
    stop = threading.Event()
    threads = [threading.Thread(target=_guarded, args=(run, stop), name=run.__qualname__) for run in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _guarded(run: Callable[[threading.Event], None], stop: threading.Event) -> None:
    try:
        run(stop)
    except Exception:
        _log.exception("a thread of the endpoint ended; restart it")
        raise
