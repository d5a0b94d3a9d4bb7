"""The files that the guides show (`# NAME.yaml` in their first line) are read as their commands read them."""

import json
import re
from pathlib import Path

import pytest

from c2b_ray.audits.audit import audits

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```yaml\n(# (\w+)\.yaml\n.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = [(page.name, name, text) for page in PAGES for text, name in BLOCK.findall(page.read_text(encoding="utf-8"))]
AUDITS = {("audit" if kind == "c2b" else kind.replace("-", "_")): audit for kind, audit in audits().items()}


@pytest.mark.parametrize(("page", "name", "text"), SHOWN, ids=[f"{page} {name}" for page, name, _ in SHOWN])
def test_a_file_of_a_guide_is_read(tmp_path, page, name, text):
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "texts.txt").write_text("a photo of a person\n")  # the one file that reading opens
    (tmp_path / f"{name}.yaml").write_text(text)
    audit = AUDITS[name]
    audit.check_config(json.loads(audit.config_file.read(tmp_path / f"{name}.yaml").model_dump_json()))


def test_each_audit_s_guide_shows_its_file():
    assert {name for _, name, _ in SHOWN} == set(AUDITS)
