"""The work that a computation does: counted by looking at every operation, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def flops(function: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    """FLOPs of the matrix products that function(*arguments, **options) does, forward and backward.

    A multiply and an add are two.
    scaled_dot_product_attention runs on its "math" backend meanwhile, since torch counts a fused CPU kernel as 0. That
    backend computes a whole rectangle of scores where a causal kernel may leave half of it out. Norms, activations and
    softmax are not counted.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        function(*arguments, **options)
    return counter.get_total_flops()
