"""A dry run counts what the audit grants."""

import pyarrow as pa
import pyarrow.csv
import pytest

from c2b_ray.audits.c2b.estimate import estimate
from c2b_ray.audits.kit import session
from c2b_ray.errors import ConfigError, InputError


@pytest.fixture(autouse=True)
def few_trials(monkeypatch):
    """Models are timed on two pictures: these tests count."""
    monkeypatch.setattr(session, "TRIAL", 2)


ATTRIBUTES = {"lighting": ["day", "night"], "weather": ["snow", "rain", "fog"]}


def costs_of(**changes):
    asked = {
        "task": "Tell buses from boats.",
        "classes": ["bus", "mug"],
        "classifier": "world:resnet-control-0",
        "images": {"source": "generate", "generator": "world:renderer"},
        "attributes": ATTRIBUTES,
        "images_per_caption": 100,
        "captions_per_cell": 1,
        **changes,
    }
    return {cost.what: (cost.least, cost.most) for cost in estimate(asked)}


def test_cells_of_intersections_are_granted_images_of_their_own():
    alone, pairs = costs_of(), costs_of(intersections=[["lighting", "weather"]])
    assert alone["captions"] == (10, 10)
    assert alone["images to generate"] == (1000, 1000)
    assert pairs["captions"] == (22, 22)  # 5 values and 6 pairs of them, of two classes
    assert pairs["images to generate"] == pairs["predictions of world:resnet-control-0"] == (2200, 2200)


def test_a_budget_bounds_what_is_drawn_after_the_first_look():
    asked = {"budget": {"images": 600, "first": 20}, "captions_per_cell": 2}
    assert costs_of(**asked)["images to generate"] == (120, 600)  # a fifth: 6 for each of 20 captions
    assert costs_of(budget={"images": 10**6, "first": 20})["images to generate"] == (200, 1000)
    with pytest.raises(ConfigError, match=r"budget\.images"):
        costs_of(budget={"images": 5})


def test_a_language_model_may_propose_the_attributes_of_the_pairs():
    asked = {"language_model": "world:lm", "attributes": None, "intersections": [["weather", "lighting"]]}
    counted = costs_of(**asked)
    cells = 2 * (7 * 4 + 4 * 4)
    assert counted["images to generate"] == (100 * cells, 100 * cells)
    assert counted["requests to world:lm"] == (3 + cells, 3 + cells)


def test_a_labelled_table_gives_what_it_has(tmp_path):
    rows = [
        {"image": f"{name}-{light}-{n}.png", "target_class": name, "lighting": light, "weather": weather}
        for name in ("bus", "mug")
        for light in ("day", "night")
        for weather in ("snow", "fog")
        for n in range(3)
    ]
    pa.csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "labels.csv")
    asked = {
        "images": {"source": "labelled", "table": str(tmp_path / "labels.csv")},
        "attributes": None,
        "images_per_caption": None,
        "intersections": [["lighting", "weather"]],
    }
    assert costs_of(**asked)["images to read"] == (24, 24)
    first, most = costs_of(**asked | {"budget": {"images": 15, "first": 2}, "intersections": []})["images to read"]
    assert (first, most) == (8, 15)  # one image of each of eight cells, since two would be more than the budget


def test_what_stops_the_audit_stops_its_dry_run():
    with pytest.raises(InputError, match="no image_generator has the scheme 'wrld'"):
        costs_of(images={"source": "generate", "generator": "wrld:renderer"})
    with pytest.raises(InputError, match="no index there"):
        costs_of(images={"source": "retrieve", "index": "nowhere"})
    with pytest.raises(ConfigError, match="no label of world:resnet-control-0 is 'sphinx'"):
        costs_of(classes=["bus", "sphinx"])
