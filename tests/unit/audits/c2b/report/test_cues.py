from types import SimpleNamespace

from c2b_ray.audits.c2b.report.findings import cues


def cell(target, bias, correct, answered, classifier="m"):
    return SimpleNamespace(
        classifier=classifier,
        target_class=target,
        attribute="texture",
        bias_class=bias,
        correct=correct,
        answered_bias_class=answered,
    )


def test_the_share_of_cue_driven_answers_is_told():
    # Conflict cells: 2 + 1 right, 5 + 4 by texture → 9 of 12; the cell without a conflict does not count.
    cells = [cell("cat", "dog", 2, 5), cell("dog", "cat", 1, 4), cell("cat", "cat", 9, 9)]
    (sentence,) = cues(cells, {"m": "net"}, 0.95)
    assert "9 of 12 answers follow texture" in sentence
    assert "and 3 the class" in sentence


def test_attributes_that_name_no_class_are_not_told():
    assert cues([cell("cat", "snow", 2, None)], {"m": "net"}, 0.95) == ()
