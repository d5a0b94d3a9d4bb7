"""How numbers and names are written."""

from __future__ import annotations

import pytest

from c2b_ray.report import words
from c2b_ray.report.redact import clean, cleaned, names_of

NAN = float("nan")


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.41, "41 %"),
        (1.0, "100 %"),
        (0.0, "0 %"),
        (0.998, "99.8 %"),
        (0.9999, "99.9 %"),
        (0.0004, "0.1 %"),
        (NAN, "—"),
    ],
)
def test_percent_says_0_and_100_only_when_they_are(share: float, written: str) -> None:
    assert words.percent(share).replace("\u202f", " ") == written


@pytest.mark.parametrize(
    ("value", "written"), [(-0.551, "−0.55"), (0.3, "+0.30"), (-0.001, "0.00"), (0.0, "0.00"), (NAN, "—")]
)
def test_signed(value: float, written: str) -> None:
    assert words.signed(value) == written


def test_a_title_says_how_many_rows_are_left_out_only_where_some_are() -> None:
    assert words.shown_of("Findings", 4, 4) == "Findings (4)"
    assert words.shown_of("Findings", 15, 1040) == "Findings (15 of 1,040)"


@pytest.mark.parametrize(
    ("name", "article"),
    [("bus", "a "), ("umbrella", "an "), ("unicycle", "a "), ("hourglass", "an "), ("eyeglasses", ""), ("glass", "a "),
     ("T-shirt", "a "), ("unidentified dog", "an "), ("utensil", "a "), ("honour guard", "an "), ("the sea", ""),
     ("", "")],
)  # fmt: skip
def test_article(name: str, article: str) -> None:
    assert words.article(name) == article


def test_lists_counts_and_times() -> None:
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(["a"]) == "a"
    assert words.count(20000) == "20,000"
    assert words.plural(1, "reply", "replies") == "1 reply"
    assert words.small_probability(0.0004) == "<\u202f0.001"
    assert words.moment("2026-11-20T19:11:00+02:00") == "20 November 2026, 17:11 UTC"
    assert words.moment("yesterday") == "yesterday"
    assert words.duration(3725) == "1\u202fh 2\u202fmin"
    assert words.duration(59.7) == "1\u202fmin 0\u202fs"
    assert words.shortened("one two three four", 12) == "one two…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/data/x.jpg: truncated", "x.jpg: truncated"),
        ("cannot read file:///home/me/x.jpg", "cannot read x.jpg"),
        ("s3://bucket/a/b.parquet", "s3://bucket/a/b.parquet"),
        (f"s3://b/c/tenants/tenant_{'0a' * 12}/uploads/x.parquet: no rows", "uploads/x.parquet: no rows"),
        ("https://host/v1/chat answered 500", "https://host/v1/chat answered 500"),
        ("24 / 30 and/or this", "24 / 30 and/or this"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [removed]"),
        ("key sk-abcdefghijklmnopqrstuv refused", "key [removed] refused"),
        ("https://h/v1?api_key=abc&x=1", "https://h/v1?api_key=[removed]&x=[removed]"),
        ("'https://h/v1?k=abc&model=m#n': 500", "'https://h/v1?k=[removed]&model=m#n': 500"),
        ("http://h/x?code=abc answered 500", "http://h/x?code=[removed] answered 500"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_names_stay_apart_when_their_places_are_cut() -> None:
    names = names_of(["onnx:/a/m.onnx", "onnx:/b/m.onnx", "onnx:/a/m.onnx"])
    assert [name[:13] for name in names.values()] == ["onnx:m.onnx #"] * 2
    assert len(set(names.values())) == 2
    assert names_of(["onnx:/b/m.onnx", "onnx:/a/m.onnx"]) == names  # whatever the order


def test_a_spec_keeps_what_tells_it_from_others_and_loses_its_places():
    specs = ["onnx:/x/a.onnx?labels=/x/labels.txt", "onnx:/x/b.onnx?labels=/x/labels.txt&batch=2"]
    assert list(names_of(specs).values()) == ["onnx:a.onnx?labels=labels.txt", "onnx:b.onnx?labels=labels.txt&batch=2"]
    urls = [f"http://h/x?which={name}" for name in "ab"]
    assert [name[:-6] for name in names_of(urls).values()] == ["http://h/x?which=[removed] #"] * 2
    models = {f"classifier {spec}": {"spec": spec} for spec in ("onnx:/a/m.onnx", "onnx:/b/m.onnx")}
    assert len(cleaned(models)) == 2


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0072, "0.72"), (0.0000022, "0.00022"), (0.0411, "4.1"), (0.178, "18"), (0.0996, "10"), (0.00999, "1.0"),
        (0.0, "0"), (1.0, "100"), (0.9999, "99.9"), (1e-9, "0.00000010"),
    ],
)  # fmt: skip
def test_a_rate_has_two_digits_however_small(share: float, shown: str) -> None:
    assert words.rate(share) == f"{shown}\u202f%"


def test_how_many_times_as_often() -> None:
    assert [words.times(ratio) for ratio in (2264.3, 99.96, 13.49, 1.04, float("inf"), NAN)] == [
        "2,264", "100", "13.5", "1.0", "∞", "—",
    ]  # fmt: skip
