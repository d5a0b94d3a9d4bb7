import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2b_ray.stats.latent import (
    alignment,
    consistent_change_loss,
    orthogonality_penalty,
    project_to_hyperplane,
    signed_orthogonality,
    total_variation_loss,
)

RNG = np.random.default_rng(2)


def test_total_variation_loss_of_the_worked_example():
    # every step moves by .25: -ln(.25 + 1e-10); the same whichever way the walk goes
    assert total_variation_loss([0, 0.25, 0.5, 0.75, 1]) == pytest.approx(1.3862943607, abs=1e-10)
    assert total_variation_loss([1, 0.75, 0.5, 0.75, 1]) == pytest.approx(1.3862943607, abs=1e-10)


def test_one_logarithm_is_taken_over_the_batch():
    # walks that move by 0 and by .5 a step: -ln(.25), not the mean of -ln(1e-10) and -ln(.5)
    assert total_variation_loss([[0.3, 0.3, 0.3], [0, 0.5, 1]]) == pytest.approx(-np.log(0.25), abs=1e-9)


def test_total_variation_loss_at_its_ends():
    assert total_variation_loss([0.4, 0.4]) == pytest.approx(-np.log(1e-10))
    assert total_variation_loss([0, 1, 0]) == pytest.approx(0, abs=2e-10)
    for undefined in ([0.5], [], np.zeros((0, 5)), [0.1, np.nan]):
        assert np.isnan(total_variation_loss(undefined))
    with pytest.raises(ValueError, match="shape"):
        total_variation_loss(np.zeros((2, 2, 2)))


def test_orthogonality_penalty_by_hand():
    # the others span the first two axes, where w/|w| = (1, 0, 1)/sqrt 2 has squared length 1/2: 1/2 over the rank of 2
    assert orthogonality_penalty([3, 0, 3], [[1, 0, 0], [1, 5, 0]]) == pytest.approx(0.25)
    assert orthogonality_penalty([0, 0, 2], [[1, 0, 0], [1, 5, 0]]) == pytest.approx(0, abs=1e-30)
    assert orthogonality_penalty([2, 0, 0], [[-7, 0, 0]]) == pytest.approx(1)  # anti-alignment is punished too


def test_others_that_depend_on_one_another_count_once():
    # plain QR gives the second column a direction of its own, which would punish w for nothing
    assert orthogonality_penalty([0, 1, 0], [[1, 0, 0], [2, 0, 0], [0, 0, 0]]) == pytest.approx(0, abs=1e-30)
    assert orthogonality_penalty([1, 0, 0], [[1, 0, 0], [2, 0, 0]]) == pytest.approx(1)
    assert orthogonality_penalty([1, 0], np.zeros((0, 2))) == orthogonality_penalty([1, 0], [[0, 0]]) == 0


def test_orthogonality_penalty_is_the_squared_shadow_over_the_rank():
    w, others = RNG.normal(size=9), RNG.normal(size=(4, 9))
    shadow = others.T @ np.linalg.lstsq(others.T, w, rcond=None)[0]
    expected = (shadow @ shadow) / (w @ w) / 4
    assert orthogonality_penalty(w, others) == pytest.approx(expected)
    assert orthogonality_penalty(-5 * w, others[::-1] * [[2], [-1], [9], [1]]) == pytest.approx(expected)


def test_projection_of_the_worked_example():
    # p.w + o = 6 + 4 = 10, |w|^2 = 4: (3, 1) - (2, 0) * 10/4 = (-2, 1); the paper's code gives (-11, 1)
    np.testing.assert_allclose(project_to_hyperplane([3, 1], [2, 0], 4), [-2, 1])


@settings(deadline=None, max_examples=25)
@given(st.floats(-5, 5), st.floats(0.1, 9))
def test_projections_lie_on_the_plane_straight_below_and_stay_there(offset, scale):
    points, normal = RNG.normal(size=(3, 4, 6)), RNG.normal(size=6) * scale
    on_it = project_to_hyperplane(points, normal, offset)
    np.testing.assert_allclose(on_it @ normal + offset, 0, atol=1e-10)
    np.testing.assert_allclose(project_to_hyperplane(on_it, normal, offset), on_it, atol=1e-10)
    along = (points - on_it) @ normal / np.linalg.norm(normal)
    np.testing.assert_allclose(np.linalg.norm(points - on_it, axis=-1), np.abs(along), atol=1e-10)
    np.testing.assert_allclose(project_to_hyperplane(points, 2 * normal, 2 * offset), on_it, atol=1e-10)


def test_a_normal_without_a_direction_is_refused():
    for normal in ([0, 0], [np.nan, 1], 3):
        with pytest.raises(ValueError, match="normal"):
            project_to_hyperplane([1, 1], normal, 0)
        with pytest.raises(ValueError, match="normal"):
            orthogonality_penalty(normal, [[1, 1]])
    with pytest.raises(ValueError, match="points"):
        project_to_hyperplane([1, 1, 1], [1, 1], 0)
    with pytest.raises(ValueError, match="others"):
        orthogonality_penalty([1, 1], [[1, 1, 1]])
    assert project_to_hyperplane(np.zeros((0, 2)), [1, 1], 0).shape == (0, 2)


def test_consistent_change_counts_what_all_walks_share_and_never_more_than_total_variation():
    rising = [[0, 0.25, 0.5, 0.75, 1]] * 2
    assert consistent_change_loss(rising) == pytest.approx(-np.log(1e-10 + 0.25), abs=1e-9)
    assert consistent_change_loss(rising) == pytest.approx(total_variation_loss(rising), abs=1e-12)
    opposite = [[0, 0.5, 1], [1, 0.5, 0]]
    assert consistent_change_loss(opposite) == pytest.approx(-np.log(1e-10), abs=1e-9)
    answers = RNG.random((20, 6))
    assert consistent_change_loss(answers) > total_variation_loss(answers)
    assert np.isnan(consistent_change_loss([0.3]))


def test_the_printed_penalty_rewards_anti_alignment_without_end():
    others = [[1.0, 0], [0, 2]]
    assert signed_orthogonality([3, 4], others) == 3 + 8
    assert signed_orthogonality([-30, -40], others) == -110
    assert orthogonality_penalty([-30, -40], others) == pytest.approx(0.5)
    assert signed_orthogonality([1, 1], np.zeros((0, 2))) == 0


def test_alignment_is_of_lines_not_of_arrows():
    assert alignment([-2, 0], [1, 1], [0, 5]) == pytest.approx((np.sqrt(0.5), 0, np.sqrt(0.5)))
    with pytest.raises(ValueError, match="one length"):
        alignment([1, 0], [1, 0, 0], [1, 0])
