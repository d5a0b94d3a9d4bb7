"""What classifiers are called in a dataset's rows, and how they are found again by it or by their specs."""

from __future__ import annotations

from c2b_ray.audits.dataset.evaluation_rows import named
from c2b_ray.audits.dataset.models import names_in_rows
from c2b_ray.storage.failure_dataset import FailureDataset, classifiers_of

NET, OTHER = "onnx:/models/a/net.onnx?labels=/x/names.txt", "onnx:/models/b/net.onnx?labels=/x/names.txt"


def test_names_hold_no_folder_and_no_credentials_and_stay_apart() -> None:
    short = "onnx:net.onnx?labels=names.txt"
    assert names_in_rows([NET, "world:biased", OTHER]) == [short, "world:biased", f"{short} #2"]
    assert names_in_rows(["/data/cue conflict/labels.csv"]) == ["labels.csv"]
    assert "word" not in names_in_rows(["https://me:word@host/predict"])[0]


def test_a_classifier_is_known_by_its_name_in_rows_and_by_its_spec() -> None:
    names = tuple(names_in_rows([NET, OTHER]))
    dataset = FailureDataset("out", {"classifier": [NET, OTHER]}, {}, (), names)
    assert dataset.specs == {names[0]: NET, names[1]: OTHER}
    assert [dataset.name_of(text) for text in (NET, OTHER, names[1], "resnet")] == [*names, names[1], "resnet"]


def test_a_dataset_of_before_has_specs_for_names() -> None:
    assert FailureDataset("out", {"classifier": [NET]}, {}, (), (NET,)).name_of(NET) == NET
    assert FailureDataset("out", {"classifier": {"mine": NET}}, {}, ()).specs == {"mine": NET}


def test_a_dataset_without_a_row_knows_its_classifiers() -> None:
    assert classifiers_of(FailureDataset("out", {"classifier": {"mine": NET}}, {}, (), ("mine",))) == ["mine"]


def test_a_short_name_stands_before_a_spec() -> None:
    assert named(f"seed-2={NET}") == ("seed-2", NET)
    assert named(NET) == (NET, NET)
