"""Verdicts of a direction's evidence, and over a run's problems."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from c2b_ray.audits.latent.report import answers
from c2b_ray.audits.latent.verdicts import FOUND, NOTHING, UNDETERMINED, decide, ties_with, with_q_values
from c2b_ray.config.latent import EvidenceConfig
from c2b_ray.stats.latent import Target, weigh_direction

CONFIG = EvidenceConfig()


def sample(count, response, seed=0):
    """Latents of three dimensions, P of an answer with this response, and the first coordinate's sign as the target."""
    latents = np.random.default_rng(seed).standard_normal((count, 3))
    target = Target(latents[:, 0], (latents[:, 0] > 0).astype(float))
    return latents, expit(latents @ np.array(response)), target


def verdict(count, response, seed=0):
    latents, answers, target = sample(count, response, seed)
    return decide(weigh_direction(answers, latents[:, 1], target), [], CONFIG)


def test_a_weak_bias_in_few_latents_is_not_nothing_and_enough_of_them_find_it():
    weak = (2.0, 0.5, 0.0)
    said, reason = verdict(60, weak)
    assert said == UNDETERMINED
    assert "60 latents are too few: an effect of 0.1 would be found in less than 80 %" in reason
    enough = int(reason.rpartition(" ")[2])
    assert 100 < enough < 3000
    found = [verdict(enough, weak, seed)[0] == FOUND for seed in range(40)]
    assert np.mean(found) > 0.7  # its effect is about two margins
    assert verdict(2000, (2.0, 0.0, 0.0))[0] == NOTHING


def test_a_target_that_is_hardly_known_leaves_room_for_a_bias():
    latents, answers, _ = sample(2000, (2.0, 0.25, 0.0))
    blurred = weigh_direction(answers, latents[:, 1], Target(latents[:, 0], angle=0.15))
    said, reason = decide(blurred, [], CONFIG)
    assert said == UNDETERMINED
    assert "label latents, or name references" in reason
    none = weigh_direction(answers, latents[:, 2], Target(latents[:, 0], angle=0.15))
    assert decide(none, [], CONFIG)[0] == NOTHING  # its interval excludes what matters


@pytest.mark.parametrize(("degrees", "tied"), [(2, True), (80, False)])
def test_an_attribute_that_moves_with_the_target_is_named_where_nothing_is_found(degrees, tied):
    """The classifier answers by the attribute alone; at two degrees the generator never shows one without the other."""
    angle = np.radians(degrees)
    attribute = np.array([np.cos(angle), np.sin(angle), 0.0])
    latents, answers, target = sample(2000, 2 * attribute if tied else (2.0, 0, 0))
    axes = np.eye(3)
    found = ties_with(
        axes[0], {"hat": attribute, "hue": axes[2]}, lambda n: weigh_direction(answers, latents @ n, target), 0.05
    )
    assert [tie.name for tie in found] == (["hat"] if tied else [])
    said, reason = decide(weigh_direction(answers, latents[:, 1], target), found, CONFIG)
    assert said == NOTHING
    assert ("the target moves with hat (cosine 1.00; an effect of up to" in reason) == tied
    assert not tied or found[0].most > 0.5


def test_an_attribute_that_a_found_direction_is_made_of_does_not_move_with_the_target():
    """The answers' only bias is found. Of what is left nothing moves them, so no labelled attribute can hide there, the
    bias itself and its hyperplane's small error included."""
    latents, answers, target = sample(2000, (1.5, 0.8, 0.6))
    axes = np.eye(3)
    found = np.array([[0.0, 0.8, 0.6]])
    attributes = {"bias": found[0] + 0.01 * axes[0], "part": axes[1], "like the target": axes[0] + 0.02 * axes[2]}

    def weigh(normal):
        return weigh_direction(answers, latents @ normal, target)

    before = {tie.name for tie in ties_with(axes[0], attributes, weigh, 0.05)}
    assert before == set(attributes)
    after = ties_with(axes[0], attributes, weigh, 0.05, found)
    assert [tie.name for tie in after] == ["like the target"]


EVIDENCE = EvidenceConfig()  # margin 0.05, level 0.05


def rows(p_values, method="consistent", high=0.09):
    """One problem each, or a list of its directions."""
    return [
        {
            "problem": f"p{number}",
            "method": method,
            "p_value": p,
            "verdict": "found" if p is not None and p <= 0.05 else "nothing found",
            "reason": "more",
            "effect_low": 0.051,
            "effect_high": high,
        }
        for number, each in enumerate(p_values)
        for p in (each if isinstance(each, list) else [each])
    ]


def test_of_many_unbiased_problems_chance_finds_none_and_methods_are_families_of_their_own():
    uniform = np.linspace(0.025, 0.975, 20).tolist()
    decided = with_q_values([*rows(uniform), *rows([0.001], "axes")], EVIDENCE)
    assert [row["verdict"] for row in decided] == ["nothing found"] * 20 + ["found"]
    assert "among 20 directions" in decided[0]["reason"]
    assert decided[-1]["q_value"] == 0.001


def test_later_directions_count_with_the_largest_p_value_before_them():
    decided = with_q_values(rows([[0.02, 0.0001, 0.6], [0.9], None]), EVIDENCE)
    assert [row["q_value"] for row in decided] == [*map(pytest.approx, (0.04, 0.04, 0.8, 0.9)), None]
    assert [row["verdict"] for row in decided[:3]] == ["found", "found", "nothing found"]
    assert with_q_values([], EVIDENCE) == []


def test_what_chance_may_explain_but_an_interval_does_not_exclude_stays_open():
    uniform = np.linspace(0.025, 0.975, 20).tolist()
    first, *others = with_q_values(rows(uniform, high=0.3), EVIDENCE)
    assert (first["verdict"], {row["verdict"] for row in others}) == ("undetermined", {"nothing found"})
    assert "an effect of 0.1 is not excluded" in first["reason"]
    margin_0 = EvidenceConfig(margin=0.0)  # every effect counts: none can be excluded
    assert with_q_values(rows(uniform, high=0.3), margin_0)[0]["verdict"] == "nothing found"


def test_the_head_speaks_of_every_label_and_calls_open_only_what_is():
    def row(label, verdict):
        about = {"classifier": "m", "label": label, "verdict": verdict, "margin": 0.1, "reason": f"why {label}"}
        return about | dict.fromkeys(("effect", "effect_low", "effect_high"))

    nothing = [row("cat", NOTHING)] * 3 + [row("dog", NOTHING)]
    (answer,) = answers(nothing, [], {}, {})
    assert answer.text == "Nothing was found that moves the probability of “cat” and “dog” by more than 0.100."
    (answer,) = answers([*nothing, row("owl", UNDETERMINED)], [], {}, {})
    assert answer.text == "Whether anything moves the probability of “owl” is not decided."
    assert answer.beneath == ("why owl.",)


def test_a_direction_that_is_nearly_a_labelled_attribute_is_told_by_its_name():
    found = {
        "classifier": "m", "label": "cat", "verdict": FOUND, "margin": 0.1, "name": "", "rank": 0, "direction_id": "d",
        "generator": "g", "direction": [1.0, 0.1], "effect": 0.3, "effect_low": 0.2, "effect_high": 0.4,
    }  # fmt: skip
    planes = [
        {"generator": "g", "attribute": name, "excluded": None, "normal": normal}
        for name, normal in (("colour", [1.0, 0.0]), ("size", [0.0, 1.0]))
    ]
    (answer,) = answers([found], planes, {}, {})
    assert answer.text == "direction 1, nearly that of the labelled colour, moves the probability of “cat” by +0.30."
    (answer,) = answers([found | {"direction": [0.6, -0.8]}], planes, {}, {})
    assert answer.text == "direction 1 moves the probability of “cat” by +0.30."
    assert answer.beneath[-1] == "Its cosine to size is −0.80, of the labelled attributes the nearest."
