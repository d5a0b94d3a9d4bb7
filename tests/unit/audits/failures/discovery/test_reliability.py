"""How reliably a generator draws a label: counts of a verifier's answers."""

from __future__ import annotations

import pytest
from statsmodels.stats.proportion import proportion_confint

from c2b_ray.audits.failures.discovery.candidates import Hierarchy
from c2b_ray.audits.failures.discovery.reliability import inspection, reliability, unreliable_labels
from c2b_ray.roles import Answer
from c2b_ray.steps.observe import OTHER
from c2b_ray.tables.failures import RELIABILITY

KINDS = Hierarchy.of({"ocarina": ["wind instrument"], "flute": ["wind instrument"], "maraca": ["percussion"]})


def test_what_images_show_is_counted_with_its_interval():
    asked = inspection("ocarina", ["ocarina", "flute", "maraca"], {"colour": ["in red", "in blue"]})
    assert asked.shown.choices == ("ocarina", "flute", "maraca", OTHER)
    assert asked.shown.texts[0] == "a photo of an ocarina"
    assert asked.questions[1].texts == ("a photo of an ocarina, in red", "a photo of an ocarina, in blue")
    shown = ["ocarina"] * 6 + ["flute", "maraca", OTHER]
    images = [[Answer(name), Answer("in red")] for name in shown] + [[Answer(None, None, "black"), Answer("in blue")]]
    table = reliability("world:renderer", [asked], [images], KINDS)
    assert table.schema == RELIABILITY
    of_label, red, blue = table.to_pylist()
    assert (of_label["images"], of_label["shown"], of_label["parent_shown"]) == (9, 6, 7)
    low, high = proportion_confint(6, 9, method="wilson")
    assert (of_label["rate"], of_label["rate_low"], of_label["rate_high"]) == pytest.approx((6 / 9, low, high))
    assert [(row["value"], row["shown"], row["images"], row["parent_shown"]) for row in (red, blue)] == [
        ("in red", 9, 10, None),
        ("in blue", 1, 10, None),
    ]


def test_labels_that_are_rarely_or_never_shown_are_doubted():
    asked = [inspection(name, ["flute", "maraca", "ocarina"]) for name in ("flute", "maraca", "ocarina")]
    answers = [[[Answer("maraca")]] * 30, [[Answer("maraca")]] * 30, [[Answer(None, None, "black")]]]
    table = reliability("g", asked, answers)
    assert table["rate"].to_pylist() == [0, 1, None]
    assert unreliable_labels(table) == {
        "flute": "0 of 30 images of g show it",
        "ocarina": "no image of g could be verified",
    }
