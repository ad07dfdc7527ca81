"""Sampling: the distribution that is drawn from, and the loop around the model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import rnj
from rnj import TINY, Transformer, fill_in_the_middle, generate, probabilities
from rnj.text import load_tokenizer
from tests.common import Watch, largest_difference, random, random_tokens
from tests.common import model as any_model

# --- the distribution -------------------------------------------------------------------------------------------------

LOGITS = torch.tensor([0.5, 0.1, 0.3, 0.1]).log()  # softmax gives them back


def approx(values: list[float]) -> object:
    return pytest.approx(values, abs=1e-6)


def test_temperature_one_is_softmax() -> None:
    assert probabilities(LOGITS).tolist() == approx([0.5, 0.1, 0.3, 0.1])


def test_temperature_divides_the_logits() -> None:
    squares = [0.25, 0.01, 0.09, 0.01]
    assert probabilities(LOGITS, temperature=0.5).tolist() == approx([x / sum(squares) for x in squares])


def test_temperature_zero_is_greedy() -> None:
    assert probabilities(LOGITS, temperature=0).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert probabilities(torch.tensor([1.0, 3.0, 3.0]), temperature=0).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-45])
def test_tiny_temperatures_go_towards_greedy(temperature: float) -> None:
    assert probabilities(LOGITS, temperature=temperature).tolist() == approx([1.0, 0.0, 0.0, 0.0])


def test_huge_temperature_goes_towards_even() -> None:
    assert probabilities(LOGITS, temperature=1e30).tolist() == approx([0.25] * 4)


@pytest.mark.parametrize("temperature", [-1.0, -1e-9, math.nan, math.inf, -math.inf])
def test_temperatures_that_make_no_sense(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        probabilities(LOGITS, temperature=temperature)


@pytest.mark.parametrize(
    ("top_k", "expected"),
    [
        (1, [1.0, 0.0, 0.0, 0.0]),
        (2, [0.625, 0.0, 0.375, 0.0]),
        (3, [5 / 9, 1 / 9, 3 / 9, 0.0]),  # of two equal ones the lower id
        (4, [0.5, 0.1, 0.3, 0.1]),
        (99, [0.5, 0.1, 0.3, 0.1]),
        (None, [0.5, 0.1, 0.3, 0.1]),
    ],
)
def test_top_k(top_k: int | None, expected: list[float]) -> None:
    assert probabilities(LOGITS, top_k=top_k).tolist() == approx(expected)


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (1e-9, [1.0, 0.0, 0.0, 0.0]),  # never none
        (0.4, [1.0, 0.0, 0.0, 0.0]),
        (0.6, [0.625, 0.0, 0.375, 0.0]),  # the sum before the second is 0.5, below 0.6
        (0.85, [5 / 9, 1 / 9, 3 / 9, 0.0]),
        (0.95, [0.5, 0.1, 0.3, 0.1]),
        (1.0, [0.5, 0.1, 0.3, 0.1]),
        (None, [0.5, 0.1, 0.3, 0.1]),
    ],
)
def test_top_p(top_p: float | None, expected: list[float]) -> None:
    assert probabilities(LOGITS, top_p=top_p).tolist() == approx(expected)


def test_top_p_keeps_while_the_sum_before_is_below_p() -> None:
    """Exactly representable: at p = 0.5 the first alone reaches it; a hair more and the second comes in."""
    logits = torch.tensor([0.5, 0.25, 0.25]).log()
    assert probabilities(logits, top_p=0.5).tolist() == approx([1.0, 0.0, 0.0])
    assert probabilities(logits, top_p=0.5001).tolist() == approx([2 / 3, 1 / 3, 0.0])


def test_top_p_counts_what_top_k_left() -> None:
    """After top-k 2 the shares are 5/8 and 3/8, so 0.6 is reached by the first alone."""
    assert probabilities(LOGITS, top_k=2, top_p=0.6).tolist() == approx([1.0, 0.0, 0.0, 0.0])


def test_top_p_sees_the_temperature() -> None:
    assert probabilities(LOGITS, temperature=0.5, top_p=0.6).tolist() == approx([1.0, 0.0, 0.0, 0.0])


def test_top_p_of_one_keeps_everything() -> None:
    """Also over a whole vocabulary, where a float32 sum may pass 1 before the tail."""
    logits = random(128_256) * 3
    assert torch.equal(probabilities(logits, top_p=1.0), probabilities(logits))


@pytest.mark.parametrize("top_p", [0.0, -0.1, 1.1, math.nan])
def test_top_p_that_makes_no_sense(top_p: float) -> None:
    with pytest.raises(ValueError, match="top_p"):
        probabilities(LOGITS, top_p=top_p)


@pytest.mark.parametrize("top_k", [0, -1, 1.5, True])
def test_top_k_that_makes_no_sense(top_k: int) -> None:
    with pytest.raises(ValueError, match="top_k"):
        probabilities(LOGITS, top_k=top_k)


def test_distribution_is_float32_and_sums_to_one() -> None:
    p = probabilities(random(5, 1000).bfloat16() * 4, temperature=0.7, top_k=300, top_p=0.9)
    assert p.dtype == torch.float32 and p.shape == (5, 1000)
    assert p.sum(-1).tolist() == pytest.approx([1.0] * 5, abs=1e-5)


def test_each_row_by_itself_and_inputs_stay() -> None:
    logits = random(3, 7)
    before = logits.clone()
    for settings in ({"temperature": 0.0}, {"top_k": 2}, {"top_p": 0.5}):
        together = probabilities(logits, **settings)
        assert torch.equal(together[1], probabilities(logits[1], **settings))
    assert torch.equal(logits, before)


# --- the loop ---------------------------------------------------------------------------------------------------------

NEW = 25  # 5 blocks of TINY


def model(**changes: Any) -> Transformer:
    """Blocks that outweigh the embedding: with a tied head a random model would else repeat its last token for ever."""
    built = any_model(**changes)
    with torch.no_grad():
        for block in built.blocks:
            block.post_attn_norm.weight += 4
            block.post_mlp_norm.weight += 4
    return built


def prompt(length: int, seed: int = 0) -> list[int]:
    return random_tokens(1, length, seed)[0].tolist()


def greedy_by_hand(built: Transformer, ids: list[int], count: int) -> list[int]:
    """The whole row again for each token, no cache."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(built(torch.tensor([ids]))[0, -1].argmax()))
    return ids[-count:]


def test_greedy_equals_the_loop_without_a_cache() -> None:
    built = model()
    for length in (1, 4, 5, 23):
        assert generate(built, [prompt(length)], NEW, end_ids=()) == [greedy_by_hand(built, prompt(length), NEW)]


def test_left_padded_batch_equals_each_alone() -> None:
    built, prompts = model(), [prompt(n, seed=n) for n in (3, 17, 30, 1)]
    together = generate(built, prompts, NEW, end_ids=())
    assert together == [generate(built, [p], NEW, end_ids=())[0] for p in prompts]


def test_temperature_zero_ignores_the_seed() -> None:
    built = model()
    assert generate(built, [prompt(5)], 9, seed=1, end_ids=()) == generate(built, [prompt(5)], 9, seed=2, end_ids=())


def test_seed_makes_sampling_repeatable() -> None:
    built, prompts = model(), [prompt(5), prompt(8)]

    def run(seed: int | None) -> list[list[int]]:
        return generate(built, prompts, NEW, temperature=1.0, seed=seed, end_ids=())

    assert run(3) == run(3)
    assert run(3) != run(4)
    assert run(None) != run(None)


def test_sampling_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    generate(model(), [prompt(5)], 4, temperature=1.0, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_sampled_tokens_stay_inside_top_k() -> None:
    built, start = model(), prompt(5)
    best = set(built(torch.tensor([start]))[0, -1].topk(3).indices.tolist())
    firsts = {generate(built, [start], 1, temperature=5.0, top_k=3, seed=s, end_ids=())[0][0] for s in range(40)}
    assert firsts == best
    assert {generate(built, [start], 1, temperature=5.0, top_k=1, seed=s, end_ids=())[0][0] for s in range(5)} < best


def test_samples_follow_the_distribution() -> None:
    """A batch of 2,000 equal prompts, one token each, against the probabilities of the model's own logits."""
    built, start = model(), prompt(5)
    p = probabilities(built(torch.tensor([start]))[0, -1], temperature=2.0).detach()
    drawn = generate(built, [start] * 2000, 1, temperature=2.0, seed=0, end_ids=())
    share = torch.bincount(torch.tensor(drawn).flatten(), minlength=101) / 2000
    assert largest_difference(share, p) < 0.04


def test_greedy_differs_with_the_context_before_it() -> None:
    """Not a lookup of the last token: the same last token after another text goes on differently."""
    built = model()
    one, other = ([*prompt(9, seed), 5] for seed in (0, 1))
    assert generate(built, [one], 8, end_ids=()) != generate(built, [other], 8, end_ids=())


# --- ends -------------------------------------------------------------------------------------------------------------

# The same draws in each run, so that rows can be compared token by token.
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 0}


def cut(row: list[int], ends: list[int]) -> list[int]:
    """The row up to and with its first end token."""
    return row[: next((i for i, token in enumerate(row) if token in ends), len(row)) + 1]


def test_a_row_stops_at_its_end_token_and_the_others_go_on() -> None:
    built, prompts = model(), [prompt(n, seed=n) for n in (3, 17, 30)]
    free = generate(built, prompts, NEW, end_ids=(), **SAMPLED)
    ends = [free[0][4]]
    expected = [cut(row, ends) for row in free]
    assert len(expected[0]) <= 5 < max(map(len, expected))
    assert generate(built, prompts, NEW, end_ids=ends, **SAMPLED) == expected


def test_any_of_several_end_tokens() -> None:
    built, prompts = model(), [prompt(n, seed=n) for n in (3, 17, 30)]
    free = generate(built, prompts, NEW, end_ids=(), **SAMPLED)
    ends = [free[0][4], free[1][9], free[2][1]]
    stopped = generate(built, prompts, NEW, end_ids=ends, **SAMPLED)
    assert stopped == [cut(row, ends) for row in free]
    assert all(row[-1] in ends for row in stopped)


def test_the_configs_end_tokens_are_the_default() -> None:
    """TINY ends at 91 and at 92: lift either over all others and every row ends at once."""
    for end in TINY.eos_ids:
        built = model(final_logit_softcap=None)
        with torch.no_grad():
            direction = built.trace(torch.tensor([prompt(5)]))["final_norm"][0, -1]
            built.embed.weight[end] = direction * 100
        assert generate(built, [prompt(5)], NEW) == [[end]]
        assert len(generate(built, [prompt(5)], 6, end_ids=())[0]) == 6


def test_stops_only_when_all_are_done() -> None:
    built, prompts = model(), [prompt(n, seed=n) for n in (3, 17)]
    free = generate(built, prompts, NEW, end_ids=(), **SAMPLED)
    ends, calls = [free[0][0], free[1][3]], []
    original = built.forward
    built.forward = lambda *a, **kw: calls.append(1) or original(*a, **kw)  # type: ignore
    stopped = generate(built, prompts, NEW, end_ids=ends, **SAMPLED)
    assert stopped == [cut(row, ends) for row in free]
    assert len(calls) == max(map(len, stopped)) < NEW


# --- cost and refusals ------------------------------------------------------------------------------------------------


def test_only_the_last_position_is_projected() -> None:
    """No tensor of V entries for each position of a prompt: at 32,768 × 128,256 it would be 16.8 GB."""
    for prompts in ([prompt(37)], [prompt(37), prompt(11)]):
        with Watch() as watch:
            generate(model(), prompts, 3, temperature=1.0, top_k=5, top_p=0.9, seed=0)
        wide = {shape for shape in watch.shapes if shape[-1:] == (101,)} - {(48, 101)}  # that one is the weight
        assert wide and max(math.prod(shape) for shape in wide) == len(prompts) * 101


def test_the_prompt_is_read_once() -> None:
    built, lengths = model(), []
    original = built.forward
    built.forward = lambda tokens, *a, **kw: lengths.append(tokens.shape[1]) or original(tokens, *a, **kw)  # type: ignore
    generate(built, [prompt(37)], 5, end_ids=())
    assert lengths == [37, 1, 1, 1, 1]


def test_progress_display(capsys: pytest.CaptureFixture[str]) -> None:
    generate(model(), [prompt(5)], 3, progress=True, end_ids=())
    assert "3/3" in capsys.readouterr().err
    generate(model(), [prompt(5)], 3, end_ids=())
    assert capsys.readouterr().err == ""


def test_prompts_stay_as_they_were() -> None:
    prompts = [prompt(3), prompt(7)]
    before = [list(p) for p in prompts]
    generate(model(), prompts, 4)
    assert prompts == before


def test_bfloat16() -> None:
    (row,) = generate(model().bfloat16(), [prompt(9)], 12, end_ids=())
    assert len(row) == 12


@pytest.mark.parametrize(
    ("prompts", "settings", "words"),
    [
        ([], {}, "at least one token"),
        ([[1], []], {}, "at least one token"),
        ([[1]], {"max_new_tokens": 0}, "max_new_tokens"),
        ([[1]], {"temperature": -1.0}, "temperature"),
        ([[1]], {"temperature": math.nan}, "temperature"),
        ([[1]], {"temperature": 1.0, "top_p": 0.0}, "top_p"),
        ([[1]], {"temperature": 1.0, "top_k": 0}, "top_k"),
        ([[1]], {"top_k": 0}, "top_k"),
        ([[1]], {"top_p": 2.0}, "top_p"),
        ([[1] * 2000], {"max_new_tokens": 600}, "2560"),
        ([[101]], {}, "vocabulary"),
    ],
)
def test_refusals(prompts: list[list[int]], settings: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        generate(rnj.build(TINY), prompts, **{"max_new_tokens": 4, **settings})


# --- fill in the middle -----------------------------------------------------------------------------------------------


def test_fill_in_the_middle_asks_for_the_middle() -> None:
    """The model sees prefix, suffix, middle in this order, and the answer is text without the end token."""
    tokenizer = load_tokenizer()
    built = rnj.build(rnj.SMALL, random_norms=True)
    seen: list[Tensor] = []
    original = built.forward
    built.forward = lambda tokens, *a, **kw: seen.append(tokens) or original(tokens, *a, **kw)  # type: ignore
    text = fill_in_the_middle(built, tokenizer, "def add(a, b):\n", "\n    return c\n", max_new_tokens=5)
    ids = seen[0][0].tolist()
    special = tokenizer.special
    where = [ids.index(special[f"<|fim_{part}|>"]) for part in ("prefix", "suffix", "middle")]
    assert where == sorted(where) and where[2] == len(ids) - 1
    assert tokenizer.decode(ids[where[0] + 1 : where[1]]) == "def add(a, b):\n"
    assert tokenizer.decode(ids[where[1] + 1 : where[2]]) == "\n    return c\n"
    made = generate(built, [ids], 5)[0]
    assert text == tokenizer.decode([i for i in made if i not in special.values()])


def test_fill_in_the_middle_leaves_the_end_token_out() -> None:
    tokenizer = load_tokenizer()
    built = rnj.build(rnj.SMALL, random_norms=True)
    end = rnj.SMALL.eos_ids[0]
    with torch.no_grad():
        direction = built.trace(torch.tensor([rnj.text.fim("a", "", "b", tokenizer)]))["final_norm"][0, -1]
        built.embed.weight[end] = direction * 100
    assert fill_in_the_middle(built, tokenizer, "a", "b") == ""


@pytest.mark.parametrize("top_p", [1e-300, 5e-324, 1e-46])
def test_the_smallest_top_p_keeps_the_first(top_p: float) -> None:
    assert probabilities(torch.tensor([1.0, 2.0, 3.0]), top_p=top_p).tolist() == [0, 0, 1]


@pytest.mark.parametrize("temperature", [1e-46, 1e-100, 5e-324])
def test_the_smallest_temperature_is_greedy(temperature: float) -> None:
    assert probabilities(torch.tensor([1.0, 3.0, 2.0]), temperature).tolist() == [0, 1, 0]


@pytest.mark.parametrize("prompts", ["def f(", ["def f("], [1, 2, 3]])
def test_prompts_are_lists_of_ids(prompts: Any) -> None:
    with pytest.raises(ValueError, match="prompts are a list of lists of ids"):
        generate(rnj.build(TINY), prompts, 3)


def test_a_model_with_nan_is_refused() -> None:
    built = rnj.build(TINY)
    with torch.no_grad():
        built.final_norm.weight[3] = float("nan")
    with pytest.raises(ValueError, match="logits are not finite"):
        generate(built, [[1, 2]], 3)


def test_special_tokens_are_no_text() -> None:
    """A filled middle holds none of them, whatever the model says."""
    tokenizer = load_tokenizer()
    built = rnj.build(rnj.SMALL, random_norms=True)
    with torch.no_grad():
        built.embed.weight[: tokenizer.pad_id] *= 0.01
    assert "<|" not in fill_in_the_middle(built, tokenizer, "a", "b", max_new_tokens=4)
