"""Counting, against the model on the meta device, a real cache, torch's own FLOP counter and published numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import rnj
from rnj import RNJ_1_5, SMALL, TINY, Config, accounting, facts
from rnj.accounting import ATTENTION_COUNTS, DAY, GIB, HOUR, KNOWN_MODELS, WEIGHT_COUNTS, all_global, known_model
from rnj.core_attention import Rows, allowed

ALL_GLOBAL = all_global(RNJ_1_5)
ALL_LOCAL = replace(TINY, layer_types=("local",) * TINY.n_layers)
CONFIGS = {"rnj-1.5": RNJ_1_5, "small": SMALL, "tiny": TINY, "all-global": all_global(TINY), "all-local": ALL_LOCAL}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def config(request) -> Config:
    return request.param


# Parameters


def test_parameters_by_part_are_those_of_the_model(config):
    parts = dict.fromkeys(("embedding", "attention", "qk_norms", "mlp", "norms"), 0)
    for name, weight in rnj.meta(config).named_parameters():
        if name.startswith("embed."):
            part = "embedding"
        elif ".q_norm." in name or ".k_norm." in name:
            part = "qk_norms"
        elif "norm" in name:
            part = "norms"
        else:
            part = "attention" if ".attn." in name else "mlp"
        parts[part] += weight.numel()
    counted = accounting.parameters(config)
    assert {part: getattr(counted, part) for part in parts} == parts
    assert counted.total == sum(parts.values())
    assert counted.without_embedding == counted.total - parts["embedding"]


def test_one_layer_is_one_block_of_the_model(config):
    block = rnj.meta(config).blocks[0]
    assert accounting.layer_parameters(config).total == sum(weight.numel() for weight in block.parameters())


def test_parameters_of_the_followed_model():
    assert accounting.parameters(RNJ_1_5).total == 8_310_501_376
    layer = accounting.layer_parameters(RNJ_1_5)
    assert layer.attention == 41_943_040
    assert layer.mlp == 201_326_592
    assert (layer.norms, layer.qk_norms, layer.embedding) == (4 * 4096, 2 * 128, 0)
    assert accounting.parameters(RNJ_1_5).embedding == 128_256 * 4096


def test_the_shortcut_of_seven_matrices():
    assert accounting.seven_matrices(RNJ_1_5) == 7_784_628_224
    assert round(100 * 7_784_628_224 / 8_310_501_376, 1) == 93.7


def test_weight_bytes_are_those_of_the_model(config):
    model = rnj.meta(config)
    assert accounting.weight_bytes(config, 4) == sum(weight.nbytes for weight in model.parameters())
    assert accounting.weight_bytes(config) == sum(weight.nbytes for weight in model.to(torch.bfloat16).parameters())


# What attention sees


def test_first_visible_and_visible_keys_of_the_followed_model():
    positions = (4095, 4096, 8191, 8192, 9000, 10_000, 12_287, 12_288)
    first = [accounting.first_visible(RNJ_1_5, q, "local") for q in positions]
    assert first == [0, 0, 0, 4096, 4096, 4096, 4096, 8192]
    keys = [accounting.visible_keys(RNJ_1_5, q, "local") for q in positions]
    assert keys == [4096, 4097, 8192, 4097, 4905, 5905, 8192, 4097]
    assert [accounting.visible_keys(RNJ_1_5, q, "global") for q in positions] == [q + 1 for q in positions]


def test_visible_keys_of_blocks_of_four():
    config = replace(TINY, block_size=4, lookback=1)
    seen = [accounting.visible_keys(config, q, "local") for q in range(12)]
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]


@pytest.mark.parametrize("kind", ["local", "global"])
@pytest.mark.parametrize("lookback", [0, 1, 2, 5])
def test_visible_keys_and_pairs_are_those_of_the_mask(kind, lookback):
    config = replace(TINY, lookback=lookback)
    length = 4 * config.block_size + 3
    rows = Rows.plain(1, length)
    mask = allowed(rows, rows, config.block_size if kind == "local" else None, lookback)[0]  # [T, T]
    assert [accounting.visible_keys(config, q, kind) for q in range(length)] == mask.sum(1).tolist()
    for tokens in range(length + 1):
        assert accounting.visible_pairs(config, tokens, kind) == mask[:tokens].sum().item()


@pytest.mark.parametrize("kind", ["local", "global"])
def test_visible_pairs_of_long_documents_are_the_sum_of_visible_keys(kind):
    total = 0
    for position in range(40_000):
        total += accounting.visible_keys(RNJ_1_5, position, kind)
        if position % 997 == 0:
            assert accounting.visible_pairs(RNJ_1_5, position + 1, kind) == total


# The cache


@pytest.mark.parametrize("tokens", [1, 14, 15, 16, 100])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cache_bytes_are_those_of_a_real_cache(tokens, batch, dtype):
    for config in (TINY, all_global(TINY), ALL_LOCAL):
        cache = rnj.KVCache(config, batch, tokens, dtype)
        assert accounting.kv_cache_bytes(config, tokens, batch, dtype.itemsize) == cache.nbytes


@pytest.mark.parametrize("tokens", [64, 8192, 163_840])
def test_cache_bytes_of_the_followed_model_are_those_of_a_cache_on_the_meta_device(tokens):
    for config in (RNJ_1_5, ALL_GLOBAL):
        cache = rnj.KVCache(config, 1, tokens, torch.bfloat16, "meta")
        assert accounting.kv_cache_bytes(config, tokens) == cache.nbytes


def test_cache_bytes_a_token():
    assert accounting.kv_bytes_per_token_per_layer(RNJ_1_5) == 4096
    assert accounting.kv_bytes_per_token(RNJ_1_5) == 131_072
    assert accounting.kv_cache_bytes(ALL_GLOBAL, 1) == 131_072
    one_kv_head = replace(RNJ_1_5, n_kv_heads=1)
    assert accounting.kv_bytes_per_token(one_kv_head) == 131_072 // 8


@pytest.mark.parametrize("tokens, everywhere, hybrid", [(32_768, 4, 1.75), (131_072, 16, 4.75), (163_840, 20, 5.75)])
def test_cache_of_long_contexts_in_gib(tokens, everywhere, hybrid):
    assert accounting.kv_cache_bytes(ALL_GLOBAL, tokens) == everywhere * GIB
    assert accounting.kv_cache_bytes(RNJ_1_5, tokens) == hybrid * GIB
    assert accounting.kv_cache_bytes(RNJ_1_5, tokens, batch=3, bytes_per_element=4) == 6 * hybrid * GIB


def test_a_local_layer_keeps_at_most_two_blocks():
    assert accounting.kv_cache_tokens(RNJ_1_5, 8191, "local") == 8191
    assert accounting.kv_cache_tokens(RNJ_1_5, 8193, "local") == 8192
    assert accounting.kv_cache_tokens(RNJ_1_5, 8193, "global") == 8193


# FLOPs


def test_matmul_flops_a_token_of_the_followed_model():
    assert f"{accounting.matmul_flops(RNJ_1_5):.3e}" == "1.662e+10"
    assert f"{accounting.training_matmul_flops(RNJ_1_5):.3e}" == "4.986e+10"
    assert accounting.matmul_flops(RNJ_1_5, "all parameters") == 2 * 8_310_501_376
    assert f"{accounting.training_matmul_flops(RNJ_1_5, 'all parameters'):.3e}" == "4.986e+10"
    assert accounting.matmul_flops(RNJ_1_5, "without embedding") == 2 * 7_784_628_224


def test_the_rule_of_thumb_of_attention():
    """12 · L · N · H · T a token in training, and half of it."""
    for tokens in (1, 7, 4096):
        rule = 12 * 32 * 32 * 128 * tokens
        assert 3 * accounting.attention_flops_per_token(RNJ_1_5, tokens, "no causal half") == rule
        assert 3 * accounting.attention_flops_per_token(RNJ_1_5, tokens, "causal half") == rule / 2


def test_exact_pairs_lie_between_the_two_rules_of_thumb():
    for tokens in (1, 2, 1000, 100_000):
        exact = accounting.attention_flops(ALL_GLOBAL, tokens, "exact pairs")
        half = accounting.attention_flops(ALL_GLOBAL, tokens, "causal half")
        assert exact == half + half // tokens  # T (T + 1) / 2
        assert accounting.attention_flops(RNJ_1_5, tokens, "exact pairs") <= exact
        assert accounting.attention_flops(RNJ_1_5, tokens, "causal half") == half  # looks at no layer's type


@pytest.mark.parametrize(
    "attention, weight, expected",
    [
        ("no causal half", "all parameters", 31_702),
        ("no causal half", "matmul weights", 31_700),
        ("no causal half", "without embedding", 29_696),
        ("causal half", "all parameters", 2 * 31_702),
        ("causal half", "matmul weights", 2 * 31_700),
        ("causal half", "without embedding", 2 * 29_696),
        ("exact pairs", "all parameters", 217_219),
    ],
)
def test_tokens_at_which_attention_equals_6n(attention, weight, expected):
    assert accounting.tokens_until_attention_equals(RNJ_1_5, attention, weight) == expected
    below, at, above = (
        abs(accounting.attention_share(RNJ_1_5, expected + step, attention, weight) - 1) for step in (-1, 0, 1)
    )
    assert at < below and at < above


def test_the_hybrid_reaches_6n_beyond_its_window_and_the_all_global_model_within():
    assert accounting.tokens_until_attention_equals(RNJ_1_5) == 217_219 > RNJ_1_5.max_positions
    assert accounting.tokens_until_attention_equals(ALL_GLOBAL) == 63_403 < RNJ_1_5.max_positions


def test_local_layers_alone_may_never_reach_6n():
    assert accounting.tokens_until_attention_equals(replace(RNJ_1_5, layer_types=("local",) * 32)) is None


@pytest.mark.parametrize("tokens, hybrid, everywhere", [(8192, 12.9, 12.9), (32_768, 26.2, 51.7), (163_840, 78.9, 258)])
def test_attention_as_a_share_of_6n(tokens, hybrid, everywhere):
    assert 100 * accounting.attention_share(RNJ_1_5, tokens) == pytest.approx(hybrid, abs=0.05)
    digits = 0 if everywhere == 258 else 1
    assert round(100 * accounting.attention_share(ALL_GLOBAL, tokens), digits) == everywhere


def test_up_to_two_blocks_the_hybrid_does_what_the_all_global_model_does():
    assert accounting.attention_flops(RNJ_1_5, 8192) == accounting.attention_flops(ALL_GLOBAL, 8192)
    assert accounting.attention_flops(RNJ_1_5, 8193) < accounting.attention_flops(ALL_GLOBAL, 8193)


def counted_flops(config: Config, batch: int, tokens: int, explicit: bool) -> tuple[int, int]:
    """Forward and backward FLOPs as torch counts them. The math backend: the CPU's flash kernel would count 0."""
    model = rnj.build(config)
    ids = torch.arange(batch * tokens).view(batch, tokens) % config.vocab_size
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            logits = model(ids, explicit=explicit)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("base, tokens", [(TINY, 4), (TINY, 33), (SMALL, 300)])
def test_flops_are_those_that_torch_counts(base, tokens):
    """The explicit form computes every score in every layer, masked or not: the count without the causal half."""
    batch = 2
    forward, backward = counted_flops(base, batch, tokens, explicit=True)
    attention = accounting.attention_flops(base, tokens, "no causal half")
    assert forward == batch * (tokens * accounting.matmul_flops(base) + attention)
    assert backward == 2 * forward
    assert forward + backward == batch * accounting.training_flops(base, tokens, "no causal half")


def test_the_fast_form_does_less_in_local_layers_but_no_less_than_the_exact_pairs():
    tokens = 700  # more than five blocks
    full, _ = counted_flops(SMALL, 1, tokens, explicit=True)
    fast, backward = counted_flops(SMALL, 1, tokens, explicit=False)
    assert accounting.forward_flops(SMALL, tokens) < fast < full
    assert backward == 2 * fast


def test_decoding_token_by_token_costs_the_exact_pairs(config):
    tokens = 40
    steps = sum(accounting.decode_flops(config, position) for position in range(tokens))
    assert steps == accounting.forward_flops(config, tokens, "exact pairs")


# A training run


def test_training_flops_by_6nd():
    flops = accounting.six_n_d(known_model("GPT-3 175B").parameters(), facts.number("GPT-3 175B, tokens"))
    assert f"{flops:.3e}" == "3.143e+23"
    assert round(accounting.petaflop_days(flops)) == 3638
    flops = accounting.six_n_d(known_model("Llama 3.1 405B").parameters(), facts.number("Llama 3.1 405B, tokens"))
    assert f"{flops:.3e}" == "3.799e+25"


@pytest.mark.parametrize(
    "name, peak, percent",
    [
        ("Llama 2 70B", "A100, dense bfloat16 peak", 42.8),
        ("Llama 3.1 405B", "H100, dense bfloat16 peak", 34.6),
    ],
)
def test_mfu_from_published_hours(name, peak, percent):
    flops = accounting.six_n_d(known_model(name).parameters(), facts.number(f"{name}, tokens"))
    hours, peak_flops = facts.number(f"{name}, GPU-hours"), facts.number(peak)
    mfu = accounting.model_flops_utilization(flops, hours, peak_flops)
    assert round(100 * mfu, 1) == percent
    run = accounting.training_run(flops, 1024, peak_flops, mfu, price_per_chip_hour=2.0)
    assert run.chip_hours == pytest.approx(hours)
    assert run.cost == pytest.approx(2 * hours)


def test_a_training_run_by_hand():
    run = accounting.training_run(flops=8e20, chips=10, peak_flops=1e15, mfu=0.4, price_per_chip_hour=3.0)
    assert run.seconds == pytest.approx(200_000)
    assert run.days == pytest.approx(200_000 / DAY)
    assert run.chip_days == pytest.approx(10 * run.days)
    assert run.chip_hours == pytest.approx(10 * 200_000 / HOUR)
    assert run.cost == pytest.approx(3 * run.chip_hours)
    twice = accounting.training_run(8e20, 20, 1e15, 0.4, 3.0)
    assert twice.days == pytest.approx(run.days / 2)
    assert twice.cost == pytest.approx(run.cost)


# Other models


PUBLISHED = {
    "GPT-2 small": 124_439_808,
    "GPT-3 175B": 174_604_259_328,
    "Llama 2 7B": 6_738_415_616,
    "Llama 2 70B": 68_976_648_192,
    "Llama 3 8B": 8_030_261_248,
    "Llama 3.1 405B": 405_853_388_800,
    "Gemma 3 27B": 27_009_346_304,
    "Qwen 3 8B": 8_190_735_360,
}


def test_published_parameters():
    assert {model.name: model.parameters() for model in KNOWN_MODELS} == PUBLISHED
    assert all(model.source for model in KNOWN_MODELS)


def test_this_model_in_the_form_of_the_others_has_the_same_parameters(config):
    row = accounting.as_dense_model(config, "this one", 2026, "here")
    assert row.parameters() == accounting.parameters(config).total
    assert row.kv_cache_bytes(50) == accounting.kv_cache_bytes(all_global(config), 50)


def test_cache_of_llama_2():
    assert known_model("Llama 2 7B").kv_cache_bytes(4096) == 2 * GIB


# Refusals


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: accounting.weights_for_6n(TINY, "some"), "all parameters"),
        (lambda: accounting.attention_flops(TINY, 5, "some"), "exact pairs"),
        (lambda: accounting.attention_flops(TINY, 0), "tokens"),
        (lambda: accounting.visible_keys(TINY, -1, "local"), "position"),
        (lambda: accounting.visible_pairs(TINY, -1, "local"), "tokens"),
        (lambda: accounting.kv_cache_bytes(TINY, -1), "tokens"),
        (lambda: accounting.visible_keys(TINY, 3, "sliding"), "layer_type"),
        (lambda: accounting.visible_pairs(TINY, 3, "sliding"), "layer_type"),
        (lambda: accounting.kv_cache_tokens(TINY, 3, "sliding"), "layer_type"),
        (lambda: accounting.training_run(1e20, 0, 1e15, 0.4), "chips"),
        (lambda: accounting.training_run(1e20, 1, 0, 0.4), "peak_flops"),
        (lambda: accounting.training_run(1e20, 1, 1e15, 0), "mfu"),
        (lambda: accounting.training_run(1e20, 1, 1e15, 40), "mfu"),
        (lambda: accounting.training_run(1e20, 1, 1e15, float("nan")), "mfu"),
        (lambda: known_model("GPT-5"), "Llama 3 8B"),
        (lambda: accounting.visible_keys(TINY, 3.0, "local"), "position"),
        (lambda: accounting.visible_pairs(TINY, 3.5, "local"), "tokens"),
        (lambda: accounting.kv_cache_tokens(TINY, float("nan"), "local"), "tokens"),
        (lambda: accounting.kv_cache_bytes(TINY, 3, batch=-1), "batch"),
        (lambda: accounting.kv_cache_bytes(TINY, 3, batch=1.5), "batch"),
        (lambda: accounting.kv_cache_bytes(TINY, 3, bytes_per_element=0), "bytes_per_element"),
        (lambda: accounting.weight_bytes(TINY, -2), "bytes_per_element"),
        (lambda: accounting.attention_flops(TINY, True), "tokens"),
        (lambda: accounting.attention_flops_per_token(TINY, 0), "tokens"),
        (lambda: accounting.forward_flops(TINY, -1), "tokens"),
        (lambda: accounting.training_flops(TINY, "8"), "tokens"),
        (lambda: accounting.attention_share(TINY, 0), "tokens"),
        (lambda: accounting.decode_flops(TINY, -1), "position"),
        (lambda: accounting.six_n_d(-1, 10), "parameters"),
        (lambda: accounting.six_n_d(10, float("nan")), "tokens"),
        (lambda: accounting.petaflop_days(float("inf")), "flops"),
        (lambda: accounting.training_run(-1e20, 1, 1e15, 0.4), "flops"),
        (lambda: accounting.training_run(1e20, 1.5, 1e15, 0.4), "chips"),
        (lambda: accounting.training_run(1e20, 1, float("nan"), 0.4), "peak_flops"),
        (lambda: accounting.training_run(1e20, 1, 1e15, 0.4, -2.0), "price_per_chip_hour"),
        (lambda: accounting.training_run(1e20, 1, 1e15, 0.4, float("nan")), "price_per_chip_hour"),
        (lambda: accounting.model_flops_utilization(0, 1, 1e15), "flops"),
        (lambda: accounting.model_flops_utilization(1e20, 0, 1e15), "chip_hours"),
        (lambda: accounting.model_flops_utilization(1e20, 1, 0), "peak_flops"),
        (lambda: known_model("GPT-2 small").kv_cache_bytes(-1), "tokens"),
        (lambda: known_model("GPT-2 small").kv_cache_bytes(1, batch=0), "batch"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_convention_has_its_own_value():
    assert len({accounting.attention_flops(RNJ_1_5, 32_768, count) for count in ATTENTION_COUNTS}) == 3
    assert len({accounting.weights_for_6n(RNJ_1_5, count) for count in WEIGHT_COUNTS}) == 3
