"""Variance, largest weight and gradient of a softmax over random scores."""

from __future__ import annotations

import pytest
import torch

from rnj.lab.saturation import saturation, softmax_jacobian


def test_the_jacobian_is_autograds() -> None:
    scores = torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
    torch.testing.assert_close(softmax_jacobian(scores.softmax(-1)[None])[0], wanted)


@pytest.mark.parametrize("head_dim", [1, 16, 128])
def test_variance_is_the_head_dim_or_one(head_dim: int) -> None:
    assert saturation(head_dim, 1.0).variance == pytest.approx(head_dim, rel=0.15)
    assert saturation(head_dim, head_dim**-0.5).variance == pytest.approx(1, rel=0.15)


def test_saturation_without_the_root() -> None:
    plain, scaled = saturation(1024, 1.0), saturation(1024, 1024**-0.5)
    assert plain.largest_weight > 0.95 > 0.4 > scaled.largest_weight
    assert plain.gradient < scaled.gradient / 5
