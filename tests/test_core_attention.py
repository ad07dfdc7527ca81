"""Who may look at whom, and that the fast form is the explicit one in values, gradients and blind rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rnj.core_attention import Rows, allowed, attend, attend_explicit, block_local, causal, same_document, sliding
from rnj.trace import into
from tests.common import Watch, largest_difference, packed_row, random

N, K, H = 6, 2, 4  # query heads, key heads, head_dim
SCALE = 0.3
C_8B = 4096


def rows_of(positions: Tensor, segments: Tensor) -> Rows:
    return Rows(positions, segments, positions)


def packed(*lengths: int, padding: int = 0, left: int = 0) -> Rows:
    return rows_of(*packed_row(*lengths, padding=padding, left=left))


def qkv(batch: int, T: int, S: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    S = T if S is None else S
    shapes = [(batch, T, N, H), (batch, S, K, H), (batch, S, K, H)]
    return tuple(random(*shape, seed=seed + i).requires_grad_() for i, shape in enumerate(shapes))  # type: ignore


def with_gradients(out: Tensor, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The output and its gradients under a fixed random direction."""
    return [out, *torch.autograd.grad((out * random(*out.shape, seed=99)).sum(), inputs)]


def both(q_rows: Rows, k_rows: Rows, block_size: int | None, lookback: int = 1) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients of the explicit and of the fast form on the same random heads."""
    B, T = q_rows.positions.shape
    inputs = qkv(B, T, k_rows.positions.shape[1])
    mask = allowed(q_rows, k_rows, block_size, lookback)
    explicit = with_gradients(attend_explicit(*inputs, mask, SCALE), inputs)
    fast = with_gradients(attend(*inputs, q_rows, k_rows, SCALE, block_size, lookback), inputs)
    return explicit, fast


def agree(q_rows: Rows, k_rows: Rows, block_size: int | None, lookback: int = 1) -> bool:
    explicit, fast = both(q_rows, k_rows, block_size, lookback)
    return max(largest_difference(a, b) for a, b in zip(explicit, fast, strict=True)) < 2e-5


# --- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "first", "visible"),
    [
        (4095, 0, 4096),
        (4096, 0, 4097),
        (8191, 0, 8192),
        (8192, 4096, 4097),
        (9000, 4096, 4905),
        (10000, 4096, 5905),
        (12287, 4096, 8192),
        (12288, 8192, 4097),
    ],
)
def test_what_a_local_layer_sees_at_8b(q: int, first: int, visible: int) -> None:
    keys = Rows.plain(1, 12_289)
    mask = allowed(Rows.plain(1, 1, start=q), keys, C_8B)[0, 0]
    assert mask.nonzero()[0].item() == first
    assert mask.sum() == visible
    assert mask[q] and not mask[q + 1 :].any()


def test_ones_per_row() -> None:
    mask = allowed(Rows.plain(1, 12), Rows.plain(1, 12), block_size=4)[0]
    assert mask.dtype == torch.bool
    assert mask.sum(-1).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]


def test_two_documents_in_a_row() -> None:
    rows = packed(6, 10)
    mask = allowed(rows, rows, block_size=4)[0]
    assert mask[12].nonzero().flatten().tolist() == [6, 7, 8, 9, 10, 11, 12]


def test_blocks_are_counted_by_document_unless_told_otherwise() -> None:
    positions, segments = packed_row(6, 10)
    columns = torch.arange(16)[None]
    by_row = Rows(positions, segments, columns)
    assert allowed(by_row, by_row, block_size=4)[0, 12].nonzero().flatten().tolist() == [8, 9, 10, 11, 12]


def test_global_layers_see_their_whole_document() -> None:
    rows = packed(6, 10)
    mask = allowed(rows, rows)[0]
    assert mask.sum(-1).tolist() == [*range(1, 7), *range(1, 11)]
    assert torch.equal(mask, torch.block_diag(torch.ones(6, 6).tril(), torch.ones(10, 10).tril()).bool())


def test_padding_attends_nothing_and_nothing_attends_to_it() -> None:
    rows = packed(3, padding=2, left=2)
    for block_size in (None, 4):
        mask = allowed(rows, rows, block_size)[0]
        assert not mask[[0, 1, 5, 6]].any() and not mask[:, [0, 1, 5, 6]].any()
        assert mask[2:5, 2:5].tolist() == torch.ones(3, 3).tril().bool().tolist()


def test_single_token_documents_keep_their_own() -> None:
    """Positions never fall between them: only the ids tell them apart."""
    rows = packed(1, 1, 1, 2)
    assert allowed(rows, rows)[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_small_masks_by_hand() -> None:
    q, k = torch.tensor([5, 8]), torch.tensor([0, 3, 4, 5, 6, 8])
    assert causal(q[:, None], k).int().tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert block_local(q[:, None], k, 4).int().tolist() == [[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]]
    assert block_local(q[:, None], k, 4, lookback=0).int().tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]]
    assert block_local(q[:, None], k, 4, lookback=2).all()
    assert sliding(q[:, None], k, 4).int().tolist() == [[0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    segments = torch.tensor([0, 1, 1, 2])
    assert same_document(segments[:, None], segments).int().tolist() == [
        [0, 0, 0, 0],
        [0, 1, 1, 0],
        [0, 1, 1, 0],
        [0, 0, 0, 1],
    ]


def test_a_window_is_not_a_block() -> None:
    """The same number of keys at most, but another set."""
    rows = Rows.plain(1, 16)
    local = allowed(rows, rows, block_size=4)[0]
    q, k = torch.arange(16)[:, None], torch.arange(16)
    window = causal(q, k) & sliding(q, k, 8)
    assert local.sum(-1).max() == window.sum(-1).max() == 8
    assert not torch.equal(local, window)


def test_queries_continue_the_keys() -> None:
    """Decoding: one query at the end sees everything, where a mask aligned to the upper left would show one key."""
    mask = allowed(Rows.plain(1, 1, start=9), Rows.plain(1, 10))
    assert mask.shape == (1, 1, 10) and mask.all()


# --- the explicit form ------------------------------------------------------------------------------------------------


def test_explicit_by_hand() -> None:
    """Two keys with scores 0 and ln 3: weights 1/4 and 3/4."""
    q = torch.tensor([[1.0], [1.0]]).view(1, 2, 1, 1)
    k = torch.tensor([0.0, torch.tensor(3.0).log().item() * 2]).view(1, 2, 1, 1)
    v = torch.tensor([8.0, 4.0]).view(1, 2, 1, 1)
    trace: dict[str, Tensor] = {}
    mask = torch.ones(1, 2, 2, dtype=torch.bool).tril()
    out = attend_explicit(q, k, v, mask, 0.5, into(trace))
    assert out.flatten().tolist() == pytest.approx([8.0, 5.0])
    assert trace["scores"].shape == trace["weights"].shape == (1, 1, 2, 2)
    assert trace["scores"][0, 0, 0].tolist() == pytest.approx([0.0, 1.0986123])  # shown before the mask
    assert trace["weights"].flatten().tolist() == pytest.approx([1.0, 0.0, 0.25, 0.75])


@pytest.mark.parametrize("form", ["explicit", "fast"])
def test_neighbouring_query_heads_share_a_key_head(form: str) -> None:
    """Heads 0, 1, 2 read key head 0; heads 3, 4, 5 read key head 1 (`repeat` would deal them out in turn)."""
    rows = Rows.plain(1, 3)
    q, k, _ = qkv(1, 3)
    v = torch.tensor([10.0, 20.0]).view(1, 1, K, 1).expand(1, 3, K, H)
    if form == "explicit":
        out = attend_explicit(q, k, v, allowed(rows, rows), SCALE)
    else:
        out = attend(q, k, v, rows, rows, SCALE)
    assert out[0, 2, :, 0].tolist() == pytest.approx([10, 10, 10, 20, 20, 20])


def test_softmax_is_taken_in_float32() -> None:
    """A thousand equal bfloat16 scores: summed in bfloat16 their powers would stop at 256."""
    T = 1000
    q, k = torch.zeros(1, T, 1, 2).bfloat16(), torch.zeros(1, T, 1, 2).bfloat16()
    trace: dict[str, Tensor] = {}
    mask = torch.ones(1, T, T, dtype=torch.bool)
    attend_explicit(q, k, torch.ones(1, T, 1, 2).bfloat16(), mask, 1.0, into(trace))
    assert trace["weights"][0, 0, 0, 0].item() == pytest.approx(0.001, rel=4e-3)


# --- both forms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookback", [0, 1, 2])
@pytest.mark.parametrize("T", [1, 4, 5, 8, 9, 12, 13, 23])
def test_plain_rows_agree(T: int, lookback: int) -> None:
    rows = Rows.plain(2, T)
    assert agree(rows, rows, 4, lookback)
    assert agree(rows, rows, None)


@st.composite
def a_row(draw: st.DrawFn, length: int) -> tuple[Tensor, Tensor]:
    """Any row of this length: documents of any lengths, one token included, with padding before and after."""
    left = draw(st.integers(0, length))
    lengths, room = [], length - left
    while room and draw(st.booleans()):
        lengths.append(draw(st.integers(1, room)))
        room -= lengths[-1]
    return packed_row(*lengths, padding=room, left=left)


@st.composite
def any_rows(draw: st.DrawFn) -> Rows:
    """A batch of two such rows, with blocks by document or by row."""
    length = draw(st.integers(1, 30))
    positions, segments = (torch.cat(x) for x in zip(draw(a_row(length)), draw(a_row(length)), strict=True))
    columns = torch.arange(length).expand(2, -1)
    return Rows(positions, segments, columns if draw(st.booleans()) else positions)


def last(rows: Rows, count: int) -> Rows:
    return Rows(rows.positions[:, -count:], rows.segments[:, -count:], rows.block_pos[:, -count:])


@settings(deadline=None, max_examples=120, derandomize=True)
@given(rows=any_rows(), block_size=st.integers(1, 7), lookback=st.integers(0, 3), local=st.booleans(), part=st.data())
def test_any_rows_agree(rows: Rows, block_size: int, lookback: int, local: bool, part: st.DataObject) -> None:
    """Values and gradients of the two forms, whole rows or only the last queries against all keys."""
    queries = last(rows, part.draw(st.integers(1, rows.positions.shape[1])))
    explicit, fast = both(queries, rows, block_size if local else None, lookback)
    assert all(x.isfinite().all() for x in [*explicit, *fast])
    assert max(largest_difference(a, b) for a, b in zip(explicit, fast, strict=True)) < 2e-5


@settings(deadline=None, max_examples=60, derandomize=True)
@example(start=1, held=0, T=2, C=2, lookback=0)
@given(
    start=st.integers(0, 20),
    held=st.integers(0, 20),
    T=st.integers(1, 12),
    C=st.integers(1, 6),
    lookback=st.integers(0, 3),
)
def test_continued_plain_rows_agree(start: int, held: int, T: int, C: int, lookback: int) -> None:
    """What a cache asks for: keys from `start` on, queries at their end."""
    queries, keys = Rows.plain(2, T, start=start + held), Rows.plain(2, held + T, start=start)
    assert agree(queries, keys, C, lookback)
    assert agree(queries, keys, None)


@pytest.mark.parametrize("block_size", [None, 4])
def test_rows_with_nothing_to_look_at_give_zero(block_size: int | None) -> None:
    rows = packed(3, 6, padding=4, left=2)
    blind = rows.segments[0] == 0
    explicit, fast = both(rows, rows, block_size)
    for out, q, k, v in (explicit, fast):
        assert torch.equal(out[0, blind], torch.zeros(6, N, H))
        for gradient in (q, k, v):
            assert gradient.isfinite().all()
            assert torch.equal(gradient[0, blind], torch.zeros_like(gradient[0, blind]))


@pytest.mark.parametrize("block_size", [None, 4])
def test_garbage_in_padding_stays_there(block_size: int | None) -> None:
    """0 · NaN is NaN: a masked value must not be multiplied at all, or never be garbage. Large ones must not leak."""
    rows = packed(3, 6, padding=4)
    q, k, v = (x.detach() for x in qkv(1, 13))
    clean = attend(q, k, v, rows, rows, SCALE, block_size)
    dirty_k, dirty_v = k.clone(), v.clone()
    dirty_k[:, 9:], dirty_v[:, 9:] = 1e30, -1e30
    assert torch.equal(attend(q, dirty_k, dirty_v, rows, rows, SCALE, block_size), clean)


@pytest.mark.parametrize("rows", [Rows.plain(1, 19), packed(7, 12), packed(4, 13, padding=2)])
@pytest.mark.parametrize("block_size", [None, 4])
def test_gradient_is_exactly_zero_where_the_mask_says_so(rows: Rows, block_size: int | None) -> None:
    inputs = q, k, v = qkv(1, 19)
    mask = allowed(rows, rows, block_size)[0]
    for out in (attend_explicit(*inputs, mask[None], SCALE), attend(*inputs, rows, rows, SCALE, block_size)):
        for t in range(19):
            direction = random(N, H, seed=t)
            for gradient in torch.autograd.grad((out[0, t] * direction).sum(), (k, v), retain_graph=True):
                assert not gradient[0, ~mask[t]].any()
                if mask[t].sum() > 1:  # a lone key has weight 1 whatever it is
                    assert gradient[0, mask[t]].flatten(1).any(1).all()
    assert q.grad is None


@pytest.mark.parametrize("form", ["explicit", "fast"])
@pytest.mark.parametrize("block_size", [None, 4])
def test_inputs_stay_as_they_were(form: str, block_size: int | None) -> None:
    rows = packed(3, 12, padding=2)
    inputs = (*(x.detach() for x in qkv(1, 17)), rows.positions, rows.segments)
    before = [x.clone() for x in inputs]
    q, k, v = inputs[:3]
    if form == "explicit":
        attend_explicit(q, k, v, allowed(rows, rows, block_size), SCALE)
    else:
        attend(q, k, v, rows, rows, SCALE, block_size)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    rows = packed(3, 12, padding=2)
    q, k, v = (x.detach().to(dtype) for x in qkv(1, 17))
    for block_size in (None, 4):
        explicit = attend_explicit(q, k, v, allowed(rows, rows, block_size), SCALE)
        fast = attend(q, k, v, rows, rows, SCALE, block_size)
        assert explicit.dtype == fast.dtype == dtype
        assert largest_difference(explicit, fast) < 3e-2


# --- memory -----------------------------------------------------------------------------------------------------------

LONG = 768
LONG_ROWS = {
    "plain": Rows.plain(1, LONG),
    "packed": packed(300, 1, 67, 380, padding=20),
    "left-padded": packed(LONG - 150, left=150),
    "short documents": packed(*[4] * (LONG // 4)),
    "single tokens": packed(*[1] * LONG),
    "all padding": packed(padding=LONG),
}


@pytest.mark.parametrize("rows", LONG_ROWS)
@pytest.mark.parametrize(("block_size", "lookback"), [(16, 0), (16, 1), (16, 2), (64, 1)])
def test_local_layers_never_hold_a_square(rows: str, block_size: int, lookback: int) -> None:
    """Forward and backward, no operation makes a tensor as large as T × T, however short the documents are."""
    inputs = qkv(1, LONG)
    with Watch() as watch:
        out = attend(*inputs, LONG_ROWS[rows], LONG_ROWS[rows], SCALE, block_size, lookback)
        out.sum().backward()
    assert LONG * N * H <= watch.largest < LONG * LONG


def test_the_watch_sees_a_square() -> None:
    inputs = qkv(1, LONG)
    rows = Rows.plain(1, LONG)
    with Watch() as watch:
        attend_explicit(*inputs, allowed(rows, rows, 16), SCALE)
    assert watch.largest >= LONG * LONG * N


def test_local_queries_that_continue_never_hold_a_square() -> None:
    """A long prompt fed into a cache that already holds keys."""
    q, _, _ = qkv(1, LONG)
    _, k, v = qkv(1, LONG + 32)
    with Watch() as watch:
        attend(q, k, v, Rows.plain(1, LONG, start=32), Rows.plain(1, LONG + 32), SCALE, 16)
    assert watch.largest < LONG * LONG
