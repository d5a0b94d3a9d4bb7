"""`id2label` of a config.json: numbers from 0 without a gap, or an error that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_classifiers import LABELS, hf_directory

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog


@pytest.mark.parametrize(
    ("numbers", "message"), [([1, 2, 3, 4, 5], "begins at 1"), ([0, 1, 3, 4, 5], "has no number 2")]
)
def test_numbers_that_begin_at_1_or_have_a_gap_are_refused_and_labels_mend_it(
    tmp_path: Path, numbers: list[int], message: str
) -> None:
    folder = hf_directory(tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {str(number): label for number, label in zip(numbers, LABELS, strict=True)}
    config["label2id"] = {label: number for number, label in zip(numbers, LABELS, strict=True)}
    (folder / "config.json").write_text(json.dumps(config))
    for read in (catalog.classifier, lambda spec: catalog.describe("classifier", spec)):
        with pytest.raises(WeightsError, match=rf"config\.json: id2label {message}.*\?labels=PATH"):
            read(f"hf:{folder}?device=cpu")
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    assert catalog.classifier(f"hf:{folder}?device=cpu&labels={tmp_path / 'names.txt'}").labels == LABELS


def test_names_that_two_keys_number_differently_are_asked_for(tmp_path: Path) -> None:
    folder = hf_directory(tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    config["label2id"] = {label: len(LABELS) - 1 - number for number, label in enumerate(LABELS)}
    (folder / "config.json").write_text(json.dumps(config))
    for read in (catalog.classifier, lambda spec: catalog.describe("classifier", spec)):
        with pytest.raises(SpecError, match=rf"'{LABELS[0]}' is 0 by id2label and 4 by label2id.*\?labels=PATH"):
            read(f"hf:{folder}?device=cpu")
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    assert catalog.classifier(f"hf:{folder}?device=cpu&labels={tmp_path / 'names.txt'}").labels == LABELS
