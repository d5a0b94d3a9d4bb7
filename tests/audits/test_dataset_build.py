"""Datasets of failures, built without Ray: what is in them, and what their captions and images may be."""

import hashlib
import json
import socket
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pixel_datasets import answer, built, canonical, config

import c2b_ray
from c2b_ray.audits.dataset.directory import verify
from c2b_ray.audits.dataset.evaluation import evaluate
from c2b_ray.audits.dataset.export import export
from c2b_ray.audits.dataset.plan import estimate
from c2b_ray.audits.dataset.show import show
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.roles import GenerationRequest
from c2b_ray.steps.decode import decode
from c2b_ray.storage.files import read_table, write_table
from c2b_ray.world.queries import read
from c2b_ray.world.render import Renderer, render
from c2b_ray.world.scenes import sample


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
    assert all(row["key"] == files[row["seed"]].name for row in rows)
    assert {row["caption"] for row in rows} <= {f"a photo of a {c}, kind: {k}" for c in ("boat", "mug") for k in "ab"}
    assert result.draws == 24


def test_a_dataset_whose_rows_an_older_release_wrote_is_whole(tmp_path):
    """Its rows have no column `key`; a dataset that lacks another one is not whole."""
    built(tmp_path)
    manifest = tmp_path / "out" / "manifest.json"
    for lost, problems in ((["key"], 0), (["draw"], 1)):
        about = json.loads(manifest.read_text())
        for entry in about["shards"][:1]:
            shard = tmp_path / "out" / "shards" / entry["name"]
            write_table(shard, read_table(shard).drop_columns(lost))
            entry |= {"bytes": shard.stat().st_size, "sha256": hashlib.sha256(shard.read_bytes()).hexdigest()}
        manifest.write_text(json.dumps(about))
        found = [one for one in verify(str(tmp_path / "out")).problems if "other columns" in one]
        assert len(found) == problems  # and that the manifest was changed here


def test_rows_of_a_table_without_a_value_are_counted_wherever_the_build_says_what_it_left_out(tmp_path):
    for number, scene in enumerate(sample(8, 5)):
        Image.fromarray(render(scene)).save(tmp_path / f"{number}.png")
    lines = ["0.png,boat,a,x", "1.png,boat,,x", "2.png,mug,b,", "3.png,mug,,", "4.png,,a,x", "5.png,mug,b,x"]
    lines += ["6.png,boat,a,x", "7.png,mug,a,x"]
    (tmp_path / "labels.csv").write_text("\n".join(["image,target_class,kind,place", *lines]))
    labelled = {"labelled": {"table": str(tmp_path / "labels.csv"), "by": ["kind", "place"]}}
    heard = []
    model = c2b_ray.InMemory(lambda images: 1 - answer(images), ["boat", "mug"], revision="other")
    result = c2b_ray.build_dataset(
        config(tmp_path, images=labelled, captions=None, near_duplicates=None), tmp_path / "out",
        classifier={"other": model, "pixel": c2b_ray.InMemory(answer, ["boat", "mug"], revision="pixel")},
        listener=heard.append,
    )  # fmt: skip
    missing = {"target_class": 1, "kind": 2, "place": 1}  # row 3 lacks both, and counts once
    assert result.without_value == missing
    assert result.draws + sum(missing.values()) == 8
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["without_value"] == missing
    told = "left out 1 row without target_class, 2 rows without kind and 1 row without place"
    assert any(told in str(event) for event in heard)
    show(str(tmp_path / "out"), str(tmp_path / "pages"))
    assert "without kind in the table</dt><dd>2<" in (tmp_path / "pages" / "index.html").read_text()
    export(str(tmp_path / "out"), "imagefolder", str(tmp_path / "exported"))
    assert "| without place in the table | 1 |" in (tmp_path / "exported" / "README.md").read_text()


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
