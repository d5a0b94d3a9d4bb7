"""Hierarchies as users write them, as WordNet does, and as the package ships them."""

from __future__ import annotations

from pathlib import Path

import pytest
from timm.data import ImageNetInfo

from c2b_ray.audits.failures.discovery.candidates import Hierarchy
from c2b_ray.config.classifiers import prompt_name, read_hierarchy, read_wordnet
from c2b_ray.errors import ConfigError
from c2b_ray.world.scenes import CLASSES

DEBIAN = Path("/usr/share/wordnet")
# A tiny dict folder: animals, and "bee" in two senses.
NOUNS = """\
  1 This software and database is being provided to you ...
00000001 03 n 01 animal 0 000 | a living organism
00000002 05 n 02 insect 0 bug 1 001 @ 00000001 n 0000 | six legs
00000003 05 n 01 dipterous_insect 0 002 @ 00000002 n 0000 ~ 00000004 n 0000 | two wings; a | b
00000004 05 n 01 fly 0 001 @ 00000003 n 0000 | it flies
00000005 05 n 01 bee 0 001 @ 00000002 n 0000 | it hums
00000006 14 n 02 bee 1 Sewing_Bee 0 002 @i 00000001 n 0000 + 00000004 v 0101 | a gathering
"""
INDEX = "bee n 2 1 @ 2 1 00000006 00000005  \nfly n 1 1 @ 1 1 00000004  \n"


@pytest.fixture
def wordnet(tmp_path):
    (tmp_path / "data.noun").write_text(NOUNS)
    (tmp_path / "index.noun").write_text(INDEX)
    return tmp_path


def refused(source, text, match):
    source.write_text(text)
    with pytest.raises(ConfigError, match=match) as caught:
        read_hierarchy(str(source))
    assert caught.value.field == "hierarchy"


def test_the_world_and_imagenet_ship_with_the_package():
    Hierarchy(read_hierarchy("world")).check(CLASSES)
    world = Hierarchy(read_hierarchy("world"))
    assert world.shares_parent("bus", "Boat")
    assert not world.shares_parent("bus", "bird")
    labels = ImageNetInfo("imagenet-1k").label_descriptions()
    imagenet = Hierarchy(read_hierarchy("imagenet"), labels)
    imagenet.check(labels)
    cranes = [position for position, label in enumerate(labels) if label.split(",")[0] == "crane"]
    bird, machine = (imagenet.kin([position]) for position in cranes)
    assert bird[cranes[0]]
    assert not bird[cranes[1]]
    assert machine[cranes[1]]
    assert imagenet.parent_name("crane") == "aquatic bird"


@pytest.mark.parametrize(
    ("label", "parent"),  # as Wiles et al. print them
    [("fly", "insect"), ("Persian cat", "domestic animal"), ("crayfish", "crustacean"), ("robin", "oscine")],
)
def test_prompts_name_the_parents_of_the_paper(label, parent):
    assert Hierarchy(read_hierarchy("imagenet")).parent_name(label) == parent


@pytest.mark.skipif(not (DEBIAN / "data.noun").exists(), reason="Debian's wordnet-base is not installed")
def test_the_packaged_lines_are_those_of_wordnet():
    synsets = read_wordnet(DEBIAN)
    for entry in read_hierarchy("imagenet").entries:
        *names, number = entry.names
        assert (tuple(names), entry.parents) == (synsets[number].names, synsets[number].parents)
        assert entry.shown == prompt_name(number, synsets)


def test_a_yaml_file_has_a_parent_or_several_or_none(tmp_path):
    file = tmp_path / "kinds.yaml"
    file.write_text("bus: vehicle\nHouse_boat: [Vehicle, building]\nhouse: building\nghost: null\n")
    hierarchy = Hierarchy(read_hierarchy(str(file)), ["bus", "house boat", "house", "ghost"])
    assert hierarchy.kin([0]).tolist() == [True, True, False, False]
    assert hierarchy.kin([3]).tolist() == [False] * 4
    assert (hierarchy.parent_name("house boat"), hierarchy.parent_name("ghost")) == ("Vehicle", None)


def test_a_csv_file_has_a_row_per_pair(tmp_path):
    file = tmp_path / "kinds.csv"
    file.write_text("label,parent\nbus,vehicle\nhouse boat,vehicle\nhouse boat,building\nghost,\n")
    assert Hierarchy(read_hierarchy(str(file))).parents("house boat") == {"vehicle", "building"}
    refused(file, "label\nbus\n", "no column 'parent'")
    refused(file, "label,parent\nbus,vehicle\nbus\n", "line 3 has 1 cells, the header 2")


def test_what_is_no_hierarchy_is_refused(tmp_path):
    file = tmp_path / "kinds.yaml"
    refused(file, "fly: insect\ninsect: Fly\n", "a label is its own ancestor: .*'fly'")
    refused(file, "fly: fly\n", "a label is its own ancestor")
    refused(file, "[fly]\n", "expected a mapping")
    refused(file, "fly: [insect, 3]\n", "'fly': 3 are not both names")
    refused(file, "traffic_light: light\ntraffic light: light\n", "are compared as one label")
    refused(file, "fly: {insect: animal}\n", "are not both names")
    with pytest.raises(ConfigError, match="no such file; expected world, imagenet, a YAML"):
        read_hierarchy(str(tmp_path / "imagnet"))


def test_a_wordnet_folder_is_read_by_name_by_synset_and_by_list_of_names(wordnet):
    hierarchy = Hierarchy(read_hierarchy(str(wordnet)))
    assert hierarchy.parents("fly") == hierarchy.parents("n00000004") == {"n00000003"}
    # A name of two things has the parents of both, and the commonest stands in prompts: a gathering is an animal here.
    assert hierarchy.parents("bee") == {"n00000001", "n00000002"}
    assert hierarchy.parents("bee, sewing bee") == {"n00000001"}
    assert [hierarchy.parent_name(name) for name in ("fly", "bee", "n00000005")] == ["insect", "animal", "animal"]


def test_a_damaged_wordnet_folder_is_refused(wordnet):
    data = wordnet / "data.noun"
    whole = data.read_text()
    for damage, match in (
        (whole.replace("00000003 05 n 01", "00000003 05 n 99"), "line 4 is no synset"),
        (whole[:-60], "line 7 is no synset"),
        (whole.replace("@ 00000003", "@ 00000099"), "parent n00000099 of n00000004"),
        (whole.replace("0 000 |", "0 001 @ 00000004 n 0000 |"), "a label is its own ancestor"),
    ):
        data.write_text(damage)
        with pytest.raises(ConfigError, match=match):
            read_hierarchy(str(wordnet))
    data.unlink()
    with pytest.raises(ConfigError, match=r"it has no data\.noun"):
        read_hierarchy(str(wordnet))


def test_a_label_that_a_hierarchy_lacks_is_named_with_the_nearest():
    hierarchy = Hierarchy.of({"mug": ["vessel"], "bus": ["vehicle"]})
    with pytest.raises(
        ConfigError,
        match=r"hierarchy: the hierarchy has no label 'mugg', .*; did you mean 'mug'.* or write a YAML file",
    ):
        hierarchy.check(["bus", "mugg", "tram"])


def test_a_classifier_that_does_not_name_its_labels_is_asked_for_names():
    with pytest.raises(
        ConfigError, match=r"imagenet has no label 'label_0', .*, nor 994 more; .* add \?labels=FILE to its"
    ):
        Hierarchy(read_hierarchy("imagenet")).check([f"label_{number}" for number in range(1000)])


def test_pairs_that_share_a_parent_by_a_rarer_meaning_of_a_name_are_told(wordnet):
    labels = ["fly", "bee", "dipterous insect", "bug"]
    pairs = Hierarchy(read_hierarchy(str(wordnet)), labels).by_rarer_meanings({0, 1})
    assert pairs == [("bee", "dipterous insect", "insect")]  # the usual bee is the gathering, whose parent is `animal`
    assert Hierarchy(read_hierarchy(str(wordnet)), labels).by_rarer_meanings({0, 3}) == []
    imagenet = ImageNetInfo("imagenet-1k").label_descriptions()
    assert Hierarchy(read_hierarchy("imagenet"), imagenet).by_rarer_meanings(range(1000)) == []
    assert Hierarchy(read_hierarchy("world"), CLASSES).by_rarer_meanings(range(len(CLASSES))) == []
