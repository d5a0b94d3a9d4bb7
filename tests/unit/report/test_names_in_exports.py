"""Parts of a table are exported with the names of the whole table."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.report.export import exported, names_in, parquet_of
from c2b_ray.report.redact import clean, clean_setting, distinct_names

SCHEMA = pa.schema([("classifier", pa.string()), ("caption", pa.string()), pa.field("rate", pa.float32(), False)])
PATHS = ["net.onnx", "/a/b/net.onnx", "/c/d/net.onnx", "see /a/b/net.onnx", "see /c/d/net.onnx", "see net.onnx"]
SPECS = ["onnx:/a/net.onnx", "onnx:net.onnx"]
TEXTS = [*PATHS, *SPECS, "x", None, "a\nb /q/r/s", "token hf_abcdefghijklmnopqrstuvwxyz0123456789"]


@pytest.mark.parametrize("seed", range(20))
def test_every_part_has_the_names_of_the_whole_table(seed: int) -> None:
    draw = random.Random(seed)
    chosen = draw.sample(TEXTS, draw.randint(1, len(TEXTS)))
    rows = {
        "classifier": draw.choices(chosen, k=60),
        "caption": draw.choices(chosen, k=60),
        "rate": [float("nan")] * 60,
    }
    whole = pa.table(rows, schema=SCHEMA)
    at = sorted(draw.sample(range(60), 5))
    parts = [whole.slice(a, b - a) for a, b in zip([0, *at], [*at, 60], strict=True)]

    names = names_in(SCHEMA, lambda columns: (part.select(columns) for part in parts))
    together = pa.concat_tables([exported(part, names) for part in parts])

    assert together.equals(exported(whole))
    for column, shorten in (("classifier", clean_setting), ("caption", clean)):
        expected = distinct_names([text for text in rows[column] if text is not None], shorten)
        assert together[column].to_pylist() == [text if text is None else expected[text] for text in rows[column]]
    assert pq.read_table(pa.BufferReader(parquet_of(together)))["rate"].null_count == 60


def test_texts_are_looked_for_among_many_that_do_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "swordfish-swordfish")
    texts = [f"photo {number}" for number in range(10_000)]
    texts[4095], texts[4096], texts[9999] = (
        "the end is /srv/secret/one.png",
        "/srv/secret/two.png",
        "a swordfish-swordfish",
    )
    passes: list[list[str]] = []

    def read(columns: list[str]) -> Iterator[pa.Table]:
        passes.append(columns)
        yield pa.table({"caption": texts}).select(columns)

    [names] = names_in(pa.schema([("caption", pa.string())]), read).values()

    assert set(names) == {texts[4095], texts[4096], texts[9999]}
    assert not any("/srv" in name or "swordfish-" in name for name in names.values())
    assert passes == [["caption"]] * 2
