"""Builds of datasets of failures that ended early, were moved or damaged: they go on, and end with the same rows."""

import json
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from PIL import Image
from pixel_datasets import answer, built, canonical, config

import c2b_ray
from c2b_ray.audits.dataset.directory import verify
from c2b_ray.audits.dataset.shard_files import ShardFiles
from c2b_ray.errors import RunError, SourceError
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


@contextmanager
def killed_after(files):
    """Ends a build as it is about to write one file more than that."""
    publish, left = ShardFiles._publish, [files]

    def killed(self, *args, **kwargs):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        publish(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(ShardFiles, "_publish", killed)
        yield


@pytest.mark.long
def test_a_build_killed_anywhere_ends_with_the_same_rows(tmp_path):
    built(tmp_path, "whole")
    kills, result = 0, None
    while result is None:
        with killed_after(4 + kills % 3):
            result = built(tmp_path, "killed")
        kills += result is None
        assert kills < 60
    assert kills >= 4
    assert canonical(tmp_path / "killed") == canonical(tmp_path / "whole")
    manifest = json.loads((tmp_path / "killed" / "manifest.json").read_text())
    assert manifest["repeated"]["builds_ended_early"] == kills


def test_a_build_that_goes_on_says_how_far_it_is_of_all_draws(tmp_path):
    with killed_after(6):  # after the captions, and two files of each of two shards
        built(tmp_path)
    told = []
    model = c2b_ray.InMemory(answer, ["boat", "mug"], revision="pixel")
    c2b_ray.build_dataset(config(tmp_path), tmp_path / "out", listener=told.append, classifier={"pixel": model})
    drawn = [event.progress for event in told if event.progress and event.step == "draw and classify"]
    resumed = {progress.resumed for progress in drawn}
    assert len(resumed) == 1
    assert resumed <= {40, 80}
    assert drawn[0].done == drawn[0].resumed
    assert max(progress.done for progress in drawn) == drawn[-1].done == drawn[-1].total == 150
    assert drawn[-1].resumed + drawn[-1].rows == 150


def labelled_images(folder):
    """A folder of pictures, some of them lighter copies of others, with a table and a hierarchy."""
    folder.mkdir()
    pictures = [render(scene) for scene in sample(60, 5)]
    for number, picture in enumerate(pictures):
        if number % 7 == 6:
            picture = np.clip(pictures[number - 2].astype(int) + 6, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"{number}.png")
    lines = [f"{number}.png,{['boat', 'mug'][number % 2]}" for number in range(60)]
    (folder / "labels.csv").write_text("\n".join(["image,target_class", *lines]))
    (folder / "parents.yaml").write_text("boat: ship\nmug: cup\n")


def test_a_build_goes_on_where_its_folder_was_moved_to(tmp_path):
    labelled_images(tmp_path / "here")

    def built_in(folder, out):
        images = {"labelled": {"table": str(folder / "labels.csv")}}
        fields = {"images": images, "captions": None, "hierarchy": str(folder / "parents.yaml"), "shard_draws": 10}
        return built(tmp_path, out, **fields)

    assert built_in(tmp_path / "here", "whole").drops["near_duplicate"] >= 2
    with killed_after(6):
        built_in(tmp_path / "here", "here/out")
    assert (tmp_path / "here" / "out" / "dataset.json").exists()
    assert not (tmp_path / "here" / "out" / "manifest.json").exists()
    (tmp_path / "here").rename(tmp_path / "there")
    built_in(tmp_path / "there", "there/out")
    assert canonical(tmp_path / "there" / "out") == canonical(tmp_path / "whole")
    built_in(tmp_path / "there", "anew")  # nothing in its rows says where it lies
    assert canonical(tmp_path / "anew") == canonical(tmp_path / "whole")
    (tmp_path / "there" / "parents.yaml").write_text("boat: ship\nmug: ship\n")
    with pytest.raises(RunError, match="holds the dataset of another config"):
        built_in(tmp_path / "there", "there/out")


def test_a_damaged_or_lost_file_is_found_and_made_anew(tmp_path):
    built(tmp_path)
    before = {
        path: path.read_bytes() for folder in ("shards", "drops") for path in (tmp_path / "out" / folder).iterdir()
    }
    shards = sorted((tmp_path / "out" / "shards").iterdir())
    drops = sorted((tmp_path / "out" / "drops").iterdir())
    data = bytearray(shards[0].read_bytes())
    data[len(data) // 2] ^= 1
    shards[0].write_bytes(data)
    shards[1].write_bytes(shards[1].read_bytes()[:-100])
    drops[1].unlink()
    drops[2].write_bytes(b"")
    problems = verify(str(tmp_path / "out")).problems
    assert len(problems) == 4
    assert all(any(path.name in line for line in problems) for path in (shards[0], drops[2]))
    built(tmp_path)
    assert {path: path.read_bytes() for path in before} == before
    assert verify(str(tmp_path / "out")).problems == []


def test_another_config_is_refused_with_both_hashes(tmp_path):
    built(tmp_path)
    theirs = json.loads((tmp_path / "out" / "dataset.json").read_text())["config_hash"]
    with pytest.raises(RunError, match=f"its hash is {theirs}, this one's is [0-9a-f]{{20}} .the seed differs"):
        built(tmp_path, seed=1)


@pytest.mark.parametrize("name", ["dataset.json", "manifest.json"])
@pytest.mark.parametrize(
    "damage", ["{", "[]", "{}", '{"config_hash": "", "rows": 0, "drops": {}, "shards": [{"rows": 0}]}']
)
def test_a_damaged_document_is_named_and_made_anew_once_it_is_removed(tmp_path, name, damage):
    built(tmp_path)
    before = canonical(tmp_path / "out")
    document = tmp_path / "out" / name
    document.write_text(damage)
    for use in (lambda: verify(str(tmp_path / "out")), lambda: built(tmp_path)):
        with pytest.raises(SourceError, match=f"{name}: .*; delete it and build again"):
            use()
    document.unlink()
    if name == "dataset.json":
        with pytest.raises(RunError, match="holds the dataset of another config"):
            built(tmp_path, seed=1)
    assert built(tmp_path).made == 0
    assert not verify(str(tmp_path / "out")).problems
    assert canonical(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: manifest["shards"].pop(), "lists 3 shards, of 4 in the plan"),
        (lambda manifest: manifest["shards"].reverse(), "in another order"),
        (lambda manifest: manifest.update(rows=1), "says 1 rows"),
        (lambda manifest: manifest.update(draws=1), "says 1 draws, of 150 in the plan"),
        (lambda manifest: manifest["drops"].update(over_cap=1), "its counts of drops"),
    ],
)
def test_a_manifest_that_contradicts_its_shards_is_found_and_made_anew(tmp_path, change, said):
    built(tmp_path)
    path = tmp_path / "out" / "manifest.json"
    whole = json.loads(path.read_text())
    changed = json.loads(path.read_text())
    change(changed)
    path.write_text(json.dumps(changed))
    assert said in verify(str(tmp_path / "out")).problems[0]
    assert built(tmp_path).made == 0
    assert verify(str(tmp_path / "out")).problems == []
    now = json.loads(path.read_text())
    assert all(now[name] == whole[name] for name in ("shards", "rows", "draws", "drops"))
