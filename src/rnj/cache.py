"""The KV cache: keys and values of the tokens seen so far. An argument of the model, never a part of it. Chapter 7."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnj.config import Config
from rnj.core_attention import Rows, allowed, columns


class CacheFull(ValueError):
    """More tokens than the cache has room for; nothing was written."""


class _Layers:
    """What all layers of one type share: how many tokens they hold, which, and where those stand."""

    def __init__(self, batch: int, capacity: int, device: torch.device | str | None) -> None:
        self.capacity, self.held, self.first = capacity, 0, 0
        self.places = torch.zeros(3, batch, capacity, dtype=torch.int64, device=device)  # positions, segments, blocks
        self.rows: Rows | None = None  # of the keys in the running forward pass


class KVCache:
    """Room for max_length tokens in global layers, for (lookback + 1) · C in local ones, at once.

    keys, values: a list over layers of [B, capacity, K, H]. Keys are kept rotated, each by its own
    position. A local layer drops a whole block when the first token of a new block arrives.
    Keys and values are kept without their gradients: a backward pass reaches the tokens of its own
    forward pass only. A forward pass calls `begin`, each layer `extend`, and then `end`. A pass
    that was broken off between the two leaves the cache unusable, and the next `begin` says so.
    """

    def __init__(
        self,
        config: Config,
        batch: int = 1,
        max_length: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.config, self.batch = config, batch
        self.max_length = config.max_positions if max_length is None else max_length
        if self.max_length < 1 or batch < 1:
            given = f"{self.max_length} and {batch}"
            raise ValueError(f"a cache needs max_length and batch of at least 1, not {given}")
        room = {"global": self.max_length, "local": min(self.max_length, config.local_span)}
        self._layers = {kind: _Layers(batch, room[kind], device) for kind in room}
        K, H = config.n_kv_heads, config.head_dim
        sizes = [(batch, room[kind], K, H) for kind in config.layer_types]
        self.keys = [torch.zeros(size, dtype=dtype, device=device) for size in sizes]
        self.values = [torch.zeros(size, dtype=dtype, device=device) for size in sizes]
        self.reset()

    def reset(self) -> None:
        """Forget every token; the memory stays."""
        self.length = 0  # tokens seen a row, padding included
        self._plain, self._open, self._new = True, False, 0
        for layers in self._layers.values():
            layers.held = layers.first = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values, used or not."""
        return sum(x.nbytes for x in [*self.keys, *self.values])

    def held(self, layer: int) -> int:
        """How many tokens this layer holds now."""
        return self._layers[self.config.layer_types[layer]].held

    def first(self, layer: int) -> int:
        """The column of the first token that this layer holds."""
        return self._layers[self.config.layer_types[layer]].first

    def places(self) -> Rows:
        """Where every token seen so far stands, [B, length]."""
        layers = self._layers["global"]
        return Rows(*layers.places[:, :, : layers.held].unbind())

    def next_rows(self, length: int) -> Rows:
        """Where the next tokens stand if each row goes on in its document."""
        if self._plain:
            return Rows.plain(self.batch, length, self.length, self._layers["global"].places.device)
        layers = self._layers["global"]
        positions, segments, _ = layers.places[:, :, layers.held - 1, None]  # [B, 1] each
        if bool((segments == 0).any()):
            missing = "positions and segments of the next tokens"
            raise ValueError(f"a row ends in padding: give the {missing}")
        step = torch.arange(1, length + 1, device=positions.device)  # [T]
        return self.rows(positions + step, segments.expand(-1, length))

    def rows(self, positions: Int[Tensor, "B T"], segments: Int[Tensor, "B T"]) -> Rows:
        """Where new tokens of these positions and segments stand, behind those that were seen."""
        if self.config.block_origin == "document":
            return Rows(positions, segments, positions)
        begun = ((self.places().segments != 0).cumsum(1) > 0).sum(1)  # [B]
        return Rows(positions, segments, columns(segments, begun))

    def begin(self, rows: Rows) -> None:
        """Make room for new tokens at `rows`. Raises CacheFull before anything changes."""
        T = rows.positions.shape[1]
        if self._open:
            said = "the last forward pass with this cache was broken off: reset() it"
            raise RuntimeError(f"{said} and feed the tokens again")
        if self.length + T > self.max_length:
            raise CacheFull(
                f"the cache holds {self.length} of {self.max_length} tokens and {T} more "
                "do not fit: "
                "make one with a larger max_length"
            )
        self._open, self._new = True, T
        self._plain = self._plain and rows.start == self.length
        new = torch.stack([rows.positions, rows.segments, rows.block_pos])  # [3, B, T]
        for kind, layers in self._layers.items():
            if kind == "local" and layers.held:
                self._drop(layers, rows)
            places, layers.places = _append(layers.places, layers.held, new)
            start = layers.first if self._plain else None
            layers.rows = Rows(places[0], places[1], places[2], start)

    def _drop(self, layers: _Layers, rows: Rows) -> None:
        """Let go of what the first new token can no longer see, and with it no later one."""
        C, lookback = self.config.block_size, self.config.lookback
        if self._plain:
            assert rows.start is not None
            gone = max(0, (rows.start // C - lookback) * C - layers.first)
        else:
            held = Rows(*layers.places[:, :, : layers.held].unbind())
            first = Rows(*(x[:, :1] for x in (rows.positions, rows.segments, rows.block_pos)))
            seen = allowed(first, held, C, lookback).any(1).any(0)  # [held]
            gone = int(seen.int().argmax()) if bool(seen.any()) else layers.held
        if gone:
            left = layers.held - gone
            local = [i for i, kind in enumerate(self.config.layer_types) if kind == "local"]
            kept = [buffer[i] for buffer in (self.keys, self.values) for i in local]
            for x in [layers.places.permute(1, 2, 0), *kept]:
                x[:, :left] = x[:, gone : layers.held].clone()
            layers.held, layers.first = left, layers.first + gone

    def extend(
        self, layer: int, k: Float[Tensor, "B T K H"], v: Float[Tensor, "B T K H"]
    ) -> tuple[Float[Tensor, "B S K H"], Float[Tensor, "B S K H"], Rows]:
        """Keep a layer's new keys and values.

        Returns all that it holds, the new ones last, and where they stand.
        """
        layers = self._layers[self.config.layer_types[layer]]
        assert layers.rows is not None
        k, self.keys[layer] = _append(self.keys[layer], layers.held, k, dim=1)
        v, self.values[layer] = _append(self.values[layer], layers.held, v, dim=1)
        return k, v, layers.rows

    def end(self) -> None:
        """The pass is over: the new tokens count as held."""
        self.length += self._new
        for layers in self._layers.values():
            layers.held = min(layers.held + self._new, layers.capacity)
            layers.first = self.length - layers.held
            layers.rows = None
        self._open = False


def _append(buffer: Tensor, held: int, new: Tensor, dim: int = 2) -> tuple[Tensor, Tensor]:
    """All held entries with the new ones after them, and the buffer that now holds the last of them."""
    total, capacity = held + new.shape[dim], buffer.shape[dim]
    new = new.to(buffer.dtype)
    if total <= capacity:
        buffer.narrow(dim, held, new.shape[dim]).copy_(new.detach())
        if not new.requires_grad:
            return buffer.narrow(dim, 0, total), buffer
        return torch.cat([buffer.narrow(dim, 0, held), new], dim), buffer
    everything = torch.cat([buffer.narrow(dim, 0, held), new], dim)
    buffer.copy_(everything.narrow(dim, total - capacity, capacity).detach())
    return everything, buffer
