"""What a file of `c2b clip-bias` may say that a mapping may not."""

from pathlib import Path

import pytest

from c2b_ray.audits.clip_bias.audit import read_clip_bias_config
from c2b_ray.errors import ConfigError

FILE = """
models: {fair: "world:clip-00"}
datasets: {people: {table: table.parquet, attributes: [companion], texts: TEXTS}}
"""


def test_texts_may_lie_in_a_file_beside_it(tmp_path: Path) -> None:
    # With a byte order mark, as editors on Windows write it.
    (tmp_path / "texts.txt").write_text("a clever sight\n\n something strange \n", encoding="utf-8-sig")
    config = tmp_path / "clip_bias.yaml"
    config.write_text(FILE.replace("TEXTS", "texts.txt"))
    assert read_clip_bias_config(config).datasets["people"].texts == ["a clever sight", "something strange"]


def test_a_file_of_texts_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = tmp_path / "clip_bias.yaml"
    config.write_text(FILE.replace("TEXTS", "absent.txt"))
    with pytest.raises(ConfigError, match=r"datasets\.people\.texts.*absent\.txt"):
        read_clip_bias_config(config)


def test_a_mapping_names_no_files_of_texts() -> None:
    with pytest.raises(ConfigError, match="texts"):
        read_clip_bias_config(
            {
                "models": {"fair": "world:clip-00"},
                "datasets": {"people": {"table": "t.parquet", "attributes": ["companion"], "texts": "/etc/hostname"}},
            }
        )
