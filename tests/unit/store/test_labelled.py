import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.store.labelled import LabelledTable


def test_csv_with_paths(tmp_path):
    (tmp_path / "a.png").write_bytes(b"A")
    (tmp_path / "t.csv").write_text("image,target_class,weather,year\na.png,bus,snow,1\nb.png,boat, ,2\n,bus,rain,3\n")
    table = LabelledTable(str(tmp_path / "t.csv"))
    assert table.labels.to_pylist()[1] == {"target_class": "boat", "weather": None, "year": "2"}
    found = table.fetch([1, 0, 2]).to_pylist()
    assert found[1] == {"key": "a.png", "bytes": b"A", "error": None}
    assert "no such file" in found[0]["error"]
    assert found[2]["bytes"] is None


@pytest.mark.parametrize("huggingface", [False, True])
def test_parquet_with_bytes_in_many_row_groups(tmp_path, huggingface):
    data = [str(i).encode() for i in range(10)]
    image = pa.array([{"bytes": b, "path": None} for b in data] if huggingface else data)
    pq.write_table(
        pa.table({"image": image, "target_class": ["bus"] * 10, "w": ["a", "b"] * 5}),
        tmp_path / "t.parquet",
        row_group_size=3,
    )
    table = LabelledTable(str(tmp_path / "t.parquet"))
    assert table.fetch([9, 0, 4])["bytes"].to_pylist() == [b"9", b"0", b"4"]
    assert table.labels.column_names == ["target_class", "w"]


def test_mistakes_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("img,target_class\na,bus\n")
    with pytest.raises(ConfigError, match=r"no column 'image' \(did you mean 'img'"):
        LabelledTable(str(tmp_path / "t.csv"))
    (tmp_path / "u.csv").write_text("image,target_class\n")
    with pytest.raises(SourceError, match="no rows"):
        LabelledTable(str(tmp_path / "u.csv"))
    with pytest.raises(SourceError, match="no such table"):
        LabelledTable(str(tmp_path / "v.parquet"))
    (tmp_path / "w.parquet").write_bytes(b"not parquet")
    with pytest.raises(SourceError, match="not a Parquet file"):
        LabelledTable(str(tmp_path / "w.parquet"))
