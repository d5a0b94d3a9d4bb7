"""The browser of this machine, for the pages of reports and of the endpoint; without one their tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-dev-shm-usage", "--disable-sync", "--no-first-run",
]  # fmt: skip
START = 120_000  # milliseconds: browsers start late on a busy machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A module's, not the session's: its event loop would be in the way of tests that run one of their own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=START)
        yield browser
        browser.close()
