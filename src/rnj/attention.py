"""Multi-head attention with grouped queries (GQA) and normalised queries and keys. Chapter 4 builds it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from rnj.cache import KVCache
from rnj.config import Config
from rnj.core_attention import Rows, allowed, attend, attend_explicit
from rnj.norm import RMSNorm
from rnj.trace import Note, silent
from rnj.yarn import rotate


class Attention(nn.Module):
    """Project to N queries and K keys and values, normalise and rotate, attend, project back.

    x, y: [B, T, D]. G = N / K query heads share a key head. Only queries and keys are normalised
    and rotated; one q_norm and one k_norm weight serve all heads of a layer.
    Sources: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (GQA); Henry et al. 2020
    (QK-norm).
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        N, K, H, D = config.n_heads, config.n_kv_heads, config.head_dim, config.d_model
        self.layer, self.head_dim, self.scale = layer, H, config.scale
        self.block_size = config.block_size if config.layer_types[layer] == "local" else None
        self.lookback = config.lookback
        self.q_proj = nn.Linear(D, N * H, bias=False)
        self.k_proj = nn.Linear(D, K * H, bias=False)
        self.v_proj = nn.Linear(D, K * H, bias=False)
        self.o_proj = nn.Linear(N * H, D, bias=False)
        self.q_norm = RMSNorm(H, config.norm_eps)
        self.k_norm = RMSNorm(H, config.norm_eps)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cos: Float[Tensor, "B T H/2"],
        sin: Float[Tensor, "B T H/2"],
        rows: Rows,
        cache: KVCache | None = None,
        explicit: bool = False,
        note: Note = silent,
    ) -> Float[Tensor, "B T D"]:
        heads = (-1, self.head_dim)
        q = note("q", self.q_proj(x).unflatten(-1, heads))  # [B, T, N, H]
        k = note("k", self.k_proj(x).unflatten(-1, heads))  # [B, T, K, H]
        v = note("v", self.v_proj(x).unflatten(-1, heads))  # [B, T, K, H]
        q = note("q_norm", self.q_norm(q))  # [B, T, N, H]
        k = note("k_norm", self.k_norm(k))  # [B, T, K, H]
        q = note("q_rot", rotate(q, cos, sin))  # [B, T, N, H]
        k = note("k_rot", rotate(k, cos, sin))  # [B, T, K, H]
        k_rows = rows
        if cache is not None:
            k, v, k_rows = cache.extend(self.layer, k, v)  # [B, S, K, H], the T new ones last
        if explicit:
            mask = allowed(rows, k_rows, self.block_size, self.lookback)  # [B, T, S]
            out = attend_explicit(q, k, v, note("allowed", mask), self.scale, note)
        else:
            out = attend(q, k, v, rows, k_rows, self.scale, self.block_size, self.lookback)
        out = note("heads", out)  # [B, T, N, H]
        return note("out", self.o_proj(out.flatten(2)))  # [B, T, D]
