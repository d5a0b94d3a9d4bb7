"""The counters of a build for Prometheus, over HTTP while the build runs.

    c2b_dataset_draws_total                      images drawn
    c2b_dataset_kept_total                       rows that stay
    c2b_dataset_dropped_total{reason}            draws left out
    c2b_dataset_images_total{stage}              images that the models of a stage got
    c2b_dataset_seconds_total{stage}             seconds of a stage, summed over its processes

It knows names and numbers, not where they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from c2b_ray.audits.dataset.shards.workers import DRAWS, DROPPED, IMAGES, KEPT, SECONDS
from c2b_ray.errors import ConfigError
from c2b_ray.extras import needed_by

_PREFIX = "c2b_dataset_"
_LABELLED = {DROPPED: "reason", IMAGES: "stage", SECONDS: "stage"}
_HELP = {
    DRAWS: "Images drawn",
    KEPT: "Rows that stay",
    DROPPED: "Draws left out, by reason",
    IMAGES: "Images that the models of a stage got",
    SECONDS: "Seconds of a stage, summed over its processes",
}


class ScrapedCounts:
    """The counts that a scrape gets: the last ones reported."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}

    def tell(self, sums: Mapping[str, float]) -> None:
        # Counts that a process had not reported are lost when it dies; a counter must not decrease.
        self._sums = {name: max(value, self._sums.get(name, 0.0)) for name, value in {**self._sums, **sums}.items()}

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        for name, text in _HELP.items():
            label = _LABELLED.get(name)
            family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=[label] if label else [])
            for key, value in sorted(self._sums.items()):
                counter, _, label_value = key.partition(":")
                if counter == name:
                    family.add_metric([label_value] if label else [], value)
            yield family


@contextmanager
def exposed(port: int | None) -> Iterator[ScrapedCounts]:
    """Serves the counters on a port of this machine until the block ends; None serves nothing.

    Raises ConfigError where the port is taken.
    """
    counts = ScrapedCounts()
    if port is None:
        yield counts
        return
    with needed_by("--metrics-port"):
        from prometheus_client import CollectorRegistry, start_http_server
    registry = CollectorRegistry(auto_describe=False)
    registry.register(counts)
    try:
        server, thread = start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigError("--metrics-port", f"port {port} cannot be used: {error.strerror or error}") from error
    try:
        yield counts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
