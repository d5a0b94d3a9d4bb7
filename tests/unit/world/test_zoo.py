"""Which of the world's models there are depends on the weights that are there."""

from pathlib import Path

import pytest

from c2b_ray.models import weights
from c2b_ray.world import zoo


def test_models_without_weights_are_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "config.json").write_text("{}")
    (tmp_path / "clip").mkdir()
    monkeypatch.setattr(zoo, "WEIGHTS", tmp_path)
    assert zoo.names() == ["renderer", "linked", "lm"]
    assert zoo.names("image_generator") == ["renderer", "linked"]
    assert zoo.names("classifier") == []


def test_whether_a_name_is_known_is_asked_of_its_own_files_alone(monkeypatch):
    known = zoo.names()
    asked = []
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: asked.append(path) or is_file(path))
    for name in (*known, "resnet-plantd-0", "", "../x", "lm/../lm"):
        asked.clear()
        assert zoo.has(name) == (name in known), name
        assert {path.parent for path in asked} <= {zoo.WEIGHTS / name}


def test_every_file_of_weights_that_ships_is_whole() -> None:
    files = sorted(zoo.WEIGHTS.rglob("*.safetensors"))
    assert len(files) > 40
    assert not [file for file in files if file.is_symlink()], "a checkout may turn a link into a file of its text"
    for file in files:
        weights.checked(file)
