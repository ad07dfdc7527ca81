"""Counting: parameters, bytes, FLOPs and training runs, as pure functions of a Config. Needs no torch.

Letters as everywhere: D d_model, F d_ff, N query heads, K KV heads, H head_dim, V vocabulary, L layers, C block size,
T tokens. One multiply and one add are two FLOPs. GB is 10⁹ bytes, GiB is 2³⁰. Results that count whole things are
exact ints. Where two conventions are in use, the convention is an argument with a name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from rnj.config import LAYER_TYPES, Config

GB = 10**9
GIB = 2**30
HOUR = 3600  # seconds
DAY = 24 * HOUR

# How the pairs of a query and a key are counted. The first two ignore the layers' types: they are rules of thumb.
#   "no causal half"  every query meets all T keys in all L layers: 12·L·N·H·T in training (Megatron, PaLM)
#   "causal half"     half of that
#   "exact pairs"     the pairs that the masks of this model let through, local layers included
AttentionCount = Literal["no causal half", "causal half", "exact pairs"]
ATTENTION_COUNTS: tuple[AttentionCount, ...] = ("no causal half", "causal half", "exact pairs")

# What N is in 6N.
#   "all parameters"        everything that is trained, norms and embedding included
#   "matmul weights"        what a token is multiplied by: attention, MLP, and the (tied) head once
#   "without embedding"     attention and MLP alone: neither embedding nor head nor norms
WeightCount = Literal["all parameters", "matmul weights", "without embedding"]
WEIGHT_COUNTS: tuple[WeightCount, ...] = ("all parameters", "matmul weights", "without embedding")


# Parameters ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameters:
    """Learnable numbers by part, of one layer or of the whole model."""

    embedding: int  # V·D; the output head is the same table, so it is counted once
    attention: int  # q, k, v and o: 2·D·N·H + 2·D·K·H a layer
    qk_norms: int  # one weight for queries and one for keys: 2·H a layer
    mlp: int  # gate, up and down: 3·D·F a layer
    norms: int  # four a layer, and one after the last: D each

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.qk_norms + self.mlp + self.norms

    @property
    def without_embedding(self) -> int:
        return self.total - self.embedding


def layer_parameters(config: Config) -> Parameters:
    """One block. All blocks are alike: a local layer has the same weights as a global one."""
    d, h = config.d_model, config.head_dim
    attention = 2 * d * config.n_heads * h + 2 * d * config.n_kv_heads * h
    return Parameters(embedding=0, attention=attention, qk_norms=2 * h, mlp=3 * d * config.d_ff, norms=4 * d)


def parameters(config: Config) -> Parameters:
    """The whole model: embedding, L blocks, final norm."""
    layer, n = layer_parameters(config), config.n_layers
    return Parameters(
        embedding=config.vocab_size * config.d_model,
        attention=n * layer.attention,
        qk_norms=n * layer.qk_norms,
        mlp=n * layer.mlp,
        norms=n * layer.norms + config.d_model,
    )


def seven_matrices(config: Config) -> int:
    """The shortcut: three MLP and four attention matrices a layer, nothing else."""
    layer = layer_parameters(config)
    return config.n_layers * (layer.attention + layer.mlp)


def weight_bytes(config: Config, bytes_per_element: int = 2) -> int:
    """Bytes of all parameters; 2 for bfloat16, 4 for float32."""
    _at_least("bytes_per_element", bytes_per_element, 1)
    return parameters(config).total * bytes_per_element


# What attention sees -------------------------------------------------------------------------------------------------


def all_global(config: Config) -> Config:
    """The same model with every layer global."""
    return replace(config, layer_types=("global",) * config.n_layers)


def first_visible(config: Config, position: int, layer_type: str) -> int:
    """The position of the first key that a query sees, in one document."""
    _at_least("position", position, 0)
    _known_type(layer_type)
    if layer_type == "global":
        return 0
    return max(0, position // config.block_size - config.lookback) * config.block_size


def visible_keys(config: Config, position: int, layer_type: str) -> int:
    """How many keys a query sees, itself included."""
    return position - first_visible(config, position, layer_type) + 1


def visible_pairs(config: Config, tokens: int, layer_type: str) -> int:
    """Pairs of a query and a key that the mask of one layer lets through, for one document of T tokens.

    Global: T·(T + 1) / 2. Local: the triangle of each block, and for each of its queries the blocks before it, up to
    `lookback` of them. Equal to the sum of `visible_keys` over all positions, in a few operations.
    """
    _at_least("tokens", tokens, 0)
    _known_type(layer_type)
    if layer_type == "global":
        return tokens * (tokens + 1) // 2
    c = config.block_size
    full, rest = divmod(tokens, c)
    own = full * (c * (c + 1) // 2) + rest * (rest + 1) // 2
    ramp = min(full, config.lookback)  # the first blocks have 0, 1, … blocks before them, later ones `lookback`
    before = ramp * (ramp - 1) // 2 + (full - ramp) * config.lookback
    return own + before * c * c + min(full, config.lookback) * c * rest


# The KV cache --------------------------------------------------------------------------------------------------------


def kv_bytes_per_token_per_layer(config: Config, bytes_per_element: int = 2) -> int:
    """A key and a value for each KV head: 2·K·H elements."""
    _at_least("bytes_per_element", bytes_per_element, 1)
    return 2 * config.n_kv_heads * config.head_dim * bytes_per_element


def kv_bytes_per_token(config: Config, bytes_per_element: int = 2) -> int:
    """What one more token costs while every layer still grows: all layers."""
    return config.n_layers * kv_bytes_per_token_per_layer(config, bytes_per_element)


def kv_cache_tokens(config: Config, tokens: int, layer_type: str) -> int:
    """Tokens for which a layer keeps room: all in a global layer, at most (lookback + 1)·C in a local one."""
    _at_least("tokens", tokens, 0)
    _known_type(layer_type)
    return tokens if layer_type == "global" else min(tokens, config.local_span)


def kv_cache_bytes(config: Config, tokens: int, batch: int = 1, bytes_per_element: int = 2) -> int:
    """Bytes of the cache for a context of T tokens. For the all-global model pass `all_global(config)`."""
    _at_least("batch", batch, 1)
    rows = sum(kv_cache_tokens(config, tokens, kind) for kind in config.layer_types)
    return batch * rows * kv_bytes_per_token_per_layer(config, bytes_per_element)


# FLOPs a token -------------------------------------------------------------------------------------------------------


def weights_for_6n(config: Config, count: WeightCount = "all parameters") -> int:
    """N of 6N, in the convention that `count` names."""
    if count == "all parameters":
        return parameters(config).total
    if count == "matmul weights":
        return seven_matrices(config) + config.vocab_size * config.d_model
    if count == "without embedding":
        return seven_matrices(config)
    raise ValueError(f"count must be one of {', '.join(WEIGHT_COUNTS)}, not {count!r}")


def matmul_flops(config: Config, count: WeightCount = "matmul weights") -> int:
    """Forward FLOPs a token in the matrix products with weights: a multiply and an add for each weight, 2N."""
    return 2 * weights_for_6n(config, count)


def training_matmul_flops(config: Config, count: WeightCount = "matmul weights") -> int:
    """6N: backward is two products of the same size, one for the input's gradient and one for the weight's."""
    return 3 * matmul_flops(config, count)


def attention_flops(config: Config, tokens: int, count: AttentionCount = "exact pairs") -> int:
    """Forward FLOPs of scores and weighted values, in all layers, for one document of T tokens together.

    A pair costs 2·H for its score and 2·H for its value in each of N heads: 4·N·H. Grouped queries change nothing:
    every query head has scores of its own. The softmax is not counted.
    """
    _at_least("tokens", tokens, 1)
    pair = 4 * config.n_heads * config.head_dim
    if count == "no causal half":
        return pair * config.n_layers * tokens * tokens
    if count == "causal half":
        return pair * config.n_layers * tokens * tokens // 2
    if count == "exact pairs":
        return pair * sum(config.layer_types.count(kind) * visible_pairs(config, tokens, kind) for kind in LAYER_TYPES)
    raise ValueError(f"count must be one of {', '.join(ATTENTION_COUNTS)}, not {count!r}")


def attention_flops_per_token(config: Config, tokens: int, count: AttentionCount = "exact pairs") -> float:
    """The mean over the T tokens of a document, forward; in training three times that."""
    _at_least("tokens", tokens, 1)
    return attention_flops(config, tokens, count) / tokens


def forward_flops(config: Config, tokens: int, count: AttentionCount = "exact pairs") -> int:
    """All of a forward pass over one document of T tokens: matrix products and attention."""
    _at_least("tokens", tokens, 1)
    return tokens * matmul_flops(config) + attention_flops(config, tokens, count)


def training_flops(config: Config, tokens: int, count: AttentionCount = "exact pairs") -> int:
    """Forward and backward, three times the forward pass; nothing is recomputed."""
    return 3 * forward_flops(config, tokens, count)


def decode_flops(config: Config, position: int) -> int:
    """One token at `position` with a cache: its matrix products, and attention to the keys it sees."""
    keys = sum(visible_keys(config, position, kind) for kind in config.layer_types)
    return matmul_flops(config) + 4 * config.n_heads * config.head_dim * keys


def attention_share(
    config: Config, tokens: int, attention: AttentionCount = "exact pairs", weight: WeightCount = "all parameters"
) -> float:
    """Attention as a share of 6N at T tokens (in training; forward alone, over 2N, it is the same)."""
    _at_least("tokens", tokens, 1)
    return attention_flops(config, tokens, attention) / (tokens * 2 * weights_for_6n(config, weight))


def tokens_until_attention_equals(
    config: Config, attention: AttentionCount = "exact pairs", weight: WeightCount = "all parameters"
) -> int | None:
    """The whole number of tokens at which attention comes nearest to 6N; None where it never gets there.

    Only a model without global layers never gets there: its queries see a bounded number of keys.
    """

    def excess(tokens: int) -> int:
        return attention_flops(config, tokens, attention) - tokens * 2 * weights_for_6n(config, weight)

    low, high = 0, 1
    while excess(high) < 0:
        low, high = high, 2 * high
        if high > 2**50:
            return None
    if high == 1:
        return 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return high if excess(high) * low <= -excess(low) * high else low  # per token: excess / tokens


# A training run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingRun:
    """What a training run needs. MFU is the share of the chips' dense peak that does the model's own FLOPs."""

    flops: float
    chips: int
    seconds: float
    price_per_chip_hour: float

    @property
    def days(self) -> float:
        return self.seconds / DAY

    @property
    def chip_hours(self) -> float:
        return self.chips * self.seconds / HOUR

    @property
    def chip_days(self) -> float:
        return self.chips * self.seconds / DAY

    @property
    def cost(self) -> float:
        return self.chip_hours * self.price_per_chip_hour


def six_n_d(parameters: float, tokens: float) -> float:
    """Training FLOPs by 6·N·D: parameters times tokens times 6. Leaves attention out."""
    _positive("parameters", parameters)
    _positive("tokens", tokens)
    return 6.0 * parameters * tokens


def petaflop_days(flops: float) -> float:
    """FLOPs in days of a machine that does 10¹⁵ a second."""
    _positive("flops", flops)
    return flops / (1e15 * DAY)


def training_run(
    flops: float, chips: int, peak_flops: float, mfu: float, price_per_chip_hour: float = 0.0
) -> TrainingRun:
    """Time and cost: seconds = FLOPs / (chips · peak · MFU). Peak: dense, in FLOP/s, without sparsity.

    Leaves out failures, restarts, evaluation, and everything that was tried before. Raises ValueError by name.
    """
    _positive("flops", flops)
    _at_least("chips", chips, 1)
    _positive("peak_flops", peak_flops)
    _positive("mfu", mfu)
    if mfu > 1:
        raise ValueError(f"mfu must be a share, at most 1, not {mfu}: divide a percentage by 100")
    _positive("price_per_chip_hour", price_per_chip_hour, or_zero=True)
    return TrainingRun(flops, chips, flops / (chips * peak_flops * mfu), price_per_chip_hour)


def model_flops_utilization(flops: float, chip_hours: float, peak_flops: float) -> float:
    """MFU over all hours that were paid: the model's FLOPs over what the chips could have done, dense.

    Recomputed activations are not the model's FLOPs: with them it would be HFU, the hardware's utilization.
    """
    _positive("flops", flops)
    _positive("chip_hours", chip_hours)
    _positive("peak_flops", peak_flops)
    return flops / (chip_hours * HOUR * peak_flops)


# Other models --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DenseModel:
    """A published dense decoder by its hyperparameters: enough to count its parameters exactly."""

    name: str
    year: int
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int  # rows of the embedding, also where padded rows are never used
    context: int  # tokens of the window that the publication names
    source: str
    mlp_matrices: int = 3  # 3: gate, up, down; 2: up, down
    tied: bool = False  # the output head is the embedding
    learned_positions: int = 0  # rows of a learned table of positions
    biases: bool = False  # on every matrix of a layer, never on the head
    qk_norm: bool = False  # a weight of head_dim for queries and one for keys
    norms_per_layer: int = 2  # of width d_model; one more follows the last layer
    norm_bias: bool = False  # LayerNorm has a weight and a bias, RMSNorm a weight

    def parameters(self) -> int:
        """Every learnable number; an untied head counts beside the embedding."""
        d, f, h = self.d_model, self.d_ff, self.head_dim
        attention = 2 * d * self.n_heads * h + 2 * d * self.n_kv_heads * h
        mlp = self.mlp_matrices * d * f
        if self.biases:
            attention += self.n_heads * h + 2 * self.n_kv_heads * h + d
            mlp += (self.mlp_matrices - 1) * f + d
        if self.qk_norm:
            attention += 2 * h
        norm = 2 * d if self.norm_bias else d
        tables = self.vocab_size * (1 if self.tied else 2) + self.learned_positions
        return tables * d + self.n_layers * (attention + mlp + self.norms_per_layer * norm) + norm

    def kv_cache_bytes(self, tokens: int, batch: int = 1, bytes_per_element: int = 2) -> int:
        """The cache when every layer keeps every token."""
        _at_least("tokens", tokens, 0)
        _at_least("batch", batch, 1)
        _at_least("bytes_per_element", bytes_per_element, 1)
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim * tokens * batch * bytes_per_element


def as_dense_model(config: Config, name: str, year: int, source: str) -> DenseModel:
    """This book's model in a row of the same form. (Its local layers' smaller cache is not in that form.)"""
    return DenseModel(
        name=name,
        year=year,
        n_layers=config.n_layers,
        d_model=config.d_model,
        d_ff=config.d_ff,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        context=config.max_positions,
        source=source,
        tied=True,
        qk_norm=True,
        norms_per_layer=4,
    )


# Name, year, L, D, F, N, K, H, V, context, source.
_GPT_2 = DenseModel(
    *("GPT-2 small", 2019, 12, 768, 3072, 12, 12, 64, 50_257, 1024, "Radford et al. 2019; published config.json"),
    mlp_matrices=2,
    tied=True,
    learned_positions=1024,
    biases=True,
    norm_bias=True,
)
_GPT_3 = replace(
    _GPT_2,
    name="GPT-3 175B",
    year=2020,
    n_layers=96,
    d_model=12_288,
    d_ff=49_152,
    n_heads=96,
    n_kv_heads=96,
    head_dim=128,
    context=2048,
    learned_positions=2048,
    source="Brown et al. 2020, arXiv:2005.14165, table 2.1",
)
_LLAMA_2 = "Touvron et al. 2023, arXiv:2307.09288; published config.json"
_LLAMA_3 = "Grattafiori et al. 2024, arXiv:2407.21783, table 3"
_GEMMA_3 = "Gemma Team 2025, arXiv:2503.19786; published config.json, text part"
_QWEN_3 = "Yang et al. 2025, arXiv:2505.09388; published config.json"

KNOWN_MODELS: tuple[DenseModel, ...] = (
    _GPT_2,
    _GPT_3,
    DenseModel("Llama 2 7B", 2023, 32, 4096, 11_008, 32, 32, 128, 32_000, 4096, _LLAMA_2),
    DenseModel("Llama 2 70B", 2023, 80, 8192, 28_672, 64, 8, 128, 32_000, 4096, _LLAMA_2),
    DenseModel("Llama 3 8B", 2024, 32, 4096, 14_336, 32, 8, 128, 128_256, 8192, _LLAMA_3),
    DenseModel("Llama 3.1 405B", 2024, 126, 16_384, 53_248, 128, 8, 128, 128_256, 131_072, _LLAMA_3),
    DenseModel(
        *("Gemma 3 27B", 2025, 62, 5376, 21_504, 32, 16, 128, 262_208, 131_072, _GEMMA_3),
        tied=True,
        qk_norm=True,
        norms_per_layer=4,
    ),
    DenseModel("Qwen 3 8B", 2025, 36, 4096, 12_288, 32, 8, 128, 151_936, 32_768, _QWEN_3, qk_norm=True),
)


def known_model(name: str) -> DenseModel:
    """The row of KNOWN_MODELS with that name; ValueError lists the names."""
    for model in KNOWN_MODELS:
        if model.name == name:
            return model
    raise ValueError(f"no model {name!r}: known are {', '.join(model.name for model in KNOWN_MODELS)}")


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def _positive(name: str, value: float, or_zero: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and value < math.inf
    if not number or not (value >= 0 if or_zero else value > 0):
        raise ValueError(f"{name} must be a {'number of at least 0' if or_zero else 'positive number'}, not {value!r}")


def _known_type(layer_type: str) -> None:
    if layer_type not in LAYER_TYPES:
        raise ValueError(f"layer_type must be one of {', '.join(LAYER_TYPES)}, not {layer_type!r}")
