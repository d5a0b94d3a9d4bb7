"""The maps of `c2b clip-bias`: every name lies within its drawing, and a pair that is not known leaves the rest."""

from __future__ import annotations

import re

import pytest

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.clip_bias.facts import Facts
from c2b_ray.audits.clip_bias.plots import Axis, MapCell, heat_map
from c2b_ray.audits.clip_bias.report import page
from c2b_ray.tables.clip_bias import ConvergenceRow

LETTER = 6.3
"""The mean width of a letter at 11 px; names are drawn at 45 degrees."""


@pytest.mark.parametrize("name", ["a", "unskewed", "ViT-B-32 laion2b s34b b79k"])
def test_the_last_column_s_name_is_within_the_map(name: str) -> None:
    drawn = heat_map(["all images"], ["first", name], [[MapCell(0.1, ""), MapCell(0.9, "")]], "a map")
    [size] = re.findall(r'viewBox="0 0 (\S+) (\S+)"', drawn)
    x, y = re.findall(r'class="column" transform="translate\((\S+) (\S+)\)', drawn)[-1]
    reach = len(name) * LETTER * 0.707
    assert float(x) + reach <= float(size[0])
    assert float(y) + reach <= float(size[1])


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.99512, 0.99581), (-3.1e-5, 2e-5), (2.41e-5, 2.43e-5), (0.0, 12.0)])
def test_each_tick_of_an_axis_has_a_text_of_its_own(values: tuple[float, float]) -> None:
    ticks = Axis.over("similarity", values).ticks()
    assert len(ticks) == len({text for _, text in ticks}) >= 3
    if values == (0.0, 1.0):
        assert ticks == [(0.0, "0"), (0.5, "0.5"), (1.0, "1")]
    if values[0] == 0.99512:
        assert ticks[0] == (0.9952, "0.9952")


def pair(stage: str, other: str, similarity: float, low: float, high: float) -> ConvergenceRow:
    return {"stage": stage, "model_a": "a", "model_b": other, "similarity": similarity, "low": low, "high": high,
            "centred": 0.1, "n": 9}  # fmt: skip


def test_a_pair_whose_similarity_is_not_known_before_training_is_left_out() -> None:
    nan = float("nan")
    before = [pair("before", "b", 0.5, 0.4, 0.6), pair("before", "c", nan, nan, nan)]
    after = [pair("after", other, 0.9, 0.8, 0.95) for other in "bc"]
    names = {name: name for name in "abc"}
    config = ClipBiasConfig(models=dict.fromkeys(names, "world:clip"),
                            datasets={"people": {"table": "people.csv", "attributes": ["coin"]}})  # fmt: skip
    (section,) = (
        one for one in page(Facts({}, config, names, spaces=[*before, *after]), {}).sections if one.link == "spaces"
    )
    assert section.blocks[0].text.startswith("1 of 1 pair grew more alike")
