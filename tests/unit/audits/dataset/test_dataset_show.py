"""Pages of a dataset reach every image where there is room, and stay few and small where there is not."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from synthetic_dataset import Recipe, write_dataset

from c2b_ray.audits.dataset import show as showing
from c2b_ray.audits.dataset.export import load_dataset
from c2b_ray.audits.dataset.show import PageOf, limit_of, show, value_page
from c2b_ray.errors import RunError
from c2b_ray.storage.failure_dataset import open_dataset

LABELS = {"mug": "<script>alert(1)</script>", "bus": "../bus"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    location = tmp_path_factory.mktemp("failures") / "dir"
    write_dataset(location, Recipe(("world:resnet-planted-1", "world:resnet-planted-0"), 9, 10, LABELS))
    return str(location)


def ids_below(folder):
    """Image ids by value page, in the order of the pages."""
    pages: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.html"), key=lambda f: [int(n) for n in f.stem.split("-")]):
        pages.setdefault(file.stem.partition("-")[0], []).extend(
            re.findall(r'class="file">([0-9a-f]+)<', file.read_text())
        )
    return pages


def test_every_image_is_on_a_page_of_each_of_its_values(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(showing, "ON_A_PAGE", 4)
    monkeypatch.setattr(showing, "HELD_BYTES", 20_000)  # a few thumbnails: the others wait on the disk
    result = show(dataset, str(tmp_path / "out"))
    opened = open_dataset(dataset)
    rows = [row for t in opened.tables([s.name for s in opened.shards]) for row in t.to_pylist()]
    assert result.images == result.rows == len(rows) == 54
    for column, folder in showing.FACETS.items():
        expected: dict[str, list[str]] = {}
        for row in rows:
            expected.setdefault(row[column], []).append(row["image_id"])
        ordered = sorted(expected.items(), key=lambda item: (-len(item[1]), item[0]))
        assert ids_below(tmp_path / "out" / folder) == {str(n): ids for n, (_, ids) in enumerate(ordered)}
    index = (tmp_path / "out" / "index.html").read_text()
    linked = re.findall(r'href="([a-z]+/\d+-1\.html)"', index)
    assert len(linked) == 3 + 6 + 3 + 3
    assert all((tmp_path / "out" / link).is_file() for link in linked)
    assert "<script>alert" not in index
    assert "&lt;script&gt;alert" in index
    assert {file.suffix for file in (tmp_path / "out").rglob("*") if file.is_file()} == {".html", ".json"}
    with pytest.raises(RunError, match="holds files already"):
        show(dataset, str(tmp_path / "out"))


def test_a_facet_with_too_many_images_shows_the_first_of_each_value_and_says_so(dataset, tmp_path):
    result = show(dataset, str(tmp_path / "out"), most=6)
    counts = Counter({name: len(ids) for name, ids in ids_below(tmp_path / "out" / "label").items()})
    assert counts == {"0": 2, "1": 2, "2": 2}
    assert sum(len(ids) for ids in ids_below(tmp_path / "out" / "caption").values()) == 6
    assert "The first 2 of 18 images" in (tmp_path / "out" / "label" / "0-1.html").read_text()
    assert result.images < result.rows


def test_one_classifiers_failures_are_shown_with_its_answers(dataset, tmp_path):
    result = show(dataset, str(tmp_path / "out"), "world:resnet-planted-0")
    assert result.rows == 18
    assert "../bus → house" in (tmp_path / "out" / "label" / "0-1.html").read_text()


def test_a_dataset_of_an_older_release_is_shown_and_loaded(tmp_path):
    """Its rows have no column `key`."""
    location = tmp_path / "older"
    write_dataset(location, Recipe(older=True))
    assert show(str(location), str(tmp_path / "out")).images == 48
    rows = load_dataset(location).to_table(columns=["image_id", "key"])
    assert (rows.num_rows, rows["key"].null_count) == (48, 48)


def test_an_image_with_a_file_shows_its_name_and_a_generated_one_its_id():
    record = {"image": "", "image_id": "ab12", "label": "bus", "caption": "a bus", "predicted": "boat",
              "kept_because": "top1", "seed": 3}  # fmt: skip
    pages = [
        value_page(PageOf("label", "bus", 0, (1, 1), (1, 1)), [record | {"key": key}], 0) for key in ("n/7.jpg", None)
    ]
    assert [re.findall(r'class="file">([^<]+)<', page) for page in pages] == [["n/7.jpg"], ["ab12"]]


def test_a_limit_is_the_largest_that_fits():
    assert limit_of([100, 50, 3], 60) == 28  # 28 + 28 + 3 = 59, and 29 + 29 + 3 would be 61
    assert limit_of([5, 5], 100) == 5
    assert limit_of([9] * 7, 3) == 1
