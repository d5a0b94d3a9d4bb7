import csv
import io
import json

import pytest

from c2b_ray.text import cell, visible, visible_json, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("photo\u202egpj.exe", r"photo\u202egpj.exe"),
        ("a\u2066b\u2028c\x07", r"a\u2066b\u2028c\x07"),
        ("φ ≤ −0.2, a\tb\nü 日本", "φ ≤ −0.2, a\tb\nü 日本"),
    ],
)
def test_what_acts_is_shown_and_what_shows_is_left(text, shown):
    assert visible(text) == shown


def test_json_keeps_its_meaning_without_characters_that_act():
    value = {"name": "a\u202eb\x9b", "φ": ["\x1b"]}
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert "\u202e" not in text
    assert "φ" in text


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x")', "+1", "-1", "@x", "\tx", "'quoted", "''", "plain", ""])
def test_no_cell_begins_as_a_formula_and_each_is_given_back(text):
    written = cell(text)
    assert not written.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert (written[1:] if written.startswith("'") else written) == text
    assert list(csv.reader(io.StringIO(f'"{written.replace(chr(34), chr(34) * 2)}"'))) == ([[written]])


def test_credentials_go_wherever_they_stand(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "value-of-the-variable")
    text = without_credentials("GET http://me:pw@host/x?sig=abc&k=1 value-of-the-variable hf_abcdefghijklmnopqrst")
    assert text == "GET http://host/x?sig=[removed]&k=[removed] [removed] [removed]"


def test_a_variable_that_says_where_a_secret_lies_has_none(monkeypatch):
    monkeypatch.setenv("C2B_KEY_FILE", "/home/ann/.c2b-key")
    assert "/home/ann/.c2b-key" in without_credentials("/home/ann/.c2b-key: others can read the key")
