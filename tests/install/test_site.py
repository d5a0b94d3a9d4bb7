"""The site builds from the pages without a broken link, as `make site` builds it, but for the gallery's runs."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import c2b_ray

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="mkdocs is not installed (make setup)")


class Ids(HTMLParser):
    """The ids of a page's elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if name == "id" and value}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # Not --quiet, which hides warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    return out


def test_every_page_of_the_repository_is_a_page(site: Path) -> None:
    pages = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
    ]
    places = [page.replace("README.md", "index.md").replace(".md", ".html") for page in pages]
    assert [place for place in places if not (site / place).exists()] == []
    assert (site / "docs/notebooks/first.html").exists()
    assert (site / "docs/papers/configs/c2b.yaml").exists()  # a page links to it


def test_the_reference_shows_every_public_name(site: Path) -> None:
    ids = Ids()
    ids.feed((site / "docs/api.html").read_text(encoding="utf-8"))
    named = {name.removeprefix("c2b_ray.") for name in ids.found}
    assert set(c2b_ray.__all__) - {"__version__"} <= named


def test_pages_ask_nothing_of_other_hosts(site: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    assert [text for text in pages if 'src="http' in text or 'rel="stylesheet" href="http' in text] == []
