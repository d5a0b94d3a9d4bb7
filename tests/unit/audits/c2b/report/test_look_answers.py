"""What answers follow, in words: which looks are named together, and what stands beneath."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.audits.c2b.report.look_answers import (
    followed_evidence,
    followed_looks,
    followed_sentence,
    look_answers,
    looks_section,
)
from c2b_ray.tables import LOOK_ALIKES, LOOKS


def row(look, share, established=True, strongest=True, classifier="m"):
    limits = {"share_low": share - 0.04, "share_high": share + 0.04, "margin": share - 0.1}
    return {
        "classifier": classifier,
        "look": look,
        "images": 500,
        "follow_class": 50,
        "compared": 450,
        "follow_look": round(500 * share) + 20,
        "expected": 19.6,
        "share": share,
        **limits,
        "margin_low": share - 0.15,
        "margin_high": share - 0.05,
        "p_value": 0.0005,
        "established": established,
        "strongest": strongest,
    }


def alike(image, label, answer, neighbours, look="texture", classifier="m"):
    return {
        "classifier": classifier,
        "look": look,
        "key": f"{image}.jpg",
        "label": label,
        "answer": answer,
        "image_id": image,
        "look_alikes": [{"image_id": f"{image}-{n}", "key": f"{n}.jpg", "label": "car"} for n in range(neighbours)],
    }


def told(rows, images=()):
    return followed_looks(pa.Table.from_pylist(rows, LOOKS), pa.Table.from_pylist(list(images), LOOK_ALIKES))


def text(sentence):
    return "".join(span.text for span in sentence)


def test_looks_that_are_not_told_apart_are_named_together():
    (of,) = told([row("texture", 0.3), row("colours", 0.31), row("background", 0.2, strongest=False)])
    assert text(followed_sentence(of, "")) == (
        "30\u202f% of the answers follow the texture and colours of the image rather than its class: 170 of 500 images "
        "are called what images of other classes that look like them are called (by chance 20), 50 what their class is."
    )
    evidence = followed_evidence(of, 0.95)
    assert evidence.startswith("By texture, 95\u202f% interval 26–34\u202f%; p\u00a0≤\u202f0.001.")
    assert "By colours (31\u202f%) as much" in evidence
    assert "By background (20\u202f%) less." in evidence


def test_what_is_not_established_is_not_said_and_stands_in_the_table():
    rows = [row("texture", 0.3), row("colours", 0.05, established=False, strongest=False)]
    (of,) = told(rows)
    assert "follow the texture of the image" in text(followed_sentence(of, ""))
    assert "colours" not in followed_evidence(of, 0.95)
    (section,) = looks_section(pa.Table.from_pylist(rows, LOOKS), {"m": "net"}, 0.95)
    assert section.blocks[-1].style == "facts"  # on a telephone its numbers keep the names of their columns
    assert [(line[0], line[1], line[-1]) for line in section.blocks[1].rows] == [
        ("texture", "170 of 500", "yes"),
        ("colours", "45 of 500", "no"),
    ]
    assert told([rows[1]]) == ()
    assert looks_section(LOOKS.empty_table(), {}, 0.95) == []


def test_the_pictures_are_of_two_classes_and_answers_with_the_most_look_alikes():
    images = [
        alike("a", "bear", "clock", 2),
        alike("b", "bear", "clock", 6),
        alike("c", "cat", "clock", 5),
        alike("d", "cat", "oven", 4),
        alike("e", "dog", "oven", 9, look="colours"),
    ]
    found = told([row("texture", 0.3), row("colours", 0.3)], images)
    assert found[0].image_ids == ["b", "b-0", "b-1", "b-2", "d", "d-0", "d-1", "d-2"]
    ((share, explained, answer),) = look_answers(found, {"m": "net"}, {"b": "data:b"}, 0.95)
    assert (share, explained) == (0.3, 0.3 * found[0].rows[0]["images"])
    assert answer.link == "looks"
    assert answer.verdict == "against"
    first, second = answer.galleries
    assert first.title == "Called clock, as its look-alikes of other classes"
    assert [one.label for one in first.pictures] == ["bear → clock", *["car → clock"] * 3]
    assert first.pictures[0].source == "data:b"
    assert second.pictures[1].alt == "0.jpg, labelled car, answered oven"


def test_of_several_classifiers_each_is_named_largest_share_first():
    found = told([row("texture", 0.3), row("colours", 0.5, classifier="n")])
    answers = look_answers(found, {"m": "first", "n": "second"}, {}, 0.95)
    assert [text(answer.sentence).split(":")[0] for *_, answer in answers] == ["second", "first"]
