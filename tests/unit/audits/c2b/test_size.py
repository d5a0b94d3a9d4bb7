"""What counts as a small audit, and where it then runs."""

import os

import pytest

from c2b_ray.audits.c2b.estimate import most_images
from c2b_ray.audits.kit.backend import SMALL_RUN, chosen_via
from c2b_ray.config import read_audit
from c2b_ray.errors import InputError

GENERATED = {
    "task": "Tell buses from boats.",
    "classes": ["bus", "mug"],
    "classifier": "world:resnet-control-0",
    "images": {"source": "generate", "generator": "world:renderer"},
    "attributes": {"lighting": ["day", "night"], "weather": ["snow", "rain", "fog"]},
    "images_per_caption": 100,
    "captions_per_cell": 2,
}
RETRIEVED = {"source": "retrieve", "index": "idx", "pool": 300, "selection": "accepted"}
CLIP = {"model": "world:clip"}


@pytest.mark.parametrize(
    ("changes", "images"),
    [
        ({}, 2 * 5 * 200),
        ({"intersections": [["Lighting", "weather"]]}, 2 * (5 + 6) * 200),
        ({"language_model": "world:lm"}, 2 * (5 + 28) * 200),
        ({"confirm": True}, 2 * 2 * 5 * 200),
        ({"budget": {"images": 600, "first": 20}}, 600),
        ({"images": RETRIEVED, "verification": CLIP}, 2 * 5 * 2 * 300),
    ],
)
def test_images_are_counted_from_the_config(changes, images):
    assert most_images(read_audit(GENERATED | changes)) == images


def test_a_labelled_table_has_as_many_as_it_has_rows_or_cells_ask_for(tmp_path):
    rows = "".join(f"{n}.jpg,bus,day\n{n}n.jpg,bus,night\n" for n in range(300))
    (tmp_path / "t.csv").write_text("image,target_class,lighting\n" + rows)
    config = {"task": "t", "classes": ["bus"], "classifier": "x:y", "images": {"table": str(tmp_path / "t.csv")}}
    config["images"]["source"] = "labelled"
    assert most_images(read_audit(config)) == 600
    of_cells = {"attributes": {"lighting": ["day", "night"]}, "images_per_caption": 10}
    assert most_images(read_audit(config | of_cells)) == 20


def test_small_runs_are_here_and_a_cluster_in_reach_is_used(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert chosen_via("auto", lambda: SMALL_RUN) == "here"
    assert chosen_via("auto", lambda: SMALL_RUN + 1) == "actors"
    assert chosen_via("auto", lambda: None) == "actors"
    assert chosen_via("serve", lambda: 1) == "serve"
    with pytest.raises(InputError, match="'rays' is none of auto, here, actors, serve"):
        chosen_via("rays", lambda: 1)
    monkeypatch.setitem(os.environ, "RAY_ADDRESS", "10.0.0.1:6379")
    assert chosen_via("auto", lambda: 1) == "actors"
