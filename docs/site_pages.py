"""Which files of the repository are pages of the site (a hook of MkDocs; see mkdocs.yml).

Pages keep the paths that they have in the repository, so their links need no rewriting. A file that a page links to,
such as an example's YAML, becomes a file of the site. The notebook becomes a page. The gallery, where `make site` made
one, becomes a page with its reports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "bench/*.md",
    "c2b_ray/world/weights/MODEL_CARD.md",
    "deployments/README.md",
    "docs/**/*.md",
    "k8s/README.md",
]
NOTEBOOK = "docs/notebooks/first.ipynb"
GALLERY = ROOT / "build/gallery"
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def pages() -> list[Path]:
    """Returns the pages' files, in order of their paths."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def linked(page: Path) -> list[Path]:
    """Returns the absolute paths of what `page` links to in this repository, there or not; code is no link."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [(page.parent / to).resolve() for to in LINK.findall(text) if not re.match(r"[a-z]+:", to)]


def as_markdown(notebook: Path) -> str:
    """Returns the cells of a notebook without their outputs: text as it is, code in fences."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for kind, text in texts) + "\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds to the navigation what no list has to name: the decisions and the gallery."""
    decisions = [f"docs/decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))]
    config.nav.append({"Decisions": ["docs/decisions/README.md", *decisions]})
    if GALLERY.exists():
        config.nav.insert(1, {"Gallery": ["gallery/README.md"]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of docs/ by the site's."""
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    sources = set(pages())
    sources |= {path for page in sources for path in linked(page) if path.is_file()} | {ROOT / NOTEBOOK}
    for path in sorted(sources):
        files.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))
    page = NOTEBOOK.replace(".ipynb", ".md")
    files.append(File.generated(config, page, content=as_markdown(ROOT / NOTEBOOK)))
    for path in sorted(GALLERY.glob("*")):
        name = path.relative_to(GALLERY.parent).as_posix()
        files.append(File(name, str(GALLERY.parent), config.site_dir, config.use_directory_urls))
    return files
