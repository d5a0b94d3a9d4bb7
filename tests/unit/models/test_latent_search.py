"""The differentiable objective against its formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from c2b_ray.models import latent_search
from c2b_ray.stats import latent as oracle

RNG = np.random.default_rng(0)


def doubles(*shape: int) -> torch.Tensor:
    return torch.from_numpy(RNG.normal(size=shape))


def test_losses_are_those_of_numpy():
    answers = torch.sigmoid(doubles(5, 7))
    for name in ("total_variation_loss", "consistent_change_loss"):
        there = float(getattr(latent_search, name)(answers))
        assert there == pytest.approx(getattr(oracle, name)(answers.numpy()), abs=1e-9)
    assert float(latent_search.total_variation_loss(torch.full((2, 5), 0.3))) == pytest.approx(-np.log(1e-10))


@pytest.mark.parametrize("dependent", [False, True])
def test_penalties_are_those_of_numpy_also_where_normals_depend_on_one_another(dependent):
    normal, others = doubles(6), doubles(3, 6)
    if dependent:
        others = torch.cat([others, others[:1] - 2 * others[1:2]])
    penalty = float(latent_search.orthogonality_penalty(normal, latent_search.spanned(others)))
    assert penalty == pytest.approx(oracle.orthogonality_penalty(normal.numpy(), others.numpy()), abs=1e-9)
    signed = float(latent_search.signed_orthogonality(normal, others))
    assert signed == pytest.approx(oracle.signed_orthogonality(normal.numpy(), others.numpy()), abs=1e-9)
    nothing = latent_search.spanned(others[:0])
    assert float(latent_search.orthogonality_penalty(normal, nothing)) == 0


def test_projections_are_those_of_numpy_whatever_the_length_of_the_normal():
    points, normal, offset = doubles(4, 6), doubles(6) * 3, torch.tensor(0.7, dtype=torch.float64)
    there = latent_search.project_to_hyperplane(points, normal, offset).numpy()
    np.testing.assert_allclose(there, oracle.project_to_hyperplane(points, normal, 0.7), atol=1e-9)


def test_the_hessian_penalty_is_zero_along_the_axes_of_a_sum_and_not_across_them():
    def images(latents: torch.Tensor) -> torch.Tensor:  # of each axis alone: the Hessian is diagonal
        return (latents**2 * torch.tensor([1.0, 3.0, 0.5], dtype=latents.dtype)).sum(dim=1)[:, None, None, None]

    latents = doubles(16, 3)
    signs = torch.from_numpy(RNG.choice([-1.0, 1.0], size=(4, 16, 3)))
    along = latent_search.hessian_penalty(images, latents, torch.eye(3, dtype=torch.float64), signs)
    across = latent_search.hessian_penalty(images, latents, latent_search.beginning_with(doubles(3)), signs)
    assert float(along) == pytest.approx(0, abs=1e-9)
    assert float(across) > 0.01


def test_a_basis_begins_with_its_normal():
    for normal in (doubles(5), torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), -doubles(4).abs()):
        basis = latent_search.beginning_with(normal)
        torch.testing.assert_close(basis[:, 0], normal / normal.norm())
        torch.testing.assert_close(basis.T @ basis, torch.eye(len(normal), dtype=torch.float64))
