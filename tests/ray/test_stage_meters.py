"""What a stage on Ray waits for: in its result, in its progress, and where Prometheus reads it."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
import ray

from c2b_ray.config.placement import PlacementConfig
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig

SCHEMA = pa.schema([("id", pa.string())])
ROWS = 240


def slowly(rows: pa.Table) -> pa.Table:
    time.sleep(0.01 * rows.num_rows)
    return rows


def answer(rows: pa.Table, role: None) -> pa.Table:
    time.sleep(0.001 * rows.num_rows)
    return rows


def scraped() -> dict[str, float]:
    """The series of stages, as Ray shows them."""
    port = ray.nodes()[0]["MetricsExportPort"]
    lines = httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("ray_c2b_")}


def total(series: dict[str, float], name: str, *labels: str) -> float:
    return sum(value for key, value in series.items() if key.startswith(name) and all(label in key for label in labels))


@pytest.mark.parametrize("decoders", [0, 1])
def test_the_busy_parts_of_a_stage_are_seen(tmp_path: Path, decoders: int) -> None:
    seen: list[Progress] = []
    placement = PlacementConfig.model_validate(
        {"stages": {"classify": {"decoders": decoders, "batch": 8, "threads": 1, "cpus": 0.5}}}
    )
    rows = Rows([pa.table({"id": [f"{i}" for i in range(start, start + 24)]}) for start in range(0, ROWS, 24)])
    config = StageConfig(SCHEMA, stage="classify", rows_per_file=24)
    before = total(scraped(), "ray_c2b_stage_rows_total", 'stage="classify"')
    runner, out = OnRay(placement), str(tmp_path / "out")
    result = runner.run(
        rows, answer, lambda: None, out, id_column="id", config=config, on_progress=seen.append, prepare=slowly
    )
    assert result.busy is not None
    shares = result.busy.shares
    assert set(shares) == {"reading", "decoding", "model"}
    assert shares["decoding"] > 2 * shares["model"] > 0
    assert runner.stages["classify"]["busy"] == result.busy.record()
    assert any(progress.busy is not None for progress in seen)
    ends = time.monotonic() + 60  # Ray's processes report every ten seconds
    while time.monotonic() < ends:
        series = scraped()
        if total(series, "ray_c2b_stage_rows_total", 'stage="classify"') >= before + ROWS:
            break
        time.sleep(1)
    assert total(series, "ray_c2b_stage_rows_total", 'stage="classify"') == before + ROWS
    for part in shares:
        assert [key for key in series if key.startswith("ray_c2b_stage_busy") and f'part="{part}"' in key]
