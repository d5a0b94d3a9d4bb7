"""Which columns are attributes, and when two spellings are one value."""

import pyarrow as pa
import pytest
from labelled_tables import labelled, labelled_pairs

from c2b_ray.audits.c2b.hypotheses.labelled import lacking
from c2b_ray.errors import ConfigError
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.labels import check_classes, chosen, left_out


def table(target=("bus",) * 4, **columns):
    return pa.table({"target_class": list(target), **columns})


def cells(labels, classes=("bus",), attributes=None):
    """(class, value) → rows."""
    _, captions, draws, wanted = labelled(labels, "r", list(classes), attributes, (None, 0))
    row = dict(zip(wanted["image_id"].to_pylist(), wanted["row"].to_pylist(), strict=True))
    cell = {c["caption_id"]: (c["target_class"], c["bias_class"]) for c in captions.to_pylist()}
    found = {}
    for draw in draws.to_pylist():
        found.setdefault(cell[draw["caption_id"]], set()).add(row[draw["image_id"]])
    return found


def test_a_row_without_a_class_is_of_none():
    labels = table(["bus", None, "bus", "none"], weather=["fog", "fog", "rain", "rain"])
    assert cells(labels) == {("bus", "fog"): {0}, ("bus", "rain"): {2}}
    with pytest.raises(ConfigError, match="no row of the labelled table has target_class 'nan'"):
        cells(labels, ["bus", "nan"])


def test_spellings_of_one_value_are_one_cell_and_listed_values_are_compared_alike():
    labels = table(["bus", "BUS", "Bus", "bus"], weather=["FOG", "fog", "fog", "rain"])
    assert cells(labels) == {("bus", "fog"): {0, 1, 2}, ("bus", "rain"): {3}}
    assert cells(labels, ["Bus"], {"Weather": ["Fog", "RAIN"]}) == {("Bus", "Fog"): {0, 1, 2}, ("Bus", "RAIN"): {3}}
    assert cells(table(code=["7", "7", "007", "007"])) == {("bus", "7"): {0, 1}, ("bus", "007"): {2, 3}}


def test_pairs_are_of_the_same_cells():
    labels = table(weather=["FOG", "fog", "rain", "rain"], light=["day", "Night", "day", "night"])
    proposals, *_ = labelled(labels, "r", ["bus"], {"Weather": ["Fog", "Rain"], "light": ["day", "night"]}, (None, 0))
    _, draws, _ = labelled_pairs(labels, "r", pairs(proposals, [("weather", "light")]), (None, 0))
    assert draws.num_rows == 4


def test_names_that_are_compared_as_one_but_may_be_two_are_refused():
    lights = ["traffic_light", "traffic light", "bus", "bus"]
    with pytest.raises(ConfigError, match=r"classes has both 'traffic_light' and 'traffic light'"):
        cells(table(lights, weather=["a", "b"] * 2), ["traffic_light", "traffic light"])
    with pytest.raises(ConfigError, match=r"column 'target_class' has both 'traffic_light' and 'traffic light'"):
        cells(table(lights, weather=["a", "b"] * 2), ["traffic light"])
    with pytest.raises(ConfigError, match=r"column 'sign' has both 'traffic light' and 'traffic_light'"):
        cells(table(sign=lights))
    with pytest.raises(ConfigError, match=r"column 'sign' has both 'traffic light' and 'traffic_light'"):
        cells(table(sign=lights[:2] * 2))  # nor are the two fewer than two values
    with pytest.raises(ConfigError, match=r"attributes.sign: attribute 'sign' has both"):
        cells(table(sign=lights), attributes={"sign": ["traffic_light", "traffic light"]})
    assert len(cells(table(lights, weather=["a", "b"] * 2))) == 2  # of a class that is not asked for


def test_a_listed_value_that_no_row_has_is_an_error_and_that_some_class_lacks_is_said():
    labels = table(["bus", "bus", "boat", "boat", "tram"], weather=["fog", "rain", "fog", "snow", "fog"])
    with pytest.raises(ConfigError, match=r"attributes.weather: no row of the labelled table has 'fgo'; did you mean"):
        cells(labels, attributes={"weather": ["fgo", "rain"]})
    classes, listed = ["bus", "boat", "tram"], {"weather": ["fog", "rain", "snow"]}
    proposals, *_ = labelled(labels, "r", classes, listed, (None, 0))
    assert lacking(proposals, classes, listed) == [
        "weather of bus: no image shows 'snow'",
        "weather of boat: no image shows 'rain'",
        "weather of tram: fewer than two values have images, so nothing is compared",
    ]


def test_what_looks_like_an_id_or_a_measurement_is_no_attribute_unless_it_is_named():
    rows = range(40)
    labels = table(
        ["bus"] * 40,
        weather=["fog", "rain"] * 20,
        lanes=[str(i % 4) for i in rows],
        id=[f"id-{i}" for i in rows],
        width=[str(100 + i % 20) for i in rows],
        score=["0.5", "1e-3"] * 20,
        file=["a.jpg", "b.jpg"] * 20,
        day=["2024-01-01", "2024-01-02"] * 20,
        one=["x"] * 40,
        uploader=[f"user {i % 11}" for i in rows],
        place=[f"place {i % 10}" for i in rows],
    )
    places = [f"place {i}" for i in range(10)]  # four images each too, and few values
    assert chosen(labels, None) == {"weather": ["fog", "rain"], "lanes": ["0", "1", "2", "3"], "place": places}
    assert left_out(labels) == {
        "uploader": "11 values in 40 rows",
        "id": "40 values in 40 rows",
        "width": "20 different numbers",
        "score": "numbers",
        "file": "file names",
        "day": "dates",
        "one": "fewer than two values",
    }
    assert cells(labels, attributes={"score": ["0.5", "1e-3"]}).keys() == {("bus", "0.5"), ("bus", "1e-3")}
    with pytest.raises(ConfigError, match=r"no column .* can be an attribute: id \(40 values in 40 rows\); name those"):
        chosen(labels.select(["target_class", "id"]), None)


def test_configs_that_name_no_attributes_are_told_otherwise():
    """Such as that of `c2b evaluate`, whose field is truth.table."""
    ids = table(["bus"] * 40, id=[f"image {i}" for i in range(40)])
    with pytest.raises(ConfigError, match=r"^truth.table: no column .*: id \(40 values in 40 rows\); give the table"):
        chosen(ids, None, "truth.table")
    with pytest.raises(ConfigError, match=r"^truth.table: column 'size' has both"):
        chosen(table(size=["very_small", "very small"] * 2), None, "truth.table")
    with pytest.raises(ConfigError, match=r"^labels: no row .* target_class 'tram'"):
        check_classes(ids, ["tram"], "images.labelled.table", "labels")
