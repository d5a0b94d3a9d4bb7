"""Checks of gates as JUnit XML, which every CI system shows: a test case per gate and cell.

Knows the characters that XML 1.0 allows, and removes credentials and paths; knows nothing of how checks are made.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence

from c2b_ray.report.kit.redact import clean, names_of
from c2b_ray.steps.gate import Check

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(suite: str, checks: Sequence[Check], properties: Mapping[str, str]) -> bytes:
    """Returns a document with one test suite. A failed check is a failure, a skipped one is skipped; nothing else is
    claimed."""
    names = names_of([check.classifier for check in checks])
    several = len(names) > 1
    outcomes = Counter(check.outcome for check in checks)
    totals = {
        "name": _text(suite),
        "tests": str(len(checks)),
        "failures": str(outcomes["failed"]),
        "errors": "0",
        "skipped": str(outcomes["skipped"]),
    }
    root = ET.Element("testsuites", totals)
    suite_element = ET.SubElement(root, "testsuite", {**totals, "time": "0"})
    properties_element = ET.SubElement(suite_element, "properties")
    for name, value in properties.items():
        ET.SubElement(properties_element, "property", {"name": _text(name), "value": _text(value)})
    for check in checks:
        name = f"{check.cell} ({names[check.classifier]})" if several else check.cell
        case = ET.SubElement(
            suite_element, "testcase", {"classname": _text(check.gate), "name": _text(name), "time": "0"}
        )
        if check.outcome == "failed":
            failure = ET.SubElement(case, "failure", {"message": _text(check.message), "type": "gate"})
            failure.text = _text(f"{names[check.classifier]}: {check.evidence}")
        elif check.outcome == "skipped":
            ET.SubElement(case, "skipped", {"message": _text(check.message)})
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", clean(text))
