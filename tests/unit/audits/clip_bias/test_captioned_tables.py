"""Tables of images with captions: in CSV, in Parquet, and what is refused."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.audits.clip_bias.datasets import CaptionedTable
from c2b_ray.errors import ConfigError, SourceError


def table_of(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return CaptionedTable(str(path), "datasets.people", {}, ["coin"])


def images(*captions):
    return [{"image": f"{at}.png", "caption": caption, "coin": "heads"} for at, caption in enumerate(captions)]


def test_several_captions_are_a_list_in_parquet_and_a_json_list_in_csv(tmp_path):
    captions = [["a dog", "ein Höhlenbär"], ["a, \"quoted\" 'cat'"], []]
    expected = table_of(tmp_path / "t.parquet", images(*captions)).captions
    assert expected == captions
    assert table_of(tmp_path / "t.csv", images(*map(json.dumps, captions))).captions == expected
    mixed = table_of(tmp_path / "m.csv", images("[sic] a dog", '["a cat"]', ""))
    assert mixed.captions == [["[sic] a dog"], ['["a cat"]'], []]  # one of them is no list, so none is


def test_lists_that_are_no_json_are_refused_and_not_read_as_one_caption(tmp_path):
    as_pandas_writes_them = [str(["a dog", "it's"]), str(["a cat"])]
    with pytest.raises(ConfigError, match=r"datasets.people.table: .*row 0: the captions .* are no JSON list"):
        _ = table_of(tmp_path / "t.csv", images(*as_pandas_writes_them)).captions


def test_an_image_in_two_rows_is_refused_with_what_to_do(tmp_path):
    twice = [*images("a dog"), *images("a brown dog")]
    with pytest.raises(SourceError, match=r"'0\.png' occurs in two rows; .* a list of its captions"):
        table_of(tmp_path / "t.csv", twice)


def test_a_table_without_images_is_not_asked_for_classes(tmp_path):
    with pytest.raises(ConfigError, match="has no column 'image'") as caught:
        table_of(tmp_path / "t.csv", [{"file": "0.png", "caption": "a dog", "coin": "heads"}])
    assert "target_class" not in str(caught.value)
    assert "datasets.people.columns" in str(caught.value)
