"""The assembled model: its parameters, its wiring, its head, its loss, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rnj
from rnj import RNJ_1_5, SMALL, TINY, Transformer
from tests.common import Watch, largest_difference, model, packed_row, random, random_tokens

# --- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_at_8b() -> None:
    big = rnj.meta(RNJ_1_5)
    assert all(weight.device.type == "meta" for weight in big.parameters())
    assert sum(weight.numel() for weight in big.parameters()) == 8_310_501_376
    assert sum(w.numel() for w in big.blocks[0].attn.parameters()) == 41_943_040 + 2 * 128
    assert sum(w.numel() for w in big.blocks[0].mlp.parameters()) == 201_326_592


def test_state_dict_keys_and_shapes() -> None:
    per_block = {
        "pre_attn_norm.weight": (48,),
        "attn.q_proj.weight": (120, 48),
        "attn.k_proj.weight": (40, 48),
        "attn.v_proj.weight": (40, 48),
        "attn.o_proj.weight": (48, 120),
        "attn.q_norm.weight": (20,),
        "attn.k_norm.weight": (20,),
        "post_attn_norm.weight": (48,),
        "pre_mlp_norm.weight": (48,),
        "mlp.gate_proj.weight": (80, 48),
        "mlp.up_proj.weight": (80, 48),
        "mlp.down_proj.weight": (48, 80),
        "post_mlp_norm.weight": (48,),
    }
    expected = {"embed.weight": (101, 48), "final_norm.weight": (48,)}
    expected |= {f"blocks.{i}.{name}": shape for i in range(5) for name, shape in per_block.items()}
    built = rnj.build(TINY)
    assert {name: tuple(weight.shape) for name, weight in built.state_dict().items()} == expected
    assert list(built.buffers()) == []


def test_build_is_seeded() -> None:
    a, b, c = rnj.build(TINY, seed=1), rnj.build(TINY, seed=1), rnj.build(TINY, seed=2)
    for name, weight in a.state_dict().items():
        assert torch.equal(weight, b.state_dict()[name])
        if weight.ndim == 2:
            assert not torch.equal(weight, c.state_dict()[name])
        else:
            assert not weight.any()


def test_build_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    rnj.build(TINY, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_build_with_random_norms_makes_all_of_them_differ() -> None:
    norms = [w for w in rnj.build(TINY, random_norms=True).parameters() if w.ndim == 1]
    assert len(norms) == 5 * 6 + 1
    assert len({round(w[0].item(), 6) for w in norms}) == len(norms)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_build_in_a_dtype(dtype: torch.dtype) -> None:
    built = rnj.build(TINY, dtype=dtype)
    assert {weight.dtype for weight in built.parameters()} == {dtype}
    logits = built(random_tokens(1, 7))
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


def test_forward_on_the_meta_device() -> None:
    tokens = torch.empty(1, 16, dtype=torch.int64, device="meta")
    assert rnj.meta(RNJ_1_5)(tokens).shape == (1, 16, 128_256)


# --- wiring -----------------------------------------------------------------------------------------------------------


def test_shapes() -> None:
    built, tokens = model(), random_tokens(2, 23)
    assert built(tokens).shape == (2, 23, 101)
    assert built(tokens, last_only=True).shape == (2, 1, 101)
    assert largest_difference(built(tokens, last_only=True), built(tokens)[:, -1:]) < 1e-5


def test_embedding_scale_is_no_part_of_the_head() -> None:
    built, tokens = model(), random_tokens(1, 9)
    trace = built.trace(tokens)
    assert torch.equal(trace["embed"], built.embed.weight[tokens] * math.sqrt(48))
    assert largest_difference(trace["logits_raw"], trace["final_norm"] @ built.embed.weight.T) < 1e-5


@pytest.mark.parametrize(("dtype", "root"), [(torch.bfloat16, 6.9375), (torch.float32, 48**0.5)])
def test_embedding_scale_is_rounded_to_the_weights_dtype(dtype: torch.dtype, root: float) -> None:
    built = rnj.build(TINY, dtype=dtype)
    with torch.no_grad():
        built.embed.weight.fill_(1.0)
    assert built.trace(torch.tensor([[3]]))["embed"][0, 0, 0].item() == pytest.approx(root, rel=1e-7)


def test_residual_stream_runs_past_both_norms() -> None:
    trace = model().trace(random_tokens(1, 23))
    for i in range(5):
        at = f"block.{i}"
        assert torch.equal(trace[f"{at}.mid"], trace[f"{at}.in"] + trace[f"{at}.post_attn_norm"])
        assert torch.equal(trace[f"{at}.out"], trace[f"{at}.mid"] + trace[f"{at}.post_mlp_norm"])
        before = trace["embed"] if i == 0 else trace[f"block.{i - 1}.out"]
        assert torch.equal(trace[f"{at}.in"], before)


def test_each_norm_stands_where_its_name_says() -> None:
    built = model()
    trace = built.trace(random_tokens(1, 23))
    source = {"pre_attn_norm": "in", "post_attn_norm": "attn.out", "pre_mlp_norm": "mid", "post_mlp_norm": "mlp.out"}
    for i, block in enumerate(built.blocks):
        for norm, name in source.items():
            made = block.get_submodule(norm)(trace[f"block.{i}.{name}"])
            assert torch.equal(made, trace[f"block.{i}.{norm}"])
    assert torch.equal(built.final_norm(trace["block.4.out"]), trace["final_norm"])


def test_soft_cap() -> None:
    """30 · tanh(x / 30) at 10, 30 and 60, by the model's own head."""
    built = rnj.build(TINY)
    with torch.no_grad():
        built.embed.weight.zero_()
        built.embed.weight[:3, 0] = torch.tensor([10.0, 30.0, 60.0])
        built.final_norm.weight.zero_()
    x = torch.zeros(1, 48)
    x[0, :] = 1.0  # its own normalised form
    assert built.head(x)[0, :3].tolist() == pytest.approx([9.645382, 22.847825, 28.920827], rel=1e-5)
    built.config = replace(TINY, final_logit_softcap=None)
    assert built.head(x)[0, :3].tolist() == pytest.approx([10.0, 30.0, 60.0], rel=1e-5)


def test_soft_cap_is_taken_in_float32() -> None:
    """Also from bfloat16 weights: the capped logits are no bfloat16 numbers."""
    trace = model().bfloat16().trace(random_tokens(1, 23))
    assert trace["logits"].dtype == torch.float32
    assert largest_difference(trace["logits"], 30 * (trace["logits_raw"].double() / 30).tanh()) < 1e-5
    assert not torch.equal(trace["logits"], trace["logits"].bfloat16().float())


def test_short_rows_make_local_layers_global() -> None:
    """Up to (lookback + 1) · C tokens the two kinds of layer are the same; one more and they are not."""
    hybrid = model()
    everywhere = model(layer_types=("global",) * 5)
    everywhere.load_state_dict(hybrid.state_dict())
    tokens = random_tokens(2, 16)
    assert largest_difference(hybrid(tokens[:, :15]), everywhere(tokens[:, :15])) < 2e-5
    assert largest_difference(hybrid(tokens)[:, 15], everywhere(tokens)[:, 15]) > 1e-2


def test_local_layers_of_the_model_never_hold_a_square() -> None:
    """Six times T · V and T · N · H fit under T × T here; scores of one head would not."""
    T = 900
    built = model(layer_types=("local",) * 5, original_max_positions=900)
    positions, segments = packed_row(400, 7, 480, padding=13)
    for where in ({}, {"positions": positions, "segments": segments}):
        with Watch() as watch:
            built(random_tokens(1, T), **where).sum().backward()
        assert watch.largest < T * T


# --- loss -------------------------------------------------------------------------------------------------------------


def test_loss_by_hand() -> None:
    logits = torch.tensor([[[0.0, 0.0], [math.log(3.0), 0.0], [5.0, 9.0]]])
    targets = torch.tensor([[0, 0, -100]])
    assert rnj.loss(logits, targets).item() == pytest.approx((math.log(2) + math.log(4 / 3)) / 2)


def test_loss_is_taken_in_float32() -> None:
    logits = random(1, 40, 101).bfloat16() * 8
    value = rnj.loss(logits, random_tokens(1, 40))
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(rnj.loss(logits.double(), random_tokens(1, 40)).item(), rel=1e-6)


def test_loss_of_padding_is_no_matter() -> None:
    """Gradients reach no padding, and what stands there changes nothing."""
    built = model()
    positions, segments = packed_row(6, 9, padding=4)
    tokens = random_tokens(1, 19)
    targets = torch.where(segments == 0, -100, tokens.roll(-1, 1))
    targets[0, [5, 14]] = -100
    other = tokens.clone()
    other[0, 15:] = 77
    losses = [rnj.loss(built(t, positions, segments), targets) for t in (tokens, other)]
    assert torch.equal(*losses)


def test_every_weight_learns() -> None:
    built = model()
    tokens = random_tokens(2, 23)
    rnj.loss(built(tokens), tokens.roll(-1, 1)).backward()
    for name, weight in built.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


def test_tied_head_and_embedding_share_one_gradient() -> None:
    built, tokens = model(), torch.tensor([[3, 1, 4]])
    built(tokens).sum().backward()
    assert built.embed.weight.grad.any(1).all()  # a row that was not looked up still is a row of the head


def test_gradients_of_both_forms() -> None:
    positions, segments = packed_row(7, 14, padding=3)
    tokens = random_tokens(1, 24)
    targets = torch.where(segments == 0, -100, tokens)
    grads = []
    for explicit in (True, False):
        built = model()
        rnj.loss(built(tokens, positions, segments, explicit=explicit), targets).backward()
        grads.append([weight.grad for weight in built.parameters()])
    assert max(largest_difference(a, b) for a, b in zip(*grads, strict=True)) < 1e-5


# --- what it leaves alone, and what it refuses ------------------------------------------------------------------------


def test_inputs_stay_as_they_were() -> None:
    inputs = [random_tokens(1, 19), *packed_row(6, 9, padding=4)]
    before = [tensor.clone() for tensor in inputs]
    model()(*inputs)
    model()(*inputs, explicit=True)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def test_twice_is_the_same() -> None:
    """Nothing of the first call is left in the model."""
    built, tokens = model(), random_tokens(2, 23)
    assert torch.equal(built(tokens), built(tokens))


def test_trains_after_it_was_used_for_inference() -> None:
    """Tables made under inference_mode must not stand in the way of autograd."""
    built, tokens = model(), random_tokens(1, 9)
    with torch.inference_mode():
        built(tokens)
    rnj.loss(built(tokens), tokens).backward()


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (torch.tensor([[0, 101]]), "101.*vocabulary"),
        (torch.tensor([[-1, 5]]), "-1.*vocabulary"),
        (torch.tensor([[0.0, 1.0]]), "int64"),
        (torch.tensor([0, 1]), "batch, length"),
        (torch.empty(1, 0, dtype=torch.int64), "at least one token"),
        (torch.zeros(1, 2561, dtype=torch.int64), "2560"),
    ],
)
def test_tokens_that_do_not_fit(tokens: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rnj.build(TINY)(tokens)


def test_wrong_shapes_do_not_broadcast() -> None:
    built, tokens = rnj.build(TINY), random_tokens(2, 5)
    with pytest.raises(ValueError, match="positions must be"):
        built(tokens, torch.arange(5)[None])
    with pytest.raises(ValueError, match="segments must be"):
        built(tokens, torch.arange(5).expand(2, 5), torch.ones(1, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="segments must be"):
        built(tokens, segments=torch.ones(1, 5, dtype=torch.int64))


def test_positions_that_do_not_rise() -> None:
    with pytest.raises(ValueError, match="positions must rise"):
        rnj.build(TINY)(random_tokens(1, 4), torch.tensor([[0, 1, 0, 1]]))


def test_a_document_that_comes_back() -> None:
    """Segments 1, 2, 1: the two forms would see different blocks, so it is refused, or both must agree."""
    positions = torch.tensor([[*range(8), *range(4), *range(8, 16)]])
    segments = torch.tensor([[1] * 8 + [2] * 4 + [1] * 8])
    built, tokens = model(lookback=0), random_tokens(1, 20)
    try:
        fast = built(tokens, positions, segments)
    except ValueError as error:
        assert "segment" in str(error)
    else:
        assert largest_difference(fast, built(tokens, positions, segments, explicit=True)) < 1e-4


def test_segments_alone_restart_the_positions() -> None:
    built, tokens = model(), random_tokens(1, 19)
    positions, segments = packed_row(6, 9, padding=4)
    given = built(tokens, positions, segments)[:, :15]
    assert torch.equal(built(tokens, segments=segments)[:, :15], given)


def test_block_is_the_same_for_every_layer_but_its_type() -> None:
    assert TINY.layer_types == ("local", "global", "local", "local", "global")
    kinds = [block.attn.block_size for block in Transformer(TINY).blocks]
    assert kinds == [5, None, 5, 5, None]
    assert [block.attn.block_size for block in rnj.meta(SMALL).blocks] == [128, 128, 128, None] * 2
    assert sum(block.attn.block_size == 4096 for block in rnj.meta(RNJ_1_5).blocks) == 24


def test_packed_rows_on_the_meta_device_have_shapes() -> None:
    positions, segments = packed_row(6, 9, padding=1)
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    made = rnj.meta(TINY)(*(x.to("meta") for x in (tokens, positions, segments)))
    assert made.shape == (1, 16, TINY.vocab_size) and made.is_meta


def test_loss_of_nothing_is_zero() -> None:
    logits = torch.randn(1, 3, 7, requires_grad=True)
    nothing = rnj.loss(logits, torch.full((1, 3), -100))
    nothing.backward()
    assert nothing == 0 and (logits.grad == 0).all()


def test_loss_wants_a_target_for_each_position() -> None:
    with pytest.raises(ValueError, match=r"targets must be \[2, 3\] like the logits, not \[3, 2\]"):
        rnj.loss(torch.randn(2, 3, 7), torch.zeros(3, 2, dtype=torch.int64))


def test_positions_and_segments_are_whole_numbers() -> None:
    tokens = random_tokens(1, 4)
    with pytest.raises(ValueError, match=r"positions must be int64 or int32, not torch.float32"):
        model()(tokens, torch.arange(4)[None].float())
    with pytest.raises(ValueError, match=r"segments must be int64 or int32, not torch.bool"):
        model()(tokens, segments=torch.ones(1, 4, dtype=torch.bool))
