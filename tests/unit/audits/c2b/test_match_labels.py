"""Classes of images against labels of classifiers: every rule, what is left open, and Geirhos' sixteen categories."""

import pytest

from c2b_ray.audits.c2b.from_images import match_classes
from c2b_ray.config.classifiers import imagenet_kinds, read_hierarchy

UNNAMED = [f"label_{i}" for i in range(1000)]


def found(matching):
    return {one.target_class: (one.how, one.labels) for one in matching.matches}


def test_names_spellings_and_synonyms_in_this_order():
    labels = ["truck", "car", "Bus", "traffic-light", "gray cat", "tench, Tinca tinca"]
    matching = match_classes(["bus", "traffic lights", "automobile", "Grey cat", "tinca_tinca"], labels)
    assert found(matching) == {
        "bus": ("name", (2,)),
        "traffic lights": ("spelling", (3,)),
        "automobile": ("synonym", (1,)),
        "Grey cat": ("spelling", (4,)),
        "tinca_tinca": ("name", (5,)),
    }
    assert matching.needs_map(labels)
    assert matching.label_map(labels)["automobile"] == ["car"]
    assert not match_classes(["bus", "car"], labels).needs_map(labels)


def test_a_class_without_a_label_is_left_open_with_the_nearest():
    matching = match_classes(["bus", "trucks and lorries", "bicicle"], ["bus", "truck", "bicycle"])
    assert [one.target_class for one in matching.unmatched] == ["trucks and lorries", "bicicle"]
    assert matching.unmatched[1].nearest == ("bicycle",)


def test_a_label_that_two_outputs_have_is_not_guessed():
    matching = match_classes(["crane", "bus"], ["crane", "bus", "crane"])
    (left,) = matching.unmatched
    assert left.why == "2 labels are called so"
    assert left.nearest == ("crane (index 0)", "crane (index 2)")


def test_two_classes_never_share_a_label():
    matching = match_classes(["car", "automobile"], ["car", "bus"])
    assert found(matching) == {"car": ("name", (0,))}
    assert "stands for the class 'car'" in matching.unmatched[0].why


def test_folders_of_numbers_are_positions_unless_labels_are_numbers():
    assert found(match_classes(["0", "2"], ["bus", "car", "boat"])) == {"0": ("number", (0,)), "2": ("number", (2,))}
    assert found(match_classes(["0", "2"], ["2", "1", "0"])) == {"0": ("name", (2,)), "2": ("name", (0,))}


def test_outputs_without_names_are_numbered_as_libraries_number_folders():
    matching = match_classes(["b", "10", "2"], ["label_0", "label_1", "label_2"])
    assert {one.target_class: one.labels for one in matching.matches} == {"10": (0,), "2": (1,), "b": (2,)}
    assert "sorted names" in matching.assumed
    assert matching.label_map(["label_0", "label_1", "label_2"]) == {"b": [2], "10": [0], "2": [1]}
    by_number = match_classes(["b", "a"], ["label_0", "label_1"], in_order=["b", "a"])
    assert {one.target_class: one.labels for one in by_number.matches} == {"b": (0,), "a": (1,)}
    fewer = match_classes(["a"], ["label_0", "label_1"])
    assert not fewer.matches
    assert "does not name its 2 outputs" in fewer.unmatched[0].why


@pytest.mark.parametrize("named", [True, False])
def test_imagenet_by_synset_name_and_kind(named):
    labels = [", ".join(entry.names[:-1]) for entry in read_hierarchy("imagenet").entries] if named else UNNAMED
    matching = match_classes(["n01440764", "goldfish", "bird", "crane"], labels)
    assert found(matching)["n01440764"] == ("name", (0,))
    assert found(matching)["goldfish"] == ("name", (1,))
    how, birds = found(matching)["bird"]
    assert how == "kind"
    assert {8, 24, 145} <= set(birds)
    assert [one.target_class for one in matching.unmatched] == ["crane"]  # the bird at 134 and the machine at 517
    assert bool(matching.assumed) is not named


def test_a_kind_gives_its_labels_to_a_narrower_class():
    matching = match_classes(["dog", "poodle"], UNNAMED)
    dogs, poodles = (set(found(matching)[name][1]) for name in ("dog", "poodle"))
    assert poodles == {265, 266, 267}
    assert dogs.isdisjoint(poodles)


def test_kinds_hold_the_categories_of_geirhos_et_al():
    """Their mapping (Geirhos et al. 2019, `texture-vs-shape`) takes WordNet's synsets below each category, and removes
    some by hand: these are all of one category each."""
    kinds = {name: set(kind.positions) for kind in imagenet_kinds() for name in kind.names}
    assert kinds["bear"] == {294, 295, 296, 297}
    assert kinds["chair"] == {423, 559, 765, 857}
    assert kinds["bottle"] == {440, 720, 737, 898, 899, 901, 907}
    assert kinds["truck"] == {555, 569, 656, 675, 717, 734, 864, 867}
    assert kinds["keyboard"] == {508, 878}
    assert kinds["elephant"] == {385, 386}
    assert kinds["boat"] >= {472, 554, 625, 814, 914}


def test_a_class_that_is_one_name_of_its_label_needs_a_map_to_it() -> None:
    labels = ["tench, Tinca tinca", "goldfish"]
    matching = match_classes(["tench", "goldfish"], labels)
    assert matching.needs_map(labels)
    assert matching.label_map(labels) == {"tench": ["tench, Tinca tinca"], "goldfish": ["goldfish"]}
