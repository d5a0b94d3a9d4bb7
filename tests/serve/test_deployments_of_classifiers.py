"""Several classifiers in a replica of real Serve: the room that they have, and the answers that it keeps."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import numpy as np
import pytest
import ray
from requests_of_apps import pictures

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import Served
from c2b_ray.serving.pictures import pack


def test_a_replica_holds_the_classifiers_used_last(served: Served) -> None:
    images = pictures(2)

    def answer(name: str) -> None:
        there = served.classifier(name).logits(images, ["", ""])
        np.testing.assert_array_equal(there, catalog.classifier(name).logits(images, ["", ""]))

    for name in ("toy:a", "toy:bb", "toy:a", "toy:ccc"):
        answer(name)
    statistics = Channel("classifiers").call("statistics")
    assert statistics["models"] == ["toy:a", "toy:ccc"]
    with pytest.raises(SpecError):
        _ = served.classifier("tim:bb").labels
    # A misspelt name has thrown out nobody.
    assert Channel("classifiers").call("statistics")["models"] == statistics["models"]


def test_classifiers_make_room_by_the_bytes_of_their_weights(served: Served) -> None:
    images = pictures(2)
    for name in ("toy:a", "toy:heavy", "toy:heavy too"):  # 60 MB each of the latter, of 100 MB; two by their number
        served.classifier(name).logits(images, ["", ""])
    statistics = Channel("classifiers").call("statistics")
    assert statistics["models"] == ["toy:heavy too"]
    assert statistics["bytes"] == 60 * 10**6


def test_a_classifier_that_loads_keeps_no_other_from_answering(served: Served) -> None:
    images, loaded = pictures(2), threading.Event()
    served.classifier("toy:a").logits(images, ["", ""])

    def load() -> None:
        _ = served.classifier("toy:slow to load").labels
        loaded.set()

    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(0.5)
    for _ in range(3):
        served.classifier("toy:a").logits(images, ["", ""])
    assert not loaded.is_set()
    thread.join()


def test_an_image_that_was_answered_comes_from_memory_for_the_same_tenant_and_ray_shows_it(served: Served) -> None:
    images, channel = pictures(7), Channel("classifiers")
    classifier, other = served.classifier("toy:kept"), served.classifier("toy:kept")
    other.owner = "tenant_b"
    first = classifier.logits(images, [""] * 7)
    before = sum(channel.call("statistics")["batches"])
    again = classifier.logits(images[::-1], [""] * 7)
    assert again[::-1].tobytes() == first.tobytes()
    assert sum(channel.call("statistics")["batches"]) == before
    assert other.logits(images, [""] * 7).tobytes() == first.tobytes()
    assert sum(channel.call("statistics")["batches"]) == before + 7
    hits = exported("ray_c2b_cached_answers_total", 'application="classifiers"', 'outcome="hit"', least=7)
    fills = exported("ray_c2b_batch_fill_count", 'application="classifiers"', least=2)
    assert hits >= 7
    assert fills >= 2
    assert exported("ray_c2b_replica_rows_total", 'application="classifiers"', least=14) >= 14
    for part in ("decoding", "model"):
        assert exported("ray_c2b_replica_seconds_total", 'application="classifiers"', f'part="{part}"', least=1e-6) > 0


def exported(name: str, *labels: str, least: float) -> float:
    """The sum of a metric's series as Ray shows them, once it is so large; replicas report every ten seconds."""
    url, value = f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics", 0.0
    ends = time.monotonic() + 60
    while value < least and time.monotonic() < ends:
        time.sleep(1)
        lines = [line for line in httpx.get(url).text.splitlines() if line.startswith(name)]
        value = sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))
    return value


def test_single_requests_of_two_classifiers_are_answered_by_their_own(served: Served) -> None:
    images = pictures(20)
    channel = Channel("classifiers", in_flight=20)
    results: dict[str, list[Any]] = {}

    def ask(name: str) -> None:
        results[name] = channel.call_many("logits", [(pack([image]), [""]) for image in images], model_id=name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("toy:a", "toy:ccc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, found in results.items():
        expected = catalog.classifier(name).logits(images, [""] * 20)
        np.testing.assert_array_equal(np.concatenate([rows for rows, _ in found]), expected)
