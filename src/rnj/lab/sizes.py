"""How large the tensors are that a computation makes: measured by looking at every operation, on any device.

On the meta device nothing is computed and nothing is stored, so that 8 B shapes can be measured on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Made:
    """A tensor that an operation returned."""

    operation: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


class _Watch(TorchDispatchMode):
    """Keeps the shape of each tensor that is made while it is on, in the forward and in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Made] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.made.append(Made(str(func), tuple(leaf.shape), leaf.numel() * leaf.element_size()))
        return result


def made(function: Callable[[], Any]) -> list[Made]:
    """Every tensor that function() makes, in order.

    scaled_dot_product_attention runs on its "math" backend meanwhile: a fused kernel would keep its scores out of
    sight. What is seen is therefore the most that any backend holds as one tensor.
    """
    with sdpa_kernel(SDPBackend.MATH), _Watch() as watch:
        function()
    return watch.made


def largest(function: Callable[[], Any]) -> Made:
    """The tensor with the most elements that function() makes."""
    return max(made(function), key=lambda m: m.numel)
