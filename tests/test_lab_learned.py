"""The measures, on models whose answers are known; then what the shipped model has learned, held to its bars."""

from __future__ import annotations

import math

import pytest
import torch

import rnj
from rnj.corpus import read_sample
from rnj.documents import NAME
from rnj.example import small_model
from rnj.lab import learned
from rnj.lab.learned import Hole
from rnj.text import load_tokenizer

TOKENIZER = load_tokenizer()
TEXT = "def area(width, height):\n    return width * height\n"
RANDOM = rnj.build(rnj.SMALL, seed=0)


def even_model() -> rnj.Transformer:
    """Every token is as likely as any other."""
    model = rnj.build(rnj.SMALL, seed=0)
    with torch.no_grad():
        model.embed.weight.zero_()
    return model


# The measures


def test_an_even_model_needs_log2_v_bits_a_token():
    bits = learned.bits_per_byte(even_model(), {"a.py": TEXT, "b.py": "x = 1\n"}, TOKENIZER)
    tokens = [len(TOKENIZER.encode(text)) for text in (TEXT, "x = 1\n")]
    sizes = [len(TEXT.encode()), 6]
    assert bits["a.py"] == pytest.approx(tokens[0] * 11 / sizes[0], rel=1e-6)  # V is 2 ** 11
    assert bits["all"] == pytest.approx(sum(tokens) * 11 / sum(sizes), rel=1e-6)


def test_a_long_file_is_cut_and_nothing_is_lost():
    model = learned.with_config(even_model(), rope_type="default", rope_factor=1.0, original_max_positions=34)
    bits = learned.bits_per_byte(model, {"a.py": TEXT * 20}, TOKENIZER)
    assert bits["all"] == pytest.approx(11 * len(TOKENIZER.encode(TEXT * 20)) / len(TEXT * 20), rel=1e-6)


def test_nats_are_the_loss():
    packed = learned.framed(TOKENIZER.encode_all([TEXT, "x = 1\n"]), TOKENIZER)
    values = learned.nats(RANDOM, packed)
    count = (packed.targets != -100).sum()
    want = rnj.loss(RANDOM(packed.tokens, packed.positions, packed.segments), packed.targets)
    assert values.sum() / count == pytest.approx(want.item(), abs=1e-5)
    assert bool((values[packed.targets == -100] == 0).all())


def test_with_config_shares_the_weights():
    other = learned.with_config(RANDOM, layer_types=("global",) * 8)
    assert other.config.layer_types == ("global",) * 8
    assert other.embed.weight.data_ptr() == RANDOM.embed.weight.data_ptr()


def test_xz_packs_a_repeat_and_together_is_smaller():
    bits = learned.xz_bits_per_byte({"a": "ab" * 5000, "b": "ab" * 5000})
    assert bits["together"] < bits["one by one"] < 0.2


def test_holes_lose_nothing_and_follow_from_the_seed():
    cases = learned.holes(TOKENIZER, 30)
    assert cases == learned.holes(TOKENIZER, 30) and cases != learned.holes(TOKENIZER, 30, seed=1)
    texts = list(read_sample().values())
    assert len(cases) == 30
    assert all(any(case.prefix + case.middle + case.suffix in text for text in texts) for case in cases)


def test_names_stand_on_both_sides():
    cases = learned.name_holes(TOKENIZER, 100)
    assert len(cases) == 100 and len({case.prefix + case.suffix for case in cases}) == 100
    for case in cases:
        before, after = (set(NAME.findall(text)) for text in (case.prefix, case.suffix))
        assert case.middle in before and case.middle in after and case.middle not in ("def", "None", "return")
        assert 1 <= case.names <= len(before & after) + 1


def test_the_middle_is_the_same_tokens_in_both_orders():
    cases = [Hole("def area(", "width", ", height):\n    return width\n")]
    middle = TOKENIZER.encode("width")
    found = learned.middle_loss(even_model(), cases, TOKENIZER)
    assert found.tokens == len(middle)
    assert found.left_to_right == pytest.approx(math.log(2048)) == found.fill_in_the_middle


def test_filled_counts_exact_names(monkeypatch):
    cases = [Hole("a ", "name", " b", 4), Hole("c ", "other", " d", 2)]
    monkeypatch.setattr(learned, "fill_in_the_middle", lambda *_, **__: "name")
    found = learned.fill_names(RANDOM, cases, TOKENIZER)
    assert (found.right, found.cases, found.chance) == (1, 2, 0.75)


def test_a_random_model_does_not_copy():
    found = learned.copying(RANDOM, 16, rows=2)
    assert found.ratio == pytest.approx(1.0, abs=0.15)
    assert found.induction.shape == (8, 6) and float(found.induction.max()) < 0.3
    layer, head = found.best
    assert found.induction[layer, head] == found.induction.max()


# What the shipped model has learned


@pytest.fixture(scope="module")
def model() -> rnj.Transformer:
    return small_model()


def test_bits_per_byte(model):
    bits, xz = learned.bits_per_byte(model)["all"], learned.xz_bits_per_byte()
    print(f"bits per byte {bits:.3f}; xz -9e {xz['one by one']:.3f} file by file, {xz['together']:.3f} together")
    assert bits <= 1.25 < xz["together"] < xz["one by one"]


def test_fill_in_the_middle_reads_what_comes_after(model):
    cases = learned.holes(TOKENIZER)
    suffix_first, prefix_first = (learned.middle_loss(model, cases, TOKENIZER, order) for order in ("spm", "psm"))
    assert suffix_first.left_to_right - suffix_first.fill_in_the_middle >= 0.10
    assert prefix_first.left_to_right - prefix_first.fill_in_the_middle >= 0.05
    assert suffix_first.tokens == prefix_first.tokens > 1000


def test_names_on_both_sides_are_filled_in(model):
    found = learned.fill_names(model, learned.name_holes(TOKENIZER), TOKENIZER, "spm")
    print(f"{found.right} of {found.cases} names, chance {found.chance:.1f}")
    assert found.cases == 100 and found.right >= 60 > found.chance


def test_a_repeat_is_copied_by_heads_that_look_for_it(model):
    found = learned.copying(model)
    layer, head = found.best
    assert found.ratio <= 0.7
    assert found.induction[layer, head] >= 0.3 and found.even[layer] < 0.02


def test_the_table_holds_every_measure(model):
    rows = learned.table()
    assert len(rows) == 9 and all(rows.values())


def test_it_fits_into_eight_megabytes():
    folder = rnj.text.SMALL_FOLDER
    names = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
    assert sum((folder / name).stat().st_size for name in names) <= 8_000_000
