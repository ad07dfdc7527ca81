"""The shape of the model: one frozen dataclass, and its spelling in a Hugging Face config.json."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LFS = b"version https://git-lfs"  # how a pointer begins that Git LFS leaves in place of a file
LAYER_TYPES = ("local", "global")
_TO_HF = {"local": "chunked_attention", "global": "full_attention"}
# The keys of rope_parameters: those of every rotation, and what each type has besides.
_ROPE_KEYS = (
    *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "attention_factor"),
    *("attn_factor", "extrapolation_factor", "partial_rotary_factor", "mscale", "mscale_all_dim"),
)
_MODEL_TYPES = ("gemma3_text", "gemma3", "rnj1")
_ACTIVATIONS = ("gelu_pytorch_tanh", "gelu_tanh")  # two names of one function
_YARN_KEYS = ("beta_fast", "beta_slow", "truncate")
_FROM_HF = {"chunked_attention": "local", "sliding_attention": "local", "full_attention": "global"}
MOST = 2**31  # of any whole number: far above all models, and products of a few still fit
MOST_LAYERS = 10_000


class ConfigError(ValueError):
    """A value of the configuration makes no sense; the message names the field and says what is expected."""


def _whole(name: str, value: Any, least: int, most: int = MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")


def _positive(name: str, value: Any) -> None:
    """Far enough from 0 and from infinity for float32."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-30 <= value <= 1e30:
        raise ConfigError(f"{name} must be a positive number from 1e-30 to 1e30, not {_shown(value)}")


def _shown(value: Any) -> str:
    long = isinstance(value, int) and value.bit_length() > 64
    return f"one of {value.bit_length()} bits" if long else repr(value)


def _one_of(name: str, values: Any, known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ConfigError(f"{name} has {value!r}: expected one of {', '.join(known)}")


def _only_yarn(name: str, value: Any, rope_type: str) -> None:
    if value is not None and rope_type != "yarn":
        raise ConfigError(f"{name} belongs to rope_type 'yarn', but rope_type is {rope_type!r}: leave {name} out")


@dataclass(frozen=True)
class Config:
    """Everything that decides the model's shape and arithmetic. Immutable and hashable.

    Raises ConfigError, naming the field, where a value makes no sense.
    """

    d_model: int  # D: the width of the residual stream
    d_ff: int  # F: the width inside the MLP
    n_layers: int  # L: the number of blocks
    n_heads: int  # N: query heads
    n_kv_heads: int  # K: key and value heads; G = N / K queries share one
    head_dim: int  # H: the width of one head; N · H need not be D
    vocab_size: int  # V: rows of the embedding, special tokens included
    block_size: int  # C: positions in a block of a local layer
    lookback: int = 1  # how many blocks before its own a local layer sees
    layer_types: tuple[str, ...] = ()  # "local" or "global" for each layer; empty: every fourth is global
    block_origin: str = "document"  # blocks are counted from the "document"'s start or from the "row"'s
    rope_theta: float = 10_000.0  # base of the rotation's frequencies
    rope_type: str = "yarn"  # "yarn", "linear" (position interpolation) or "default" (plain)
    rope_factor: float = 1.0  # how many times longer than the original length
    original_max_positions: int = 8_192  # positions seen before the extension
    beta_fast: float = 64.0  # pairs that turn more often than this over the original length stay as they are
    beta_slow: float = 1.0  # pairs that turn less often are slowed by the whole factor
    truncate: bool = True  # round the ramp's ends outwards to whole pairs
    attention_factor: float | None = None  # multiplies cos and sin; None: 0.1 · ln(factor) + 1
    query_pre_attn_scalar: float | None = None  # scores are divided by its root; None: head_dim
    norm_eps: float = 1e-6  # under the root of every RMSNorm
    final_logit_softcap: float | None = 30.0  # logits lie in ± this; None: no cap
    bos_id: int = 0  # begins every document
    eos_ids: tuple[int, ...] = (1,)  # any of them ends a generation
    pad_id: int = 2  # fills a row

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff", "n_heads", "n_kv_heads", "head_dim", "vocab_size"):
            _whole(name, getattr(self, name), least=1)
        _whole("n_layers", self.n_layers, least=1, most=MOST_LAYERS)
        _whole("block_size", self.block_size, least=1)
        _whole("lookback", self.lookback, least=0)
        _whole("original_max_positions", self.original_max_positions, least=1)
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(f"n_heads ({self.n_heads}) must be a multiple of n_kv_heads ({self.n_kv_heads})")
        if self.head_dim % 2:
            raise ConfigError(f"head_dim ({self.head_dim}) must be even: the rotation turns pairs")
        if self.local_span > MOST:
            raise ConfigError(f"block_size ({self.block_size}) times lookback + 1 must be at most {MOST}")
        for name in ("layer_types", "eos_ids"):
            if not isinstance(getattr(self, name), tuple | list):
                raise ConfigError(f"{name} must be a tuple, not {_shown(getattr(self, name))}")
        types = self.layer_types or tuple("global" if i % 4 == 3 else "local" for i in range(self.n_layers))
        object.__setattr__(self, "layer_types", tuple(types))
        if len(self.layer_types) != self.n_layers:
            raise ConfigError(f"layer_types names {len(self.layer_types)} layers, n_layers is {self.n_layers}")
        _one_of("layer_types", self.layer_types, LAYER_TYPES)
        _one_of("block_origin", (self.block_origin,), ("document", "row"))
        _one_of("rope_type", (self.rope_type,), ("yarn", "linear", "default"))
        for name in ("rope_theta", "beta_fast", "beta_slow", "norm_eps"):
            _positive(name, getattr(self, name))
        for name in ("attention_factor", "query_pre_attn_scalar", "final_logit_softcap"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        _positive("rope_factor", self.rope_factor)
        if self.rope_factor < 1:
            raise ConfigError(f"rope_factor must be at least 1, not {self.rope_factor}")
        if self.original_max_positions * self.rope_factor > MOST:
            raise ConfigError(
                f"original_max_positions ({self.original_max_positions}) times rope_factor ({self.rope_factor:g}) "
                f"must be at most {MOST}"
            )
        if self.rope_theta <= 1:
            raise ConfigError(f"rope_theta must be above 1, not {self.rope_theta}")
        if self.rope_type == "default" and self.rope_factor != 1:
            raise ConfigError(f"rope_type 'default' takes no rope_factor, but it is {self.rope_factor}")
        if self.rope_type != "yarn" and self.attention_factor == 1:
            object.__setattr__(self, "attention_factor", None)  # as good as none
        if self.beta_fast <= self.beta_slow:
            raise ConfigError(f"beta_fast ({self.beta_fast}) must be above beta_slow ({self.beta_slow})")
        if not isinstance(self.truncate, bool):
            raise ConfigError(f"truncate must be true or false, not {self.truncate!r}")
        object.__setattr__(self, "eos_ids", tuple(self.eos_ids))
        if not self.eos_ids:
            raise ConfigError("eos_ids is empty: give the token that ends a document (eos_token_id in config.json)")
        for name, ids in (("bos_id", (self.bos_id,)), ("eos_ids", self.eos_ids), ("pad_id", (self.pad_id,))):
            for i in ids:
                _whole(name, i, least=0)
                if i >= self.vocab_size:
                    raise ConfigError(f"{name} ({i}) is outside the vocabulary of {self.vocab_size}")

    @property
    def group(self) -> int:
        """G: how many query heads share one key head."""
        return self.n_heads // self.n_kv_heads

    @property
    def scale(self) -> float:
        """What every score is multiplied by: 1 / sqrt(query_pre_attn_scalar)."""
        return (self.query_pre_attn_scalar or self.head_dim) ** -0.5

    @property
    def max_positions(self) -> int:
        """The context window: original length times factor."""
        return int(self.original_max_positions * self.rope_factor)

    @property
    def local_span(self) -> int:
        """Keys that a local layer can see at most, (lookback + 1) · C: what a config.json calls sliding_window."""
        return (self.lookback + 1) * self.block_size

    @property
    def rope_multiplier(self) -> float:
        """m, on cos and on sin alike, so scores at equal positions grow by m². YaRN (Peng et al. 2023), eq. 22."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.rope_factor) + 1.0 if self.rope_type == "yarn" else 1.0


# The followed model (Rnj 1.5). Its special tokens take the ids from 128,000 on.
RNJ_1_5 = Config(
    d_model=4096,
    d_ff=16_384,
    n_layers=32,
    n_heads=32,
    n_kv_heads=8,
    head_dim=128,
    vocab_size=128_256,
    block_size=4096,
    rope_factor=20.0,
    original_max_positions=8192,
    bos_id=128_000,
    eos_ids=(128_001, 128_008),
    pad_id=128_002,
)

# The book's own model: every feature of Rnj 1.5 in 3.8 million parameters.
SMALL = Config(
    d_model=192,
    d_ff=576,
    n_layers=8,
    n_heads=6,
    n_kv_heads=2,
    head_dim=32,
    vocab_size=2048,
    block_size=128,
    rope_factor=8.0,
    original_max_positions=512,
    bos_id=2032,
    eos_ids=(2033, 2034),
    pad_id=2035,
)

# For tests: every feature on, sizes all different, head_dim ≠ d_model / n_heads, irregular layers, lookback 2.
TINY = Config(
    d_model=48,
    d_ff=80,
    n_layers=5,
    n_heads=6,
    n_kv_heads=2,
    head_dim=20,
    vocab_size=101,
    block_size=5,
    lookback=2,
    layer_types=("local", "global", "local", "local", "global"),
    rope_factor=4.0,
    original_max_positions=640,
    norm_eps=1e-5,
    query_pre_attn_scalar=24.0,
    final_logit_softcap=30.0,
    bos_id=90,
    eos_ids=(91, 92),
    pad_id=93,
)


def read_config(source: str | Path | dict[str, Any]) -> Config:
    """Read a Hugging Face config.json (a path, a folder that holds one, or its dict) in the old or the new spelling.

    `sliding_window` is the receptive field: C = sliding_window // (lookback + 1). Equivalent spellings give equal
    Configs. Without rope_parameters (or rope_scaling) the rotation is plain, over max_position_embeddings positions.
    Raises ConfigError that names the key where one is missing, unknown or contradicts another.
    """
    whole = source if isinstance(source, dict) else _read_file(Path(source))
    raw = whole["text_config"] if isinstance(whole.get("text_config"), dict) else whole
    for part in (whole, raw):
        if part.get("model_type") not in (None, *_MODEL_TYPES):
            raise ConfigError(f"model_type must be one of {', '.join(_MODEL_TYPES)}, not {part['model_type']!r}")
        if part.get("quantization_config") is not None:
            raise ConfigError("quantization_config is set, but quantized weights are not read: save them as bfloat16")
    n_layers, lookback = _need(raw, "num_hidden_layers"), raw.get("attention_lookback", 1)
    _whole("num_hidden_layers", n_layers, least=1, most=MOST_LAYERS)
    if raw.get("max_position_embeddings") is not None:
        _whole("max_position_embeddings", raw["max_position_embeddings"], least=1)
    _whole("attention_lookback", lookback, least=0)
    types = _layer_types(raw, n_layers)
    sliding_window = raw.get("sliding_window")
    if sliding_window is None:
        if "local" in types:
            raise ConfigError("sliding_window is missing, but layer_types names local layers")
        sliding_window = (lookback + 1) * _need(raw, "max_position_embeddings")  # no layer reads it
    _whole("sliding_window", sliding_window, least=lookback + 1)
    chunk, block_size = raw.get("attention_chunk_size"), sliding_window // (lookback + 1)
    if chunk not in (None, block_size) and "local" in types:
        raise ConfigError(f"attention_chunk_size is {chunk!r}, but sliding_window makes blocks of {block_size}")
    eos = _need(raw, "eos_token_id")
    if raw.get("attn_logit_softcapping") is not None:
        raise ConfigError("attn_logit_softcapping is set, but this model caps no attention scores: it must be null")
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            raise ConfigError(f"{key} is true, but this model has no biases: it must be false")
    if not raw.get("tie_word_embeddings", True):
        raise ConfigError(
            "tie_word_embeddings is false, but this model's output head is its embedding: it must be true"
        )
    key = "hidden_act" if raw.get("hidden_activation") is None else "hidden_activation"  # the latter counts
    if raw.get(key) not in (None, *_ACTIVATIONS):
        raise ConfigError(f"{key} must be gelu_pytorch_tanh, not {raw[key]!r}")
    if raw.get("use_bidirectional_attention"):
        raise ConfigError("use_bidirectional_attention is true, but this model never looks ahead: it must be false")
    head_dim, scalar = _need(raw, "head_dim"), raw.get("query_pre_attn_scalar")
    config = Config(
        d_model=_need(raw, "hidden_size"),
        d_ff=_need(raw, "intermediate_size"),
        n_layers=n_layers,
        n_heads=_need(raw, "num_attention_heads"),
        n_kv_heads=_need(raw, "num_key_value_heads"),
        head_dim=head_dim,
        vocab_size=_need(raw, "vocab_size"),
        block_size=block_size,
        lookback=lookback,
        layer_types=types,
        block_origin=raw.get("attention_block_origin", "document"),
        query_pre_attn_scalar=None if scalar == head_dim else scalar,
        norm_eps=raw.get("rms_norm_eps", 1e-6),
        final_logit_softcap=raw.get("final_logit_softcapping"),
        bos_id=_need(raw, "bos_token_id"),
        eos_ids=tuple(eos) if isinstance(eos, list) else (eos,),
        pad_id=_need(raw, "pad_token_id"),
        **_rope(raw, types),
    )
    _check_window(raw, config)
    return config


def config_dict(config: Config) -> dict[str, Any]:
    """The config.json that `weights.save` writes: Gemma 3's keys, the new rope spelling, one entry a layer type.

    Raises ConfigError for an attention_factor of another rotation than YaRN: config.json has no place for it.
    """
    _only_yarn("attention_factor", config.attention_factor, config.rope_type)
    rope: dict[str, Any] = {"rope_type": config.rope_type, "rope_theta": config.rope_theta}
    if config.rope_type != "default":
        rope |= {"factor": config.rope_factor, "original_max_position_embeddings": config.original_max_positions}
    if config.rope_type == "yarn":
        rope |= {"beta_fast": config.beta_fast, "beta_slow": config.beta_slow, "truncate": config.truncate}
    if config.rope_type == "yarn" and config.attention_factor is not None:
        rope |= {"attention_factor": float(config.attention_factor)}
    rope_parameters: dict[str, Any] = {hf: dict(rope) for hf in ("full_attention", "chunked_attention")}
    if config.rope_type == "yarn" and not config.truncate:
        rope_parameters["truncate"] = False  # the one place where transformers looks for it
    scalar = config.query_pre_attn_scalar or config.head_dim
    return {
        "architectures": ["Rnj1ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "sliding_window": config.local_span,
        "attention_chunk_size": config.block_size,
        "attention_lookback": config.lookback,
        "attention_block_origin": config.block_origin,
        "layer_types": [_TO_HF[t] for t in config.layer_types],
        "rope_parameters": rope_parameters,
        "query_pre_attn_scalar": int(scalar) if scalar == int(scalar) else scalar,  # transformers takes no 24.0
        "rms_norm_eps": config.norm_eps,
        "final_logit_softcapping": config.final_logit_softcap,
        "attn_logit_softcapping": None,
        "attention_bias": False,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_ids[0] if len(config.eos_ids) == 1 else list(config.eos_ids),
        "pad_token_id": config.pad_id,
    }


def file_inside(folder: Path, name: str, source: Path, error: type[ValueError]) -> Path:
    """The file of that name, which must lie in the folder; links count as the file that they lead to.

    The one place outside that is allowed is the blobs folder of a Hugging Face cache, into which its snapshots link.
    """
    real = Path(os.path.realpath(folder / name))
    home = Path(os.path.realpath(folder))
    allowed = [home] + ([home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [])
    if real.parent not in allowed:
        raise error(f"{source}: {name} is a link that leaves the folder, to {real}: put the file itself there")
    if not real.is_file():
        raise error(f"{folder / name} is missing, or is no file")
    return folder / name


def json_object(path: Path, text: bytes, error: type[ValueError]) -> dict[str, Any]:
    """The JSON object that a file holds, in which no key stands twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise error(f"{path} names {key} twice: keep one")
            found[key] = value
        return found

    if text.startswith(LFS):
        raise error(f"{path} is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder")
    try:
        raw = json.loads(text, object_pairs_hook=once)
    except error:
        raise
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is not a readable JSON file: {problem}") from None
    if not isinstance(raw, dict):
        raise error(f"{path} must hold a JSON object, not {type(raw).__name__}")
    return raw


def _read_file(path: Path) -> dict[str, Any]:
    path = path / "config.json" if path.is_dir() else path
    if not os.path.lexists(path):
        raise ConfigError(f"{path} does not exist: give a folder that holds a config.json")
    try:
        text = file_inside(path.parent, path.name, path.parent, ConfigError).read_bytes()
    except OSError as problem:
        raise ConfigError(f"{path} cannot be read: {problem}") from None
    return json_object(path, text, ConfigError)


def _layer_types(raw: dict[str, Any], n_layers: int) -> tuple[str, ...]:
    names = raw.get("layer_types")
    if names is None:
        pattern = raw.get("sliding_window_pattern", raw.get("_sliding_window_pattern", 4))
        _whole("sliding_window_pattern", pattern, least=1)
        return tuple("global" if (i + 1) % pattern == 0 else "local" for i in range(n_layers))
    if not isinstance(names, list) or len(names) != n_layers:
        raise ConfigError(f"layer_types must be a list of num_hidden_layers ({n_layers}) names, not {names!r}")
    _one_of("layer_types", names, tuple(_FROM_HF))
    return tuple(_FROM_HF[name] for name in names)


def _rope(raw: dict[str, Any], types: tuple[str, ...]) -> dict[str, Any]:
    """Both spellings of the rotation, as Config's fields."""
    rope = _one_rope(raw, types)
    kind = _same("rope_type", rope.get("rope_type"), "type", rope.get("type")) or "default"
    known = ("yarn", "linear", "default")
    if kind not in known:
        raise ConfigError(f"rope_type {kind!r} is unknown: expected one of {', '.join(known)}")
    for key in ("attn_factor", "extrapolation_factor", "partial_rotary_factor"):
        if rope.get(key, 1) not in (None, 1):
            raise ConfigError(f"rope_parameters has {key} {rope[key]!r}: this model knows no value but 1")
    if rope.get("mscale") is not None or rope.get("mscale_all_dim") is not None:
        raise ConfigError("rope_parameters has mscale: only attention_factor is understood")
    for key in _YARN_KEYS:
        _only_yarn(key, rope.get(key), kind)
    theta = _same("the rope_theta of rope_parameters", rope.get("rope_theta"), "that outside", raw.get("rope_theta"))
    fields: dict[str, Any] = {"rope_type": kind, "rope_theta": 10_000.0 if theta is None else theta}
    if raw.get("rope_local_base_freq") not in (None, fields["rope_theta"]) and "local" in types:
        raise ConfigError("rope_local_base_freq differs from rope_theta, but this model rotates all layers alike")
    key = "original_max_position_embeddings"
    original = _same(f"the {key} of rope_parameters", rope.get(key), "that outside", raw.get(key))
    _only_yarn("attention_factor", rope.get("attention_factor"), kind)
    if kind == "default":
        if rope.get("factor", 1) not in (None, 1):
            raise ConfigError(f"rope_parameters has a factor ({rope['factor']!r}), but its rope_type is plain: name it")
        original = _need(raw, "max_position_embeddings") if original is None else original
        return fields | {"original_max_positions": original}
    fields["rope_factor"] = factor = _need(rope, "factor")
    _positive("factor", factor)
    if original is None and kind == "yarn":
        raise ConfigError("original_max_position_embeddings is missing: YaRN needs the length before the extension")
    if original is None:
        original = int(_need(raw, "max_position_embeddings") / factor)
    fields["original_max_positions"] = original
    if kind == "yarn":
        usual = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "attention_factor": None}
        fields |= usual | {key: rope[key] for key in usual if rope.get(key) is not None}
        if fields["attention_factor"] == 0.1 * math.log(factor) + 1.0:
            fields["attention_factor"] = None  # the formula's own value
    return fields


def _one_rope(raw: dict[str, Any], types: tuple[str, ...]) -> dict[str, Any]:
    """The rotation's parameters, which must be the same for all layer types that the model has."""
    if raw.get("rope_parameters") is not None and raw.get("rope_scaling") is not None:
        raise ConfigError("rope_parameters and rope_scaling are both there: keep one")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ConfigError(f"rope_parameters must be an object, not {rope!r}")
    if not any(key in rope for key in _FROM_HF):
        _known_keys(rope, _ROPE_KEYS + _YARN_KEYS)
        return rope
    _known_keys(rope, (*_FROM_HF, "truncate"))
    named = raw.get("layer_types") or [_TO_HF[kind] for kind in types]
    entries = []
    for key in dict.fromkeys(named):
        if not isinstance(rope.get(key), dict):
            raise ConfigError(f"rope_parameters has no entry for {key}, but layer_types names such layers")
        _known_keys(rope[key], _ROPE_KEYS + _YARN_KEYS)
        entries.append(rope[key])
    if any(entry != entries[0] for entry in entries):
        raise ConfigError("rope_parameters differ between layer types, but this model rotates all layers alike")
    if "truncate" in rope and entries[0].get("truncate", rope["truncate"]) != rope["truncate"]:
        raise ConfigError("rope_parameters says truncate twice, and not the same: keep one")
    return ({"truncate": rope["truncate"]} if "truncate" in rope else {}) | entries[0]


def _check_window(raw: dict[str, Any], config: Config) -> None:
    """max_position_embeddings is the window; beside YaRN's older spelling also the original length."""
    given = raw.get("max_position_embeddings")
    if given is None:
        return
    original, factor = config.original_max_positions, config.rope_factor
    old = config.rope_type == "yarn" and given == original
    if not old and abs(given - original * factor) >= 1:
        raise ConfigError(
            f"max_position_embeddings is {given}, but original_max_position_embeddings ({original}) times "
            f"factor ({factor:g}) makes {config.max_positions}: correct one of the three"
        )


def _known_keys(rope: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in rope:
        if key not in known:
            raise ConfigError(f"rope_parameters has {key!r}, which is unknown: expected {', '.join(known)}")


def _same(name: str, value: Any, other: str, other_value: Any) -> Any:
    """The value of a key that has two places; None where both are empty."""
    if value is not None and other_value is not None and value != other_value:
        raise ConfigError(f"{name} is {value!r}, but {other} is {other_value!r}: keep one")
    return other_value if value is None else value


def _need(raw: dict[str, Any], key: str) -> Any:
    if raw.get(key) is None:
        raise ConfigError(f"{key} is missing from the config")
    return raw[key]
