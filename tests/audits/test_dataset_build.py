"""Datasets of failures, built without Ray: what is in them, and that no interruption changes it."""

import json
import socket
from contextlib import contextmanager, suppress
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.commands.dataset.evaluate import evaluate
from c2b_ray.commands.dataset.export import export
from c2b_ray.commands.dataset.preflight import estimate
from c2b_ray.commands.dataset.show import show
from c2b_ray.commands.dataset.verify import verify
from c2b_ray.errors import ConfigError, RunError, SourceError
from c2b_ray.roles import GenerationRequest
from c2b_ray.steps.decode import decode
from c2b_ray.store.shards import ShardFiles
from c2b_ray.world.reader import read
from c2b_ray.world.render import render
from c2b_ray.world.renderer import Renderer
from c2b_ray.world.scenes import sample

CAPTIONS = "label,caption\nboat,a photo of a boat at night\nmug,a photo of a striped mug\nboat,a boat on the beach\n"


def answer(images):
    """A classifier that looks at one pixel: what it is shown is a boat where that pixel is dark, else a mug."""
    dark = np.array([image[3, 3].astype(int).sum() < 300 for image in images])
    return np.stack([dark * 4.0, ~dark * 4.0], axis=1).astype(np.float32)


def config(tmp_path, **changes):
    (tmp_path / "captions.csv").write_text(CAPTIONS)
    return {
        "captions": {"file": str(tmp_path / "captions.csv")},
        "images": {"generate": {"model": "world:renderer"}},
        "classifier": "set by the test",
        "draws_per_caption": 50,
        "cap_per_caption": 9,
        "shard_draws": 40,
        "batch": 16,
        **changes,
    }


def built(tmp_path, name="out", **changes):
    model = c2b_ray.InMemory(answer, ["boat", "mug"], revision="pixel")
    return c2b_ray.build_dataset(config(tmp_path, **changes), tmp_path / name, classifier={"pixel": model})


def canonical(location):
    """All rows and drops, in order, as Python's."""
    rows = c2b_ray.load_dataset(location).to_table().to_pylist()
    drops = [row for path in sorted((location / "drops").iterdir()) for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row["caption_number"], row["draw"])), drops


def test_the_failures_and_no_others_are_kept_and_every_drop_has_its_reason(tmp_path):
    result = built(tmp_path)
    rows, drops = canonical(tmp_path / "out")
    assert verify(str(tmp_path / "out")).problems == []
    assert len(rows) == result.rows
    assert len(rows) + len(drops) == result.draws == 150
    assert sum(result.drops.values()) == len(drops)
    renderer = Renderer()
    for row in rows:
        (image,) = renderer.generate([GenerationRequest(row["prompt"], row["seed"])])
        assert np.array_equal(decode(row["image"]), image.pixels)
        said = ["boat", "mug"][int(answer([image.pixels]).argmax())]
        assert row["predicted"] == said != row["label"] == read(row["caption"])["target_class"]
    assert len({row["image_id"] for row in rows}) == len(rows)
    per_caption = np.bincount([row["caption_number"] for row in rows])
    assert per_caption.max() <= 9
    assert {"not_failed", "over_cap"} <= set(result.drops)


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


def test_a_generator_without_a_usable_image_ends_the_build_with_its_reason(tmp_path):
    (tmp_path / "trams.csv").write_text("label,caption\ntram,a tram at night\n")
    model = c2b_ray.InMemory(answer, ["tram", "mug"], revision="pixel")
    said = "none of the first 50 images can be used .50 no_image.: the prompt names none of the world's classes"
    fields = config(tmp_path, captions={"file": str(tmp_path / "trams.csv")})
    with pytest.raises(SourceError, match=said):
        c2b_ray.build_dataset(fields, tmp_path / "out", classifier={"pixel": model})


def test_a_caption_without_its_label_is_refused_by_its_row(tmp_path):
    (tmp_path / "wrong.csv").write_text("label,caption\nboat,a boat\nmug,a cup of tea\n")
    with pytest.raises(ConfigError, match="row 2: the caption 'a cup of tea' does not name its label 'mug'"):
        built(tmp_path, captions={"file": str(tmp_path / "wrong.csv")})


def test_a_label_that_the_classifier_lacks_is_said_of_the_captions_by_the_build_and_by_its_dry_run(tmp_path):
    (tmp_path / "zebras.csv").write_text("label,caption\nzebra,a zebra at night\n")
    fields = config(tmp_path, captions={"file": str(tmp_path / "zebras.csv")}, classifier="world:resnet-control-0")
    said = "^captions: no label of world:resnet-control-0 is 'zebra'"
    with pytest.raises(ConfigError, match=said):
        c2b_ray.build_dataset(fields, tmp_path / "out")
    with pytest.raises(ConfigError, match=said):
        estimate(fields)


def test_a_file_of_captions_from_windows_is_read_and_one_in_another_encoding_says_what_to_do(tmp_path):
    file = tmp_path / "windows.csv"
    lines = ["label,caption", 'boat,"a boat, na\u00efve \u2615"', "boat,a boat", "boat,  a   boat ", ""]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    built(tmp_path, captions={"file": str(file)}, draws_per_caption=4)
    planned = pq.read_table(tmp_path / "out" / "captions.parquet").to_pylist()
    assert [row["caption"] for row in planned] == ["a boat, na\u00efve \u2615", "a boat"]
    file.write_bytes("label,caption\nboat,a boat caf\u00e9\n".encode("latin-1"))
    with pytest.raises(SourceError, match=r"windows\.csv: .* save it as UTF-8"):
        built(tmp_path, "other", captions={"file": str(file)})


def test_a_dataset_without_a_failure_is_whole_and_says_so_where_its_rows_are_wanted(tmp_path):
    result = built(tmp_path, name="no failure", true_below=1e-9)
    out = str(tmp_path / "no failure")
    assert (result.rows, result.drops) == (0, {"not_failed": 150})
    assert not verify(out).problems
    said = r"no failure: has no rows: of 150 draws none was kept \(150 not_failed\)"
    for use in (
        lambda: show(out, str(tmp_path / "pages")),
        lambda: export(out, "imagefolder", str(tmp_path / "files")),
        lambda: evaluate(out, ["world:resnet-control-0"], str(tmp_path / "numbers")),
    ):
        with pytest.raises(SourceError, match=said):
            use()
    assert {path.name for path in tmp_path.iterdir()} == {"captions.csv", "no failure"}


def test_what_the_captions_name_and_is_no_file_of_captions_is_said_so(tmp_path):
    with pytest.raises(SourceError, match="is a directory, no file"):
        built(tmp_path, captions={"file": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"captions\.run: .* it is no run of c2b failures"):
        built(tmp_path, captions={"run": str(tmp_path)})
    with pytest.raises(SourceError, match=r"captions\.csv: is not a dataset of failures"):
        show(str(tmp_path / "captions.csv"), str(tmp_path / "pages"))


@pytest.mark.parametrize("name", ["dataset.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["{", "[]", "{}"])
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


def test_labelled_images_stand_in_for_draws_and_keep_their_bytes(tmp_path):
    pictures = [render(scene) for scene in sample(24, 5)]
    files = [tmp_path / f"{number}.png" for number in range(24)]
    for path, pixels in zip(files, pictures, strict=True):
        Image.fromarray(pixels).save(path)
    lines = [f"{path.name},{['boat', 'mug'][number % 2]},{'ab'[number % 3 == 0]}" for number, path in enumerate(files)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,target_class,kind", *lines]))
    labelled = {"labelled": {"table": str(tmp_path / "labels.csv"), "by": ["kind"]}}
    result = built(tmp_path, images=labelled, captions=None, near_duplicates=None)
    rows, _ = canonical(tmp_path / "out")
    expected = [
        n for n, one in enumerate(pictures) if ["boat", "mug"][int(answer([one]).argmax())] != ["boat", "mug"][n % 2]
    ]
    assert sorted(row["seed"] for row in rows) == expected
    assert all(row["image"] == files[row["seed"]].read_bytes() for row in rows)
    assert {row["caption"] for row in rows} <= {f"a photo of a {c}, kind: {k}" for c in ("boat", "mug") for k in "ab"}
    assert result.draws == 24


def test_several_generators_draw_in_turn_and_several_classifiers_answer_for_each_image(tmp_path):
    both = {"generate": {"model": ["world:renderer", "world:renderer?mislabel=0.5"]}}
    model = c2b_ray.InMemory(answer, ["boat", "mug"], revision="pixel")
    other = c2b_ray.InMemory(lambda images: 1 - answer(images), ["boat", "mug"], revision="opposite")
    c2b_ray.build_dataset(
        config(tmp_path, images=both), tmp_path / "out", classifier={"pixel": model, "opposite": other}
    )
    rows, _ = canonical(tmp_path / "out")
    assert {row["generator"] for row in rows} == set(both["generate"]["model"])
    assert all(row["generator"].endswith("mislabel=0.5") == (row["draw"] % 2 == 1) for row in rows)
    assert {row["classifier"] for row in rows} == {"pixel", "opposite"}  # one of the two always fails
    opposite = c2b_ray.load_dataset(tmp_path / "out", "opposite").to_table().to_pylist()
    assert 0 < len(opposite) < len(rows)
    assert all(row["answers"][1]["failed"] for row in opposite)


def test_captions_of_hard_images_have_at_most_so_many_sentences(tmp_path):
    for number, scene in enumerate(sample(3, 5, target_class="boat")):
        Image.fromarray(render(scene)).save(tmp_path / f"{number}.png")
    (tmp_path / "hard.csv").write_text("image,target_class\n0.png,boat\n1.png,boat\n2.png,boat\n")
    said = ["a boat. it is night. it rains.", "a boat by day", "a boat. it is night. there is a dog."]
    (tmp_path / "said.json").write_text(json.dumps({"captions": said}))
    origin = {"images": str(tmp_path / "hard.csv"), "captioner": f"scripted:{tmp_path}/said.json"}
    result = built(tmp_path, captions=origin)
    captions = pq.read_table(tmp_path / "out" / "captions.parquet")["caption"].to_pylist()
    assert captions == ["a boat. it is night.", "a boat by day"]  # the third is the first again
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["plan"]["repeated_captions"] == 1
    assert result.draws == 100


def test_prometheus_finds_what_is_counted_while_the_build_runs(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scraped = []

    def listen(event):
        if event.progress is not None:
            scraped.append(urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())

    model = c2b_ray.InMemory(answer, ["boat", "mug"], revision="pixel")
    fields = config(tmp_path)
    result = c2b_ray.build_dataset(
        fields, tmp_path / "out", listener=listen, classifier={"pixel": model}, metrics_port=port
    )
    assert "c2b_dataset_draws_total 150.0" in scraped[-1]
    assert f"c2b_dataset_kept_total {result.rows}.0" in scraped[-1]
    assert f'c2b_dataset_dropped_total{{reason="not_failed"}} {result.drops["not_failed"]}.0' in scraped[-1]
    assert 'c2b_dataset_images_total{stage="classify"} 150.0' in scraped[-1]
