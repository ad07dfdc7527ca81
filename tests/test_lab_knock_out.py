"""Each part that is knocked out is gone, and nothing else is."""

from __future__ import annotations

import pytest
import torch

import rnj
from rnj.corpus import read_sample
from rnj.example import row, small_model
from rnj.lab import knock_out
from rnj.lab.learned import framed
from rnj.lab.learned import nats as nats_of
from rnj.text import load_tokenizer
from rnj.training import held_out_loss

TOKENIZER = load_tokenizer()
MODEL = rnj.build(rnj.SMALL, seed=0, random_norms=True)
TEXTS = list(read_sample().values())


def test_nothing_knocked_out_is_the_model():
    packed = row()
    want = rnj.loss(MODEL(packed.tokens, packed.positions, packed.segments), packed.targets)
    before = {name: p.clone() for name, p in MODEL.state_dict().items()}
    found = knock_out.losses(MODEL, packed)
    assert found["nothing"] == pytest.approx(want.item(), abs=1e-4)
    assert set(found) == set(knock_out.PARTS)
    assert all(torch.equal(p, before[name]) for name, p in MODEL.state_dict().items())


def test_a_silent_branch_adds_nothing():
    packed = row()
    for part, branch in (("attention", "post_attn_norm"), ("the MLPs", "post_mlp_norm")):
        silent = knock_out.knocked_out(MODEL, part).model
        trace = silent.trace(packed.tokens, packed.positions, packed.segments)
        assert all(bool((trace[f"block.{i}.{branch}"] == 0).all()) for i in range(8))


def test_in_one_block_the_kinds_of_layers_are_one():
    packed = row()
    found = knock_out.losses(MODEL, packed, ("nothing", "the local layers", "the global layers"))
    assert len(set(found.values())) == 1


def test_over_more_blocks_they_are_not():
    packed = framed([TOKENIZER.encode(TEXTS[0])[:600]], TOKENIZER)
    found = knock_out.losses(MODEL, packed, ("nothing", "the local layers", "the global layers", "the rotation"))
    assert len(set(found.values())) == 4


def test_one_layer_at_a_time():
    packed = row()
    losses = knock_out.layer_by_layer(MODEL, packed, "mlp")
    assert len(losses) == 8 and len(set(losses)) == 8


def test_unknown_parts_are_refused():
    with pytest.raises(ValueError, match="unknown part 'brain'"):
        knock_out.knocked_out(MODEL, "brain")
    with pytest.raises(ValueError, match="unknown branch 'head'"):
        knock_out.layer_by_layer(MODEL, row(), "head")


def test_the_trained_model_leans_on_attention_mlps_rotation_and_qk_norm():
    model = small_model()
    packed = framed([TOKENIZER.encode(text)[:1000] for text in TEXTS[:4]], TOKENIZER)
    found = knock_out.losses(model, packed)
    assert found["nothing"] == pytest.approx(
        float(nats_of(model, packed).sum() / (packed.targets != -100).sum()), abs=1e-3
    )
    lost = {part: value - found["nothing"] for part, value in found.items()}
    assert min(lost["attention"], lost["the MLPs"]) > 1.0
    assert lost["the rotation"] > 0.1 and lost["QK-norm"] > 0.1
    assert held_out_loss(knock_out.knocked_out(model, "nothing"), packed) == found["nothing"]
