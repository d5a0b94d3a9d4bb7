"""CONTRIBUTING maps the tree as it is, decisions are indexed, and the recipe of a model works as it is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DECISIONS = ROOT / "docs" / "decisions"


def test_the_map_names_every_room():
    table = PAGE.partition("| room |")[2].partition("\n\n")[0]
    named = {
        name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.partition("|")[2].partition("|")[0])
    }
    package = ROOT / "c2b_ray"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == rooms - {"__init__"}


def test_files_that_the_page_names_exist():
    named = set(re.findall(r"`((?:c2b_ray|tests|bench|docs|deployments|k8s)/[\w./]*)`", PAGE))
    assert len(named) > 10
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


ROOMS = {path.name for path in (ROOT / "c2b_ray").iterdir() if (path / "__init__.py").exists()}
FORMER = {"commands", "filesystems", "metrics", "pipelines", "schemas", "store"}
"""Rooms of the package before decision 036."""
FILE = re.compile(r"\.(html|json|jsonl|md|parquet|py|txt|yaml)$")


def gone(text: str) -> list[str]:
    """Names in backticks such as `stats.rates.Trials` that begin with a room and lead to no module or name of it."""
    wrong = []
    for name in re.findall(r"`(?:c2b_ray\.)?([a-z]\w*(?:\.\w+)+)`", text):
        room, *rest = name.split(".")
        if room in FORMER and not FILE.search(name):
            wrong.append(name)
        if room not in ROOMS or FILE.search(name):
            continue
        place = ROOT / "c2b_ray" / room
        while rest and place.is_dir() and ((place / rest[0]).is_dir() or (place / f"{rest[0]}.py").exists()):
            place = place / rest[0] if (place / rest[0]).is_dir() else place / f"{rest[0]}.py"
            rest = rest[1:]
        files = place.rglob("*.py") if place.is_dir() else [place]
        if rest and not any(re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")) for file in files):
            wrong.append(name)
    return wrong


def test_names_of_modules_in_pages_and_docstrings_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "c2b_ray").rglob("*.py")]
    found = {str(page.relative_to(ROOT)): gone(page.read_text(encoding="utf-8")) for page in pages}
    assert {page: names for page, names in found.items() if names} == {}


def test_a_name_that_leads_nowhere_is_seen():
    text = (
        "`stats.rates.Trials` `stats.rates.nothing_such` `stats.none_such` `metrics.json` `metrics.rates` `c2b_ray.x`"
    )
    assert gone(text) == ["stats.rates.nothing_such", "stats.none_such", "metrics.rates"]


def test_maps_of_packages_name_modules_that_exist():
    wrong = []
    for page in (ROOT / "c2b_ray").rglob("*.py"):
        text = page.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0]
        if page.name == "__init__.py":
            names = [
                name
                for line in re.findall(r"^    ([a-z_]+(?:, [a-z_]+)*)(?: {2,}|$)", text, re.M)
                for name in line.split(", ")
            ]
            wrong += [
                f"{page.parent.name}.{name}" for name in names
                if not (page.parent / name).is_dir() and not (page.parent / f"{name}.py").exists()
            ]  # fmt: skip
    assert wrong == []


def test_every_decision_is_in_the_index_with_its_title():
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(\w+)\]\(([\w.-]+)\): (.+)$", index, re.MULTILINE)
    files = sorted(DECISIONS.glob("[0-9]*.md"))
    titles = [path.read_text(encoding="utf-8").partition("\n")[0] for path in files]
    assert [(path.name, title) for path, title in zip(files, titles, strict=True)] == [
        (name, f"# {number}: {title}") for number, name, title in listed
    ]
    assert [path.name for path in files if not re.match(r"\d{3}[a-z]?-[a-z]", path.name)] == []


LIBRARY = """
import numpy as np


class Greyness:
    labels = ("grey", "colourful")
    revision = "1"

    def logits(self, images, keys):
        spread = np.asarray(images).std(axis=-1).mean(axis=(1, 2))
        return np.stack([-spread, spread], axis=1).astype(np.float32)


def load(spec):
    spec.options_among(())
    return Greyness()
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The recipe's second step from another package: a distribution with the entry point that the page names."""
    (group,) = re.findall(r'entry point `role\.scheme = "module:load"` in the group `([\w.]+)`', PAGE)
    (tmp_path / "greyness_of_pictures.py").write_text(LIBRARY)
    info = tmp_path / "greyness-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greyness\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nclassifier.greyness = greyness_of_pictures:load\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog.third_parties.cache_clear()
    yield
    catalog.third_parties.cache_clear()
    sys.modules.pop("greyness_of_pictures", None)


@pytest.mark.usefixtures("installed")
def test_the_recipe_of_a_model_adds_one_from_another_package():
    classifier = catalog.classifier("greyness:any")
    colourful = np.zeros((2, 8, 8, 3), np.uint8)
    colourful[1, ..., 0] = 255
    assert classifier.logits(colourful, ["a", "b"]).argmax(axis=1).tolist() == [0, 1]
    with pytest.raises(SpecError, match="colour"):
        catalog.classifier("greyness:any?colour=red")
