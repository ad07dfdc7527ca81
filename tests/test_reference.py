"""The package against tests/reference.py: every intermediate, every open field of the config, and the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rnj
from rnj import RNJ_1_5, TINY
from tests import reference
from tests.common import TOLERANCE, largest_difference, model, numpy_weights, packed_row, random_tokens
from tests.reference import Decoder, Place, may_look

# --- the reference itself holds the known numbers ---------------------------------------------------------------------


def test_reference_rotates_half_split() -> None:
    config = replace(TINY, head_dim=4, rope_type="default", rope_factor=1.0)
    turned = reference.rotate(config, np.array([1.0, 2.0, 3.0, 4.0]), 1)
    assert turned == pytest.approx([-1.984111, 1.959901, 2.462378, 4.019800], abs=1e-6)


def test_reference_yarn_numbers() -> None:
    assert reference.raw_ramp_ends(RNJ_1_5) == pytest.approx((20.9445, 49.8434), abs=1e-4)
    assert reference.raw_ramp_ends(replace(RNJ_1_5, beta_fast=32.0)) == pytest.approx((25.7610, 49.8434), abs=1e-4)
    assert reference.frequencies(RNJ_1_5)[63] == pytest.approx(5.7739094e-06, rel=1e-7)
    assert reference.attention_factor(RNJ_1_5) == pytest.approx(1.2995732, abs=1e-7)


def test_reference_small_functions() -> None:
    assert reference.gelu_tanh(-1.0) == pytest.approx(-0.1588080, abs=1e-7)
    assert reference.gelu_tanh(3.0) == pytest.approx(2.9963627, abs=1e-7)
    assert reference.rms_norm(np.full(8, 1e-4), np.zeros(8), 1e-6) == pytest.approx(0.0995037, abs=1e-7)
    assert reference.soft_cap(np.array([10.0, 30, 60]), 30.0) == pytest.approx([9.645382, 22.847825, 28.920827])
    assert reference.softmax([]) == []


def test_reference_mask() -> None:
    def visible(q: int) -> list[int]:
        return [s for s in range(12) if may_look(config, "local", Place(q, q, 1), Place(s, s, 1))]

    config = replace(TINY, block_size=4, lookback=1)
    assert [len(visible(q)) for q in range(12)] == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]
    assert visible(8)[0] == 4


def test_reference_mask_in_a_packed_row() -> None:
    config = replace(TINY, block_size=4, lookback=1)
    row = reference.places(*(x[0].tolist() for x in packed_row(6, 10)))
    assert [s for s in range(16) if may_look(config, "local", row[12], row[s])] == [6, 7, 8, 9, 10, 11, 12]


def test_reference_decoder_equals_its_forward() -> None:
    weights = numpy_weights(model())
    tokens = random_tokens(1, 27)
    positions, segments = packed_row(8, 17, padding=2)
    whole = reference.forward(TINY, weights, tokens, positions, segments)["logits"][0]
    decoder = Decoder(TINY, weights)
    rows = zip(tokens[0].tolist(), positions[0].tolist(), segments[0].tolist(), strict=True)
    stepwise = np.stack([decoder.feed(*row) for row in rows])
    assert largest_difference(whole, stepwise) < 1e-12


def test_reference_decoder_keeps_no_more_than_the_local_span() -> None:
    decoder = Decoder(TINY, numpy_weights(model()))
    most = 0
    for token in random_tokens(1, 32)[0].tolist():
        decoder.feed(token)
        most = max(most, len(decoder.memory[0]))
    assert most == TINY.local_span == 15
    assert len(decoder.memory[1]) == 32  # a global layer keeps everything


# --- the package against it -------------------------------------------------------------------------------------------

ROWS = {
    "plain": (packed_row(23), packed_row(23)),
    "packed": (packed_row(6, 1, 16), packed_row(17, 6)),
    "padded": (packed_row(4, 14, padding=5), packed_row(12, 1, 1, padding=9)),
    "left-padded": (packed_row(20, left=3), packed_row(11, left=12)),
    "all padding": (packed_row(23), packed_row(padding=23)),
}


@pytest.mark.parametrize("rows", ROWS)
def test_every_intermediate(rows: str) -> None:
    positions, segments = (torch.cat(pair) for pair in zip(*ROWS[rows], strict=True))
    tokens = random_tokens(2, 23)
    built = model()
    expected = reference.forward(TINY, numpy_weights(built), tokens, positions, segments)
    trace = built.trace(tokens, positions, segments)
    assert set(trace) == set(expected)
    worst = {name: largest_difference(trace[name], expected[name]) for name in expected}
    assert max(worst.values()) < TOLERANCE, max(worst.items(), key=lambda item: item[1])
    fast = built(tokens, positions, segments)
    assert largest_difference(fast, expected["logits"]) < TOLERANCE


def test_left_padding_and_defaults() -> None:
    tokens = random_tokens(2, 23)
    built = model()
    expected = reference.forward(TINY, numpy_weights(built), tokens)["logits"]
    assert largest_difference(built(tokens), expected) < TOLERANCE
    positions, segments = packed_row(23)
    torch.testing.assert_close(built(tokens[:1], positions, segments), built(tokens[:1]), rtol=0, atol=1e-5)


# Every field that changes the arithmetic, the open ones of the published model among them. Rows are long enough, and
# the original length short enough, that each of them shows.
LONG_TURNS: dict[str, Any] = {"original_max_positions": 400, "rope_theta": 300.0}
FIELDS: dict[str, dict[str, Any]] = {
    "eps": {"norm_eps": 1e-2},
    "query scalar": {"query_pre_attn_scalar": None},
    "no cap": {"final_logit_softcap": None},
    "cap": {"final_logit_softcap": 7.0},
    "lookback 0": {"lookback": 0},
    "lookback 1": {"lookback": 1},
    "block size": {"block_size": 7},
    "layer types": {"layer_types": ("global", "global", "local", "local", "local")},
    "layer order": {"layer_types": ("global", "local", "local", "local", "global")},
    "all global": {"layer_types": ("global",) * 5},
    "blocks by row": {"block_origin": "row"},
    "theta": {"rope_theta": 10_000.0},
    "factor": {"rope_factor": 9.0},
    "original length": {"original_max_positions": 900},
    "beta_fast": {"beta_fast": 8.0},
    "beta_slow": {"beta_slow": 3.0},
    "truncate": {"truncate": False},
    "attention factor": {"attention_factor": 1.0},
    "linear": {"rope_type": "linear"},
    "plain": {"rope_type": "default", "rope_factor": 1.0},
}


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_changes_the_output_as_it_should(field: str) -> None:
    base = replace(TINY, beta_fast=16.0, **LONG_TURNS)
    config = replace(base, **FIELDS[field])
    positions, segments = packed_row(3, 29)
    tokens = random_tokens(1, 32)
    built, unchanged = model(config), model(base)
    expected = reference.forward(config, numpy_weights(built), tokens, positions, segments)["logits"]
    assert largest_difference(built(tokens, positions, segments), expected) < TOLERANCE
    assert largest_difference(built(tokens, positions, segments, explicit=True), expected) < TOLERANCE
    assert largest_difference(unchanged(tokens, positions, segments), expected) > 100 * TOLERANCE


@pytest.mark.parametrize("pieces", [[42], [1] * 42, [5, 5, 5, 27], [7, 1, 13, 21], [15, 16, 11]])
def test_cached_decoding(pieces: list[int]) -> None:
    """Whatever pieces the row is fed in, past 8C and past three drops of a block."""
    tokens = random_tokens(2, 42)
    built = model()
    decoders = [Decoder(TINY, numpy_weights(built)) for _ in range(2)]
    expected = np.stack([[d.feed(token) for token in row] for d, row in zip(decoders, tokens.tolist(), strict=True)])
    cache = rnj.KVCache(TINY, batch=2, max_length=42)
    logits = torch.cat([built(piece, cache=cache) for piece in tokens.split(pieces, dim=1)], dim=1)
    assert largest_difference(logits, expected) < TOLERANCE
