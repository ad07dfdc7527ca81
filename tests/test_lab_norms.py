"""LayerNorm against torch's, and the stacks with norms in three places."""

from __future__ import annotations

import pytest
import torch

from rnj.config import Config
from rnj.lab.norms import PLACEMENTS, Stack, depth_profile, layer_norm
from rnj.norm import RMSNorm


def test_layer_norm_is_torchs():
    torch.manual_seed(0)
    x, gain, bias = torch.randn(3, 5, 12), torch.randn(12), torch.randn(12)
    theirs = torch.nn.functional.layer_norm(x, (12,), gain, bias, 1e-3)
    torch.testing.assert_close(layer_norm(x, gain, bias, 1e-3), theirs)


def test_layer_norm_of_a_constant_is_the_bias():
    bias = torch.randn(6)
    assert torch.equal(layer_norm(torch.full((6,), 3.0), torch.ones(6), bias), bias)


def test_layer_norm_is_rmsnorm_without_the_mean():
    x = torch.randn(4, 10)
    by_rms = RMSNorm(10, 1e-6)(x - x.mean(-1, keepdim=True))
    torch.testing.assert_close(layer_norm(x, torch.ones(10), torch.zeros(10)), by_rms)


def stack(placement: str) -> Stack:
    torch.manual_seed(1)
    return Stack(Config(16, 24, 3, 2, 1, 8, vocab_size=8, block_size=8), placement)


def test_places():
    """Each placement is its own formula, written out for the first part."""
    x = torch.randn(1, 6, 16)
    norm = RMSNorm(16)
    parts = {placement: stack(placement).parts[1] for placement in PLACEMENTS}  # the first GeGLU, same weights
    first = {placement: stack(placement) for placement in PLACEMENTS}
    for placement, whole in first.items():
        whole.parts = whole.parts[:2]
        whole.parts[0] = torch.nn.Module()
        whole.parts[0].forward = lambda inner: torch.zeros_like(inner)  # type: ignore[method-assign]
        mlp = parts[placement]
        start = norm(x) if placement == "post" else x
        wanted = {
            "post": norm(start + mlp(start)),
            "pre": x + mlp(norm(x)),
            "four": x + norm(mlp(norm(x))),
        }[placement]
        torch.testing.assert_close(whole(x)[-1], wanted)


def test_profiles():
    profiles = {placement: depth_profile(placement, n_layers=8, seed=3) for placement in PLACEMENTS}
    for profile in profiles.values():
        assert len(profile.signal) == len(profile.gradient) == 9 and profile.gradient[-1] == 1
    assert all(abs(size - 1) < 0.01 for size in profiles["post"].signal[1:])
    assert profiles["four"].signal[-1] == pytest.approx((1 + 2 * 8) ** 0.5, rel=0.15)
    assert profiles["pre"].signal[-1] < profiles["four"].signal[-1]
    assert depth_profile("pre", n_layers=8, seed=3) == profiles["pre"]


def test_larger_weights():
    """The norm after a part divides its size out: with four norms weights of twice the size change next to nothing."""
    once, twice = ({p: depth_profile(p, 12, scale=s) for p in PLACEMENTS} for s in (1.0, 2.0))
    assert twice["four"].signal[-1] == pytest.approx(once["four"].signal[-1], rel=0.1)
    assert twice["pre"].signal[-1] > 2 * once["pre"].signal[-1]
    assert twice["post"].signal[-1] == pytest.approx(1, abs=0.01)
    grown = {p: twice[p].gradient[0] / once[p].gradient[0] for p in PLACEMENTS}
    assert 0.5 < grown["four"] < 2 and grown["pre"] > 4 and grown["post"] > 4
    with pytest.raises(ValueError, match="scale must be positive, not 0"):
        depth_profile("pre", 2, scale=0)


def test_unknown_placement():
    with pytest.raises(ValueError, match="placement must be one of post, pre, four, not 'both'"):
        stack("both")
