"""Opens pages of audits in Chromium: bytes, time to load, rules of accessibility broken; and what their heads say.

    python bench/report_pages.py                a run of many kinds of cells, 20 classifiers, 1,000 classes
    python bench/report_pages.py --run RUN      the report of a run
    python bench/report_pages.py --real DIR     MobileNetV2 on the cue-conflict photographs of DIR, texture a column

Times are of a busy machine's clock and include decoding what is in sight. The runs of the first form are synthetic
(`tests/support`): their pictures are drawn, and compress as drawings do.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

import c2b_ray
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.run import load_c2b_run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

WIDTHS = (1280, 390)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--real", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        executable = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for name, report in pages(args, Path(folder)).items():
            page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
            page.goto(report.as_uri(), wait_until="load")
            print(f"{name}: {looked_at(page, report)}", flush=True)
            page.close()
        browser.close()


def pages(args: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Returns the reports to open by what they are called."""
    if args.run:
        return {str(args.run): Path(write_report(load_c2b_run(args.run)))}
    if args.real:
        return {"cue-conflict": audit_of_textures(args.real, folder)}
    from run_recipes import Recipe, showcase
    from synthetic_run import make_run

    classifiers = tuple(f"classifier-{i}" for i in range(20))
    recipes = {
        "showcase": showcase(),
        "20 classifiers": Recipe(
            classifiers=classifiers,
            images_per_cell=60,
            accuracy={(name, "bus", "fog"): 0.2 for name in classifiers},
        ),
        "1,000 classes": Recipe(
            classes=tuple(f"class {i}" for i in range(1_000)),
            attributes={"size": ("small", "large")},
            classifiers=("m",),
            images_per_cell=4,
        ),
    }
    return {name: Path(write_report(make_run(folder / name, recipe))) for name, recipe in recipes.items()}


def audit_of_textures(real: Path, folder: Path) -> Path:
    """Audits MobileNetV2 on shapes with textures of other classes (Geirhos et al. 2019); returns the report."""
    categories = json.loads((real / "cue-conflict" / "entry_categories.json").read_text())
    config = {
        "task": "Name the object in a photograph.",
        "classes": list(categories),
        "classifier": f"onnx:{real}/mobilenet_v2_imagenet1k.onnx?mean=0.5&std=0.5",
        "images": {
            "source": "labelled",
            "table": str(real / "cue-conflict" / "labels.csv"),
            "columns": {"image": "file", "target_class": "shape"},
        },
        "label_map": categories,
    }
    return Path(c2b_ray.audit(config, folder / "run", via="here").report)


def looked_at(page: Page, report: Path) -> str:
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    broken = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        broken += [one["id"] for one in Axe().run(page).response["violations"]]
    head = " | ".join(" ".join(text.split()) for text in page.locator(".answer .claim").all_inner_texts())
    pictures = page.locator(".answer img").count()
    return (
        f"{report.stat().st_size:,} bytes, loaded in {loaded:.0f} ms, axe {broken or 0}, {pictures} pictures at its "
        f"head, which says: {head}"
    )


if __name__ == "__main__":
    main()
