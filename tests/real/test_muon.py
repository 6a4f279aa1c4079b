"""Orthogonal updates, against the singular value decomposition."""

import pytest
import torch

from entr_lab.real.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(4, 4), (8, 32), (3, 5, 9)])
def test_singular_values_are_near_one(shape):
    """Five rounds bring well-conditioned matrices there, and keep the singular vectors."""
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flat = orthogonalise(matrix)

    values = torch.linalg.svdvals(flat)
    assert float(values.max()) < 1.25
    assert float(values.median()) > 0.65
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.mT @ flat @ vh.mT
    off = inner - torch.diag_embed(torch.diagonal(inner, dim1=-2, dim2=-1))
    assert float(off.abs().max()) < 1e-10


def test_it_finds_a_matrix():
    """Least squares in a tall and in a wide matrix converge."""
    for shape in ((6, 3), (3, 6)):
        target = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        parameter = torch.zeros(shape, requires_grad=True)
        optimizer = Muon([parameter], lr=0.02)
        for step in range(300):
            optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 300)
            loss = (parameter - target).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.01 * float(target.square().sum())
