"""The largest tensor of a computation is seen: in forward and backward, on CPU and on the meta device."""

from __future__ import annotations

import torch

from rnj.core_attention import Rows, allowed, attend, attend_explicit
from rnj.lab.sizes import largest, made


def attention(length: int, block_size: int | None, device: str = "cpu", backward: bool = False) -> int:
    """Entries a head of the largest tensor."""
    q = torch.empty(1, length, 2, 4, device=device).normal_().requires_grad_(backward)
    k = torch.empty(1, length, 2, 4, device=device).normal_()
    rows = Rows.plain(1, length, device=device)

    def run() -> None:
        out = attend(q, k, k, rows, rows, 0.5, block_size)
        if backward:
            out.sum().backward()

    return largest(run).numel // 2


def test_every_operation_is_seen() -> None:
    x = torch.ones(3, 4)
    assert [m.shape for m in made(lambda: (x @ x.T).exp().sum(0))] == [(4, 3), (3, 3), (3, 3), (3,)]


def test_a_global_layer_grows_with_the_square_and_a_local_one_with_the_length() -> None:
    for device in ("cpu", "meta"):
        for backward in (False, True):
            assert attention(256, None, device, backward) == 256 * 256
            for length in (64, 128, 256, 512):
                assert attention(length, 8, device, backward) <= length * 16
            assert attention(512, 8, device, backward) > 512 * 15


def test_packed_rows_too() -> None:
    q = torch.randn(1, 96, 2, 4)
    segments = torch.tensor([[1] * 50 + [2] * 40 + [0] * 6])
    positions = torch.cat([torch.arange(50), torch.arange(40), torch.arange(6)])[None]
    rows = Rows(positions, segments, positions)
    assert largest(lambda: attend(q, q, q, rows, rows, 0.5, 4)).numel < 2 * 96 * 96 / 4
    mask = allowed(rows, rows, 4)
    assert largest(lambda: attend_explicit(q, q, q, mask, 0.5)).numel == 2 * 96 * 96
