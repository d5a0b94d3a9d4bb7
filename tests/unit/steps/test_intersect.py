import pyarrow as pa
import pyarrow.compute as pc
import pytest
from labelled_tables import labelled, labelled_pairs
from paired_worlds import SNOW_AT_NIGHT, labelled_world

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.errors import ConfigError
from c2b_ray.steps.cells import images_of_cells, of_run, pairs


def test_the_scores_do_not_see_intersections():
    proposals, captions, draws, predictions = labelled_world(SNOW_AT_NIGHT)
    scores = scored(captions, draws, predictions, ["m"], Thresholds(0.05, 0.05))[0]
    assert set(scores["attribute"].to_pylist()) == {"weather", "lighting"}
    assert {group.name for group in images_of_cells(captions, draws).groups} == {
        ("bus", "weather"),
        ("bus", "lighting"),
    }
    assert captions["kind"].to_pylist().count("intersection") == 4
    [pair] = of_run(proposals, captions)
    assert (pair.attribute, pair.target_class) == ("weather × lighting", "bus")
    assert of_run(proposals, captions.filter(pc.equal(captions["kind"], "attribute"))) == []


def test_a_limit_holds_for_each_cell_of_a_pair():
    labels = pa.table(
        {"target_class": ["bus"] * 80, "weather": ["rain", "snow"] * 40, "lighting": ["day"] * 40 + ["night"] * 40}
    )
    proposals, *_ = labelled(labels, "r", ["bus"], None, (5, 0))
    captions, draws, wanted = labelled_pairs(labels, "r", pairs(proposals, [("weather", "lighting")]), (5, 0))
    assert (captions.num_rows, draws.num_rows, wanted.num_rows) == (4, 20, 20)


def test_a_pair_that_cannot_be_made_names_the_nearest():
    proposals = labelled_world(SNOW_AT_NIGHT)[0]
    with pytest.raises(ConfigError, match=r"intersections: .*'lightning'.*did you mean 'lighting'"):
        pairs(proposals, [("weather", "lightning")])
    renamed = proposals.set_column(1, "target_class", pa.array(["bus", "boat"]))
    with pytest.raises(ConfigError, match="not both attributes of any one class"):
        pairs(renamed, [("weather", "lighting")])
