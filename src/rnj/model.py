"""The whole transformer: embedding, blocks, final norm, tied head, soft cap. Chapters 1 and 7."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rnj.attention import Attention
from rnj.cache import KVCache
from rnj.config import Config
from rnj.core_attention import Rows, columns
from rnj.mlp import GeGLU
from rnj.norm import RMSNorm
from rnj.trace import Note, Trace, into, silent, within
from rnj.yarn import cos_sin

IGNORED = -100  # a target that is not trained on


class Block(nn.Module):
    """One of L equal blocks: attention, then MLP, each between two norms and added to the residual stream.

    x, y: [B, T, D].
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.pre_attn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attn = Attention(config, layer)
        self.post_attn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.pre_mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = GeGLU(config.d_model, config.d_ff)
        self.post_mlp_norm = RMSNorm(config.d_model, config.norm_eps)

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
        x = note("in", x)
        h = note("pre_attn_norm", self.pre_attn_norm(x))  # [B, T, D]
        h = self.attn(h, cos, sin, rows, cache, explicit, within(note, "attn"))  # [B, T, D]
        x = note("mid", x + note("post_attn_norm", self.post_attn_norm(h)))  # [B, T, D]
        h = note("pre_mlp_norm", self.pre_mlp_norm(x))  # [B, T, D]
        h = self.mlp(h, within(note, "mlp"))  # [B, T, D]
        return note("out", x + note("post_mlp_norm", self.post_mlp_norm(h)))  # [B, T, D]


class Transformer(nn.Module):
    """The model of a Config. Weights are whatever torch makes them: use `build`, or `weights.load`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        self.final_norm = RMSNorm(config.d_model, config.norm_eps)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        cache: KVCache | None = None,
        last_only: bool = False,
        explicit: bool = False,
        note: Note = silent,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the next token at every position (or the last only), float32, soft-capped.

        positions, segments: of packed or padded rows; without them each row is one document, continued
        from the cache. explicit: attend with every score in sight. note: see `trace`.
        Raises ValueError on tokens that do not fit.
        """
        self._check(tokens)
        rows = self._rows(tokens, positions, segments, cache)
        if cache is not None:
            cache.begin(rows)
        cos, sin = cos_sin(rows.positions, self.config)  # [B, T, H/2]
        weight = self.embed.weight
        width = math.sqrt(self.config.d_model)
        root = torch.tensor(width, dtype=weight.dtype, device=weight.device)
        x = note("embed", self.embed(tokens) * root)  # [B, T, D]
        for layer, block in enumerate(self.blocks):
            inside = within(note, f"block.{layer}")
            x = block(x, cos, sin, rows, cache, explicit, inside)  # [B, T, D]
        if cache is not None:
            cache.end()
        return self.head(x[:, -1], note)[:, None] if last_only else self.head(x, note)

    def head(self, x: Float[Tensor, "... D"], note: Note = silent) -> Float[Tensor, "... V"]:
        """Final norm, the embedding as projection, the soft cap cap · tanh(logits / cap) in float32."""
        logits = F.linear(note("final_norm", self.final_norm(x)), self.embed.weight)  # [..., V]
        logits = note("logits_raw", logits.to(torch.promote_types(logits.dtype, torch.float32)))
        cap = self.config.final_logit_softcap
        return note("logits", logits if cap is None else cap * torch.tanh(logits / cap))  # [..., V]

    @torch.no_grad()
    def trace(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        cache: KVCache | None = None,
        explicit: bool = True,
    ) -> Trace:
        """Every intermediate by name, in the order in which it was made, from the same code that runs without it.

        Names: embed, block.3.in, block.3.attn.q_rot, block.3.mlp.gate, …, final_norm, logits_raw, logits. With
        explicit also block.3.attn.allowed, .scores and .weights, [B, N, T, S].
        """
        kept = Trace()
        self(tokens, positions, segments, cache, explicit=explicit, note=into(kept))
        return kept

    def _check(self, tokens: Tensor) -> None:
        if tokens.ndim != 2 or 0 in tokens.shape:
            raise ValueError(f"tokens must be [batch, length] with at least one token, not {list(tokens.shape)}")
        if tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"tokens must be int64 or int32 ids, not {tokens.dtype}")
        if tokens.device != self.embed.weight.device:
            raise ValueError(f"tokens are on {tokens.device}, the model is on {self.embed.weight.device}: move one")
        if tokens.device.type != "meta":
            low, high = (int(x) for x in tokens.aminmax())
            if low < 0 or high >= self.config.vocab_size:
                bad = low if low < 0 else high
                raise ValueError(f"token id {bad} is outside the vocabulary of {self.config.vocab_size}")

    def _rows(self, tokens: Tensor, positions: Tensor | None, segments: Tensor | None, cache: KVCache | None) -> Rows:
        """Where the tokens stand; what was not given is made up."""
        B, T = tokens.shape
        if cache is not None:
            _check_cache(cache, self, B)
        given = {name: x for name, x in (("positions", positions), ("segments", segments)) if x is not None}
        for name, x in given.items():
            if x.dtype not in (torch.int64, torch.int32):
                raise ValueError(f"{name} must be int64 or int32, not {x.dtype}")
            if x.shape != tokens.shape:
                raise ValueError(f"{name} must be {list(tokens.shape)} like the tokens, not {list(x.shape)}")
        seen = 0 if cache is None else cache.length
        if not given:
            rows = Rows.plain(B, T, device=tokens.device) if cache is None else cache.next_rows(T)
        else:
            if positions is None:
                if seen:
                    raise ValueError("segments without positions: with tokens in the cache give both")
                positions = _restarting(segments)
            if segments is None:
                segments = torch.ones_like(positions)
            if cache is not None:
                rows = cache.rows(positions, segments)
            elif self.config.block_origin == "row":
                rows = Rows(positions, segments, columns(segments, segments.new_zeros(B)))
            else:
                rows = Rows(positions, segments, positions)
        if tokens.device.type != "meta":
            if given:
                _check_documents(rows, cache)
            last = seen + T - 1 if rows.start is not None else int(rows.positions.max())
            if last >= self.config.max_positions:
                raise ValueError(
                    f"position {last} is past the context of {self.config.max_positions} "
                    f"({self.config.original_max_positions} · {self.config.rope_factor:g}): shorten the text"
                )
        return rows


def _check_cache(cache: KVCache, model: Transformer, batch: int) -> None:
    """A cache serves the model, the batch and the dtype that it was made for."""
    if cache.config != model.config:
        raise ValueError("the cache was made for another config: make one with KVCache(model.config, …)")
    if cache.batch != batch:
        raise ValueError(f"the cache was made for a batch of {cache.batch}, not {batch}")
    for what, made, wanted in (
        ("dtype", cache.keys[0].dtype, model.embed.weight.dtype),
        ("device", cache.keys[0].device, model.embed.weight.device),
    ):
        if made != wanted:
            raise ValueError(f"the cache's {what} is {made}, the model's {wanted}: make one with {what}={wanted}")


def _restarting(segments: Tensor) -> Tensor:
    """Positions that count from 0 in each document."""
    at = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)  # [B, T]
    new = torch.ones_like(segments, dtype=torch.bool)
    new[:, 1:] = segments[:, 1:] != segments[:, :-1]
    starts = torch.where(new, at, 0).cummax(1).values  # [B, T]
    return at - starts


def _check_documents(rows: Rows, cache: KVCache | None) -> None:
    """A document's tokens stand side by side and its positions rise: masks and blocks rely on both."""
    positions, segments = rows.positions, rows.segments
    if cache is not None:
        before = cache.places()
        positions = torch.cat([before.positions, positions], dim=1)  # [B, S]
        segments = torch.cat([before.segments, segments], dim=1)
    same = segments[:, 1:] == segments[:, :-1]
    real = segments[:, 1:] != 0
    if bool((same & real & (positions[:, 1:] <= positions[:, :-1])).any()):
        raise ValueError("positions must rise within a document: give each document its own segment")
    if bool((positions < 0).any()) or bool((segments < 0).any()):
        raise ValueError("positions and segments must not be negative")
    ordered = segments.sort(dim=1).values
    runs = (~same & real).sum(1) + (segments[:, 0] != 0)  # [B]
    documents = ((ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] != 0)).sum(1) + (ordered[:, 0] != 0)
    if bool((runs != documents).any()):
        raise ValueError("segments: a document comes back after another one; give each stretch its own segment")


def loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats over the targets that are not IGNORED (-100), in float32; 0 where there are none."""
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"targets must be {list(logits.shape[:-1])} like the logits, not {list(targets.shape)}")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(wide.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)


def build(
    config: Config,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_norms: bool = False,
) -> Transformer:
    """A model with seeded random weights, made directly on its device in its dtype.

    Matrices have standard deviation 1 / sqrt(fan-in), the embedding 1 / sqrt(D). Norm weights are 0, or with
    random_norms drawn as well, so that no two norms can be taken for each other.
    """
    model = meta(config).to(dtype).to_empty(device=device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
            elif random_norms:
                weight.normal_(0, 0.3, generator=generator)
            else:
                weight.zero_()
    return model


def meta(config: Config) -> Transformer:
    """The model's shapes without its memory: parameters on the meta device."""
    with torch.device("meta"):
        return Transformer(config)
