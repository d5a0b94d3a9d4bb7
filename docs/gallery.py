"""Makes the gallery of the site: reports of runs on the embedded world, which need no download.

    python docs/gallery.py OUT

OUT gets README.md, a report and a picture of each run. `make site` calls it. The picture of the demo is also README's:
`cp OUT/demo.png docs/report.png`. Pictures need Chromium on PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from c2b_ray import load_run

BIN = Path(sys.executable).parent
WIDTH, HEIGHT = 1280, 650  # the answer, as a reader sees it first
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SANDBOXED = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
"""What Chromium needs in a container."""


@dataclass(frozen=True)
class Entry:
    """A report of the gallery. `commands`: arguments of c2b, run in one folder; the last makes the run at `run`."""

    name: str
    title: str
    about: str
    commands: tuple[str, ...]
    run: str


ENTRIES = [
    Entry(
        "demo",
        "From a sentence, without labels",
        "A language model proposes attributes, and images of each are found in an index of 5,000 scenes. One of the "
        "two classifiers has a planted bias.",
        ("demo --out demo",),
        "demo/run",
    ),
    Entry(
        "labelled",
        "A labelled table",
        "The same classifier on 4,000 labelled scenes. The table's columns are the attributes.",
        (
            "world sample --out scenes.parquet -n 4000 --seed 1001",
            "audit scenes.parquet --classifier world:resnet-planted-0 --out labelled",
        ),
        "labelled",
    ),
]


def make(entry: Entry, work: Path, out: Path, browser: Browser) -> str:
    """Runs the commands in `work`, writes report and picture into `out`; returns the entry's Markdown."""
    for command in entry.commands:
        subprocess.run([BIN / "c2b", *command.split()], cwd=work, check=True)  # noqa: S603 (ours)
    report = out / f"{entry.name}.html"
    shutil.copyfile(work / entry.run / "report.html", report)
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(report.resolve().as_uri())
    page.screenshot(path=out / f"{entry.name}.png")
    page.close()
    headline = load_run(work / entry.run).manifest["headline"]["text"]
    commands = "\n".join(f"c2b {command}" for command in entry.commands)
    return f"""## {entry.title}

{entry.about}

```console
{commands}
```

> {headline}

[![The top of the report]({entry.name}.png)]({entry.name}.html)

[Open the report]({entry.name}.html)
"""


def main(out: Path) -> None:
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit(f"no Chromium on PATH ({', '.join(CHROMIUM)}), which takes the pictures of reports")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=SANDBOXED)
        entries = [make(entry, Path(work), out, browser) for entry in ENTRIES]
        browser.close()
    about = "Reports as runs write them, each one file that needs no network. `python docs/gallery.py OUT` makes them."
    (out / "README.md").write_text("\n".join(["# Gallery", "", about, "", *entries]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
