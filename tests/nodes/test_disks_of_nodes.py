"""A node that lacks the folder which the others share: that is said before any work begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from raylets import Hardware, Raylets, await_nodes, refusal_of_namespaces

from c2b_ray.engine.cluster import check_on_every_node
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.errors import ConfigError, RunError

pytestmark = pytest.mark.timeout(900)
SCHEMA = pa.schema([("id", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=10, min_actors=3, max_actors=3), rows_per_file=10)


@pytest.fixture
def shared(nodes: Raylets, tmp_path: Path) -> Iterator[Path]:
    """A folder that a third node has, too, but empty and its own."""
    if why := refusal_of_namespaces():
        pytest.skip(f"a node without the others' disk needs a mount namespace of its own: {why}")
    folder = tmp_path / "shared"
    folder.mkdir()
    nodes.add("apart", Hardware(hidden=folder))
    await_nodes(3)
    yield folder
    if "apart" in nodes.nodes:
        nodes.kill("apart")
    await_nodes(2)


def test_a_directory_of_parts_that_is_not_on_every_node_is_named(nodes: Raylets, shared: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    source = Rows([pa.table({"id": [f"r{i}" for i in range(a, a + 10)]}) for a in range(0, 300, 10)])

    def step(batch: pa.Table, role: None) -> pa.Table:
        return pa.table({"id": batch["id"], "error": pa.nulls(batch.num_rows, pa.string())})

    def run() -> int:
        return OnRay().run(source, step, begun.touch, str(shared / "stage"), id_column="id", config=CONFIG).rows

    with pytest.raises(RunError, match=f"^{shared}/stage is not the same directory on every node of the cluster"):
        run()
    assert not begun.exists(), "work had begun"
    nodes.kill("apart")
    await_nodes(2)
    assert run() == 300


def test_a_file_to_read_that_is_not_on_every_node_is_named(shared: Path, tmp_path: Path) -> None:
    everywhere, here_alone = tmp_path / "images.parquet", shared / "images.parquet"
    for path in (everywhere, here_alone):
        path.touch()
    check_on_every_node(str(tmp_path), {str(everywhere): "images.table", "s3://bucket/images": "images.folder"})
    with pytest.raises(ConfigError, match=f"node .* does not have {here_alone}, which this one has") as raised:
        check_on_every_node(str(tmp_path), {str(everywhere): "images.folder", str(here_alone): "images.table"})
    assert raised.value.field == "images.table"
    with pytest.raises(ConfigError, match=f"{shared} is not the same directory on every node"):
        check_on_every_node(str(shared), {str(everywhere): "images.table"})
