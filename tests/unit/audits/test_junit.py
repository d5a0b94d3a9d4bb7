"""JUnit XML: well-formed whatever the names hold, and counted right."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from c2b_ray.audits.gate import Check, junit


def check(outcome: str, cell: str = "bus/weather/fog", classifier: str = "m") -> Check:
    return Check("phi<-0.2", classifier, cell, outcome, "phi is -0.4", "phi -0.4, n 20")  # type: ignore[arg-type]


def test_a_case_per_check() -> None:
    checks = [check("failed"), check("passed", "bus/weather/rain"), check("skipped", "bus/size/huge")]
    root = ET.fromstring(junit("c2b gate", checks, {"tau": "0.05"}))
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")} == {
        "tests": "3", "failures": "1", "skipped": "1", "errors": "0",
    }  # fmt: skip
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["bus/weather/fog", "bus/weather/rain", "bus/size/huge"]
    assert {case.get("classname") for case in cases} == {"phi<-0.2"}
    failure = cases[0].find("failure")
    assert failure is not None
    assert failure.get("message") == "phi is -0.4"
    assert failure.text == "m: phi -0.4, n 20"
    assert len(cases[1]) == 0
    assert cases[2].find("skipped") is not None
    assert [(p.get("name"), p.get("value")) for p in suite.iter("property")] == [("tau", "0.05")]


def test_names_that_xml_cannot_hold() -> None:
    evil = 'a"b<c>&\x00\x1b]]></failure>\ud800'
    root = ET.fromstring(junit(evil, [check("failed", evil)], {evil: evil}))
    name = root.find("testsuite/testcase").get("name")  # type: ignore[union-attr]
    assert name == 'a"b<c>&\ufffd\ufffd]]></failure>\ufffd'


def test_several_classifiers_are_told_apart_and_nothing_private_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "very-secret-value-123")
    places = ["onnx:/home/someone/a/net.onnx", "onnx:/home/someone/b/net.onnx"]
    checks = [check("failed", classifier=place) for place in places]
    data = junit("c2b gate", checks, {"run": "/home/someone/very-secret-value-123"})
    names = [case.get("name") for case in ET.fromstring(data).iter("testcase")]
    assert names == ["bus/weather/fog (onnx:net.onnx #ae57cc)", "bus/weather/fog (onnx:net.onnx #44ec27)"]
    assert b"/home/someone" not in data
    assert b"very-secret" not in data
