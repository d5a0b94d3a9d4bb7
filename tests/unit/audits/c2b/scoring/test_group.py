from typing import Any

import pyarrow as pa
import pytest
from cell_tables import cell_images

from c2b_ray.audits.c2b.scoring.findings import grouped
from c2b_ray.tables import SCORES


def row(attribute: str, value: str, accuracy: float, phi: float, verdict: str = "", **more: Any) -> dict[str, Any]:
    verdict = verdict or ("against" if phi < 0 else "for")
    return {
        "classifier": "m", "target_class": "bus", "attribute": attribute, "bias_class": value, "n": 100,
        "correct": round(100 * accuracy), "accuracy": accuracy, "errors": 0, "phi": phi, "verdict": verdict,
        "paper_verdict": 0, "mistaken": 0,
    } | more  # fmt: skip


def told(rows, images=None, tau=0.05):
    """(group, reason) of every value. `images`: attribute → value → image numbers."""
    cells = {
        ("bus", name): {k: {str(i) for i in v} for k, v in values.items()} for name, values in (images or {}).items()
    }
    table = grouped(pa.Table.from_pylist(rows, SCORES), cell_images(cells), tau)
    assert table.schema.equals(SCORES)
    return {r["bias_class"]: (r["group"], r["group_reason"]) for r in table.to_pylist()}


def test_two_values_are_complements():
    found = told([row("size", "large", 0.9, 0.4), row("size", "small", 0.5, -0.4)])
    assert found == {"small": (1, None), "large": (1, "complement of size: small")}


def test_one_strong_value_pushes_the_others_the_other_way():
    # without snow, rain's φ is 0.92 − (0.90 + 0.90)/2 = 0.02, clear's 0.90 − (0.92 + 0.90)/2 = −0.01
    rows = [row("weather", "snow", 0.3, -0.607), row("weather", "rain", 0.92, 0.22)]
    rows += [row("weather", "clear", 0.9, 0.193), row("weather", "fog", 0.9, 0.193, "undetermined")]
    assert told(rows) == {
        "snow": (1, None),
        "rain": (1, "mirrors weather: snow: without what stands by itself φ is +0.02"),
        "clear": (1, "mirrors weather: snow: without what stands by itself φ is -0.01"),
        "fog": (None, None),
    }


def test_what_a_mirror_does_not_explain_leads_a_group_of_its_own():
    # without night, the farthest, sunset and day are still 0.3 apart
    rows = [
        row("lighting", "night", 0.3, -0.45),
        row("lighting", "sunset", 0.9, 0.45),
        row("lighting", "day", 0.6, 0.0, "none"),
    ]
    assert told(rows) == {"night": (1, None), "sunset": (2, None), "day": (None, None)}
    # two bad values push the others up: without both, 0.9 − 0.9 = 0; without snow alone fog is as bad as before
    rows = [row("w", "snow", 0.3, -0.47), row("w", "fog", 0.5, -0.2)]
    rows += [row("w", "rain", 0.9, 0.33), row("w", "clear", 0.9, 0.33)]
    found = told(rows)
    assert [group for group, _ in found.values()] == [1, 2, 1, 1]
    assert found["rain"][1] == "mirrors w: snow: without what stands by itself φ is +0.00"


NIGHT = [row("lighting", "night", 0.3, -0.6), row("lighting", "day", 0.9, 0.6, "undetermined"),
         row("sky", "dark", 0.35, -0.5), row("sky", "bright", 0.85, 0.5, "undetermined")]  # fmt: skip


@pytest.mark.parametrize(("shared", "one"), [(67, True), (66, False)])
def test_findings_on_mostly_the_same_images_are_one(shared, one):
    """100 images each: 67 shared give 67/133 = 0.504, 66 give 66/134 = 0.493. Of the others the attributes know little
    of one another, so that only the Jaccard index can speak."""
    images = {
        "lighting": {"night": range(100), "day": range(1000, 2000)},
        "sky": {"dark": range(100 - shared, 200 - shared), "bright": range(5000, 6000)},
    }
    found = told(NIGHT, images)
    assert found["night"] == (1, None)
    assert found["dark"] == ((1, "mostly the same images as lighting: night (Jaccard 0.50)") if one else (2, None))


def test_values_that_go_together_among_labelled_images_are_one():
    """Of 1000 images 100 are by night, 85 dark, 60 both: the Jaccard index is 60/125 = 0.48, and
    V = (1000·60 − 100·85)/√(100·900·85·915) = 0.616."""
    images = {"lighting": {"night": range(100), "day": range(100, 1000)},
              "sky": {"dark": range(40, 125), "bright": [*range(40), *range(125, 1000)]}}  # fmt: skip
    assert told(NIGHT, images)["dark"] == (2, None)  # V 0.616 is not enough
    bright = [row("lighting", "night", 0.3, -0.6), row("lighting", "day", 0.9, 0.6, "undetermined"),
              row("sky", "bright", 0.9, 0.5), row("sky", "dark", 0.35, -0.5, "undetermined")]  # fmt: skip
    images["sky"] = {"dark": range(5, 105), "bright": [*range(5), *range(105, 1000)]}
    # 95 of each are both: V = (1000·95 − 100·100)/(100·900) = 0.944, and of bright its negative
    assert told(bright, images)["bright"] == (1, "complement of lighting: night (Cramér’s V 0.94)")


def test_the_same_images_with_another_verdict_or_class_are_not_one():
    images = {"lighting": {"night": range(100)}, "sky": {"dark": range(100)}}
    other = [NIGHT[0], row("sky", "dark", 0.9, 0.5)]
    assert told(other, images)["dark"] == (2, None)
    rows = [NIGHT[0], row("sky", "dark", 0.35, -0.5, classifier="k")]
    assert told(rows, images)["dark"] == (2, None)


def test_a_group_is_led_by_the_strongest_and_numbered_by_it():
    rows = [row("size", "small", 0.5, -0.4), row("size", "large", 0.9, 0.4), row("colour", "red", 0.2, -0.7),
            row("colour", "blue", 0.9, 0.7)]  # fmt: skip
    table = grouped(pa.Table.from_pylist(rows, SCORES), cell_images({}), 0.05).to_pylist()
    assert [r["group"] for r in table] == [2, 2, 1, 1]


def test_nothing_found_gives_no_group():
    assert told([row("size", "small", 0.5, -0.4, "none")]) == {"small": (None, None)}


def test_values_that_no_images_tell_apart_are_one_finding():
    rows = [row("lighting", "night", 0.5, -0.4), row("weather", "snow", 0.52, -0.38, same_as="lighting: night")]
    rows.append(row("size", "small", 0.6, -0.3, same_as="weather: rain"))
    assert told(rows) == {
        "night": (1, None),
        "snow": (1, "cannot be told from lighting: night: images of the one show the other"),
        "small": (2, None),
    }
    rows[1] |= {"phi": 0.38, "verdict": "for"}
    assert told(rows)["snow"] == (2, None)
