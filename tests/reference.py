"""The whole model once more, in float64 and plain loops: a second specification to hold the package against.

Nothing here is shared with src/rnj but the field names of its Config and the names of its weights. Every formula is
written for one token, one head, one pair at a time, so that it can be compared with the text by eye:

    x      = embedding[token] · sqrt(D)
    h      = x + post_attn_norm(attention(pre_attn_norm(x)))
    y      = h + post_mlp_norm(mlp(pre_mlp_norm(h)))
    logits = cap · tanh(embedding · final_norm(y) / cap)

`forward` runs a batch layer by layer and returns every intermediate under the name that `Transformer.trace` gives it.
`Decoder` runs one row token by token and forgets, in local layers, the keys of blocks that no later token may look at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Weights = dict[str, Array]
PADDING = 0  # the segment that attends nothing and that nothing attends to


@dataclass(frozen=True)
class Place:
    """Where one token stands."""

    index: int  # in its row, counted from the row's first token
    position: int  # in its document: 0 at the document's start
    segment: int  # which document: 1, 2, …; 0 is padding


def places(positions: Any, segments: Any) -> list[Place]:
    """The places of one row from its lists of positions and segments."""
    pairs = zip(positions, segments, strict=True)
    return [Place(index, int(position), int(segment)) for index, (position, segment) in enumerate(pairs)]


# --- who may look at whom ---------------------------------------------------------------------------------------------


def may_look(config: Any, layer_type: str, q: Place, k: Place) -> bool:
    """Whether the query at q may look at the key at k in a layer of this type."""
    if q.segment == PADDING or k.segment == PADDING:
        return False
    if q.segment != k.segment:
        return False
    if k.position > q.position:
        return False
    if layer_type == "global":
        return True
    return block_of(config, q) - block_of(config, k) <= config.lookback


def block_of(config: Any, place: Place) -> int:
    """Which block of C positions a token stands in; counted from its document's start unless the config says row."""
    start = place.position if config.block_origin == "document" else place.index
    return start // config.block_size


# --- the rotation -----------------------------------------------------------------------------------------------------


def frequencies(config: Any) -> list[float]:
    """Radians that each of the H/2 pairs turns by per position."""
    plain = [config.rope_theta ** (-2 * i / config.head_dim) for i in range(config.head_dim // 2)]
    if config.rope_type == "default":
        return plain
    if config.rope_type == "linear":
        return [f / config.rope_factor for f in plain]
    low, high = ramp_ends(config)
    result = []
    for i, f in enumerate(plain):
        slowed = min(max((i - low) / (high - low), 0.0), 1.0)  # 0: left alone, 1: slowed by the whole factor
        result.append((1 - slowed) * f + slowed * f / config.rope_factor)
    return result


def raw_ramp_ends(config: Any) -> tuple[float, float]:
    """The pairs, as real numbers, that turn beta_fast and beta_slow times over the original length."""

    def pair_with_turns(turns: float) -> float:
        # turns = original / (2π · theta^(2i/H)), solved for i
        positions_per_radian = config.original_max_positions / (2 * math.pi * turns)  # theta^(2i/H)
        return config.head_dim * math.log(positions_per_radian) / (2 * math.log(config.rope_theta))

    return pair_with_turns(config.beta_fast), pair_with_turns(config.beta_slow)


def ramp_ends(config: Any) -> tuple[float, float]:
    """The same ends, rounded outwards if the config says so, kept among the dimensions and never equal."""
    low, high = raw_ramp_ends(config)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    return low, high + 0.001 if low == high else high


def attention_factor(config: Any) -> float:
    """m, which multiplies cos and sin of queries and of keys."""
    if config.attention_factor is not None:
        return config.attention_factor
    return 0.1 * math.log(config.rope_factor) + 1 if config.rope_type == "yarn" else 1.0


def rotate(config: Any, head: Array, position: int) -> Array:
    """Turn the pairs (i, i + H/2) of one head by their angles at this position, and stretch them by m."""
    half, m = config.head_dim // 2, attention_factor(config)
    turned = np.zeros_like(head)
    for i, frequency in enumerate(frequencies(config)):
        angle = position * frequency
        first, second = head[i], head[i + half]
        turned[i] = m * (math.cos(angle) * first - math.sin(angle) * second)
        turned[i + half] = m * (math.sin(angle) * first + math.cos(angle) * second)
    return turned


# --- the parts --------------------------------------------------------------------------------------------------------


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x²) + eps) · (1 + weight) for one vector."""
    mean_square = sum(float(value) ** 2 for value in x) / len(x)
    return x / math.sqrt(mean_square + eps) * (1 + weight)


def gelu_tanh(x: float) -> float:
    """The tanh form of GELU."""
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(scores: list[float]) -> list[float]:
    """Weights that sum to 1; no scores, no weights."""
    if not scores:
        return []
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    return [power / sum(powers) for power in powers]


def soft_cap(logits: Array, cap: float | None) -> Array:
    """cap · tanh(logits / cap), or the logits as they are."""
    return logits if cap is None else np.array([cap * math.tanh(value / cap) for value in logits])


def heads_of(config: Any, flat: Array) -> Array:
    """One projected vector cut into heads: [n · H] -> [n, H]."""
    return flat.reshape(-1, config.head_dim)


def mix(config: Any, query: Array, keys: list[Array], values: list[Array]) -> Array:
    """One query's answer from the keys and values of its own key head that it may look at; 0 where there are none."""
    weights = softmax([score(config, query, key) for key in keys])
    answer = np.zeros(config.head_dim)
    for weight, value in zip(weights, values, strict=True):
        answer += weight * value
    return answer


def score(config: Any, query: Array, key: Array) -> float:
    """One scaled score. The scale comes from query_pre_attn_scalar, or from head_dim where there is none."""
    return float(query @ key) / math.sqrt(config.query_pre_attn_scalar or config.head_dim)


# --- a batch, layer by layer ------------------------------------------------------------------------------------------


def forward(
    config: Any, weights: Weights, tokens: Any, positions: Any = None, segments: Any = None
) -> dict[str, Array]:
    """Every intermediate of a forward pass over tokens [B, T], by name; the last one is "logits" [B, T, V].

    positions default to 0 … T-1 and segments to 1 everywhere: one document in each row.
    """
    tokens = np.asarray(tokens)
    positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape) if positions is None else positions
    segments = np.ones_like(tokens) if segments is None else segments
    rows = [forward_row(config, weights, *row) for row in zip(tokens, positions, segments, strict=True)]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def forward_row(config: Any, weights: Weights, tokens: Any, positions: Any, segments: Any) -> dict[str, Array]:
    """The same for one row; no batch axis."""
    row, out = places(positions, segments), {}
    x = np.stack([weights["embed.weight"][token] * math.sqrt(config.d_model) for token in tokens])  # [T, D]
    out["embed"] = x
    for layer, layer_type in enumerate(config.layer_types):
        part = {name.removeprefix(f"blocks.{layer}."): w for name, w in weights.items() if f"blocks.{layer}." in name}
        made = {"in": x}
        made["pre_attn_norm"] = each(rms_norm, x, part["pre_attn_norm.weight"], config.norm_eps)
        attention(config, part, layer_type, row, made)
        made["post_attn_norm"] = each(rms_norm, made["attn.out"], part["post_attn_norm.weight"], config.norm_eps)
        made["mid"] = x + made["post_attn_norm"]
        made["pre_mlp_norm"] = each(rms_norm, made["mid"], part["pre_mlp_norm.weight"], config.norm_eps)
        mlp(part, made)
        made["post_mlp_norm"] = each(rms_norm, made["mlp.out"], part["post_mlp_norm.weight"], config.norm_eps)
        made["out"] = x = made["mid"] + made["post_mlp_norm"]
        out |= {f"block.{layer}.{name}": value for name, value in made.items()}
    out["final_norm"] = each(rms_norm, x, weights["final_norm.weight"], config.norm_eps)
    out["logits_raw"] = np.stack([weights["embed.weight"] @ vector for vector in out["final_norm"]])  # [T, V]
    out["logits"] = each(soft_cap, out["logits_raw"], config.final_logit_softcap)
    return out


def each(function: Any, vectors: Array, *rest: Any) -> Array:
    """The function of each vector along all axes but the last."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    return np.stack([function(vector, *rest) for vector in flat]).reshape(vectors.shape)


def attention(config: Any, part: Weights, layer_type: str, row: list[Place], made: dict[str, Array]) -> None:
    """The attention of one layer over one row: from made["pre_attn_norm"] to made["attn.out"]."""
    for name in ("q", "k", "v"):
        made[f"attn.{name}"] = np.stack(
            [heads_of(config, part[f"attn.{name}_proj.weight"] @ x) for x in made["pre_attn_norm"]]
        )  # [T, N, H] and [T, K, H]
    for name in ("q", "k"):
        norm = each(rms_norm, made[f"attn.{name}"], part[f"attn.{name}_norm.weight"], config.norm_eps)
        made[f"attn.{name}_norm"] = norm
        made[f"attn.{name}_rot"] = np.stack(
            [np.stack([rotate(config, head, place.position) for head in heads]) for place, heads in zip(row, norm)]
        )
    q, k, v = made["attn.q_rot"], made["attn.k_rot"], made["attn.v"]
    length, group = len(row), config.n_heads // config.n_kv_heads
    scores, shares = np.zeros((2, config.n_heads, length, length))
    answers = np.zeros((length, config.n_heads, config.head_dim))
    for n in range(config.n_heads):
        shared = n // group  # heads 0 … G-1 share key head 0, the next G share key head 1, …
        for t in range(length):
            visible = [s for s in range(length) if may_look(config, layer_type, row[t], row[s])]
            for s in range(length):
                scores[n, t, s] = score(config, q[t, n], k[s, shared])
            for s, weight in zip(visible, softmax([scores[n, t, s] for s in visible]), strict=True):
                shares[n, t, s] = weight
                answers[t, n] += weight * v[s, shared]
    made["attn.allowed"] = np.array([[may_look(config, layer_type, there, here) for here in row] for there in row])
    made["attn.scores"], made["attn.weights"], made["attn.heads"] = scores, shares, answers
    made["attn.out"] = np.stack([part["attn.o_proj.weight"] @ answer.reshape(-1) for answer in answers])


def mlp(part: Weights, made: dict[str, Array]) -> None:
    """The MLP of one layer over one row: from made["pre_mlp_norm"] to made["mlp.out"]."""
    made["mlp.gate"] = np.stack([part["mlp.gate_proj.weight"] @ x for x in made["pre_mlp_norm"]])
    made["mlp.gate_act"] = np.array([[gelu_tanh(value) for value in gate] for gate in made["mlp.gate"]])
    made["mlp.up"] = np.stack([part["mlp.up_proj.weight"] @ x for x in made["pre_mlp_norm"]])
    made["mlp.product"] = made["mlp.gate_act"] * made["mlp.up"]
    made["mlp.out"] = np.stack([part["mlp.down_proj.weight"] @ x for x in made["mlp.product"]])


# --- one row, token by token ------------------------------------------------------------------------------------------


class Decoder:
    """One row that grows by a token at a time. memory[layer] holds (place, key heads, value heads) of what it keeps."""

    def __init__(self, config: Any, weights: Weights) -> None:
        self.config, self.weights, self.length = config, weights, 0
        self.memory: list[list[tuple[Place, Array, Array]]] = [[] for _ in config.layer_types]

    def feed(self, token: int, position: int | None = None, segment: int = 1) -> Array:
        """The logits [V] after one more token; its position is the row's length unless it is given."""
        config, weights = self.config, self.weights
        here = Place(self.length, self.length if position is None else position, segment)
        self.length += 1
        x = weights["embed.weight"][token] * math.sqrt(config.d_model)
        for layer in range(config.n_layers):
            x = self._block(layer, here, x)
        x = rms_norm(x, weights["final_norm.weight"], config.norm_eps)
        return soft_cap(weights["embed.weight"] @ x, config.final_logit_softcap)

    def _block(self, layer: int, here: Place, x: Array) -> Array:
        w = {name.removeprefix(f"blocks.{layer}."): v for name, v in self.weights.items() if f"blocks.{layer}." in name}
        eps = self.config.norm_eps
        normed = rms_norm(x, w["pre_attn_norm.weight"], eps)
        x = x + rms_norm(self._attention(layer, here, normed, w), w["post_attn_norm.weight"], eps)
        normed = rms_norm(x, w["pre_mlp_norm.weight"], eps)
        gate = np.array([gelu_tanh(value) for value in w["mlp.gate_proj.weight"] @ normed])
        made = w["mlp.down_proj.weight"] @ (gate * (w["mlp.up_proj.weight"] @ normed))
        return x + rms_norm(made, w["post_mlp_norm.weight"], eps)

    def _attention(self, layer: int, here: Place, x: Array, w: Weights) -> Array:
        config, layer_type = self.config, self.config.layer_types[layer]
        eps, group = config.norm_eps, config.n_heads // config.n_kv_heads
        q_heads, k_heads, values = (heads_of(config, w[f"attn.{name}_proj.weight"] @ x) for name in ("q", "k", "v"))
        queries = [rotate(config, rms_norm(q, w["attn.q_norm.weight"], eps), here.position) for q in q_heads]
        keys = np.stack([rotate(config, rms_norm(k, w["attn.k_norm.weight"], eps), here.position) for k in k_heads])
        kept = [*self.memory[layer], (here, keys, values)]
        if layer_type == "local":  # a block that this token may not look at, no later token may look at
            oldest = block_of(config, here) - config.lookback
            kept = [item for item in kept if item[0].segment == here.segment and block_of(config, item[0]) >= oldest]
        self.memory[layer] = kept
        seen = [(k, v) for place, k, v in kept if may_look(config, layer_type, here, place)]
        answers = []
        for n, query in enumerate(queries):
            answers.append(mix(config, query, [k[n // group] for k, _ in seen], [v[n // group] for _, v in seen]))
        return w["attn.o_proj.weight"] @ np.concatenate(answers)
