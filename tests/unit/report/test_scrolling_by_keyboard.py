"""What scrolls sideways on a telephone can be reached by keyboard, and has a name."""

import re
from pathlib import Path

import pytest

import c2b_ray.endpoint.web
import c2b_ray.report

FOLDERS = [Path(module.__path__[0], "templates") for module in (c2b_ray.report, c2b_ray.endpoint.web)]
SCROLLING = re.compile(r'<div class="(?:scroll|strips)[^>]*>')
TEMPLATES = sorted(path for folder in FOLDERS for path in folder.glob("*.j2") if SCROLLING.search(path.read_text()))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_region_that_scrolls_takes_the_focus(path):
    for tag in SCROLLING.findall(path.read_text()):
        assert all(part in tag for part in ('tabindex="0"', 'role="', 'aria-label="')), tag
