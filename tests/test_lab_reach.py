"""The receptive field against gradients, and its closed form in local stacks."""

from __future__ import annotations

import torch

from rnj.core_attention import attend_explicit
from rnj.lab.reach import layer_masks, reach


def test_local_layers_step_back_lookback_blocks_each() -> None:
    T, C = 60, 4
    for lookback in (0, 1, 2):
        steps = reach(layer_masks(T, C, ("local",) * 9, lookback))
        for n in range(1, 10):
            first = steps[n].int().argmax(-1)  # [T]
            q = torch.arange(T)
            assert torch.equal(first, (q // C - n * lookback).clamp_min(0) * C)
            assert torch.equal(steps[n].sum(-1), q - first + 1)  # without gaps


def test_a_global_layer_reaches_the_start() -> None:
    steps = reach(layer_masks(40, 4, ("local", "local", "local", "global")))
    assert steps[0].equal(torch.eye(40, dtype=torch.bool))
    assert not steps[3][39, 0] and steps[4].equal(torch.ones(40, 40, dtype=torch.bool).tril())


def test_it_is_where_the_gradient_is_not_zero() -> None:
    T, C = 21, 3
    masks = layer_masks(T, C, ("local", "local", "local"))
    x = torch.randn(T, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    h = x
    for mask in masks:
        y = h[None, :, None]
        h = h + attend_explicit(y, y, y, mask[None], 0.3)[0, :, 0]
    for q in range(T):
        (grad,) = torch.autograd.grad(h[q].sum(), x, retain_graph=True)
        assert torch.equal(grad.abs().sum(-1) > 0, reach(masks)[-1][q])
