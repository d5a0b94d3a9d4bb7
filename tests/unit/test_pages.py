"""The pages that people read: every link of theirs leads somewhere, and the reference has every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import c2b_ray

ROOT = Path(__file__).parents[2]
FOLDERS = ["bench", "c2b_ray", "deployments", "docs", "k8s"]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])


def prose(page: Path) -> str:
    """The page without code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as git hosts and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The page's relative links without a file or folder, or without the heading that they name."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken(page) == []


def test_a_link_to_nothing_is_seen(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# It is — here\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](gone.md) [c](there.md#it-is--here) [d](there.md#not) [e](https://x.org) `[f](g.md)`\n"
    )
    assert broken(page) == ["gone.md", "there.md#not"]


def test_the_reference_has_every_public_name_once() -> None:
    named = re.findall(r"^::: c2b_ray\.(\w+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(set(c2b_ray.__all__) - {"__version__"})
