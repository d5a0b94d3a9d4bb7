from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.hypotheses.derived import ImageClasses, can_be_cut, cut_columns
from c2b_ray.errors import ConfigError


def table(**columns: Sequence[str | None]) -> pa.Table:
    size = len(next(iter(columns.values())))
    coded = {name: pa.array(values, pa.string()).dictionary_encode() for name, values in columns.items()}
    return pa.table({"target_class": pa.array(["day"] * size).dictionary_encode(), **coded})


def cut(labels: pa.Table, by: dict[str, str | list[float]] | None = None):
    return cut_columns(labels, ImageClasses.of(labels, ["day"]), by)


def test_numbers_are_cut_and_columns_that_are_attributes_stay():
    labels = table(age=[str(age) for age in (*range(20), 19)], weather=["fog", "sun", "sun"] * 7)
    after, derived, reasons = cut(labels)
    assert [(one.attribute, one.origin) for one in derived] == [("age", "number")]
    assert derived[0].ranges == {"day": {"low": "below 4", "medium": "4 to 17", "high": "17 or more"}}
    assert after["age"].to_pylist() == [*["low"] * 4, *["medium"] * 13, *["high"] * 4]
    assert after["weather"].to_pylist() == labels["weather"].to_pylist()
    assert not reasons


def test_what_numbers_the_rows_is_no_measurement():
    counted = [str(n) for n in range(5, 35)]
    ids = [str(n * n) for n in range(30)]
    labels = table(counted=counted, patient_id=ids, area=ids)
    assert [one.attribute for one in cut(labels)[1]] == ["area"]
    assert can_be_cut(labels) == {"area": "quantiles"}


def test_what_a_model_gave_is_cut_only_where_the_file_says_so():
    sure = [f"0.{n}" for n in range(10, 40)]
    labels = table(confidence=sure, net_prob_bus=sure, darkness=sure)
    assert [one.attribute for one in cut(labels)[1]] == ["darkness"]
    assert can_be_cut(labels).keys() == {"confidence", "net_prob_bus", "darkness"}
    assert [one.attribute for one in cut(labels, {"confidence": "quantiles"})[1]] == ["confidence"]


def test_edges_and_quantiles_of_the_file():
    labels = table(age=["17", "18", "40.5", None], stars=["1", "2", "3", "3"])
    after, derived, _ = cut(labels, {"Age": [18, 40]})
    assert after["age"].to_pylist() == ["below 18", "18 to 40", "40 or more", None]
    assert [one.attribute for one in derived] == ["age"]
    assert "stars" in after.column_names
    # A scale of few values, an attribute as it is, is cut where the file says so.
    assert cut(labels, {"stars": [2.5]})[0]["stars"].to_pylist() == ["below 2.5", "below 2.5", *["2.5 or more"] * 2]


def test_nothing_is_cut_where_the_file_says_nothing():
    labels = table(age=[str(age) for age in range(20)])
    after, derived, reasons = cut(labels, {})
    assert after.equals(labels)
    assert not derived
    assert not reasons


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ({"agee": "quantiles"}, "no such column; did you mean 'age'"),
        ({"age": "hour"}, "expected dates"),
        ({"weather": [1.0]}, "expected numbers, and the column has 'fog'"),
    ],
)
def test_a_column_that_cannot_be_cut_is_named(by: dict[str, str | list[float]], message: str):
    labels = table(age=[str(age) for age in range(20)], weather=["fog"] * 20)
    with pytest.raises(ConfigError, match=message) as error:
        cut(labels, by)
    assert error.value.field == f"images.cut.{next(iter(by))}"


def test_a_date_gives_hour_month_and_year_where_they_vary():
    moments = [f"{2020 + n % 3}-{1 + 3 * (n % 2):02}-15 {6 * (n % 4):02}:30:00" for n in range(48)]
    after, derived, _ = cut(table(taken=moments))
    assert [(one.attribute, one.origin) for one in derived] == [
        ("hour of taken", "date"),
        ("month of taken", "date"),
        ("year of taken", "date"),
    ]
    first = {name: after[name][0].as_py() for name in after.column_names if name.endswith("taken")}
    assert first == {"hour of taken": "night", "month of taken": "December to February", "year of taken": "2020"}
    assert derived[0].ranges[""]["night"] == "0:00 to 5:59"
    assert [one.attribute for one in cut(table(taken=moments), {"taken": "hour"})[1]] == ["hour of taken"]


def test_days_have_no_hour():
    days = [f"2026-{month:02}-03 00:00:00.000000" for month in range(1, 13)] * 3
    assert [one.attribute for one in cut(table(day=days))[1]] == ["month of day"]


@pytest.mark.parametrize(
    ("texts", "months"),
    [
        (["2026:05:03 14:00:00", "2026:12:03 14:30:00"], ["March to May", "December to February"]),  # as cameras write
        (["3.5.2026", "3.12.2026"], ["March to May", "December to February"]),
        (["3/5/2026", "25/12/2026"], ["March to May", "December to February"]),  # the 25th tells that days come first
        (["5/3/2026", "12/25/2026"], ["March to May", "December to February"]),
    ],
)
def test_dates_in_the_forms_that_people_write(texts: list[str], months: list[str]):
    after, _, _ = cut(table(day=texts * 10), {"day": "month"})
    assert after["month of day"].to_pylist() == months * 10


def test_months_are_not_guessed_where_day_and_month_could_be_either():
    texts = ["3/5/2026", "4/6/2025"] * 10
    assert [one.attribute for one in cut(table(day=texts))[1]] == ["year of day"]


def test_how_a_column_could_be_cut():
    days, years = [f"2026-01-{1 + n:02}" for n in range(20)], [f"{2000 + n}-01-03" for n in range(20)]
    assert can_be_cut(table(day=days, built=years, area=[str(n * n) for n in range(20)])) == {
        "built": "year",
        "area": "quantiles",
    }


def test_many_years_are_cut_as_numbers_are():
    years = [f"{1980 + n}-06-01" for n in range(40)]
    after, derived, _ = cut(table(built=years))
    assert derived[0].ranges == {"day": {"early": "below 1988", "medium": "1988 to 2012", "late": "2012 or more"}}
    assert after["year of built"].to_pylist().count("early") == 8


def test_a_column_that_does_not_vary_within_a_class_says_so():
    labels = pa.table(
        {
            "target_class": pa.array(["day"] * 20 + ["night"] * 20).dictionary_encode(),
            "lux": pa.array(["5000.5"] * 20 + ["1.5"] * 20).dictionary_encode(),
        }
    )
    _, derived, reasons = cut_columns(labels, ImageClasses.of(labels, ["day", "night"]), None)
    assert not derived
    assert "too alike" in reasons["lux"]
