"""The audit's table: balanced groups, localities of one kind of scene, and a bias where it was planted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.world.table import TableOptions, audit_table, locality, mistaken_rows, scenes_of, write


def test_the_table_has_what_an_audit_reads(tmp_path: Path) -> None:
    write(tmp_path, TableOptions(n=24, captions=2))
    table = pq.read_table(tmp_path / "table.parquet")
    assert table.column_names[:4] == ["key", "image", "caption", "target_class"]
    assert Counter(table["companion"].to_pylist()) == {"dog": 12, "person": 12}
    assert all(len(texts) == 2 for texts in table["caption"].to_pylist())
    assert set(table["locality"].to_pylist()) == {None}
    texts = (tmp_path / "texts.txt").read_text().splitlines()
    assert len(texts) == len(set(texts)) > 20
    assert not any(word in text for text in texts for word in ("dog", "person", "red", "bus"))


def test_groups_are_equal_in_every_locality() -> None:
    rows = scenes_of(TableOptions(n=240, localities=6))
    cells = Counter((scene.target_class, scene.setting, scene.companion) for scene in rows)
    assert set(cells.values()) == {20}
    assert {(target, setting) for target, setting, _ in cells} == {locality(k) for k in range(6)}


@pytest.mark.parametrize("balanced", [True, False])
def test_a_planted_bias_lies_in_one_locality_and_evens_out_if_balanced(balanced: bool) -> None:
    options = TableOptions(n=1200, localities=6, planted=0.5, balanced=balanced)
    scenes = scenes_of(options)
    rows = mistaken_rows(scenes, options)
    inside = {k for k in rows if (scenes[k].target_class, scenes[k].setting) == locality(0)}
    assert len(inside) == 50
    assert {scenes[k].companion for k in inside} == {"person"}
    assert Counter(scenes[k].companion for k in rows) == ({"person": 50, "dog": 50} if balanced else {"person": 50})


def test_mistaken_captions_are_those_that_the_table_says() -> None:
    options = TableOptions(n=60, localities=2, planted=1.0, balanced=False)
    honest, mistaken = audit_table(TableOptions(n=60, localities=2)), audit_table(options)
    differs = [a != b for a, b in zip(honest["caption"].to_pylist(), mistaken["caption"].to_pylist(), strict=True)]
    assert differs == mistaken["mistaken"].to_pylist()
    assert honest["image"].equals(mistaken["image"])


def test_impossible_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match="two localities"):
        TableOptions(planted=0.5)
    with pytest.raises(ConfigError, match="groups need another attribute"):
        TableOptions(localities=3, attribute="setting", values=("beach", "street"))
