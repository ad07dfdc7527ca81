"""The model against Hugging Face transformers, which computes everything but the block-local mask.

A reduced Gemma 3 with YaRN on both layer types, every size different, every norm weight random, goes through sharded
safetensors in both directions. For the block-local layers transformers gets the mask, written here once more in its
own way; for generation its sliding-window rule is replaced by the block rule. See also `pytest tests/parity`, which
prints every error at its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

import rnj
from rnj import RNJ_1_5, Config, KVCache, Transformer, config_dict, example, generate
from rnj.lab.learned import with_config
from rnj.text import SMALL_FOLDER, left_pad, load_tokenizer, pack
from rnj.weights import INDEX, load, save
from rnj.yarn import cos_sin, inv_freq

transformers.logging.set_verbosity_error()

Measured = Callable[..., None]
TOLERANCE = 2e-5  # float32
C = 24  # block size
HYBRID = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 2
GLOBAL = ["full_attention"] * 8
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 20.0,
    "original_max_position_embeddings": 2048,  # long enough for beta_fast 32 and 64 to differ at this head_dim
    "beta_fast": 64.0,
    "beta_slow": 1.0,
}


def gemma_config(layer_types: list[str], **changes: object) -> Gemma3TextConfig:
    return Gemma3TextConfig(
        **{
            "vocab_size": 331,
            "hidden_size": 96,
            "intermediate_size": 224,
            "num_hidden_layers": 8,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "max_position_embeddings": 40_960,
            "sliding_window": 2 * C,
            "layer_types": layer_types,
            "rope_parameters": {kind: dict(YARN) for kind in set(layer_types)},
            "final_logit_softcapping": 30.0,
            "bos_token_id": 320,
            "eos_token_id": [321, 322],
            "pad_token_id": 323,
        }
        | changes
    )


def random_gemma(config: Gemma3TextConfig, seed: int = 0) -> Gemma3ForCausalLM:
    """Nothing hidden: norm weights random, gates large enough to feel GELU, logits the soft cap, small squares eps."""
    model = Gemma3ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name == "model.norm.weight":
                weight.normal_(-1, 0.5, generator=generator)  # so that a token is not its own likeliest successor
            elif weight.ndim == 1:
                weight.normal_(0, 0.3, generator=generator)
            elif "embed" in name:
                weight.normal_(0, 0.6, generator=generator)
            else:
                gain = 1.5 if "gate" in name or "up" in name else 0.3
                weight.normal_(0, gain * weight.shape[1] ** -0.5, generator=generator)
    return model


def read_by_transformers(
    folder: Path, attention: str = "sdpa", dtype: torch.dtype = torch.float32
) -> Gemma3ForCausalLM:
    model, info = Gemma3ForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    return model.eval()


def save_gemma(folder: Path, config: Gemma3TextConfig) -> Path:
    random_gemma(config).save_pretrained(folder, max_shard_size="1MB")
    assert (folder / INDEX).exists()
    return folder


@pytest.fixture(scope="session")
def all_global(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved by transformers: every layer global."""
    return save_gemma(tmp_path_factory.mktemp("global"), gemma_config(GLOBAL))


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved by transformers: L L L G twice, and a query scalar that is not head_dim."""
    return save_gemma(tmp_path_factory.mktemp("hybrid"), gemma_config(HYBRID, query_pre_attn_scalar=24))


def some_tokens(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(0, 320, (batch, length), generator=torch.Generator().manual_seed(seed))


TOKENS = some_tokens(2, 300)  # 12.5 blocks


def masks(
    positions: Tensor, segments: Tensor, attention: str = "sdpa", local: str = "sliding_attention", size: int = C
) -> dict:
    """Masks [B, 1, T, T] for both layer types: booleans for sdpa, summands for eager. Padding sees itself alone."""
    q, k = positions[:, None, :, None], positions[:, None, None, :]
    same = (segments[:, None, :, None] == segments[:, None, None, :]) & (segments != 0)[:, None, None, :]
    blind = torch.eye(positions.shape[1], dtype=torch.bool) & (segments == 0)[:, None, :, None]
    full = (q >= k) & same | blind
    block = torch.div(k, size, rounding_mode="floor")
    blocks = (block >= torch.div(q, size, rounding_mode="floor") - 1) & full | blind
    if attention == "eager":
        low = torch.finfo(torch.float32).min
        full, blocks = (torch.zeros(m.shape).masked_fill(~m, low) for m in (full, blocks))
    return {"full_attention": full, local: blocks}


def plain(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Positions and segments of whole rows."""
    return torch.arange(tokens.shape[1]).expand_as(tokens), torch.ones_like(tokens)


@torch.no_grad()
def theirs(
    model: Gemma3ForCausalLM, tokens: Tensor, mask: dict | None = None, positions: Tensor | None = None
) -> Tensor:
    return model(tokens, attention_mask=mask, position_ids=positions, use_cache=False).logits.float()


@torch.no_grad()
def ours(model: Transformer, *arguments: Tensor, **options: object) -> Tensor:
    return model(*arguments, **options)


def error(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape and not (a - b).isnan().any()
    return (a - b).abs().max().item()


@pytest.fixture
def block_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' sliding window, replaced by blocks with one block of lookback: for its own cache and `generate`."""

    def overlay(sliding_window: int) -> Callable:
        return lambda batch, head, q, k: q // (sliding_window // 2) - k // (sliding_window // 2) <= 1

    monkeypatch.setattr("transformers.masking_utils.sliding_window_overlay", overlay)


# --- float32: saved by transformers, read by rnj


def test_the_configs_agree(all_global: Path, hybrid: Path) -> None:
    config = load(hybrid).config
    assert config.layer_types == ("local", "local", "local", "global") * 2
    assert (config.block_size, config.lookback, config.query_pre_attn_scalar) == (C, 1, 24)
    assert (config.beta_fast, config.rope_factor, config.original_max_positions) == (64, 20, 2048)
    assert config.head_dim != config.d_model // config.n_heads
    assert load(all_global).config.query_pre_attn_scalar is None
    slower = dataclasses.replace(config, beta_fast=32.0)
    assert not torch.equal(inv_freq(config), inv_freq(slower))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_all_global(all_global: Path, attention: str, measured: Measured) -> None:
    expected = theirs(read_by_transformers(all_global, attention), TOKENS)
    model = load(all_global)
    assert expected.abs().max() > 12  # the soft cap is felt
    measured(f"float32, all global, {attention}", error(ours(model, TOKENS), expected), at_most=TOLERANCE)
    slow = ours(model, TOKENS, explicit=True)
    measured(f"float32, all global, {attention}, explicit", error(slow, expected), at_most=TOLERANCE)


@pytest.mark.parametrize("folder", ["all_global", "hybrid"])
def test_what_transformers_itself_differs_by(folder: str, request: pytest.FixtureRequest, measured: Measured) -> None:
    path = request.getfixturevalue(folder)
    sdpa, eager = (
        theirs(read_by_transformers(path, attention), TOKENS, masks(*plain(TOKENS), attention))
        for attention in ("sdpa", "eager")
    )
    name = folder.replace("_", " ")
    measured(f"float32, {name}, transformers' own sdpa and eager", error(sdpa, eager), at_most=TOLERANCE)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_hybrid_by_masks(hybrid: Path, attention: str, measured: Measured) -> None:
    expected = theirs(read_by_transformers(hybrid, attention), TOKENS, masks(*plain(TOKENS), attention))
    model = load(hybrid)
    measured(f"float32, hybrid by masks, {attention}", error(ours(model, TOKENS), expected), at_most=TOLERANCE)
    slow = ours(model, TOKENS, explicit=True)
    measured(f"float32, hybrid by masks, {attention}, explicit", error(slow, expected), at_most=TOLERANCE)


def test_hybrid_by_the_block_rule(hybrid: Path, block_rule: None, measured: Measured) -> None:
    expected = theirs(read_by_transformers(hybrid), TOKENS)
    measured("float32, hybrid by the block rule", error(ours(load(hybrid), TOKENS), expected), at_most=TOLERANCE)


@pytest.mark.parametrize("layer_types", [["sliding_attention"] * 8, HYBRID], ids=["all local", "hybrid"])
def test_their_own_sliding_window(tmp_path: Path, layer_types: list[str], measured: Measured) -> None:
    """Blocks of one position with W - 1 blocks of lookback are a sliding window of W: no mask of ours is involved."""
    window = 17
    save_gemma(tmp_path, gemma_config(layer_types, sliding_window=window, attention_lookback=window - 1))
    model = load(tmp_path)
    assert (model.config.block_size, model.config.lookback) == (1, window - 1)
    expected = theirs(read_by_transformers(tmp_path), TOKENS)
    name = f"float32, their own sliding window, {'hybrid' if 'full_attention' in layer_types else 'all local'}"
    measured(name, error(ours(model, TOKENS), expected), at_most=TOLERANCE)
    off = Transformer(dataclasses.replace(model.config, lookback=window - 2))
    off.load_state_dict(model.state_dict())
    measured(
        f"slip: window off by one ({name.split(', ')[-1]})", error(ours(off, TOKENS), expected), above=1000 * TOLERANCE
    )


def test_within_two_blocks_local_and_sliding_and_global_are_one(hybrid: Path, measured: Measured) -> None:
    tokens = TOKENS[:, : 2 * C]
    expected = theirs(read_by_transformers(hybrid), tokens)  # their plain sliding window of 2C
    measured("float32, 2C tokens, nothing replaced", error(ours(load(hybrid), tokens), expected), at_most=TOLERANCE)


@pytest.mark.parametrize("folder", ["all_global", "hybrid"])
def test_packed_rows(folder: str, request: pytest.FixtureRequest, measured: Measured) -> None:
    path = request.getfixturevalue(folder)
    lengths = [1, 70, 3, 120, 48, 49, 2, 200, 33]
    documents = [some_tokens(1, n, seed=n)[0].tolist() for n in lengths]
    row = pack(documents, 256, bos_id=None, eos_id=None, pad_id=323)
    assert row.tokens.shape[0] == 3 and (row.segments == 0).any()
    model, oracle = load(path), read_by_transformers(path)
    got = ours(model, row.tokens, row.positions, row.segments)
    expected = theirs(oracle, row.tokens, masks(row.positions, row.segments), row.positions)
    real = row.segments != 0
    name = folder.replace("_", " ")
    measured(f"float32, packed rows, {name}", error(got[real], expected[real]), at_most=TOLERANCE)

    place = (row.segments[1] == 1).nonzero()[:, 0]  # one document of the second row, on its own
    alone = row.tokens[1:2, place]
    expected = theirs(oracle, alone, masks(*plain(alone)))
    measured(
        f"float32, packed row against the document alone, {name}", error(got[1, place], expected[0]), at_most=TOLERANCE
    )


@pytest.mark.parametrize("folder", ["all_global", "hybrid"])
@pytest.mark.parametrize("pieces", [[5, 5, 5, 8, 30, 1, 1, 45, 200], [130, *[1] * 60, 110], [C] * 12 + [12]])
def test_cached_in_pieces(folder: str, pieces: list[int], request: pytest.FixtureRequest, measured: Measured) -> None:
    path = request.getfixturevalue(folder)
    model = load(path)
    assert sum(pieces) == TOKENS.shape[1]
    cache = KVCache(model.config, batch=2, max_length=300)
    got = torch.cat([ours(model, part, cache=cache) for part in TOKENS.split(pieces, dim=1)], dim=1)
    expected = theirs(read_by_transformers(path), TOKENS, masks(*plain(TOKENS)))
    name = f"float32, cached in pieces of {pieces[0]}, …, {folder.replace('_', ' ')}"
    measured(name, error(got, expected), at_most=TOLERANCE)


@pytest.mark.parametrize("folder", ["all_global", "hybrid"])
def test_left_padded_batches(folder: str, request: pytest.FixtureRequest, measured: Measured) -> None:
    path = request.getfixturevalue(folder)
    model, oracle = load(path), read_by_transformers(path)
    prompts = [some_tokens(1, n, seed=n)[0].tolist() for n in (150, 31, 97, 1)]
    tokens, positions, segments = left_pad(prompts, pad_id=323)
    got = ours(model, tokens, positions, segments)
    expected = theirs(oracle, tokens, masks(positions, segments), positions)
    real = segments != 0
    name = folder.replace("_", " ")
    measured(f"float32, left-padded batch, {name}", error(got[real], expected[real]), at_most=TOLERANCE)

    cache = KVCache(model.config, batch=4, max_length=220)
    ours(model, tokens, positions, segments, cache=cache)
    more = some_tokens(4, 70, seed=9)
    got = torch.cat([ours(model, part, cache=cache) for part in more.split([1, 25, 1, 43], dim=1)], dim=1)
    tokens, segments = torch.cat([tokens, more], dim=1), torch.cat([segments, torch.ones_like(more)], dim=1)
    positions = torch.cat([positions, positions[:, -1:] + 1 + torch.arange(70)], dim=1)
    expected = theirs(oracle, tokens, masks(positions, segments), positions)
    measured(f"float32, left-padded batch, continued, {name}", error(got, expected[:, -70:]), at_most=TOLERANCE)


def test_far_positions(hybrid: Path, measured: Measured) -> None:
    """A row that begins late in the context: the phases of the slow and of the fast pairs agree as well."""
    start = 40_960 - 100
    positions = torch.arange(start, 40_960)[None]
    tokens, segments = TOKENS[:1, :100], torch.ones(1, 100, dtype=torch.int64)
    expected = theirs(read_by_transformers(hybrid), tokens, masks(positions, segments), positions)
    got = ours(load(hybrid), tokens, positions, segments)
    measured("float32, the context's last 100 positions", error(got, expected), at_most=TOLERANCE)


# --- Generation


def their_greedy(model: Gemma3ForCausalLM, tokens: Tensor, new: int, attention_mask: Tensor) -> list[list[int]]:
    model.generation_config.eos_token_id = None
    out = model.generate(tokens, attention_mask=attention_mask, max_new_tokens=new, do_sample=False, pad_token_id=323)
    return out[:, tokens.shape[1] :].tolist()


@pytest.mark.parametrize(("lengths", "new"), [((17,), 200), ((20, 45, 66, 95, 118, 140), 12)])
def test_greedy_over_block_edges(
    hybrid: Path, block_rule: None, lengths: tuple[int, ...], new: int, measured: Measured
) -> None:
    """Their cache and their generate, with the block rule: one run over nine edges, six over one each."""
    model, oracle = load(hybrid), read_by_transformers(hybrid)
    different, edges, seen = 0, 0, set()
    for length in lengths:
        prompt = some_tokens(1, length, seed=length)
        expected = their_greedy(oracle, prompt, new, torch.ones_like(prompt))[0]
        got = generate(model, prompt.tolist(), new, end_ids=[])[0]
        different += sum(a != b for a, b in zip(got, expected, strict=True))
        edges += (length + new - 1) // C - length // C
        seen |= set(expected)
    assert edges == (9 if new == 200 else 6) and len(seen) > 2 * len(lengths)
    measured(f"greedy tokens that differ, of {len(lengths)} × {new} over {edges} block edges", different, at_most=0)


def test_greedy_in_a_left_padded_batch(all_global: Path, measured: Measured) -> None:
    prompts = [some_tokens(1, n, seed=n)[0].tolist() for n in (40, 7, 23)]
    tokens, _, segments = left_pad(prompts, pad_id=323)
    expected = their_greedy(read_by_transformers(all_global), tokens, 60, segments)
    got = generate(load(all_global), prompts, 60, end_ids=[])
    different = sum(a != b for ours_, theirs_ in zip(got, expected) for a, b in zip(ours_, theirs_, strict=True))
    assert len({token for row in expected for token in row}) > 10
    measured("greedy tokens that differ, of 3 left-padded × 60, all global", different, at_most=0)


# --- Saved by rnj, read by transformers


def config(**changes: object) -> Config:
    return dataclasses.replace(
        Config(
            d_model=96,
            d_ff=224,
            n_layers=8,
            n_heads=6,
            n_kv_heads=2,
            head_dim=32,
            vocab_size=331,
            block_size=C,
            rope_factor=20.0,
            original_max_positions=2048,
            query_pre_attn_scalar=24.0,
            bos_id=320,
            eos_ids=(321, 322),
            pad_id=323,
        ),
        **changes,
    )


def test_saved_all_global_is_read_as_it_is(tmp_path: Path, measured: Measured) -> None:
    model = rnj.build(config(layer_types=("global",) * 8), seed=3, random_norms=True)
    save(model, tmp_path, max_shard_bytes=1_000_000)
    assert (tmp_path / INDEX).exists()
    expected = theirs(read_by_transformers(tmp_path), TOKENS)
    measured("float32, saved by rnj, all global", error(ours(model, TOKENS), expected), at_most=TOLERANCE)
    auto = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(auto, Gemma3ForCausalLM) and auto.dtype == torch.float32
    assert auto.config.eos_token_id == [321, 322]
    assert torch.equal(theirs(auto, TOKENS), expected)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_saved_hybrid_is_read_with_masks(tmp_path: Path, attention: str, measured: Measured) -> None:
    """The real spelling, chunked_attention, for which transformers has no mask of its own."""
    model = rnj.build(config(), seed=3, random_norms=True)
    save(model, tmp_path, max_shard_bytes=1_000_000)
    oracle = read_by_transformers(tmp_path, attention)
    assert oracle.config.layer_types == (["chunked_attention"] * 3 + ["full_attention"]) * 2
    expected = theirs(oracle, TOKENS, masks(*plain(TOKENS), attention, local="chunked_attention"))
    measured(f"float32, saved by rnj, hybrid, {attention}", error(ours(model, TOKENS), expected), at_most=TOLERANCE)
    with pytest.raises(KeyError):
        theirs(oracle, TOKENS)


def test_what_transformers_saves_again_is_read_again(tmp_path: Path) -> None:
    """rnj → transformers → rnj gives the same config and the same bits, in bfloat16 too."""
    model = rnj.build(config(), seed=3, random_norms=True, dtype=torch.bfloat16)
    save(model, tmp_path / "one", max_shard_bytes=1_000_000)
    read_by_transformers(tmp_path / "one", dtype=torch.bfloat16).save_pretrained(tmp_path / "two", max_shard_size="1MB")
    again = load(tmp_path / "two")
    assert again.config == model.config
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]) and weight.dtype == torch.bfloat16


# --- The trained model that ships


@pytest.mark.parametrize(("attention", "dtype"), [("eager", torch.float32), ("sdpa", torch.float64)])
def test_the_shipped_folder_is_read_with_masks(attention: str, dtype: torch.dtype, measured: Measured) -> None:
    """Three documents, the longest of more than three blocks, packed in one row. Logits are large: float32 rounds them.

    eager against our explicit form, which takes the same steps in the same order; sdpa in float64, in any order.
    """
    tokenizer, model = load_tokenizer(), load(SMALL_FOLDER, dtype=dtype)
    documents = tokenizer.encode_all([example.LONG_TEXT, *example.DOCUMENTS])
    row = pack(documents, 512, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)
    assert (row.segments == 3).any() and row.positions.max() > 3 * model.config.block_size
    mask = masks(row.positions, row.segments, attention, "chunked_attention", model.config.block_size)
    expected = theirs(read_by_transformers(SMALL_FOLDER, attention, dtype), row.tokens, mask, row.positions)
    got = ours(model, row.tokens, row.positions, row.segments, explicit=attention == "eager").float()
    real, name = row.segments != 0, f"{dtype}, the shipped folder, hybrid, {attention}".removeprefix("torch.")
    measured(name, error(got[real], expected[real]), at_most=TOLERANCE)


def test_the_shipped_folder_is_read_all_global(measured: Measured) -> None:
    read = Gemma3TextConfig.from_pretrained(SMALL_FOLDER)
    read.layer_types = GLOBAL
    oracle = Gemma3ForCausalLM.from_pretrained(SMALL_FOLDER, config=read, dtype=torch.float32).eval()
    model = load(SMALL_FOLDER, dtype=torch.float32)
    changed = with_config(model, layer_types=("global",) * 8)
    tokens = example.long_row().tokens
    found = error(ours(changed, tokens), theirs(oracle, tokens))
    measured("float32, the shipped folder, all global", found, at_most=TOLERANCE)
    assert error(ours(model, tokens), theirs(oracle, tokens)) > 1000 * TOLERANCE


def test_the_shipped_tokenizer_is_read() -> None:
    read, tokenizer = AutoTokenizer.from_pretrained(SMALL_FOLDER), load_tokenizer()
    assert read.encode(example.LONG_TEXT, add_special_tokens=False) == tokenizer.encode(example.LONG_TEXT)
    assert (read.bos_token_id, read.eos_token_id, read.pad_token_id) == (2032, 2033, 2035)


# --- bfloat16


@pytest.mark.parametrize("folder", ["all_global", "hybrid"])
def test_bfloat16_is_as_near_as_two_runs_of_transformers(
    folder: str, request: pytest.FixtureRequest, measured: Measured
) -> None:
    path = request.getfixturevalue(folder)
    half = torch.bfloat16
    sdpa = theirs(
        read_by_transformers(path, "sdpa", half), TOKENS, masks(*plain(TOKENS)) if folder == "hybrid" else None
    )
    summands = {kind: mask.to(half) for kind, mask in masks(*plain(TOKENS), "eager").items()}
    eager = theirs(read_by_transformers(path, "eager", half), TOKENS, summands)
    between = error(sdpa, eager)
    name = folder.replace("_", " ")
    measured(f"bfloat16, {name}, transformers' own sdpa and eager", between, above=0)
    model = load(path, dtype=half)
    measured(f"bfloat16, {name}, against sdpa", error(ours(model, TOKENS), sdpa), at_most=between)
    exact = theirs(read_by_transformers(path), TOKENS, masks(*plain(TOKENS)))
    theirs_off = max(error(sdpa, exact), error(eager, exact))
    measured(f"bfloat16, {name}, against their float32", error(ours(model, TOKENS), exact), at_most=2 * theirs_off)


# --- The tables


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"beta_fast": 32.0},
        {"beta_slow": 2.0},
        {"truncate": False},
        {"attention_factor": 1.5},
        {"rope_theta": 1e6},
        {"rope_factor": 4.0},
        {"rope_type": "linear"},
        {"rope_type": "default", "rope_factor": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("base", [RNJ_1_5, config()], ids=["RNJ_1_5", "reduced"])
def test_tables_are_equal(base: Config, change: dict) -> None:
    ours_ = dataclasses.replace(base, **change)
    rotary = Gemma3RotaryEmbedding(Gemma3TextConfig(**config_dict(ours_)))
    positions = torch.tensor([[0, 1, 2, 500, 8191, ours_.max_positions - 1]])
    half = ours_.head_dim // 2
    for kind in ("full_attention", "chunked_attention"):
        if ours_.rope_type == "linear":  # they divide once more: the last bit may differ
            torch.testing.assert_close(getattr(rotary, f"{kind}_inv_freq"), inv_freq(ours_), rtol=2.5e-7, atol=0)
            continue
        assert torch.equal(getattr(rotary, f"{kind}_inv_freq"), inv_freq(ours_))
        cos, sin = rotary(torch.zeros(1), positions, kind)
        for expected, got in zip((cos, sin), cos_sin(positions, ours_)):
            assert torch.equal(expected[..., :half], got) and torch.equal(expected[..., half:], got)


# --- What the comparison would catch


def renamed(state: dict[str, Tensor], *pairs: tuple[str, str]) -> dict[str, Tensor]:
    """The state with the parts of each pair exchanged in all names."""
    out = {}
    for name, weight in state.items():
        for a, b in pairs:
            name = name.replace(a, "\0").replace(b, a).replace("\0", b)
        out[name] = weight
    return out


CONFIG_SLIPS = {
    "attention factor forgotten": {"attention_factor": 1.0},
    "attention factor squared": {"attention_factor": 1.2995732**2},
    "query scalar: head_dim": {"query_pre_attn_scalar": None},
    "query scalar: d_model / heads": {"query_pre_attn_scalar": 16.0},
    "theta 1e6": {"rope_theta": 1e6},
    "no YaRN": {"rope_type": "default", "rope_factor": 1.0, "original_max_positions": 40_960},
    "interpolation for YaRN": {"rope_type": "linear", "attention_factor": 1.2995732},
    "beta_fast 32": {"beta_fast": 32.0},
    "correction range not rounded": {"truncate": False},
    "no soft cap": {"final_logit_softcap": None},
    "eps 1e-5": {"norm_eps": 1e-5},
    "block off by one": {"block_size": C + 1},
    "sliding_window taken for the block": {"block_size": 2 * C},
    "no lookback": {"lookback": 0},
    "all layers global": {"layer_types": ("global",) * 8},
    "layers in another order": {"layer_types": ("global", "local", "local", "local") * 2},
}


@pytest.fixture(scope="module")
def hybrid_logits(hybrid: Path) -> Tensor:
    return theirs(read_by_transformers(hybrid), TOKENS, masks(*plain(TOKENS)))


@pytest.mark.parametrize("slip", CONFIG_SLIPS)
def test_a_slip_in_the_config_is_far_above_the_tolerance(
    slip: str, hybrid: Path, hybrid_logits: Tensor, measured: Measured
) -> None:
    model = load(hybrid)
    wrong = Transformer(dataclasses.replace(model.config, **CONFIG_SLIPS[slip]))
    wrong.load_state_dict(model.state_dict())
    measured(f"slip: {slip}", error(ours(wrong, TOKENS), hybrid_logits), above=10 * TOLERANCE)


WEIGHT_SLIPS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "gate and up exchanged": lambda state: renamed(state, ("gate_proj", "up_proj")),
    "q_norm and k_norm exchanged": lambda state: renamed(state, ("q_norm", "k_norm")),
    "norms before and after attention exchanged": lambda state: renamed(state, ("pre_attn_norm", "post_attn_norm")),
    "norms after attention and before the MLP exchanged": lambda state: renamed(
        state, ("post_attn_norm", "pre_mlp_norm")
    ),
    "1 + w forgotten": lambda state: {n: w - 1 if w.ndim == 1 else w for n, w in state.items()},
    "1 + w twice": lambda state: {n: w + 1 if w.ndim == 1 else w for n, w in state.items()},
    "heads interleaved (repeat for repeat_interleave)": lambda state: {
        n: w.unflatten(0, (3, 2, 32)).transpose(0, 1).flatten(0, 2) if n.endswith("q_proj.weight") else w
        for n, w in state.items()
    },
    "rotation in neighbouring pairs": lambda state: {
        n: w.unflatten(0, (-1, 16, 2)).transpose(1, 2).flatten(0, 2)
        if n.endswith(("q_proj.weight", "k_proj.weight"))
        else w
        for n, w in state.items()
    },
}


@pytest.mark.parametrize("slip", WEIGHT_SLIPS)
def test_a_slip_in_the_weights_is_far_above_the_tolerance(
    slip: str, hybrid: Path, hybrid_logits: Tensor, measured: Measured
) -> None:
    model = load(hybrid)
    model.load_state_dict(WEIGHT_SLIPS[slip](model.state_dict()))
    measured(f"slip: {slip}", error(ours(model, TOKENS), hybrid_logits), above=1000 * TOLERANCE)


def test_frequencies_in_bfloat16_are_far_above_the_tolerance(
    hybrid: Path, hybrid_logits: Tensor, monkeypatch: pytest.MonkeyPatch, measured: Measured
) -> None:
    rounded = inv_freq(load(hybrid).config).bfloat16().float()
    monkeypatch.setattr("rnj.yarn.inv_freq", lambda config, device: rounded)
    got = ours(load(hybrid), TOKENS)
    measured("slip: inv_freq in bfloat16", error(got, hybrid_logits), above=1000 * TOLERANCE)
