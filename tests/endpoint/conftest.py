"""Labelled scenes, a classifier that answers as slowly as a test wants, and an endpoint to run audits of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from endpoint_work import LABELS, Site, site
from http_service import Service, serving_over_http

from c2b_ray.world.scenes import sample
from c2b_ray.world.table import labelled_table

ROWS = 1600


@dataclass
class Slow:
    """A classifier at `url` that a test slows down; an audit of `ROWS` images takes about `ROWS` / 64 of its delays."""

    url: str
    service: Service
    scenes: Path

    def audit(self, endpoint: Site) -> dict[str, Any]:
        return endpoint.audit(self.scenes, self.url)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few pictures, each under many keys: quickly made."""
    table = tmp_path_factory.mktemp("scenes") / "scenes.parquet"
    few = labelled_table([scene for scene in sample(600, seed=7) if scene.target_class in LABELS])
    rows = pa.concat_tables([few] * (ROWS // few.num_rows + 1)).slice(0, ROWS)
    rows = rows.set_column(rows.schema.get_field_index("key"), "key", pa.array([f"k{row:05d}" for row in range(ROWS)]))
    pq.write_table(rows, table, row_group_size=256)
    return table


@pytest.fixture(scope="session")
def classifier() -> Iterator[tuple[str, Service]]:
    with serving_over_http(list(LABELS)) as served:
        yield served


@pytest.fixture
def slow(scenes: Path, classifier: tuple[str, Service]) -> Slow:
    url, service = classifier
    service.delay_s = 0.15
    service.posts.clear()
    return Slow(url, service, scenes)


@pytest.fixture
def endpoint(tmp_path: Path, classifier: tuple[str, Service]) -> Iterator[Site]:
    with site(tmp_path, [classifier[0]]) as made:
        yield made
