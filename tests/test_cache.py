"""The KV cache: what it holds, what it drops and when, what it costs, and how it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import rnj
from rnj import RNJ_1_5, TINY, CacheFull, Config, KVCache
from rnj.text import left_pad
from tests.common import largest_difference, model, packed_row, random_tokens

LOCAL, GLOBAL = 0, 1  # the first two layers of TINY: C 5, lookback 2
GIB = 2**30


# --- memory -----------------------------------------------------------------------------------------------------------


def nbytes(config: Config, tokens: int) -> int:
    return KVCache(config, max_length=tokens, dtype=torch.bfloat16, device="meta").nbytes


@pytest.mark.parametrize(
    ("tokens", "everywhere", "hybrid"), [(32_768, 4, 1.75), (131_072, 16, 4.75), (163_840, 20, 5.75)]
)
def test_bytes_at_8b(tokens: int, everywhere: float, hybrid: float) -> None:
    assert nbytes(RNJ_1_5, tokens) == hybrid * GIB
    assert nbytes(replace(RNJ_1_5, layer_types=("global",) * 32), tokens) == everywhere * GIB


def test_bytes_per_token_at_8b() -> None:
    everywhere = replace(RNJ_1_5, layer_types=("global",) * 32)
    assert nbytes(everywhere, 1001) - nbytes(everywhere, 1000) == 131_072 == 32 * 4_096


def test_shapes_are_allocated_at_once() -> None:
    cache = KVCache(TINY, batch=3, max_length=40)
    assert [tuple(x.shape) for x in cache.keys] == [
        (3, 15, 2, 20),
        (3, 40, 2, 20),
        (3, 15, 2, 20),
        (3, 15, 2, 20),
        (3, 40, 2, 20),
    ]
    assert [x.shape for x in cache.values] == [x.shape for x in cache.keys]
    assert cache.nbytes == 2 * 4 * 3 * 2 * 20 * (3 * 15 + 2 * 40)
    addresses = [x.data_ptr() for x in [*cache.keys, *cache.values]]
    built = model()
    for piece in random_tokens(3, 40).split([16, 1, 1, 5, 17], dim=1):
        built(piece, cache=cache)
    assert [x.data_ptr() for x in [*cache.keys, *cache.values]] == addresses
    assert cache.nbytes == 2 * 4 * 3 * 2 * 20 * (3 * 15 + 2 * 40)


def test_short_caches_make_no_long_local_layers() -> None:
    cache = KVCache(TINY, max_length=7)
    assert {x.shape[1] for x in cache.keys} == {7}


def test_the_default_length_is_the_context() -> None:
    assert KVCache(TINY, device="meta").max_length == TINY.max_positions == 2560


# --- what it holds ----------------------------------------------------------------------------------------------------


def test_a_local_layer_drops_a_whole_block_at_its_edge() -> None:
    """Token by token with C 5 and lookback 2: up to 15 held, and 11 right after a new block began."""
    built, cache = model(), KVCache(TINY, max_length=32)
    held, first = [], []
    for token in random_tokens(1, 32).T:
        built(token[None], cache=cache)
        held.append(cache.held(LOCAL))
        first.append(cache.first(LOCAL))
    assert held == [*range(1, 16), *range(11, 16), *range(11, 16), *range(11, 16), 11, 12]
    assert first == [0] * 15 + [5] * 5 + [10] * 5 + [15] * 5 + [20] * 2
    assert max(held) == TINY.local_span
    assert cache.held(GLOBAL) == cache.length == 32 and cache.first(GLOBAL) == 0


def test_two_blocks_at_most_with_one_lookback() -> None:
    built = model(lookback=1)
    cache = KVCache(built.config, max_length=40)
    held = []
    for token in random_tokens(1, 40).T:
        built(token[None], cache=cache)
        held.append(cache.held(LOCAL))
    assert max(held) == 10 == 2 * TINY.block_size
    assert held[9:12] == [10, 6, 7]


def test_what_is_held_is_what_is_needed() -> None:
    """In a plain row, exactly the keys that the last token saw."""
    built, cache = model(), KVCache(TINY, max_length=32)
    for token in random_tokens(1, 32).T:
        trace = built.trace(token[None], cache=cache)
        allowed = trace["block.0.attn.allowed"]
        assert allowed.shape == (1, 1, cache.held(LOCAL)) and allowed.all()


def test_keys_are_kept_rotated() -> None:
    built, cache, tokens = model(), KVCache(TINY, max_length=9), random_tokens(1, 9)
    trace = built.trace(tokens, cache=cache)
    assert torch.equal(cache.keys[GLOBAL], trace["block.1.attn.k_rot"])
    assert torch.equal(cache.values[GLOBAL], trace["block.1.attn.v"])


def test_reset() -> None:
    built, cache = model(), KVCache(TINY, max_length=23)
    tokens, other = random_tokens(1, 23), random_tokens(1, 23, seed=1)
    built(other, *packed_row(9, 14), cache=cache)
    cache.reset()
    assert (cache.length, cache.held(LOCAL), cache.held(GLOBAL)) == (0, 0, 0)
    assert largest_difference(built(tokens, cache=cache), built(tokens)) < 2e-5


# --- the same logits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[23], [1] * 23, [5, 5, 5, 8], [15, 8], [16, 7], [4, 1, 1, 17]])
def test_23_tokens_in_pieces(pieces: list[int]) -> None:
    built, tokens, cache = model(), random_tokens(2, 23), KVCache(TINY, batch=2, max_length=23)
    for explicit in (True, False):
        cache.reset()
        logits = [built(piece, cache=cache, explicit=explicit) for piece in tokens.split(pieces, dim=1)]
        assert largest_difference(torch.cat(logits, 1), built(tokens)) < 2e-5


@pytest.mark.parametrize(
    "changes",
    [
        {"lookback": 0},
        {"lookback": 1},
        {"lookback": 3},
        {"block_size": 1, "lookback": 1},
        {"block_size": 1, "lookback": 0},
        {"layer_types": ("local",) * 5},
        {"layer_types": ("global",) * 5},
    ],
)
@pytest.mark.parametrize("pieces", [[1] * 24, [7, 5, 1, 11], [2, 22]])
def test_other_shapes_of_local_layers_in_pieces(changes: dict[str, Any], pieces: list[int]) -> None:
    """Plain, packed and left-padded rows, past every edge; also with no global or no local layer at all."""
    built = model(**changes)
    tokens = random_tokens(1, 24)
    for positions, segments in (packed_row(24), packed_row(8, 16), packed_row(21, left=3)):
        cache = KVCache(built.config, max_length=24)
        split = zip(*(x.split(pieces, dim=1) for x in (tokens, positions, segments)), strict=True)
        logits = torch.cat([built(*piece, cache=cache) for piece in split], dim=1)
        assert largest_difference(logits, built(tokens, positions, segments, explicit=True)) < 2e-5
    cache = KVCache(built.config, max_length=24)
    logits = torch.cat([built(piece, cache=cache) for piece in tokens.split(pieces, dim=1)], dim=1)
    assert largest_difference(logits, built(tokens, explicit=True)) < 2e-5


def test_a_cache_is_an_argument() -> None:
    """Two caches of one model know nothing of each other, and the model keeps nothing."""
    built, a, b = model(), KVCache(TINY, max_length=20), KVCache(TINY, max_length=20)
    x, y = random_tokens(1, 20), random_tokens(1, 20, seed=1)
    built(x[:, :9], cache=a)
    built(y[:, :12], cache=b)
    assert largest_difference(built(x[:, 9:], cache=a), built(x)[:, 9:]) < 2e-5
    assert largest_difference(built(y[:, 12:], cache=b), built(y)[:, 12:]) < 2e-5


def test_unused_slots_may_hold_anything() -> None:
    """0 · NaN is NaN: slots that were never written are never read."""
    built, tokens, cache = model(), random_tokens(2, 23), KVCache(TINY, batch=2, max_length=40)
    for buffer in [*cache.keys, *cache.values]:
        buffer.fill_(float("nan"))
    logits = [built(piece, cache=cache) for piece in tokens.split([4, 1, 18], dim=1)]
    assert largest_difference(torch.cat(logits, 1), built(tokens)) < 2e-5


def test_unused_slots_may_hold_anything_in_a_left_padded_batch() -> None:
    built, cache = model(), KVCache(TINY, batch=2, max_length=40)
    for buffer in [*cache.keys, *cache.values]:
        buffer.fill_(float("nan"))
    tokens, positions, segments = left_pad([random_tokens(1, n)[0].tolist() for n in (4, 19)], pad_id=93)
    assert built(tokens, positions, segments, cache=cache).isfinite().all()
    for _ in range(12):
        assert built(random_tokens(2, 1), cache=cache).isfinite().all()


def test_left_padded_batch_equals_each_row_alone() -> None:
    """Prompts of 3, 17 and 30 tokens, then 25 more each: blocks start at each row's first real token."""
    built, lengths, more = model(), (3, 17, 30), 25
    rows = [random_tokens(1, n + more, seed=n)[0].tolist() for n in lengths]
    tokens, positions, segments = left_pad([row[:n] for row, n in zip(rows, lengths, strict=True)], pad_id=93)
    cache = KVCache(TINY, batch=3, max_length=30 + more)
    logits = [built(tokens, positions, segments, cache=cache)]
    for step in range(more):
        logits.append(built(torch.tensor([[row[n + step]] for row, n in zip(rows, lengths, strict=True)]), cache=cache))
    together = torch.cat(logits, dim=1)
    for i, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        alone = built(torch.tensor([row]))
        assert largest_difference(together[i, 30 - n :], alone[0]) < 2e-5


def test_packed_row_goes_on_in_its_last_document() -> None:
    built, tokens = model(), random_tokens(1, 40)
    cache = KVCache(TINY, max_length=40)
    built(tokens[:, :20], *packed_row(8, 12), cache=cache)
    logits = torch.cat([built(piece, cache=cache) for piece in tokens[:, 20:].split([1, 1, 9, 9], dim=1)], dim=1)
    assert largest_difference(logits, built(tokens[:, 8:])[:, 12:]) < 2e-5


def test_a_new_document_begins_in_the_cache() -> None:
    built, tokens = model(), random_tokens(1, 30)
    cache, (positions, segments) = KVCache(TINY, max_length=30), packed_row(13, 17)
    built(tokens[:, :13], cache=cache)
    logits = built(tokens[:, 13:], positions[:, 13:], segments[:, 13:], cache=cache)
    assert largest_difference(logits, built(tokens[:, 13:])) < 2e-5


def test_last_only_fills_the_cache_all_the_same() -> None:
    built, tokens, cache = model(), random_tokens(1, 23), KVCache(TINY, max_length=23)
    first = built(tokens[:, :17], cache=cache, last_only=True)
    assert first.shape == (1, 1, 101)
    assert largest_difference(first, built(tokens)[:, 16:17]) < 2e-5
    assert largest_difference(built(tokens[:, 17:], cache=cache), built(tokens)[:, 17:]) < 2e-5


def test_half_precision_cache() -> None:
    built = model().bfloat16()
    cache, tokens = KVCache(TINY, max_length=23, dtype=torch.bfloat16), random_tokens(1, 23)
    logits = torch.cat([built(piece, cache=cache) for piece in tokens.split([9, 1, 13], dim=1)], dim=1)
    exact = model()(tokens)
    assert largest_difference(logits, exact) < 2 * largest_difference(built(tokens), exact) + 0.05


# --- refusals ---------------------------------------------------------------------------------------------------------


def contents(cache: KVCache) -> list[torch.Tensor]:
    return [x.clone() for x in [*cache.keys, *cache.values]]


@pytest.mark.parametrize("before", [0, 6, 10])
def test_a_full_cache_says_so_and_stays_as_it_was(before: int) -> None:
    built, cache = model(), KVCache(TINY, max_length=10)
    tokens = random_tokens(1, 11)
    if before:
        built(tokens[:, :before], cache=cache)
    kept = contents(cache)
    with pytest.raises(CacheFull, match=rf"{before} of 10"):
        built(tokens[:, before:], cache=cache)
    assert cache.length == cache.held(GLOBAL) == before
    assert all(torch.equal(a, b) for a, b in zip(contents(cache), kept, strict=True))
    if before < 10:  # what fits still goes in
        rest = built(tokens[:, before:10], cache=cache)
        assert largest_difference(rest, built(tokens[:, :10])[:, before:]) < 2e-5


@pytest.mark.parametrize(("made_for", "given"), [(2, 3), (1, 3), (2, 1)])
@pytest.mark.parametrize("where", [False, True])
def test_a_batch_of_another_size(made_for: int, given: int, where: bool) -> None:
    """Refused before anything happens; a batch of 1 must not be broadcast to 2."""
    cache = KVCache(TINY, batch=made_for, max_length=9)
    rows = (torch.arange(4).expand(given, 4), torch.ones(given, 4, dtype=torch.int64)) if where else ()
    built = rnj.build(TINY)
    with pytest.raises(ValueError, match=f"batch of {made_for}"):
        built(random_tokens(given, 4), *rows, cache=cache)
    assert built(random_tokens(made_for, 4), cache=cache).shape == (made_for, 4, 101)


@pytest.mark.parametrize(("batch", "max_length"), [(0, 5), (1, 0), (1, -3)])
def test_sizes_that_make_no_sense(batch: int, max_length: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        KVCache(TINY, batch=batch, max_length=max_length)


def test_positions_that_restart_while_the_document_goes_on() -> None:
    """A plain mistake in decoding loops: position 0 again for the next token, in the same document."""
    built, cache = model(), KVCache(TINY, max_length=20)
    built(random_tokens(1, 9), cache=cache)
    one = torch.ones(1, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="positions"):
        built(random_tokens(1, 1), one * 0, one, cache=cache)


def test_a_broken_off_pass_is_noticed() -> None:
    """Ctrl-C in a notebook cell leaves some layers with the new keys and some without."""

    def stop(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == "block.2.in":
            raise KeyboardInterrupt
        return tensor

    built, cache, tokens = model(), KVCache(TINY, max_length=20), random_tokens(1, 9)
    with pytest.raises(KeyboardInterrupt):
        built(tokens, cache=cache, note=stop)
    with pytest.raises(RuntimeError, match="reset"):
        built(tokens, cache=cache)
    cache.reset()
    assert largest_difference(built(tokens, cache=cache), built(tokens)) < 2e-5


@pytest.mark.parametrize(
    "change",
    [{"n_kv_heads": 1}, {"block_size": 3}, {"lookback": 1}, {"n_layers": 4, "layer_types": ()}, {"rope_factor": 2.0}],
)
def test_a_cache_of_another_config(change: dict[str, Any]) -> None:
    """Even where the shapes agree: a clear error, and the cache stays usable."""
    cache = KVCache(replace(TINY, **change), max_length=9)
    with pytest.raises(ValueError, match="made for another config"):
        rnj.build(TINY)(random_tokens(1, 4), cache=cache)
    rnj.build(cache.config)(random_tokens(1, 4), cache=cache)


def test_a_cache_of_another_dtype() -> None:
    cache = KVCache(TINY, max_length=9)
    with pytest.raises(ValueError, match=r"the cache's dtype is torch.float32, the model's torch.bfloat16"):
        rnj.build(TINY, dtype=torch.bfloat16)(random_tokens(1, 4), cache=cache)
    assert cache.length == 0


def test_a_row_that_ends_in_padding_does_not_go_on_by_itself() -> None:
    positions, segments = packed_row(3, padding=2)
    cache = KVCache(TINY, max_length=9)
    built = model()
    built(random_tokens(1, 5), positions, segments, cache=cache)
    with pytest.raises(ValueError, match="a row ends in padding"):
        built(random_tokens(1, 1), cache=cache)


@pytest.mark.parametrize("lookback", [0, 1, 3])
def test_blocks_of_the_row_begin_at_its_first_real_token(lookback: int) -> None:
    """With block_origin "row" a left-padded prompt equals the prompt alone, whole and in pieces."""
    built = model(block_origin="row", lookback=lookback)
    long, short = random_tokens(1, 33)[0].tolist(), random_tokens(1, 14, seed=1)[0].tolist()
    tokens, positions, segments = left_pad([long, short], TINY.pad_id)
    alone = built(torch.tensor([short]))[0]
    assert largest_difference(built(tokens, positions, segments)[1, -14:], alone) < 1e-5
    cache, made = KVCache(built.config, batch=2, max_length=40), []
    for first, last in ((0, 12), (12, 20), (20, 21), (21, 33)):
        at = slice(first, last)
        made.append(built(tokens[:, at], positions[:, at], segments[:, at], cache=cache))
    assert largest_difference(torch.cat(made, dim=1)[1, -14:], alone) < 1e-5
    following = random_tokens(2, 1, seed=2)
    whole = built(torch.tensor([[*short, following[1].item()]]))[0, -1]
    assert largest_difference(built(following, cache=cache)[1, 0], whole) < 1e-5


def test_gradients_of_a_cached_pass_reach_its_own_tokens() -> None:
    """The first pass through an empty cache has the gradients of a pass without one, buffers full or not."""
    tokens = random_tokens(1, 30)
    wanted = model()
    rnj.loss(wanted(tokens), tokens).backward()
    cached = model()
    rnj.loss(cached(tokens, cache=KVCache(TINY, max_length=30)), tokens).backward()
    for (name, a), b in zip(wanted.named_parameters(), cached.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5, msg=name)
