"""The complete model on a GPU: `python -m rnj.gpu_check`, or `make gpu-check`. Chapter 7 shows the same rows.

On a CUDA device it asserts that the small model gives the CPU's logits, and, with a card of 24 GB or more, builds the
full shape in bfloat16 directly on the device, runs it forward, generates 16 tokens with the cache, and asserts
parameters and bytes. Without one it says what would run and counts the full shape on the meta device.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from rnj import accounting
from rnj.cache import KVCache
from rnj.config import RNJ_1_5, SMALL, Config
from rnj.generate import generate
from rnj.model import Transformer, build, meta

# Largest difference of float32 logits, which lie within ±30: two devices sum in different orders, about 1e-5 a logit.
# TF32 in place of float32 would show as about 1e-2, a wrong eps as 7e-4.
TOLERANCE = 2e-4
PROMPT_TOKENS = 64  # of the forward pass of the full shape
NEW_TOKENS = 16
SMALL_LENGTH = 400  # more than three blocks of the small model, and no multiple of its block size
CARD_BYTES = 23.5e9  # cards sold as 24 GB report 23.6e9 bytes and more
SPARE_BYTES = 1.5e9  # beside weights and cache: activations, kernels' workspace, logits


Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """One line of the table. ok is None where nothing is asserted."""

    what: str
    found: str
    expected: str = ""
    ok: bool | None = None


def check(where: torch.device | str | None = None, small: Config = SMALL, full: Config = RNJ_1_5) -> list[Row]:
    """All rows for a device: the first CUDA device if None, and the meta device's numbers where there is none.

    Nothing is raised for a failed comparison: a row with ok False says it. `failed(rows)` collects them.
    With where="cpu" and small configs the same code runs on a CPU.
    """
    if where is None and not torch.cuda.is_available():
        return without_gpu(small, full)
    device = torch.device("cuda" if where is None else where)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    rows = [Row("device", device_name(device))]
    rows += check_small(small, device)
    missing = room_for(full, device)
    if missing:
        return [*rows, Row("full shape in bfloat16", f"not run: {missing}"), *count(full)]
    return rows + check_full(full, device)


def failed(rows: list[Row]) -> list[Row]:
    """The rows whose comparison did not hold."""
    return [row for row in rows if row.ok is False]


def device_name(device: torch.device) -> str:
    """The GPU's name and memory, or the word for another device."""
    if device.type != "cuda":
        return device.type
    card = torch.cuda.get_device_properties(device)
    return (
        f"{card.name}, {card.total_memory / accounting.GB:.1f} GB, torch {torch.__version__}, CUDA {torch.version.cuda}"
    )


def without_gpu(small: Config, full: Config) -> list[Row]:
    """What would run, and the full shape counted without its memory."""
    return [
        Row("device", "no CUDA device: what follows was counted on the meta device, not run"),
        Row("would run", f"the small model ({accounting.parameters(small).total:,} parameters) on the GPU, its logits"),
        Row("", f"within {TOLERANCE} of the CPU's in float32"),
        Row("would run, from 24 GB of GPU memory", "the full shape in bfloat16, built on the GPU with random weights:"),
        Row("", f"forward over {PROMPT_TOKENS} tokens, then {NEW_TOKENS} new tokens with the cache"),
        *count(full),
    ]


def count(config: Config) -> list[Row]:
    """Parameters and bytes of a shape: numel on the meta device and a cache there, against `rnj.accounting`."""
    model = meta(config).to(torch.bfloat16)
    cache = KVCache(config, max_length=PROMPT_TOKENS + NEW_TOKENS, dtype=torch.bfloat16, device="meta")
    return _counted(config, model, cache)


def check_small(config: Config, device: torch.device) -> list[Row]:
    """Logits of the same weights on the CPU and on the device, at once and through the cache, in true float32."""
    on_cpu = build(config, seed=0, random_norms=True)
    on_device = build(config, seed=0, random_norms=True).to(device)
    length = min(SMALL_LENGTH, config.max_positions)
    tokens = torch.randint(config.vocab_size, (1, length), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode(), float32_without_tf32():
        expected = on_cpu(tokens)  # [1, T, V]
        at_once = on_device(tokens.to(device)).cpu()
        cache = KVCache(on_device.config, max_length=length, device=device)
        pieces = [on_device(piece, cache=cache).cpu() for piece in tokens.to(device).split(length // 3 + 1, dim=1)]
    rows = []
    for what, logits in (("at once", at_once), ("in three pieces with the cache", torch.cat(pieces, dim=1))):
        error = (logits - expected).abs().max().item()
        name = f"small model, {length} tokens {what}: largest difference from the CPU's logits"
        rows.append(Row(name, f"{error:.1e}", f"≤ {TOLERANCE}", error <= TOLERANCE))  # False for NaN as well
    return rows


def room_for(config: Config, device: torch.device) -> str:
    """Empty if the full shape in bfloat16 fits on the device, else what is missing."""
    if device.type != "cuda":
        return ""
    card = torch.cuda.get_device_properties(device).total_memory
    if card < CARD_BYTES:
        return f"it needs a card of 24 GB, this one has {card / accounting.GB:.1f} GB"
    free, _ = torch.cuda.mem_get_info(device)
    needed = (
        accounting.weight_bytes(config) + accounting.kv_cache_bytes(config, PROMPT_TOKENS + NEW_TOKENS) + SPARE_BYTES
    )
    if free < needed:
        return f"it needs {needed / accounting.GB:.1f} GB free, {free / accounting.GB:.1f} GB are: others use this card"
    return ""


def check_full(config: Config, device: torch.device) -> list[Row]:
    """The full shape in bfloat16 with random weights, made on the device: no copy of it is ever on the CPU."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if on_gpu else 0
    model, seconds = _timed(lambda: build(config, seed=0, dtype=torch.bfloat16, device=device), device)
    cache = KVCache(config, max_length=PROMPT_TOKENS + NEW_TOKENS, dtype=torch.bfloat16, device=device)
    rows = [*_counted(config, model, cache), Row("build on the device", f"{seconds:.2f} s")]
    places = {str(weight.device) for weight in model.parameters()}
    types = {str(weight.dtype) for weight in model.parameters()}
    rows.append(_equal("device of all weights", ", ".join(sorted(places)), str(device)))
    rows.append(_equal("dtype of all weights", ", ".join(sorted(types)), "torch.bfloat16"))

    prompt_length = min(PROMPT_TOKENS, config.max_positions - NEW_TOKENS)
    prompt = torch.randint(config.vocab_size, (1, prompt_length), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        logits, seconds = _timed(lambda: model(prompt.to(device), cache=cache), device)  # [1, T, V]
    rows.append(Row(f"forward, {prompt_length} tokens", f"{seconds:.3f} s"))
    rows.append(_equal("shape of the logits", str(list(logits.shape)), str([1, prompt_length, config.vocab_size])))
    rows.append(_equal("dtype of the logits", str(logits.dtype), "torch.float32"))
    rows.append(_equal("tokens in the cache", str(cache.length), str(prompt_length)))
    largest = logits.abs().max().item()  # NaN or infinity fails the comparison
    cap = config.final_logit_softcap or sys.float_info.max
    rows.append(Row("largest logit", f"{largest:.2f}", f"finite, ≤ {cap:g}", largest <= cap))
    if not rows[-1].ok:
        return rows  # nothing can be sampled from such logits

    new, seconds = _timed(lambda: generate(model, prompt.tolist(), NEW_TOKENS, end_ids=())[0], device)
    rows.append(_equal("tokens generated with the cache", str(len(new)), str(NEW_TOKENS)))
    known = all(0 <= token < config.vocab_size for token in new)
    rows.append(Row("all of them in the vocabulary", "yes" if known else "no", "yes", known))
    rows.append(Row("generation, prompt included", f"{seconds:.2f} s, {NEW_TOKENS / seconds:.1f} tokens/s"))
    if on_gpu:
        peak = torch.cuda.max_memory_allocated(device) - before
        limit = accounting.weight_bytes(config) + cache.nbytes + int(SPARE_BYTES)
        rows.append(Row("peak of GPU memory", f"{peak:,} B", f"≤ {limit:,} B", peak <= limit))
    return rows


@contextmanager
def float32_without_tf32() -> Iterator[None]:
    """Matrix products of float32 in float32, whatever was set before; the setting comes back afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def table(rows: list[Row]) -> str:
    """The rows as plain text."""
    mark = {True: "ok", False: "FAILED", None: ""}
    cells = [("what", "found", "expected", ""), *((row.what, row.found, row.expected, mark[row.ok]) for row in rows)]
    widths = [max(len(cell[i]) for cell in cells) for i in range(4)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(cell, widths)).rstrip() for cell in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def main() -> int:
    """Print the table; 0 if nothing failed (or there is no GPU), 1 if a comparison did."""
    rows = check()
    print(table(rows))
    wrong = failed(rows)
    if wrong:
        print(f"{len(wrong)} of {sum(row.ok is not None for row in rows)} comparisons failed.")
        return 1
    print(f"All {sum(row.ok is not None for row in rows)} comparisons hold.")
    if not torch.cuda.is_available():
        print("Nothing ran on a GPU: run this again on a machine that has one.")
    return 0


def _counted(config: Config, model: Transformer, cache: KVCache) -> list[Row]:
    parameters = sum(weight.numel() for weight in model.parameters())
    nbytes = sum(weight.nbytes for weight in model.parameters())
    bf16 = accounting.kv_cache_bytes(config, cache.max_length, cache.batch)
    return [
        _equal("parameters", f"{parameters:,}", f"{accounting.parameters(config).total:,}"),
        _equal("bytes of the weights in bfloat16", f"{nbytes:,}", f"{accounting.weight_bytes(config):,}"),
        _equal(f"bytes of the cache for {cache.max_length} tokens", f"{cache.nbytes:,}", f"{bf16:,}"),
    ]


def _equal(what: str, found: str, expected: str) -> Row:
    return Row(what, found, expected, found == expected)


def _timed(work: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """What `work` returns, and its seconds: the clock stops when the device has finished."""
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
