"""Which of the world's models there are depends on the weights that are there."""

from pathlib import Path

import pytest

from c2b_ray.world import zoo


def test_models_without_weights_are_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "config.json").write_text("{}")
    (tmp_path / "clip").mkdir()
    monkeypatch.setattr(zoo, "WEIGHTS", tmp_path)
    assert zoo.names() == ["renderer", "lm"]
    assert zoo.names("image_generator") == ["renderer"]
    assert zoo.names("classifier") == []
