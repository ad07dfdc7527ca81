"""What holds for any rows: isolation of documents, causality, and the cache, whatever it is fed."""

from __future__ import annotations

from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import rnj
from rnj import TINY, Transformer
from rnj.core_attention import Rows, allowed
from rnj.text import left_pad
from rnj.trace import into
from tests.common import TOLERANCE, largest_difference, model, packed_row, random_tokens

few = settings(deadline=None, max_examples=25, derandomize=True)
C = TINY.block_size
lengths = st.lists(st.integers(1, 22), min_size=1, max_size=4)
seeds = st.integers(0, 1000)


@cache
def shared(block_origin: str = "document", layer_types: tuple[str, ...] = TINY.layer_types) -> Transformer:
    """One model for all examples: nothing here changes it."""
    return model(block_origin=block_origin, layer_types=layer_types, n_layers=len(layer_types))


def pieces_of(total: int) -> st.SearchStrategy[list[int]]:
    """Any way to cut `total` tokens into pieces, in order."""
    cuts = st.sets(st.integers(1, total - 1), max_size=total - 1) if total > 1 else st.just(set())
    return cuts.map(lambda inner: [b - a for a, b in zip([0, *sorted(inner)], [*sorted(inner), total])])


def ranges(sizes: list[int]) -> list[tuple[int, int]]:
    """Where each document begins and ends."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return list(zip([0, *ends], ends))


# --- documents --------------------------------------------------------------------------------------------------------


@few
@given(sizes=lengths, padding=st.integers(0, 7), seed=seeds, explicit=st.booleans())
def test_packed_is_alone(sizes: list[int], padding: int, seed: int, explicit: bool) -> None:
    tokens = random_tokens(1, sum(sizes) + padding, seed)
    together = shared()(tokens, *packed_row(*sizes, padding=padding), explicit=explicit)
    for start, end in ranges(sizes):
        alone = shared()(tokens[:, start:end])
        assert largest_difference(together[:, start:end], alone) < TOLERANCE


@few
@given(sizes=lengths, left=st.integers(1, 12), right=st.integers(0, 5), seed=seeds)
def test_padding_changes_nothing(sizes: list[int], left: int, right: int, seed: int) -> None:
    T = left + sum(sizes) + right
    tokens = random_tokens(1, T, seed)
    padded = shared()(tokens, *packed_row(*sizes, left=left, padding=right))
    bare = shared()(tokens[:, left : T - right], *packed_row(*sizes))
    assert padded.isfinite().all()
    assert largest_difference(padded[:, left : T - right], bare) < TOLERANCE


@few
@given(sizes=lengths, data=st.data(), seed=seeds, origin=st.sampled_from(["document", "row"]), explicit=st.booleans())
def test_another_documents_token_has_exactly_no_effect(
    sizes: list[int], data: st.DataObject, seed: int, origin: str, explicit: bool
) -> None:
    """Bit-equal, in packed rows with padding, whatever blocks are counted by."""
    T = sum(sizes) + 3
    rows, tokens = packed_row(*sizes, padding=3), random_tokens(1, T, seed)
    changed = data.draw(st.integers(0, T - 1))
    other = tokens.clone()
    other[0, changed] = (tokens[0, changed] + 1) % 90
    before, after = (shared(origin)(t, *rows, explicit=explicit) for t in (tokens, other))
    start, end = next(((a, b) for a, b in ranges(sizes) if a <= changed < b), (T - 3, T))
    outside = torch.tensor([not start <= t < end for t in range(T)])
    assert torch.equal(before[:, outside], after[:, outside])
    assert torch.equal(before[:, start:changed], after[:, start:changed])  # nor on what came before it
    assert not torch.equal(before[:, changed], after[:, changed])


@few
@given(length=st.integers(2, 40), blocks=st.integers(1, 100), seed=seeds)
def test_a_shift_by_whole_blocks_cannot_be_seen(length: int, blocks: int, seed: int) -> None:
    """The rotation is relative, and blocks shift with the positions. (Angles at 500 are float32's, hence 1e-3.)"""
    tokens, positions = random_tokens(1, length, seed), torch.arange(length)[None]
    assert largest_difference(shared()(tokens, positions + blocks * C), shared()(tokens)) < 1e-3


def test_restarted_positions_cannot_be_seen_in_global_layers() -> None:
    """So the position tensor itself is tested, and no page may claim that outputs change."""
    built = shared(layer_types=("global",) * 5)
    positions, segments = packed_row(9, 14)
    tokens = random_tokens(1, 23)
    through = torch.arange(23)[None]
    assert largest_difference(built(tokens, positions, segments), built(tokens, through, segments)) < 1e-4
    assert positions[0].tolist() == [*range(9), *range(14)]


# --- causality --------------------------------------------------------------------------------------------------------


@few
@given(length=st.integers(2, 40), data=st.data(), seed=seeds)
def test_a_later_token_has_exactly_no_effect(length: int, data: st.DataObject, seed: int) -> None:
    changed = data.draw(st.integers(1, length - 1))
    tokens = random_tokens(1, length, seed)
    other = tokens.clone()
    other[0, changed:] = random_tokens(1, length - changed, seed + 1)
    assert torch.equal(shared()(tokens)[:, :changed], shared()(other)[:, :changed])


def reach(built: Transformer, tokens: Tensor, rows: tuple[Tensor, Tensor], explicit: bool) -> Tensor:
    """[T, T]: whether the logits at t have a gradient at the embedding of s."""
    kept: dict[str, Tensor] = {}
    logits = built(tokens, *rows, explicit=explicit, note=into(kept))
    weights = torch.linspace(-1, 1, logits.shape[-1])
    columns = []
    for t in range(tokens.shape[1]):
        (gradient,) = torch.autograd.grad((logits[0, t] * weights).sum(), kept["embed"], retain_graph=True)
        assert gradient.isfinite().all()
        columns.append(gradient[0].ne(0).any(-1))
    return torch.stack(columns)


@few
@given(sizes=lengths, padding=st.integers(0, 4), kind=st.sampled_from(["local", "global"]), explicit=st.booleans())
def test_gradient_of_one_layer_is_the_mask(sizes: list[int], padding: int, kind: str, explicit: bool) -> None:
    """Exactly 0 where the mask says so, and nowhere else; each token also reaches itself past the attention."""
    built = shared(layer_types=(kind,))
    positions, segments = rows = packed_row(*sizes, padding=padding)
    where = Rows(positions, segments, positions)
    mask = allowed(where, where, C if kind == "local" else None, TINY.lookback)[0]
    tokens = random_tokens(1, positions.shape[1])
    expected = mask | torch.eye(tokens.shape[1], dtype=torch.bool)
    assert torch.equal(reach(built, tokens, rows, explicit), expected)


@settings(few, max_examples=8)
@given(sizes=lengths, padding=st.integers(0, 4), explicit=st.booleans())
def test_gradient_of_all_layers_is_causal_within_the_document(sizes: list[int], padding: int, explicit: bool) -> None:
    positions, segments = rows = packed_row(*sizes, padding=padding)
    where = Rows(positions, segments, positions)
    mask = allowed(where, where)[0] | torch.eye(positions.shape[1], dtype=torch.bool)
    assert torch.equal(reach(shared(), random_tokens(1, positions.shape[1]), rows, explicit), mask)


# --- the cache --------------------------------------------------------------------------------------------------------

any_pieces = st.integers(1, 12 * C).flatmap(pieces_of)


@few
@given(pieces=any_pieces, seed=seeds, explicit=st.booleans())
def test_cache_is_no_cache(pieces: list[int], seed: int, explicit: bool) -> None:
    """Any list of pieces, up to 12 blocks long: 4 times what a local layer holds."""
    tokens = random_tokens(2, sum(pieces), seed)
    store = rnj.KVCache(TINY, batch=2, max_length=sum(pieces))
    logits = [shared()(piece, cache=store, explicit=explicit) for piece in tokens.split(pieces, dim=1)]
    assert largest_difference(torch.cat(logits, 1), shared()(tokens)) < TOLERANCE
    assert store.held(0) <= TINY.local_span and store.held(1) == sum(pieces)


@few
@given(data=st.data(), sizes=lengths, padding=st.integers(0, 5), left=st.integers(0, 9), seed=seeds)
def test_cache_is_no_cache_in_packed_rows(
    data: st.DataObject, sizes: list[int], padding: int, left: int, seed: int
) -> None:
    """Two rows packed differently; pieces end where they like, in the middle of documents and of padding."""
    total = left + sum(sizes) + padding
    first, second = packed_row(*sizes, padding=padding, left=left), packed_row(*reversed(sizes), padding=padding + left)
    positions, segments = (torch.cat(pair) for pair in zip(first, second, strict=True))
    tokens, pieces = random_tokens(2, total, seed), data.draw(pieces_of(total))
    origin = data.draw(st.sampled_from(["document", "row"]))
    built = shared(origin)
    store = rnj.KVCache(built.config, batch=2, max_length=total)
    split = zip(*(x.split(pieces, dim=1) for x in (tokens, positions, segments)), strict=True)
    logits = torch.cat([built(*piece, cache=store) for piece in split], dim=1)
    assert largest_difference(logits, built(tokens, positions, segments)) < TOLERANCE


@few
@given(
    prompts=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    seed=seeds,
)
def test_left_padded_batch_in_pieces_is_each_row_alone(prompts: list[int], pieces: list[int], seed: int) -> None:
    longest, more = max(prompts), sum(pieces)
    rows = [random_tokens(1, n + more, seed + i)[0] for i, n in enumerate(prompts)]
    tokens, positions, segments = left_pad([row[:n].tolist() for row, n in zip(rows, prompts)], pad_id=93)
    store = rnj.KVCache(TINY, batch=len(prompts), max_length=longest + more)
    logits = [shared()(tokens, positions, segments, cache=store)]
    later = torch.stack([row[n:] for row, n in zip(rows, prompts)])
    logits += [shared()(piece, cache=store) for piece in later.split(pieces, dim=1)]
    together = torch.cat(logits, dim=1)
    for i, (row, n) in enumerate(zip(rows, prompts)):
        assert largest_difference(together[i, longest - n :], shared()(row[None])[0]) < TOLERANCE
