"""A file of captions: which label each row is of."""

import unicodedata

import pytest

from c2b_ray.audits.dataset.plan import of_file
from c2b_ray.errors import SourceError


def test_a_label_whose_accent_is_encoded_otherwise_in_some_rows_is_one_label(tmp_path):
    composed, apart = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    pairs = [(composed, f"a {apart} at night"), (apart, f"a {apart} by day"), (apart, f"two {composed}s")]
    lines = [",".join(pair) for pair in (("label", "caption"), *pairs)]
    (tmp_path / "captions.csv").write_text("\n".join(lines), encoding="utf-8")
    assert list(of_file(str(tmp_path / "captions.csv"))) == [(composed, caption) for _, caption in pairs]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("label,label,caption\nbus,bus,a bus\n", "two columns are called 'label'"),
        ("label;caption\nbus;a bus\n", "its fields are separated by ';', not by ','"),
        ("label\tcaption\nbus\ta bus\n", "its fields are separated by"),
    ],
)
def test_a_file_whose_columns_cannot_be_told_apart_says_why(tmp_path, text: str, said: str):
    (tmp_path / "captions.csv").write_text(text)
    with pytest.raises(SourceError, match=said):
        list(of_file(str(tmp_path / "captions.csv")))
