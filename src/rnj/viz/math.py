"""Figures and steppers of chapter 7: the whole model, its cache, and what can be counted about both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from rnj import accounting, facts
from rnj.accounting import ATTENTION_COUNTS, GIB, AttentionCount, DenseModel, TrainingRun, all_global
from rnj.cache import KVCache
from rnj.config import RNJ_1_5, SMALL, Config
from rnj.model import build
from rnj.viz.card import at_token
from rnj.viz.figure import NARROW, WIDE, Shown, arrow, glow, heading, label, limits, lit_box, panels, show
from rnj.viz.palette import (
    FAINT,
    GLOBAL,
    INK,
    KEY,
    LIT,
    LOCAL,
    MUTED,
    NEGATIVE,
    PAPER,
    POSITIVE,
    QUERY,
    VALUE,
)
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

LONGEST = RNJ_1_5.max_positions


def _block(ax: Axes, x: float, y: float, w: float, h: float, colour: str, alpha: float = 1.0, **look: Any) -> None:
    """A filled rectangle whose corner is at (x, y)."""
    ax.add_patch(Rectangle((x, y), w, h, facecolor=colour, alpha=alpha, edgecolor="none", clip_on=False, **look))


def gib(nbytes: float) -> str:
    """Bytes in GiB as the figures write them: 5.75 GiB, 20 GiB."""
    text = f"{nbytes / GIB:,.2f}"
    return f"{text.rstrip('0').rstrip('.')} GiB"


# The followed token, all the way -------------------------------------------------------------------------------------


def journey_figure(trace: Mapping[str, Tensor], config: Config, token: int) -> Shown:
    """The norm of the followed token's vector after each sum of the residual stream, and of what each sum added.

    trace: from Transformer.trace; token: its place in row 0.
    """
    stream = [at_token(trace, "embed", token).norm().item()]
    added = []
    for i in range(config.n_layers):
        for what, after in (("post_attn_norm", "mid"), ("post_mlp_norm", "out")):
            added.append(at_token(trace, f"block.{i}.{what}", token).norm().item())
            stream.append(at_token(trace, f"block.{i}.{after}", token).norm().item())
    fig, ax = panels(WIDE, 3.3, left=0.075, right=0.985, top=0.85, bottom=0.15)
    top, steps = max(stream) * 1.12, len(added)
    ax.set(xlim=(-0.9, steps + 0.6), ylim=(0, top))
    for i, kind in enumerate(config.layer_types):
        colour = GLOBAL if kind == "global" else LOCAL
        _block(ax, 2 * i + 0.56, 0, 1.88, top, colour, 0.08, zorder=0)
        _block(ax, 2 * i + 0.56, -0.02 * top, 1.88, 0.02 * top, colour)
        label(ax, 2 * i + 1.5, -0.035 * top, f"block {i}", colour, ha="center", va="top", fontsize=8)
        label(ax, 2 * i + 1.5, -0.095 * top, kind, colour, ha="center", va="top", fontsize=8)
    for i, norm in enumerate(added):
        _block(ax, i + 0.8, 0, 0.4, norm, POSITIVE, 0.45)
    ax.plot(range(len(stream)), stream, color=LIT, lw=1.4, marker="o", ms=3.4, zorder=4)
    for x, norm, side in ((0, stream[0], "right"), (steps, stream[-1], "right")):
        label(ax, x, norm + 0.055 * top, f"{norm:.1f}", ha="center" if x == 0 else side, lit=True, fontsize=9)
    label(ax, 0, -0.035 * top, "embed", MUTED, "center", "top", fontsize=8)
    heading(
        ax,
        "The norm of one token's vector, block by block",
        "line: the residual stream; bars: what attention (left) and the MLP (right) add",
    )
    return show(
        fig,
        f"The followed token's residual stream begins with norm {stream[0]:.1f} and has {stream[-1]:.1f} after "
        f"{config.n_layers} blocks; each attention and each MLP adds a vector whose norm is drawn as a bar.",
    )


# Generating ----------------------------------------------------------------------------------------------------------


def work_figure(positions: Sequence[int], without: Sequence[int], with_cache: Sequence[int], edge: int) -> Shown:
    """FLOPs of each new token without a cache and with one; `edge` is where the local layers drop a block."""
    fig, (above, below) = panels(
        4.8, 4.0, rows=2, bare=False, left=0.13, right=0.84, top=0.86, bottom=0.11, hspace=0.75
    )
    for ax, work, colour, unit, name, size in (
        (above, without, POSITIVE, 1e9, "GFLOP", "billions"),
        (below, with_cache, LOCAL, 1e6, "MFLOP", "millions"),
    ):
        scaled = [w / unit for w in work]
        ax.plot(positions, scaled, color=colour, marker="o", ms=2.4, lw=1.1)
        ax.set(xlim=(positions[0] - 0.6, positions[-1] + 0.6), ylim=(0, 1.22 * max(scaled)))
        ax.set_xticks([positions[0], edge, positions[-1]])
        label(ax, positions[-1] + 1, scaled[-1], f"{scaled[-1]:.2f}\n{name}", colour, fontsize=9)
        where = "without a cache" if ax is above else "with the cache"
        heading(ax, f"{where.capitalize()}: {sum(work) / 1e9:,.2f} GFLOP", f"{size} a token, by the token's position")
    at = list(positions).index(edge)
    below.annotate(
        "local layers drop a block", (edge, with_cache[at] / 1e6), (8, -24), textcoords="offset points",
        fontsize=8.5, color=MUTED, arrowprops={"arrowstyle": "-", "lw": 0.6, "color": MUTED, "shrinkB": 3},
    )  # fmt: skip
    return show(
        fig,
        f"Work for each of {len(positions)} new tokens: {sum(without):,} FLOPs in all without a cache, "
        f"{sum(with_cache):,} with one, and a step down at position {edge}.",
    )


# The cache -----------------------------------------------------------------------------------------------------------


def kv_cache_figure(config: Config = RNJ_1_5, tokens: int = LONGEST) -> Shown:
    """What a token leaves in one layer's cache, and what all layers hold at a context of `tokens`: areas are bytes."""
    fig, (one, layers) = panels(
        6.6, 5.2, rows=2, left=0.02, right=0.8, top=0.9, bottom=0.03, hspace=0.34, height_ratios=(1, 2.9)
    )
    K, H = config.n_kv_heads, config.head_dim
    each = accounting.kv_bytes_per_token_per_layer(config)
    limits(one, -0.12, 2 * K + 1.5, -0.3, 2.0, equal=False)
    for first, colour, name in ((0, KEY, "keys"), (K + 1, VALUE, "values")):
        for head in range(K):
            _block(one, first + head + 0.05, 0, 0.9, 1, colour, 0.75)
            label(one, first + head + 0.5, 0.5, str(H), PAPER, "center", fontsize=8)
        label(one, first, 1.45, f"{K} {name} of {H} numbers", colour, fontsize=9)
    lit_box(one, -0.12, -0.14, 2 * K + 1.24, 1.28)
    label(one, 2 * K + 1.45, 0.3, f"{each:,} B", lit=True, fontsize=10)
    label(one, 2 * K + 1.45, 0.86, "in bfloat16", fontsize=8.5)
    heading(one, "One token in one layer", f"2 · {K} heads · {H} numbers · 2 bytes")

    n = config.n_layers
    limits(layers, 0, tokens, 0, n, equal=False)
    for i, kind in enumerate(config.layer_types):
        held = accounting.kv_cache_tokens(config, tokens, kind)
        _block(layers, 0, i + 0.12, tokens, 0.76, FAINT, 0.7)
        _block(layers, 0, i + 0.12, held, 0.76, GLOBAL if kind == "global" else LOCAL, 0.9)
    parts = {
        kind: sum(accounting.kv_cache_tokens(config, tokens, k) for k in config.layer_types if k == kind) * each
        for kind in ("local", "global")
    }
    count = {kind: config.layer_types.count(kind) for kind in parts}
    span = accounting.kv_cache_tokens(config, tokens, "local")
    x = tokens * 1.025
    lines: list[tuple[float, str, str, bool]] = [
        (2.6, f"{count['global']} global layers", GLOBAL, False),
        (4.8, f"· {tokens:,} tokens", GLOBAL, False),
        (7.0, f"= {gib(parts['global'])}", GLOBAL, False),
        (11.4, f"{count['local']} local layers", LOCAL, False),
        (13.6, f"· {span:,} tokens", LOCAL, False),
        (15.8, f"= {gib(parts['local'])}", LOCAL, False),
        (20.2, f"{gib(sum(parts.values()))} in all", MUTED, True),
        (24.6, "all-global, with", MUTED, False),
        (26.8, "the grey filled in:", MUTED, False),
        (29.0, gib(accounting.kv_cache_bytes(all_global(config), tokens)), MUTED, False),
    ]
    for y, text, colour, lit in lines:
        label(layers, x, y * n / 32, text, colour, lit=lit, fontsize=9)
    heading(layers, f"All {n} layers at {tokens:,} tokens", "one line a layer, tokens to the right: area is bytes")
    return show(
        fig,
        f"One token leaves {each:,} bytes in each layer. At {tokens:,} tokens {count['global']} global layers hold all "
        f"of them, {gib(parts['global'])}, and {count['local']} local layers {span:,} each, {gib(parts['local'])}.",
    )


CONTEXTS = (1024, 2048, 4096, 8192, 12_288, 16_384, 32_768, 65_536, 98_304, 131_072, 163_840)
H100_MEMORY = facts.number("H100, memory") * accounting.GB


def cache_kinds(config: Config = RNJ_1_5) -> dict[str, Config]:
    """The models whose caches are compared: name → config."""
    return {"all-global": all_global(config), "hybrid": config, "hybrid, MQA": replace(config, n_kv_heads=1)}


def cache_stepper() -> Stepper:
    """Context length and batch → bytes of the cache for all-global, hybrid and multi-query layers, to scale in log."""
    kinds, colours = cache_kinds(), {"all-global": GLOBAL, "hybrid": LOCAL, "hybrid, MQA": KEY}
    room = H100_MEMORY - accounting.weight_bytes(RNJ_1_5)

    def draw(context: int, batch: int) -> Frame:
        sizes = {name: accounting.kv_cache_bytes(config, context, batch) for name, config in kinds.items()}
        fig, ax = panels(4.9, 3.3, bare=False, left=0.13, right=0.68, top=0.85, bottom=0.1)
        for name, config in kinds.items():
            curve = [accounting.kv_cache_bytes(config, c, batch) / GIB for c in CONTEXTS]
            ax.plot(CONTEXTS, curve, color=colours[name], lw=1.1)
            ax.plot([context], [sizes[name] / GIB], "o", color=colours[name], ms=5)
        ax.set(xscale="log", yscale="log", xlim=(1024, LONGEST), ylim=(0.005, 1000))
        ax.set_xticks([1024, 8192, 32_768, 163_840], ["1,024", "8,192", "32,768", "163,840"])
        ax.set_yticks([0.01, 0.1, 1, 10, 100, 1000], ["0.01", "0.1", "1", "10", "100", "1,000"])
        ax.tick_params(which="minor", length=0)
        ax.minorticks_off()
        ax.plot([context] * 2, [0.005, max(sizes.values()) / GIB], color=LIT, lw=0.8, zorder=1)
        ax.axhline(room / GIB, color=MUTED, lw=0.8, ls=(0, (4, 3)))
        places = _apart([sizes[name] / GIB for name in kinds], 2.3)
        for name, y in zip(kinds, places, strict=True):
            look: Any = {"color": colours[name], "fontsize": 8.5, "va": "center", "clip_on": False}
            weight = "bold" if name == "hybrid" else "normal"
            ax.text(LONGEST * 1.08, y, f"{name} {gib(sizes[name])}", weight=weight, **look)
        ax.text(1150, room / GIB * 1.15, f"80 GB less the weights: {gib(room)}", color=MUTED, fontsize=8, va="bottom")
        heading(ax, f"{context:,} tokens a row", f"GiB; batch {batch}, bfloat16; both axes are logarithmic")
        fits = [name for name in kinds if sizes[name] <= room]
        text = f"Beside the weights, and before any activations, fit: {'; '.join(fits) or 'none of them'}."
        numbers = {f"{name}, bytes": size for name, size in sizes.items()}
        return Frame(fig, text, numbers, f"Cache bytes at {context:,} tokens: {_listed(sizes)}.")

    return Stepper(
        "How much the cache takes",
        [Slider("context", CONTEXTS, value=32_768, unit="tokens"), Choice("batch", [1, 8, 32])],
        draw,
        name="cache-bytes",
    )


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {gib(size)}" for name, size in sizes.items())


def _apart(values: Sequence[float], factor: float) -> list[float]:
    """Places for labels on a logarithmic axis, in the order of falling values, at least `factor` apart."""
    places: list[float] = []
    for value in values:
        places.append(min(value, places[-1] / factor) if places else value)
    return places


FILLING = replace(SMALL, n_layers=4, layer_types=(), block_size=4)
FILLING_TEXT = "def f(name):\n    return name\n\nprint(f(7), f(10))"  # begins as the running row's second document does
FILLING_TOKEN = 6  # " return" in it: the followed token
FILLING_STEPS = 20


@cache
def filling(steps: int = FILLING_STEPS) -> tuple[list[str], list[dict[str, Any]]]:
    """A real cache driven token by token: the tokens' labels, and after each step what each kind of layer holds.

    Each entry: kind → (first column held, tokens held), for layers 0 (local) and 3 (global) of FILLING.
    """
    from rnj.text import load_tokenizer

    tokenizer = load_tokenizer()
    ids = [tokenizer.bos_id, *tokenizer.encode(FILLING_TEXT), tokenizer.eos_id][:steps]
    names = ["begin", *(tokenizer.token(i) for i in ids[1:])]
    names = ["end" if i == tokenizer.eos_id else name for i, name in zip(ids, names, strict=True)]
    model = build(FILLING, seed=0)
    kept = KVCache(FILLING, max_length=len(ids))
    held = []
    with torch.inference_mode():
        for i in ids:
            model(torch.tensor([[i]]), cache=kept, last_only=True)
            held.append({kind: (kept.first(layer), kept.held(layer)) for kind, layer in (("local", 0), ("global", 3))})
    return names, held


def filling_stepper() -> Stepper:
    """The step of generation → the cache filling: a local layer drops a block at once, a global one never does."""
    config = FILLING
    C = config.block_size
    each = accounting.kv_bytes_per_token_per_layer(config, 4)

    def draw(step: int) -> Frame:
        names, states = filling()
        n, state = len(names), states[step]
        before = states[step - 1] if step else {"local": (0, 0), "global": (0, 0)}
        gone = state["local"][0] - before["local"][0]
        fig, ax = panels(5.0, 3.6, left=0.02, right=0.98, top=0.87, bottom=0.02)
        limits(ax, -2.9, n + 0.1, 0.2, 11.9, equal=False)
        for block in range(0, n, C):
            width = min(C, n - block)
            _block(ax, block + 0.06, 3.05, width - 0.12, 0.09, MUTED)
            label(ax, block + width / 2, 3.5, f"block {block // C}", ha="center", fontsize=8)
        for i, name in enumerate(names):
            shown_now = LIT if i == FILLING_TOKEN else INK if i <= step else MUTED
            ax.text(
                i + 0.5, 2.8, name, rotation=90, ha="center", va="bottom", fontsize=8.5, color=shown_now,
                weight="bold" if i == FILLING_TOKEN else "normal", alpha=1.0 if i <= step else 0.45,
            )  # fmt: skip
        for top, kind, colour in ((5.2, "local", LOCAL), (8.7, "global", GLOBAL)):
            first, held = state[kind]
            for part, (y, hue) in enumerate(((top, KEY), (top + 1.05, VALUE))):
                label(ax, -0.25, y + 0.45, "values" if part else "keys", hue, ha="right", fontsize=8.5)
                for i in range(n):
                    here = first <= i < first + held
                    _block(ax, i + 0.06, y, 0.88, 0.9, hue if here else FAINT, 0.8 if here else 0.6)
                    if kind == "local" and first - gone <= i < first:
                        ax.plot([i + 0.3, i + 0.7], [y + 0.25, y + 0.65], color=NEGATIVE, lw=1.3)
                        ax.plot([i + 0.3, i + 0.7], [y + 0.65, y + 0.25], color=NEGATIVE, lw=1.3)
            label(ax, 0.06, top - 0.6, f"a {kind} layer holds {held}", colour, lit=True, fontsize=9)
            lit_box(ax, FILLING_TOKEN, top - 0.08, 1, 2.11)
        arrow(ax, (step + 0.5, 11.8), (step + 0.5, 10.95), colour=INK, lw=1.2)
        heading(ax, f"After token {step}, {names[step]}", f"blocks of {C}; a local layer holds {2 * C} at most")
        if gone:
            text = f"Token {step} opens block {step // C}: before it is written, the local layers drop {gone} tokens."
        else:
            text = f"Token {step} is written in every layer; nothing is dropped."
        if state["local"][0] > FILLING_TOKEN:
            text += " The followed token is in the global layer only."
        numbers = {
            "local layer holds": state["local"][1],
            "global layer holds": state["global"][1],
            "dropped now": gone,
            "bytes in use, 3 local and 1 global": (3 * state["local"][1] + state["global"][1]) * each,
        }
        alt = f"After token {step} a local layer holds {state['local'][1]} tokens, a global one {state['global'][1]}."
        return Frame(fig, text, numbers, alt)

    return Stepper(
        "A cache fills, token by token",
        [Slider("step", range(FILLING_STEPS), value=8, label="token", play=True, ms=900)],
        draw,
        name="cache-filling",
    )


# Parameters ----------------------------------------------------------------------------------------------------------


def matrices(config: Config) -> dict[str, tuple[int, str, float]]:
    """The seven matrices of a layer: name → (parameters, colour, strength)."""
    d, f = config.d_model, config.d_ff
    q, kv = d * config.n_heads * config.head_dim, d * config.n_kv_heads * config.head_dim
    return {
        "q": (q, QUERY, 0.8),
        "k": (kv, KEY, 0.8),
        "v": (kv, VALUE, 0.8),
        "o": (q, QUERY, 0.35),
        "gate": (d * f, POSITIVE, 0.85),
        "up": (d * f, POSITIVE, 0.6),
        "down": (d * f, POSITIVE, 0.35),
    }


def parameters_figure(config: Config = RNJ_1_5) -> Shown:
    """All parameters to scale: one column a layer, its seven matrices stacked, beside the embedding. Area is count."""
    fig, ax = panels(WIDE, 3.9, left=0.015, right=0.8, top=0.79, bottom=0.1)
    parts, counted = matrices(config), accounting.parameters(config)
    unit = config.d_model**2
    height = sum(size for size, _, _ in parts.values()) / unit
    wide = counted.embedding / unit / height  # the embedding as a strip of the same height
    n, left = config.n_layers, wide + 0.9
    limits(ax, 0, left + n, 0, height, equal=False)
    _block(ax, 0, 0, wide, height, MUTED, 0.35)
    ax.text(
        wide / 2, height / 2, f"embedding and head, {config.vocab_size:,} rows", rotation=90, ha="center", va="center",
        fontsize=8.5, color=INK,
    )  # fmt: skip
    middle: dict[str, float] = {}
    for layer in range(n):
        y = 0.0
        for name, (size, colour, strength) in parts.items():
            _block(ax, left + layer + 0.06, y + 0.03, 0.88, size / unit - 0.06, colour, strength)
            middle[name] = y + size / unit / 2
            y += size / unit
        kind = config.layer_types[layer]
        _block(ax, left + layer + 0.06, height + 0.22, 0.88, 0.3, GLOBAL if kind == "global" else LOCAL)
    for name, (size, colour, _) in parts.items():
        y = {"q": 0.25, "k": 1.02, "v": 1.79, "o": 2.56}.get(name, middle[name])  # kept apart where rows are thin
        ax.plot([left + n + 0.1, left + n + 0.6], [middle[name], y], color=colour, lw=0.6, clip_on=False)
        label(ax, left + n + 0.8, y, name, colour, fontsize=8.5)
        label(ax, left + n + 8.6, y, f"{size:,}", colour, ha="right", fontsize=8.5)
    label(ax, left + n + 8.6, -0.65, "in each layer", ha="right", fontsize=8.5)
    label(ax, left, height + 1.05, f"{n} layers:", fontsize=8.5)
    local = config.layer_types.count("local")
    label(ax, left + 4.2, height + 1.05, f"{local} local", LOCAL, fontsize=8.5)
    label(ax, left + 8.0, height + 1.05, f"{n - local} global", GLOBAL, fontsize=8.5)
    label(ax, left + 12.4, height + 1.05, "with the same matrices", fontsize=8.5)
    for x, name, size, colour in (
        (0, "embedding", counted.embedding, INK),
        (left + 5.2, "attention", counted.attention, INK),
        (left + 14.4, "MLP", counted.mlp, INK),
        (left + 23.4, "norms", counted.norms + counted.qk_norms, INK),
    ):
        label(ax, x, -1.55, f"{name} {100 * size / counted.total:.{2 if size < 1e7 else 1}f} %", colour, fontsize=9)
        label(ax, x, -0.65, f"{size:,}", colour, fontsize=9)
    ax.annotate(
        f"{counted.total:,} parameters", (0, 1), (0, 34), xycoords="axes fraction", textcoords="offset points",
        fontsize=10, weight="bold", color=INK,
    )  # fmt: skip
    return show(
        fig,
        f"All {counted.total:,} parameters as areas: {n} columns of seven matrices and the embedding; the MLP takes "
        f"{100 * counted.mlp / counted.total:.1f} %, attention {100 * counted.attention / counted.total:.1f} %.",
    )


# FLOPs ---------------------------------------------------------------------------------------------------------------


def flops_figure(config: Config = RNJ_1_5, tokens: int = 8192) -> Shown:
    """FLOPs a token in training: a forward pass and two backward products of its size, by part; attention on top."""
    fig, ax = panels(6.4, 2.75, left=0.02, right=0.98, top=0.83, bottom=0.02)
    counted = accounting.parameters(config)
    parts = [(name, 2 * config.n_layers * size, hue, alpha) for name, (size, hue, alpha) in matrices(config).items()]
    parts.append(("head", 2 * counted.embedding, MUTED, 0.35))
    pairs = accounting.attention_flops_per_token(config, tokens)
    each = accounting.matmul_flops(config)
    assert each == sum(size for _, size, _, _ in parts)
    limits(ax, -7.9e9, each + pairs + 5.2e9, -0.7, 3.7, equal=False)
    rows = ("forward", "backward, to the inputs", "backward, to the weights")
    for i, row in enumerate(rows):
        x, y = 0.0, i + 0.18
        for _, size, colour, strength in parts:
            _block(ax, x, y, size * 0.997, 0.64, colour, strength)
            x += size
        dashes: Any = {"facecolor": "none", "edgecolor": INK, "lw": 0.8, "ls": (0, (3, 2)), "clip_on": False}
        ax.add_patch(Rectangle((x, y), pairs, 0.64, **dashes))
        label(ax, -0.3e9, i + 0.5, row, INK, ha="right", fontsize=9)
        label(ax, x + pairs + 0.35e9, i + 0.5, f"{'+' if i else '   '} 2N = {each / 1e9:.2f}", INK, fontsize=9)
    x = 0.0
    for name, size in (
        ("q k v o", 2 * counted.attention),
        ("gate, up, down", 2 * counted.mlp),
        ("head", 2 * counted.embedding),
    ):
        label(ax, x + size / 2, -0.5, name, MUTED, ha="center", fontsize=8.5)
        label(ax, x + size / 2, -0.12, f"{size / 1e9:.2f}", INK, ha="center", fontsize=8.5)
        x += size
    share = accounting.attention_share(config, tokens, weight="matmul weights")
    end = each + pairs + 0.35e9
    ax.plot([end, end + 4.6e9], [3.06, 3.06], color=INK, lw=0.8, clip_on=False)
    label(ax, end, 3.42, f"   6N = {3 * each / 1e9:.2f}", LIT, lit=True, fontsize=9)
    label(
        ax, each + pairs, 3.42, f"attention itself at {tokens:,} tokens: + {pairs / 1e9:.2f}", ha="right", fontsize=8.5
    )
    arrow(ax, (each + pairs / 2, 3.22), (each + pairs / 2, 2.9))
    heading(ax, "What one token costs", "GFLOP of matrix products with weights; dashed: scores and weighted values")
    return show(
        fig,
        f"One token costs {each / 1e9:.2f} GFLOP forward and twice that backward, {3 * each / 1e9:.2f} in training; "
        f"attention at {tokens:,} tokens adds {100 * share:.1f} % to each.",
    )


SHARES = (8192, 32_768, 163_840)


def six_n_figure(config: Config = RNJ_1_5) -> Shown:
    """Attention as a share of 6N by the length of the document, in three conventions; dots where it equals 6N."""
    fig, ax = panels(6.6, 4.1, bare=False, left=0.085, right=0.76, top=0.83, bottom=0.1)
    lengths = [round(1024 * 2 ** (i / 16)) for i in range(16 * 8 + 1)]  # 1,024 to 262,144
    colours: dict[AttentionCount, str] = {"no causal half": MUTED, "causal half": GLOBAL, "exact pairs": LOCAL}
    ax.set(xscale="log", xlim=(1024, lengths[-1]), ylim=(0, 1.5))
    ax.axhline(1, color=MUTED, lw=0.8)
    ax.axvline(config.max_positions, color=MUTED, lw=0.8, ls=(0, (4, 3)))
    for count in ATTENTION_COUNTS:
        share = [accounting.attention_share(config, t, count) for t in lengths]
        ax.plot(lengths, share, color=colours[count], lw=1.6 if count == "exact pairs" else 1.2)
        equal, first = accounting.tokens_until_attention_equals(config, count), count == ATTENTION_COUNTS[0]
        if equal is not None:
            ax.plot([equal], [1], "o", color=colours[count], ms=5, clip_on=False, zorder=5)
            ax.annotate(
                f"{equal:,}", (equal, 1), (-6, 5) if first else (8, -11), textcoords="offset points",
                color=colours[count], ha="right" if first else "left", fontsize=9, weight="bold", annotation_clip=False,
            )  # fmt: skip
    for tokens in SHARES:
        share_here = accounting.attention_share(config, tokens)
        ax.plot([tokens], [share_here], "o", color=LOCAL, ms=4, mfc=PAPER, zorder=5)
        ax.annotate(
            f"{100 * share_here:.1f} %", (tokens, share_here), (7, -9), textcoords="offset points", color=LOCAL,
            fontsize=8.5,
        )  # fmt: skip
    ax.set_xticks([1024, 8192, 32_768, 163_840], ["1,024", "8,192", "32,768", "163,840"])
    ax.set_yticks([0, 0.5, 1, 1.5], ["0 %", "50 %", "100 %", "150 %"])
    ax.minorticks_off()
    x = lengths[-1] * 1.06
    words = {
        "no causal half": "12·L·N·H·T\nno causal half",
        "causal half": "6·L·N·H·T\ncausal half",
        "exact pairs": "this model:\n24 local, 8 global,\nexact pairs",
    }
    for count in ATTENTION_COUNTS[:2]:
        at = accounting.tokens_until_attention_equals(config, count) or 1
        where = at * 1.5 * 0.97
        ax.annotate(
            words[count], (where, 1.5), (8 if count == "no causal half" else -8, 4), textcoords="offset points",
            color=colours[count], fontsize=8.5, ha="right" if count == "no causal half" else "left", va="bottom",
            annotation_clip=False,
        )  # fmt: skip
    ax.text(
        x,
        accounting.attention_share(config, lengths[-1]),
        words["exact pairs"],
        color=LOCAL,
        fontsize=8.5,
        va="center",
        clip_on=False,
    )
    ax.text(config.max_positions / 1.03, 0.04, "window", color=MUTED, fontsize=8.5, ha="right")
    label(ax, 1100, 1.03, "attention = 6N", fontsize=8.5, va="bottom")
    ax.annotate(
        "Attention as a share of 6N", (0, 1), (0, 34), xycoords="axes fraction", textcoords="offset points",
        fontsize=10, weight="bold",
    )  # fmt: skip
    crossings = {c: accounting.tokens_until_attention_equals(config, c) for c in ATTENTION_COUNTS}
    listed = ", ".join(f"{name} {tokens:,}" for name, tokens in crossings.items() if tokens is not None)
    return show(fig, f"Attention's share of 6N grows with the length of the document and reaches 100 % at: {listed}.")


# A training run ------------------------------------------------------------------------------------------------------


def days(value: float) -> str:
    """Days as the figures write them: 9.6 hours, 12.0 days, 1,234 days."""
    if value < 1:
        return f"{24 * value:.1f} hours"
    return f"{value:,.1f} days" if value < 100 else f"{value:,.0f} days"


def dollars(value: float) -> str:
    """Dollars in three digits: $583 thousand, $1.06 million."""
    for size, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if value >= size:
            return f"${value / size:.3g}{word}" if value / size < 999.5 else f"${value / size:,.0f}{word}"
    return f"${value:.3g}"


def cluster_figure(n: float, tokens: float, run: TrainingRun, peak: float, mfu: float, chip: str = "H100") -> Shown:
    """The calculation of a cluster as one fraction: 6 · N · D over chips · peak · MFU is the time."""
    fig, ax = panels(5.6, 3.0, left=0.02, right=0.98, top=0.84, bottom=0.02)
    limits(ax, 0, 100, 0, 50, equal=False)
    speed = run.chips * peak * mfu

    def factor(x: float, y: float, value: str, name: str, colour: str, bold: bool = False) -> None:
        look = "bold" if bold else "normal"
        ax.text(x, y, value, ha="center", va="center", fontsize=11.5, color=colour, weight=look)
        ax.text(x, y + 6.2, name, ha="center", va="center", fontsize=8.5, color=MUTED)

    for y, items in (
        (
            5,
            [("6", "FLOPs each", INK), (f"{n / 1e9:.2f}e9", "N, parameters", INK), (f"{tokens:.3g}", "D, tokens", INK)],
        ),
        (29, [(f"{run.chips:,}", chip, INK), (f"{peak:.4g}", "peak FLOP/s, dense", INK), (f"{mfu:g}", "MFU", INK)]),
    ):
        for i, (value, name, colour) in enumerate(items):
            factor(8 + 24 * i, y, value.replace("e+", "e"), name, colour)
            if i:
                ax.text(8 + 24 * i - 12.5, y, "·", ha="center", va="center", fontsize=12, color=INK)
    ax.plot([1, 64], [19.5, 19.5], color=INK, lw=1.1)
    ax.text(67.5, 19.5, "=", ha="center", va="center", fontsize=12)
    factor(83, 5, f"{run.flops:.3g}".replace("e+", "e"), "FLOPs", INK)
    factor(83, 29, f"{speed:.3g}".replace("e+", "e"), "FLOP/s", INK)
    ax.plot([71, 95], [19.5, 19.5], color=INK, lw=1.1)
    glow(ax, 62, 40.4, 36, 8.8)
    lit_box(ax, 62, 40.4, 36, 8.8)
    ax.text(80, 44.9, f"{days(run.days)}", ha="center", va="center", fontsize=12, weight="bold", color=LIT)
    ax.text(59, 44.9, f"= {run.seconds:,.0f} s =", ha="right", va="center", fontsize=10.5)
    heading(ax, "How long a cluster trains", "what is above the line is work, what is below it is speed")
    return show(
        fig,
        f"6 times {n:,.0f} parameters times {tokens:.3g} tokens, over {run.chips:,} chips times {peak:.4g} FLOP/s "
        f"times an MFU of {mfu:g}, is {run.seconds:,.0f} seconds or {days(run.days)}.",
    )


NOT_ON_THE_BILL = (
    "runs that failed, and all that was tried before",
    "data, evaluation, later stages of training",
    "storage, network, spare chips, people",
    "every token that is generated afterwards",
)


def bill_figure(six_n_d: TrainingRun, attention: TrainingRun) -> Shown:
    """The bill of a training run: 6·N·D, attention on top, the total, and what is not on it."""
    fig, ax = panels(NARROW, 4.3, left=0.05, right=0.95, top=0.97, bottom=0.02)
    limits(ax, 0, 34, 0, 43, equal=False)
    steps = 17
    edge = [(34 * i / steps / 1.0, 42.4 if i % 2 else 41.6) for i in range(steps + 1)]
    ax.fill(
        [0, *(x for x, _ in edge), 34],
        [0, *(y for _, y in edge), 0],
        facecolor=PAPER,
        edgecolor=MUTED,
        lw=0.8,
        zorder=0,
    )
    ax.text(17, 2.6, "ONE TRAINING RUN", ha="center", va="center", fontsize=10, weight="bold")
    price = six_n_d.price_per_chip_hour
    head = f"{six_n_d.chips:,} chips, ${price:.2f} a chip-hour"
    ax.text(17, 5.2, head, ha="center", va="center", fontsize=8.5, color=MUTED)

    def line(y: float, name: str, amount: str, colour: str = INK, bold: bool = False) -> None:
        weight = "bold" if bold else "normal"
        ax.text(1.6, y, name, va="center", fontsize=9, color=colour, weight=weight)
        ax.text(32.4, y, amount, va="center", ha="right", fontsize=9, color=colour, weight=weight)

    total = six_n_d.cost + attention.cost
    for y, (name, part) in zip((9, 15.2), (("6 · N · D", six_n_d), ("attention", attention)), strict=True):
        line(y, name, f"${part.cost:,.0f}")
        more = f"{part.chip_hours:,.0f} chip-hours, {days(part.days)}"
        ax.text(1.6, y + 2.3, more, va="center", fontsize=8.5, color=MUTED)
    ax.plot([1.6, 32.4], [20.3, 20.3], color=INK, lw=0.8)
    glow(ax, 0.8, 21.2, 32.4, 3.4)
    line(22.9, "total", f"${total:,.0f}", LIT, bold=True)
    ax.plot([1.6, 32.4], [27.0, 27.0], color=MUTED, lw=0.8, ls=(0, (3, 3)))
    ax.text(1.6, 29.2, "Not on this bill", va="center", fontsize=9, weight="bold")
    for i, name in enumerate(NOT_ON_THE_BILL):
        ax.text(1.6, 31.7 + 2.35 * i, name, va="center", fontsize=8.5, color=MUTED)
    return show(
        fig,
        f"A receipt: 6 N D ${six_n_d.cost:,.0f}, attention ${attention.cost:,.0f}, total ${total:,.0f}; below it what "
        f"is left out: {'; '.join(NOT_ON_THE_BILL)}.",
    )


def mfu_figure(rows: Sequence[tuple[str, float, float]], published: tuple[float, float]) -> Shown:
    """One run in several conventions: bars of (name, low, high), as shares; `published` is drawn as a band."""
    fig, ax = panels(5.4, 0.55 + 0.46 * len(rows), left=0.02, right=0.98, top=0.82, bottom=0.03)
    limits(ax, -0.36, 0.56, 0, len(rows), equal=False)
    _block(ax, published[0], 0, published[1] - published[0], len(rows), FAINT, 0.8, zorder=0)
    for i, (name, low, high) in enumerate(rows):
        lit = i == 0
        start = 0 if low == high else low
        _block(ax, start, i + 0.24, high - start, 0.52, PAPER)
        _block(ax, start, i + 0.24, high - start, 0.52, POSITIVE, 0.6)
        label(ax, -0.008, i + 0.5, name, INK, ha="right", lit=lit, fontsize=9)
        text = f"{100 * high:.1f} %" if low == high else f"{100 * low:.0f} to {100 * high:.0f} %"
        label(ax, high + 0.008, i + 0.5, text, INK, lit=lit, fontsize=9)
    heading(ax, "One run, five percentages", "Llama 3.1 405B; the band is what was published")
    return show(fig, "; ".join(f"{name} {100 * high:.1f} %" for name, _, high in rows) + ".")


# Published runs, and the calculator on them

CHIP_PEAKS = {
    "A100": facts.number("A100, dense bfloat16 peak"),
    "H100": facts.number("H100, dense bfloat16 peak"),
    "V100": facts.number("V100, dense float16 peak"),
}
RUNS: dict[str, tuple[float, float, str]] = {  # name → (parameters, tokens, chip)
    "Rnj 1.5's shape": (
        accounting.parameters(RNJ_1_5).total,
        facts.number("Rnj 1.0, pre-training tokens"),
        "H100",
    ),
    "GPT-3 175B": (
        accounting.known_model("GPT-3 175B").parameters(),
        facts.number("GPT-3 175B, tokens"),
        "V100",
    ),
    "Llama 2 70B": (
        accounting.known_model("Llama 2 70B").parameters(),
        facts.number("Llama 2 70B, tokens"),
        "A100",
    ),
    "Llama 3.1 405B": (
        accounting.known_model("Llama 3.1 405B").parameters(),
        facts.number("Llama 3.1 405B, tokens"),
        "H100",
    ),
}

TRILLIONS = (2.0, 4.0, 8.4, 15.6)
CHIPS = (256, 1024, 4096, 16_384)
MFUS = (20, 30, 40, 50)
MARKS = ((1 / 24, "an hour"), (0.25, "6 hours"), (1, "a day"), (7, "a week"), (30, "30 days"), (365, "a year"))


def days_stepper() -> Stepper:
    """Tokens, chips and MFU → the days in which this model's shape is trained on H100s."""
    n, peak = accounting.parameters(RNJ_1_5).total, CHIP_PEAKS["H100"]

    def draw(trillions: float, chips: int, mfu: int) -> Frame:
        tokens = trillions * 1e12
        run = accounting.training_run(accounting.six_n_d(n, tokens), chips, peak, mfu / 100)
        fig, ax = panels(4.6, 1.75, left=0.03, right=0.97, top=0.68, bottom=0.2)
        least, most = MARKS[0][0], MARKS[-1][0]
        ax.set(xscale="log", xlim=(least, most), ylim=(0, 1))
        _block(ax, least, 0.3, most - least, 0.4, FAINT, 0.7)
        _block(ax, least, 0.3, run.days - least, 0.4, POSITIVE, 0.6)
        ax.plot([run.days] * 2, [0.16, 0.84], color=LIT, lw=1.6)
        for day, name in MARKS:
            ax.plot([day, day], [0.12, 0.28], color=MUTED, lw=0.8, clip_on=False)
            side = {least: "left", most: "right"}.get(day, "center")
            ax.text(day, 0.05, name, ha=side, va="top", fontsize=8.5, color=MUTED)
        heading(ax, days(run.days), f"{chips:,} H100 at {mfu} % of the dense peak; the axis is logarithmic")
        text = f"6 · {n:,} · {tokens:.3g} FLOPs".replace("e+", "e") + f" on {chips:,} chips take {days(run.days)}."
        numbers = {"FLOPs": run.flops, "days": run.days, "GPU-days": run.chip_days, "GPU-hours": run.chip_hours}
        return Frame(fig, text, numbers, f"A bar of {days(run.days)} on a scale from an hour to a year.")

    return Stepper(
        "Tokens, chips and MFU: how long",
        [
            Slider("trillions", TRILLIONS, value=8.4, label="tokens", unit="trillion"),
            Slider("chips", CHIPS, value=1024, unit="H100"),
            Slider("mfu", MFUS, value=40, label="MFU", unit="%"),
        ],
        draw,
        name="cluster-days",
    )


PRICES = (1.0, 2.0, 4.0)


def dollars_stepper() -> Stepper:
    """Model with its published tokens and chip, MFU and price → what 6·N·D costs."""

    def draw(model: str, mfu: int, price: float) -> Frame:
        n, tokens, chip = RUNS[model]
        run = accounting.training_run(accounting.six_n_d(n, tokens), 1, CHIP_PEAKS[chip], mfu / 100, price)
        fig, ax = panels(4.6, 2.35, left=0.03, right=0.97, top=0.75, bottom=0.03)
        ax.set(xlim=(5.0, 9.3), ylim=(len(RUNS), 0))
        for i, name in enumerate(RUNS):
            m, d, c = RUNS[name]
            other = accounting.training_run(accounting.six_n_d(m, d), 1, CHIP_PEAKS[c], mfu / 100, price)
            here = name == model
            width = _log10(other.cost) - 5.0
            _block(ax, 5.0, i + 0.48, width, 0.34, POSITIVE, 0.75 if here else 0.25)
            label(ax, 5.0, i + 0.27, f"{name}, {c}", ha="left", lit=here, fontsize=8.5)
            label(ax, 5.0 + width + 0.05, i + 0.66, dollars(other.cost), INK, lit=here, fontsize=8.5)
        heading(ax, dollars(run.cost), f"{mfu} % MFU, ${price:.2f} a chip-hour; logarithmic, from $100 thousand")
        whose = ", as many as Rnj 1.0 saw in pre-training," if model.startswith("Rnj") else ""
        text = (
            f"{tokens / 1e12:g} trillion tokens{whose} through {n / 1e9:,.1f} billion parameters: "
            f"{run.chip_hours:,.0f} {chip}-hours."
        )
        numbers = {"dollars": run.cost, "GPU-hours": run.chip_hours, "FLOPs": run.flops}
        return Frame(fig, text, numbers, f"{model}: {dollars(run.cost)}, among the costs of four runs.")

    return Stepper(
        "Model, MFU and price: how much",
        [
            Choice("model", list(RUNS)),
            Slider("mfu", MFUS, value=40, label="MFU", unit="%"),
            Slider("price", PRICES, value=2.0, unit="dollars a chip-hour"),
        ],
        draw,
        name="cluster-dollars",
    )


def _log10(value: float) -> float:
    from math import log10

    return log10(value)


# Tables --------------------------------------------------------------------------------------------------------------


def models_table(models: Sequence[DenseModel]) -> str:
    """Known models as a Markdown table, each row counted from its hyperparameters."""
    lines = [
        "| model | year | L | D | F | N / K | H | V | parameters | KV cache a token, 16 bit |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for m in models:
        cells = [
            m.name,
            str(m.year),
            str(m.n_layers),
            f"{m.d_model:,}",
            f"{m.d_ff:,}",
            f"{m.n_heads} / {m.n_kv_heads}",
            str(m.head_dim),
            f"{m.vocab_size:,}",
            f"{m.parameters():,}",
            f"{m.kv_cache_bytes(1):,} B",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


STEPPERS = {
    "cache-bytes": cache_stepper,
    "cache-filling": filling_stepper,
    "cluster-days": days_stepper,
    "cluster-dollars": dollars_stepper,
}
