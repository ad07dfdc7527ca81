"""The shape of the model: its values, its spellings in config.json, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
import os

import pytest
import torch

import rnj
from rnj import RNJ_1_5, SMALL, TINY, Config, ConfigError, config_dict, read_config
from rnj.yarn import cos_sin, inv_freq

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 20.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 64.0,
    "beta_slow": 1.0,
}


def raw_rnj() -> dict:
    """Rnj 1.5 as its config.json would say it, without the keys that its spellings differ in."""
    raw = config_dict(RNJ_1_5)
    for key in (
        "rope_parameters",
        "layer_types",
        "attention_chunk_size",
        "attention_lookback",
        "attention_block_origin",
    ):
        del raw[key]
    return raw


SPELLINGS = {
    "new, one entry a layer type": {"rope_parameters": {"full_attention": YARN, "chunked_attention": YARN}},
    "new, flat": {"rope_parameters": YARN},
    "old, rope_type": {"rope_theta": 10_000.0, "rope_scaling": {k: v for k, v in YARN.items() if k != "rope_theta"}},
    "old, type": {
        "rope_theta": 10_000,
        "rope_scaling": {"type": "yarn", "factor": 20, "beta_fast": 64, "original_max_position_embeddings": 8192},
    },
    "old, length outside": {
        "original_max_position_embeddings": 8192,
        "rope_local_base_freq": 10_000.0,
        "rope_theta": 10_000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 20.0, "beta_fast": 64.0},
    },
    "factors of 1 and nulls": {
        "rope_scaling": None,
        "rope_parameters": YARN | {"attn_factor": 1.0, "extrapolation_factor": 1.0, "attention_factor": None},
    },
    "the formula's attention factor": {"rope_parameters": YARN | {"attention_factor": 0.1 * math.log(20) + 1}},
    "as transformers saves it": {
        "rope_parameters": {
            "full_attention": YARN,
            "chunked_attention": YARN,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        "layer_types": (["chunked_attention"] * 3 + ["full_attention"]) * 8,
        "attention_chunk_size": 4096,
        "_sliding_window_pattern": 6,
    },
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_equivalent_spellings_give_equal_configs_and_tables(spelling: str) -> None:
    config = read_config(raw_rnj() | SPELLINGS[spelling])
    assert config == RNJ_1_5
    assert torch.equal(inv_freq(config), inv_freq(RNJ_1_5))
    positions = torch.tensor([[0, 1, 4096, 163_839]])
    for ours, theirs in zip(cos_sin(positions, config), cos_sin(positions, RNJ_1_5)):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("config", [RNJ_1_5, SMALL, TINY], ids=["RNJ_1_5", "SMALL", "TINY"])
def test_round_trip(config: Config, tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_dict(config)))
    for source in (config_dict(config), tmp_path, str(tmp_path), tmp_path / "config.json"):
        assert read_config(source) == config


@pytest.mark.parametrize(
    "change",
    [
        {"truncate": False},
        {"attention_factor": 1.5},
        {"rope_type": "linear", "original_max_positions": 641, "rope_factor": 1.5},
        {"rope_type": "default", "rope_factor": 1.0},
        {"final_logit_softcap": None},
        {"query_pre_attn_scalar": 21.5},
        {"block_origin": "row"},
        {"eos_ids": (7,)},
        {"lookback": 0},
        {"layer_types": ("global",) * 5},
    ],
)
def test_round_trip_of_every_option(change: dict) -> None:
    config = dataclasses.replace(TINY, **change)
    assert read_config(json.loads(json.dumps(config_dict(config)))) == config


def test_the_spelling_that_is_written() -> None:
    raw = config_dict(RNJ_1_5)
    assert raw["architectures"] == ["Rnj1ForCausalLM"]
    assert raw["model_type"] == "gemma3_text"
    assert raw["layer_types"].count("chunked_attention") == 24
    assert raw["layer_types"].count("full_attention") == 8
    assert raw["sliding_window"] == 8192
    assert raw["max_position_embeddings"] == 163_840
    assert raw["rope_parameters"] == {
        kind: YARN | {"truncate": True} for kind in ("full_attention", "chunked_attention")
    }
    assert raw["query_pre_attn_scalar"] == 128
    assert isinstance(config_dict(TINY)["query_pre_attn_scalar"], int)
    assert config_dict(dataclasses.replace(TINY, truncate=False))["rope_parameters"]["truncate"] is False


def test_values_of_rnj() -> None:
    assert (RNJ_1_5.group, RNJ_1_5.max_positions, RNJ_1_5.local_span) == (4, 163_840, 8192)
    assert RNJ_1_5.rope_multiplier == pytest.approx(1.2995732, abs=1e-7)
    assert RNJ_1_5.rope_multiplier**2 == pytest.approx(1.6888906, abs=1e-7)
    assert RNJ_1_5.layer_types == ("local", "local", "local", "global") * 8
    assert hash(RNJ_1_5) == hash(dataclasses.replace(RNJ_1_5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        RNJ_1_5.d_model = 1  # type: ignore[misc]


def test_tiny_has_every_feature_and_no_two_sizes_alike() -> None:
    sizes = (TINY.d_model, TINY.d_ff, TINY.n_layers, TINY.n_heads, TINY.n_kv_heads, TINY.head_dim, TINY.vocab_size)
    assert len(set(sizes)) == len(sizes)
    assert TINY.head_dim != TINY.d_model // TINY.n_heads
    assert set(TINY.layer_types) == {"local", "global"}
    assert TINY.query_pre_attn_scalar != TINY.head_dim


@pytest.mark.parametrize(
    ("keys", "types"),
    [
        ({}, ("local", "local", "local", "global") * 2),
        ({"sliding_window_pattern": 3}, ("local", "local", "global", "local", "local", "global", "local", "local")),
        ({"_sliding_window_pattern": 2}, ("local", "global") * 4),
        ({"sliding_window_pattern": 1}, ("global",) * 8),
        ({"layer_types": ["full_attention"] + ["sliding_attention"] * 7}, ("global",) + ("local",) * 7),
        ({"layer_types": ["chunked_attention"] * 8, "sliding_window_pattern": 2}, ("local",) * 8),
    ],
)
def test_layer_types_and_the_older_pattern(keys: dict, types: tuple[str, ...]) -> None:
    raw = raw_rnj() | {"num_hidden_layers": 8, "rope_parameters": YARN} | keys
    assert read_config(raw).layer_types == types


def test_sliding_window_is_the_receptive_field() -> None:
    raw = raw_rnj() | {"rope_parameters": YARN}
    assert read_config(raw | {"sliding_window": 600}).block_size == 300
    assert read_config(raw | {"sliding_window": 600, "attention_lookback": 2}).block_size == 200


def test_an_all_global_config_needs_no_window() -> None:
    raw = raw_rnj() | {"rope_parameters": YARN, "layer_types": ["full_attention"] * 32, "sliding_window": None}
    assert set(read_config(raw).layer_types) == {"global"}


def test_only_the_layer_types_in_use_need_a_rotation() -> None:
    other = YARN | {"factor": 4.0}
    raw = raw_rnj() | {"rope_parameters": {"full_attention": YARN, "chunked_attention": other}}
    assert read_config(raw | {"layer_types": ["full_attention"] * 32}).rope_factor == 20
    raw |= {"max_position_embeddings": 4 * 8192}
    assert read_config(raw | {"layer_types": ["chunked_attention"] * 32}).rope_factor == 4


@pytest.mark.parametrize(("eos", "ids"), [(5, (5,)), ([5], (5,)), ([5, 9, 7], (5, 9, 7))])
def test_end_tokens_as_one_or_several(eos: int | list[int], ids: tuple[int, ...]) -> None:
    assert read_config(raw_rnj() | {"rope_parameters": YARN, "eos_token_id": eos}).eos_ids == ids


@pytest.mark.parametrize(
    "keys",
    [
        {"hidden_activation": None, "hidden_act": "gelu_tanh"},
        {"hidden_act": "silu"},  # hidden_activation counts
        {"model_type": None},
        {"model_type": "rnj1"},
        {"mlp_bias": False, "quantization_config": None},
    ],
)
def test_keys_that_say_what_is_so_anyway(keys: dict) -> None:
    assert read_config(raw_rnj() | {"rope_parameters": YARN} | keys) == RNJ_1_5


def test_what_a_larger_config_says_counts_too() -> None:
    for key, value in (("model_type", "llava"), ("quantization_config", {"bits": 4})):
        with pytest.raises(ConfigError, match=key):
            read_config({key: value, "text_config": config_dict(SMALL)})


def test_a_config_inside_a_larger_one() -> None:
    assert read_config({"model_type": "gemma3", "text_config": config_dict(SMALL)}) == SMALL


def test_the_window_beside_yarn_is_the_long_one_or_the_original() -> None:
    for window in (8192, 163_840, None):
        assert read_config(raw_rnj() | {"rope_parameters": YARN, "max_position_embeddings": window}) == RNJ_1_5


def test_plain_and_interpolated_rotation() -> None:
    plain = read_config(raw_rnj() | {"rope_theta": 10_000.0, "max_position_embeddings": 8192})
    assert (plain.rope_type, plain.rope_factor, plain.max_positions) == ("default", 1, 8192)
    raw = raw_rnj() | {"rope_scaling": {"type": "linear", "factor": 20.0}, "rope_theta": 10_000.0}
    linear = read_config(raw)
    assert (linear.rope_type, linear.original_max_positions, linear.max_positions) == ("linear", 8192, 163_840)
    assert torch.equal(inv_freq(linear)[0] * 20, inv_freq(plain)[0])


def test_an_attention_factor_of_1_is_none_where_there_is_no_yarn() -> None:
    plain = dataclasses.replace(TINY, rope_type="default", rope_factor=1.0)
    assert dataclasses.replace(plain, attention_factor=1.0) == plain
    assert dataclasses.replace(TINY, attention_factor=1.0) != TINY


# --- What is refused, by name


@pytest.mark.parametrize("change", [{"rope_type": "linear"}, {"rope_type": "default", "rope_factor": 1.0}])
def test_an_attention_factor_without_yarn_is_never_lost(change: dict) -> None:
    config = dataclasses.replace(TINY, **change)
    raw = config_dict(config)
    for entry in raw["rope_parameters"].values():
        entry["attention_factor"] = 1.5
    with pytest.raises(ConfigError, match="attention_factor"):
        read_config(raw)
    with pytest.raises(ConfigError, match="attention_factor"):
        config_dict(dataclasses.replace(config, attention_factor=1.5))


REFUSED_KEYS = [
    ({"rope_parameters": YARN | {"rope_type": "longrope"}}, "rope_type 'longrope'"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
    ({"rope_scaling": {"factor": 20.0}}, "factor"),
    ({"rope_parameters": {k: v for k, v in YARN.items() if "original" not in k}}, "original_max_position_embeddings"),
    ({"rope_parameters": {k: v for k, v in YARN.items() if k != "factor"}}, "factor"),
    ({"rope_parameters": YARN | {"factor": 0.5}}, "rope_factor"),
    ({"rope_parameters": YARN | {"factor": "20"}}, "factor"),
    ({"rope_parameters": YARN | {"beta_fast": 0.5}}, "beta_fast"),
    ({"rope_parameters": YARN | {"truncate": "no"}}, "truncate"),
    ({"rope_parameters": YARN | {"attn_factor": 0.9}}, "attn_factor"),
    ({"rope_parameters": YARN | {"mscale": 1.0}}, "mscale"),
    ({"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_parameters": YARN | {"beta_fest": 32.0}}, "beta_fest.*beta_fast"),
    ({"rope_parameters": YARN | {"short_factor": [1.0]}}, "short_factor"),
    ({"rope_parameters": dict.fromkeys(("full_attention", "chunked_attention", "factor"), YARN)}, "'factor'"),
    (
        {"rope_parameters": dict.fromkeys(("full_attention", "chunked_attention"), YARN | {"beta_fest": 32.0})},
        "beta_fest",
    ),
    ({"rope_parameters": YARN | {"type": "linear"}}, "rope_type is 'yarn', but type is 'linear'"),
    ({"rope_parameters": YARN, "rope_theta": 1e6}, "rope_theta"),
    ({"rope_parameters": YARN, "original_max_position_embeddings": 4096}, "original_max_position_embeddings"),
    ({"rope_parameters": YARN, "max_position_embeddings": 131_072}, "max_position_embeddings"),
    ({"rope_parameters": YARN, "max_position_embeddings": "160k"}, "max_position_embeddings"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 20.0, "beta_fast": 64.0}}, "beta_fast"),
    ({"rope_parameters": {"rope_type": "default", "truncate": False}}, "truncate"),
    ({"rope_parameters": {"original_max_position_embeddings": 8192}}, "max_position_embeddings"),
    ({"rope_parameters": [20.0]}, "rope_parameters"),
    ({"rope_parameters": YARN, "rope_scaling": YARN}, "rope_scaling"),
    ({"rope_parameters": {"full_attention": YARN}}, "chunked_attention"),
    ({"rope_parameters": {"full_attention": YARN, "chunked_attention": YARN | {"rope_theta": 1e6}}}, "differ"),
    (
        {
            "rope_parameters": {"truncate": False}
            | dict.fromkeys(("full_attention", "chunked_attention"), YARN | {"truncate": True})
        },
        "truncate",
    ),
    ({"rope_theta": 1e6, "rope_local_base_freq": 1e4}, "rope_local_base_freq"),
    ({"rope_parameters": YARN, "rope_local_base_freq": 1e6}, "rope_local_base_freq"),
    ({"rope_theta": 1}, "rope_theta"),
    ({"layer_types": ["linear_attention"] * 32}, "layer_types"),
    ({"layer_types": ["full_attention"]}, "layer_types"),
    ({"layer_types": []}, "layer_types"),
    ({"layer_types": "full_attention"}, "layer_types"),
    ({"sliding_window_pattern": 0}, "sliding_window_pattern"),
    ({"sliding_window": None}, "sliding_window"),
    ({"sliding_window": 0}, "sliding_window"),
    ({"sliding_window": 8192.0}, "sliding_window"),
    ({"attention_chunk_size": 8192}, "attention_chunk_size"),
    ({"attention_lookback": -1}, "attention_lookback"),
    ({"attention_block_origin": "batch"}, "block_origin"),
    ({"eos_token_id": 128_256}, "eos_ids"),
    ({"eos_token_id": ["</s>"]}, "eos_ids"),
    ({"eos_token_id": None}, "eos_token_id"),
    ({"eos_token_id": []}, "eos_token_id"),
    ({"bos_token_id": True}, "bos_id"),
    ({"pad_token_id": None}, "pad_token_id"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
    ({"max_position_embeddings": 10**400}, "max_position_embeddings"),
    (
        {"rope_scaling": {"type": "linear", "factor": 20.0}, "max_position_embeddings": "160k"},
        "max_position_embeddings",
    ),
    ({"num_hidden_layers": "32"}, "num_hidden_layers"),
    ({"hidden_size": 0}, "d_model"),
    ({"head_dim": 127}, "head_dim"),
    ({"num_key_value_heads": 5}, "n_kv_heads"),
    ({"num_key_value_heads": None}, "num_key_value_heads"),
    ({"rms_norm_eps": 0}, "norm_eps"),
    ({"final_logit_softcapping": -30.0}, "final_logit_softcap"),
    ({"query_pre_attn_scalar": float("nan")}, "query_pre_attn_scalar"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ({"attention_bias": True}, "attention_bias"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings"),
    ({"mlp_bias": True}, "mlp_bias"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"model_type": "llama"}, "model_type.*llama"),
    ({"model_type": ["gemma3"]}, "model_type"),
    ({"hidden_activation": "silu"}, "hidden_activation"),
    ({"hidden_activation": None, "hidden_act": "silu"}, "hidden_act must"),
    ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
]


@pytest.mark.parametrize(("keys", "named"), REFUSED_KEYS)
def test_a_config_json_that_makes_no_sense_is_refused_by_name(keys: dict, named: str) -> None:
    plain = {"rope_theta": 10_000.0} if keys.keys() & {"rope_scaling", "rope_theta", "rope_parameters"} else {}
    raw = raw_rnj() | (plain or {"rope_parameters": YARN}) | keys
    with pytest.raises(ConfigError, match=named):
        read_config(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"d_ff": -1},
        {"n_layers": 2.0},
        {"vocab_size": True},
        {"block_size": 0},
        {"lookback": -1},
        {"layer_types": ("local",)},
        {"layer_types": ("sliding",) * 5},
        {"rope_type": "ntk"},
        {"rope_theta": float("inf")},
        {"rope_factor": 0.5},
        {"original_max_positions": 0},
        {"beta_slow": 64.0},
        {"attention_factor": 0.0},
        {"norm_eps": float("nan")},
        {"pad_id": 101},
        {"eos_ids": ()},
        {"eos_ids": 5},
        {"layer_types": 5},
        {"n_layers": 10**9},
        {"n_layers": 10_001},
        {"d_model": 2**62},
        {"vocab_size": 10**5000},
        {"lookback": 2**30},
        {"block_size": 2**30},
        {"rope_theta": 10**400},
        {"rope_theta": 10**5000},
        {"rope_factor": 1e308},
        {"rope_factor": 1e9},
        {"original_max_positions": 10**400},
        {"query_pre_attn_scalar": 1e-300},
        {"final_logit_softcap": 1e-300},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_field_that_makes_no_sense_is_refused_by_name(change: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        dataclasses.replace(TINY, **change)


def test_unreadable_files_are_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        read_config(tmp_path / "config.json")
    for text in ("{", "[1]", '{"a": ' * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"config\.json"):
            read_config(tmp_path)


def test_a_key_twice_is_refused(tmp_path) -> None:
    text = json.dumps(config_dict(TINY))
    (tmp_path / "config.json").write_text(text[:-1] + ', "head_dim": 22}')
    with pytest.raises(ConfigError, match="head_dim twice"):
        read_config(tmp_path)


def test_a_pointer_in_place_of_the_file_is_named(tmp_path) -> None:
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ConfigError, match="Git LFS pointer"):
        read_config(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("config.json", path)])
def test_what_is_no_file_is_refused_at_once(tmp_path, make) -> None:
    make(tmp_path / "config.json")
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_link_that_leaves_the_folder_is_refused(tmp_path) -> None:
    (tmp_path / "outside.json").write_text(json.dumps(config_dict(TINY)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to("../outside.json")
    for source in (tmp_path / "model", tmp_path / "model" / "config.json"):
        with pytest.raises(ConfigError, match=r"config\.json is a link"):
            read_config(source)


# --- What the open fields do

OPEN_FIELDS = {
    "norm_eps": 1e-3,
    "query_pre_attn_scalar": 20.0,
    "beta_fast": 32.0,
    "beta_slow": 2.0,
    "truncate": False,
    "attention_factor": 1.0,
    "rope_theta": 20_000.0,
    "rope_factor": 8.0,
    "original_max_positions": 1024,
    "rope_type": "linear",
    "final_logit_softcap": None,
    "layer_types": ("global", "local", "local", "global", "local"),
    "block_size": 6,
    "lookback": 1,
    "block_origin": "row",
}


@pytest.mark.parametrize("field", OPEN_FIELDS)
def test_changing_an_open_field_changes_the_output(field: str) -> None:
    """Same weights, same packed row; only one field differs."""
    tokens = torch.randint(0, 90, (1, 60), generator=torch.Generator().manual_seed(0))
    segments = torch.tensor([[1] * 18 + [2] * 42])
    positions = torch.tensor([[*range(18), *range(42)]])

    def logits(config: Config) -> torch.Tensor:
        model = rnj.build(config, seed=0, random_norms=True)
        with torch.no_grad():
            return model(tokens, positions, segments)

    changed = dataclasses.replace(TINY, **{field: OPEN_FIELDS[field]})
    assert (logits(TINY) - logits(changed)).abs().max() > 1e-3
