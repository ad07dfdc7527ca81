"""The receptive field of a stack of layers: which positions can have changed a position's vector after n layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from rnj.core_attention import Rows, allowed


def layer_masks(length: int, block_size: int, layer_types: Sequence[str], lookback: int = 1) -> list[Tensor]:
    """The mask of each layer for one document, [T, T]."""
    rows = Rows.plain(1, length)
    masks = {
        "local": allowed(rows, rows, block_size, lookback)[0],
        "global": allowed(rows, rows)[0],
    }  # [T, T] each
    return [masks[kind] for kind in layer_types]


def reach(masks: Sequence[Bool[Tensor, "T T"]]) -> Bool[Tensor, "n T T"]:
    """reach[n, q, k]: whether position k can have reached position q after n layers; n runs from 0, the embedding.

    Exact: a layer carries to q what any key that q sees has gathered so far. The residual stream carries q itself.
    """
    seen = torch.eye(masks[0].shape[0], dtype=torch.bool, device=masks[0].device)  # [T, T]
    steps = [seen]
    for mask in masks:
        seen = seen | (mask.float() @ seen.float() > 0)  # [T, T]
        steps.append(seen)
    return torch.stack(steps)  # [L + 1, T, T]
