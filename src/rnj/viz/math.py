"""Figures and steppers of chapter 7: the whole model, its cache, and what can be counted about both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from typing import Any

import torch
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from rnj import accounting, example, facts
from rnj.accounting import ATTENTION_COUNTS, GIB, AttentionCount, DenseModel, TrainingRun, all_global
from rnj.cache import KVCache
from rnj.config import RNJ_1_5, SMALL, Config
from rnj.gpu_check import Row
from rnj.lab import cluster
from rnj.lab.known import EncoderDecoder
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
SCREEN = 3.5  # inches: a stepper on a phone, without scrolling


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
    return show(
        _journey(stream, added, config, WIDE, 0.075),
        f"The followed token's residual stream begins with norm {stream[0]:.1f} and has {stream[-1]:.1f} after "
        f"{config.n_layers} blocks; each attention and each MLP adds a vector whose norm is drawn as a bar.",
        narrow=_journey(stream, added, config, NARROW, 0.1),
    )


def _journey(stream: Sequence[float], added: Sequence[float], config: Config, width: float, left: float) -> Figure:
    fig, ax = panels(width, 3.1, left=left, right=0.985, top=0.84, bottom=0.15)
    top, steps, wide = max(stream) * 1.14, len(added), width > 5
    ax.set(xlim=(-0.9, steps + 0.6), ylim=(0, top))
    for i, kind in enumerate(config.layer_types):
        colour = GLOBAL if kind == "global" else LOCAL
        _block(ax, 2 * i + 0.56, 0, 1.88, top, colour, 0.08, zorder=0)
        _block(ax, 2 * i + 0.56, -0.02 * top, 1.88, 0.02 * top, colour)
        name, word = (f"block {i}", kind) if wide else (str(i), kind[0].upper())
        label(ax, 2 * i + 1.5, -0.035 * top, name, colour, ha="center", va="top", fontsize=8)
        label(ax, 2 * i + 1.5, -0.1 * top, word, colour, ha="center", va="top", fontsize=8)
    for i, norm in enumerate(added):
        _block(ax, i + 0.8, 0, 0.4, norm, POSITIVE, 0.45)
    ax.plot(range(len(stream)), stream, color=LIT, lw=1.4, marker="o", ms=3.4, zorder=4)
    for x, norm in ((0, stream[0]), (steps, stream[-1])):
        label(
            ax,
            x,
            norm + (0.055 if x else -0.07 if wide else 0.1) * top,
            f"{norm:.1f}",
            ha="right" if x else "center",
            lit=True,
            fontsize=9,
        )
    label(ax, 0.4, -0.035 * top, "embed" if wide else "in", MUTED, "right", "top", fontsize=8)
    below = "line: the residual stream; bars: what attention (left) and the MLP (right) add"
    if wide:
        heading(ax, "The norm of one token's vector, block by block", below)
    else:
        heading(ax, "The norm of one token's vector", "bars: what is added; L local, G global")
    return fig


# Generating ----------------------------------------------------------------------------------------------------------


def work_figure(positions: Sequence[int], without: Sequence[int], with_cache: Sequence[int], edge: int) -> Shown:
    """FLOPs of each new token without a cache and with one; `edge` is where the local layers drop a block."""
    fig, (above, below) = panels(
        NARROW, 3.9, rows=2, bare=False, left=0.09, right=0.8, top=0.87, bottom=0.08, hspace=0.7
    )
    for ax, work, colour, unit, name, size in (
        (above, without, MUTED, 1e9, "GFLOP", "billions"),
        (below, with_cache, INK, 1e6, "MFLOP", "millions"),
    ):
        scaled = [w / unit for w in work]
        ax.plot(positions, scaled, color=colour, marker="o", ms=2.4, lw=1.1)
        ax.set(xlim=(positions[0] - 0.6, positions[-1] + 0.6), ylim=(0, 1.22 * max(scaled)))
        ax.set_xticks([positions[0], edge, positions[-1]])
        ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        label(ax, positions[-1] + 1, scaled[-1], f"{scaled[-1]:.2f}\n{name}", colour, fontsize=9)
        where = "without a cache" if ax is above else "with the cache"
        heading(ax, f"{where.capitalize()}: {sum(work) / 1e9:,.2f} GFLOP", f"{size} a token, by the token's position")
    at = list(positions).index(edge)
    below.annotate(
        "local layers drop a block", (edge, with_cache[at] / 1e6), (-4, -30), textcoords="offset points",
        ha="center", fontsize=8.5, color=MUTED, arrowprops={"arrowstyle": "-", "lw": 0.6, "color": MUTED, "shrinkB": 3},
    )  # fmt: skip
    return show(
        fig,
        f"Work for each of {len(positions)} new tokens: {sum(without):,} FLOPs in all without a cache, "
        f"{sum(with_cache):,} with one, and a step down at position {edge}.",
    )


# The cache -----------------------------------------------------------------------------------------------------------


def kv_cache_figure(config: Config = RNJ_1_5, tokens: int = LONGEST) -> Shown:
    """What a token leaves in one layer's cache, and what all layers hold at a context of `tokens`: areas are bytes."""
    each = accounting.kv_bytes_per_token_per_layer(config)
    parts = {
        kind: sum(accounting.kv_cache_tokens(config, tokens, k) for k in config.layer_types if k == kind) * each
        for kind in ("local", "global")
    }
    count = {kind: config.layer_types.count(kind) for kind in parts}
    span = accounting.kv_cache_tokens(config, tokens, "local")
    lines = (
        (f"{count['global']} global layers", GLOBAL, False),
        (f"· {tokens:,} tokens", GLOBAL, False),
        (f"= {gib(parts['global'])}", GLOBAL, False),
        ("", MUTED, False),
        (f"{count['local']} local layers", LOCAL, False),
        (f"· {span:,} tokens", LOCAL, False),
        (f"= {gib(parts['local'])}", LOCAL, False),
        ("", MUTED, False),
        (f"{gib(sum(parts.values()))} in all", MUTED, True),
        ("", MUTED, False),
        ("all-global, with", MUTED, False),
        ("the grey filled in:", MUTED, False),
        (gib(accounting.kv_cache_bytes(all_global(config), tokens)), MUTED, False),
    )
    return show(
        _kv_cache(config, tokens, lines, 6.6),
        f"One token leaves {each:,} bytes in each layer. At {tokens:,} tokens {count['global']} global layers hold all "
        f"of them, {gib(parts['global'])}, and {count['local']} local layers {span:,} each, {gib(parts['local'])}.",
        narrow=_kv_cache(config, tokens, lines, NARROW),
    )


def _kv_cache(config: Config, tokens: int, lines: Sequence[tuple[str, str, bool]], width: float) -> Figure:
    wide = width > 5
    size = (width, 5.2) if wide else (width, 6.4)
    frame: dict[str, Any] = {"left": 0.02, "right": 0.8} if wide else {"left": 0.01, "right": 0.99}
    bottom, ratios = (0.03, (1, 2.9)) if wide else (0.25, (1, 3.4))
    fig, (one, layers) = panels(
        *size, rows=2, top=0.91, bottom=bottom, hspace=0.34 if wide else 0.42, height_ratios=ratios, **frame
    )
    K, H, n = config.n_kv_heads, config.head_dim, config.n_layers
    each = accounting.kv_bytes_per_token_per_layer(config)
    limits(one, -0.12, 2 * K + (1.5 if wide else 1.12), -0.3, 2.0, equal=False)
    for first, colour, name in ((0, KEY, "keys"), (K + 1, VALUE, "values")):
        for head in range(K):
            _block(one, first + head + 0.05, 0, 0.9, 1, colour, 0.75)
            if wide:
                label(one, first + head + 0.5, 0.5, str(H), PAPER, "center", fontsize=8)
        label(one, first, 1.45, f"{K} {name} of {H} numbers" if wide else f"{K} {name} of {H}", colour, fontsize=9)
    lit_box(one, -0.12, -0.14, 2 * K + 1.24, 1.28)
    if wide:
        label(one, 2 * K + 1.45, 0.3, f"{each:,} B", lit=True, fontsize=10)
        label(one, 2 * K + 1.45, 0.86, "in bfloat16", fontsize=8.5)
    product = f"2 · {K} heads · {H} numbers · 2 bytes"
    heading(one, "One token in one layer", product if wide else f"{product} = {each:,} B")
    limits(layers, 0, tokens, 0, n, equal=False)
    for i, kind in enumerate(config.layer_types):
        held = accounting.kv_cache_tokens(config, tokens, kind)
        _block(layers, 0, i + 0.12, tokens, 0.76, FAINT, 0.7)
        _block(layers, 0, i + 0.12, held, 0.76, GLOBAL if kind == "global" else LOCAL, 0.9)
    if wide:
        for row, (text, colour, lit) in enumerate(lines):
            label(layers, tokens * 1.025, (2.4 + 2.25 * row) * n / 32, text, colour, lit=lit, fontsize=9)
    else:
        for x, some in ((0.0, lines[:3]), (0.38, lines[4:7]), (0.7, (lines[8], *lines[10:]))):
            for row, (text, colour, lit) in enumerate(some):
                y = n * (1.05 + 0.07 * row)
                label(layers, tokens * x, y, text.removesuffix(" filled in:"), colour, lit=lit, fontsize=8, va="top")
    heading(layers, f"All {n} layers at {tokens:,} tokens", "one line a layer, tokens to the right: area is bytes")
    return fig


CONTEXTS = (1024, 2048, 4096, 8192, 12_288, 16_384, 32_768, 65_536, 98_304, 131_072, 163_840)
H100_MEMORY = facts.number("H100, memory") * accounting.GB


def cache_kinds(config: Config = RNJ_1_5) -> dict[str, Config]:
    """The models whose caches are compared: name → config."""
    return {"all-global": all_global(config), "hybrid": config, "hybrid, MQA": replace(config, n_kv_heads=1)}


def cache_stepper() -> Stepper:
    """Context length and batch → bytes of the cache for all-global, hybrid and multi-query layers, to scale in log."""
    kinds = cache_kinds()
    colours = {"all-global": MUTED, "hybrid": INK, "hybrid, MQA": POSITIVE}
    dashes: dict[str, Any] = {"all-global": (0, (5, 2)), "hybrid": "-", "hybrid, MQA": (0, (1.5, 1.5))}
    room = H100_MEMORY - accounting.weight_bytes(RNJ_1_5)

    def draw(context: int, batch: int) -> Frame:
        sizes = {name: accounting.kv_cache_bytes(config, context, batch) for name, config in kinds.items()}
        fig, ax = panels(NARROW, 3.0, bare=False, left=0.125, right=0.625, top=0.84, bottom=0.09)
        for name, config in kinds.items():
            curve = [accounting.kv_cache_bytes(config, c, batch) / GIB for c in CONTEXTS]
            ax.plot(CONTEXTS, curve, color=colours[name], lw=1.3, ls=dashes[name])
            ax.plot([context], [sizes[name] / GIB], "o", color=colours[name], ms=5)
        ax.set(xscale="log", yscale="log", xlim=(1024, LONGEST), ylim=(0.005, 1000))
        ax.set_xticks([1024, 8192, 32_768, 163_840], ["1,024", "8,192", "32,768", "163,840"], fontsize=7.5)
        ax.set_yticks([0.01, 0.1, 1, 10, 100, 1000], ["0.01", "0.1", "1", "10", "100", "1,000"])
        ax.tick_params(which="minor", length=0)
        ax.minorticks_off()
        ax.plot([context] * 2, [0.005, max(sizes.values()) / GIB], color=LIT, lw=0.8, zorder=1)
        ax.axhline(room / GIB, color=MUTED, lw=0.8, ls=(0, (4, 3)))
        places = _apart([sizes[name] / GIB for name in kinds], 2.3)
        for name, y in zip(kinds, places, strict=True):
            look: Any = {"color": colours[name], "fontsize": 8, "va": "center", "clip_on": False}
            weight = "bold" if name == "hybrid" else "normal"
            ax.text(LONGEST * 1.08, y, f"{name.split(', ')[-1]} {gib(sizes[name])}", weight=weight, **look)
        ax.text(1150, room / GIB * 1.15, "80 GB less the weights", color=MUTED, fontsize=7.5, va="bottom")
        heading(ax, f"{context:,} tokens a row", f"GiB at batch {batch}, bfloat16; logarithmic axes")
        fits = [name for name in kinds if sizes[name] <= room]
        text = (
            f"{gib(room)} are left beside the weights, before any activations. What fits: "
            f"{'; '.join(fits) or 'none of them'}."
        )
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
FILLING_TAIL = "\n\nprint(f(7), f(10))\nprint(f(8), f(9))"  # what follows the followed token's document
FILLING_STEPS = 20


def filling_text() -> tuple[str, int]:
    """What the filling cache is fed: a text that begins with the followed token's document; and that token's place."""
    row = example.row()
    segment, place = (int(x[0, example.FOLLOWED]) for x in (row.segments, row.positions))
    return example.DOCUMENTS[segment - 1] + FILLING_TAIL, place


@cache
def filling(text: str, steps: int = FILLING_STEPS) -> tuple[list[str], list[dict[str, Any]]]:
    """A real cache driven token by token: the tokens' labels, and after each step what each kind of layer holds.

    Each entry: kind → (first column held, tokens held), for layers 0 (local) and 3 (global) of FILLING.
    """
    from rnj.text import load_tokenizer

    tokenizer = load_tokenizer()
    ids = [tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id][:steps]
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
    said, followed = filling_text()

    def draw(step: int) -> Frame:
        names, states = filling(said)
        n, state = len(names), states[step]
        before = states[step - 1] if step else {"local": (0, 0), "global": (0, 0)}
        gone = state["local"][0] - before["local"][0]
        fig, ax = panels(NARROW, 3.4, left=0.01, right=0.99, top=0.86, bottom=0.02)
        limits(ax, -3.6, n + 0.1, 0.0, 11.9, equal=False)
        for block in range(0, n, C):
            width = min(C, n - block)
            _block(ax, block + 0.06, 3.05, width - 0.12, 0.09, MUTED)
            label(ax, block + width / 2, 3.5, f"block {block // C}", ha="center", fontsize=8)
        for i, name in enumerate(names):
            shown_now = LIT if i == followed else INK if i <= step else MUTED
            ax.text(
                i + 0.5, 2.8, name, rotation=90, ha="center", va="bottom", fontsize=8, color=shown_now,
                weight="bold" if i == followed else "normal", alpha=1.0 if i <= step else 0.45,
            )  # fmt: skip
        for top, kind, colour in ((5.2, "local", LOCAL), (8.7, "global", GLOBAL)):
            first, held = state[kind]
            for part, (y, hue) in enumerate(((top, KEY), (top + 1.05, VALUE))):
                label(ax, -0.25, y + 0.45, "values" if part else "keys", hue, ha="right", fontsize=8)
                for i in range(n):
                    here = first <= i < first + held
                    _block(ax, i + 0.06, y, 0.88, 0.9, hue if here else FAINT, 0.8 if here else 0.6)
                    if kind == "local" and first - gone <= i < first:
                        ax.plot([i + 0.3, i + 0.7], [y + 0.25, y + 0.65], color=NEGATIVE, lw=1.3)
                        ax.plot([i + 0.3, i + 0.7], [y + 0.65, y + 0.25], color=NEGATIVE, lw=1.3)
            label(ax, 0.06, top - 0.6, f"a {kind} layer holds {held}", colour, lit=True, fontsize=9)
            lit_box(ax, followed, top - 0.08, 1, 2.11)
        arrow(ax, (step + 0.5, 11.8), (step + 0.5, 10.95), colour=INK, lw=1.2)
        heading(ax, f"After token {step}, {names[step]}", f"blocks of {C}; a local layer holds {2 * C} at most")
        if gone:
            text = f"Token {step} opens block {step // C}: before it is written, the local layers drop {gone} tokens."
        else:
            text = f"Token {step} is written in every layer; nothing is dropped."
        if state["local"][0] > followed:
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
        "o": (q, INK, 0.35),
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
        narrow=_parameters_upright(config),
    )


def _parameters_upright(config: Config) -> Figure:
    """The same for a phone: one line a layer, the embedding above as a bar of the same width."""
    fig, ax = panels(NARROW, 5.6, left=0.01, right=0.99, top=0.92, bottom=0.16)
    parts, counted, n = matrices(config), accounting.parameters(config), config.n_layers
    across = sum(size for size, _, _ in parts.values())
    high = counted.embedding / across
    limits(ax, 0, across * 1.03, 0, n + high + 2.2, equal=False)
    _block(ax, 0, 0, across, high, MUTED, 0.35)
    label(ax, across / 2, high / 2, f"embedding and head, {config.vocab_size:,} rows", INK, "center", fontsize=8.5)
    places = {"q": 0.018, "k": 0.068, "v": 0.108, "o": 0.148}
    for i, kind in enumerate(config.layer_types):
        x, y = 0, high + 2.2 + i
        for name, (size, colour, strength) in parts.items():
            _block(ax, x + across * 0.002, y + 0.06, size - across * 0.004, 0.88, colour, strength)
            if i == 0:
                middle = places[name] * across if name in places else x + size / 2
                label(ax, middle, high + 1.6, name, colour, ha="center", fontsize=8.5)
            x += size
        _block(ax, across * 1.01, y + 0.06, across * 0.02, 0.88, GLOBAL if kind == "global" else LOCAL)
    for i, (name, size) in enumerate(
        (
            ("embedding", counted.embedding),
            ("attention", counted.attention),
            ("MLP", counted.mlp),
            ("norms", counted.norms + counted.qk_norms),
        )
    ):
        y = n + high + 2.2 + 1.3 + 1.55 * i
        share = f"{100 * size / counted.total:.{2 if size < 1e7 else 1}f} %"
        label(ax, 0, y, name, INK, fontsize=8.5)
        label(ax, across * 0.62, y, f"{size:,}", INK, ha="right", fontsize=8.5)
        label(ax, across * 0.85, y, share, INK, ha="right", fontsize=8.5)
    heading(ax, f"{counted.total:,} parameters")
    return fig


# FLOPs ---------------------------------------------------------------------------------------------------------------


def flops_figure(config: Config = RNJ_1_5, tokens: int = 8192) -> Shown:
    """FLOPs a token in training: a forward pass and two backward products of its size, by part; attention on top."""
    fig, ax = panels(NARROW, 3.4, left=0.01, right=0.99, top=0.86, bottom=0.02)
    counted = accounting.parameters(config)
    parts = [(name, 2 * config.n_layers * size, hue, alpha) for name, (size, hue, alpha) in matrices(config).items()]
    parts.append(("head", 2 * counted.embedding, MUTED, 0.35))
    pairs = accounting.attention_flops_per_token(config, tokens)
    each = accounting.matmul_flops(config)
    assert each == sum(size for _, size, _, _ in parts)
    end = each + pairs + 0.35e9
    limits(ax, 0, end + 6.1e9, 0, 5.35, equal=False)
    x = 0.0
    for name, size in (
        ("q k v o", 2 * counted.attention),
        ("gate, up, down", 2 * counted.mlp),
        ("head", 2 * counted.embedding),
    ):
        label(ax, x + size / 2, 0.15, name, MUTED, ha="center", fontsize=8)
        label(ax, x + size / 2, 0.5, f"{size / 1e9:.2f}", INK, ha="center", fontsize=8)
        x += size
    for i, row in enumerate(("forward", "backward, to the inputs", "backward, to the weights")):
        x, y = 0.0, 1.2 + 1.2 * i
        label(ax, 0, y - 0.2, row, INK, fontsize=8.5)
        for _, size, colour, strength in parts:
            _block(ax, x, y, size * 0.995, 0.6, colour, strength)
            x += size
        dashes: Any = {"facecolor": "none", "edgecolor": INK, "lw": 0.8, "ls": (0, (3, 2)), "clip_on": False}
        ax.add_patch(Rectangle((x, y), pairs, 0.6, **dashes))
        label(ax, end, y + 0.3, f"{'+' if i else ''} 2N = {each / 1e9:.2f}".strip(), INK, fontsize=8.5)
    share = accounting.attention_share(config, tokens, weight="matmul weights")
    ax.plot([end, end + 5.2e9], [4.56, 4.56], color=INK, lw=0.8, clip_on=False)
    label(ax, end, 4.86, f"6N = {3 * each / 1e9:.2f}", LIT, lit=True, fontsize=8.5)
    note = f"attention itself at {tokens:,} tokens: + {pairs / 1e9:.2f}"
    label(ax, each + pairs, 4.86, note, ha="right", fontsize=8)
    arrow(ax, (each + pairs / 2, 4.65), (each + pairs / 2, 4.28))
    heading(ax, "What one token costs", "GFLOP; dashed: scores and weighted values")
    return show(
        fig,
        f"One token costs {each / 1e9:.2f} GFLOP forward and twice that backward, {3 * each / 1e9:.2f} in training; "
        f"attention at {tokens:,} tokens adds {100 * share:.1f} % to each.",
    )


SHARES = (8192, 32_768, 163_840)


def six_n_figure(config: Config = RNJ_1_5) -> Shown:
    """Attention as a share of 6N by the length of the document, in three conventions; dots where it equals 6N."""
    crossings = {c: accounting.tokens_until_attention_equals(config, c) for c in ATTENTION_COUNTS}
    listed = ", ".join(f"{name} {tokens:,}" for name, tokens in crossings.items() if tokens is not None)
    alt = f"Attention's share of 6N grows with the length of the document and reaches 100 % at: {listed}."
    return show(_six_n(config, 6.6), alt, narrow=_six_n(config, NARROW))


def _six_n(config: Config, width: float) -> Figure:
    wide = width > 5
    edges: dict[str, Any] = {"left": 0.085, "right": 0.76} if wide else {"left": 0.13, "right": 0.81}
    fig, ax = panels(width, 4.1 if wide else 3.7, bare=False, top=0.83, bottom=0.1, **edges)
    lengths = [round(1024 * 2 ** (i / 16)) for i in range(16 * 8 + 1)]  # 1,024 to 262,144
    colours: dict[AttentionCount, str] = {"no causal half": MUTED, "causal half": POSITIVE, "exact pairs": INK}
    dashes: dict[AttentionCount, Any] = {
        "no causal half": (0, (5, 2)),
        "causal half": (0, (1.5, 1.5)),
        "exact pairs": "-",
    }
    ax.set(xscale="log", xlim=(1024, lengths[-1]), ylim=(0, 1.5))
    ax.axhline(1, color=MUTED, lw=0.8)
    ax.axvline(config.max_positions, color=MUTED, lw=0.8, ls=(0, (4, 3)))
    for count in ATTENTION_COUNTS:
        share = [accounting.attention_share(config, t, count) for t in lengths]
        ax.plot(lengths, share, color=colours[count], ls=dashes[count], lw=1.6 if count == "exact pairs" else 1.2)
        equal, first = accounting.tokens_until_attention_equals(config, count), count == ATTENTION_COUNTS[0]
        if equal is not None:
            ax.plot([equal], [1], "o", color=colours[count], ms=5, clip_on=False, zorder=5)
            beside = (8, -11) if wide or count == "exact pairs" else (6, 4)
            ax.annotate(
                f"{equal:,}", (equal, 1), (-6, 5) if first else beside, textcoords="offset points",
                color=colours[count], ha="right" if first else "left", fontsize=9 if wide else 8, weight="bold",
                annotation_clip=False, bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}, zorder=4,
            )  # fmt: skip
    for tokens in SHARES:
        share_here = accounting.attention_share(config, tokens)
        ax.plot([tokens], [share_here], "o", color=INK, ms=4, mfc=PAPER, zorder=5)
        ax.annotate(
            f"{100 * share_here:.1f} %", (tokens, share_here), (7, -9), textcoords="offset points", color=INK,
            fontsize=8.5,
        )  # fmt: skip
    ax.set_xticks([1024, 8192, 32_768, 163_840], ["1,024", "8,192", "32,768", "163,840"], fontsize=8 if wide else 7.5)
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
    if wide:
        y = accounting.attention_share(config, lengths[-1])
        ax.text(x, y, words["exact pairs"], color=INK, fontsize=8.5, va="center", clip_on=False)
    else:
        ax.text(180_000, 0.42, "this model,\nexact pairs", color=INK, fontsize=8, va="center", clip_on=False)
    ax.text(
        config.max_positions * (0.97 if wide else 1.05),
        0.04,
        "window",
        color=MUTED,
        fontsize=8.5,
        ha="right" if wide else "left",
    )
    label(ax, 1100, 1.03, "attention = 6N" if wide else "= 6N", fontsize=8.5, va="bottom")
    ax.annotate(
        "Attention as a share of 6N", (0, 1), (0, 34), xycoords="axes fraction", textcoords="offset points",
        fontsize=10, weight="bold",
    )  # fmt: skip
    return fig


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
    fig, ax = panels(NARROW, 3.1, left=0.01, right=0.99, top=0.85, bottom=0.02)
    limits(ax, 0, 100, 0, 62, equal=False)
    speed = run.chips * peak * mfu
    for y, items, product in (
        (
            4,
            [("6", "FLOPs each"), (f"{n / 1e9:.2f}e9", "N, parameters"), (f"{tokens:.3g}", "D, tokens")],
            f"= {run.flops:.3g} FLOPs",
        ),
        (
            28,
            [(f"{run.chips:,}", chip), (f"{peak:.4g}", "peak FLOP/s, dense"), (f"{mfu:g}", "MFU")],
            f"= {speed:.3g} FLOP/s",
        ),
    ):
        for i, (value, name) in enumerate(items):
            x = (14, 50, 86)[i]
            ax.text(x, y, value.replace("e+", "e"), ha="center", va="center", fontsize=11.5)
            ax.text(x, y + 5.4, name, ha="center", va="center", fontsize=8.5, color=MUTED)
            if i:
                ax.text(x - 18, y, "·", ha="center", va="center", fontsize=12)
        ax.text(99, y + 12, product.replace("e+", "e"), ha="right", va="center", fontsize=9.5)
    ax.plot([1, 99], [21.6, 21.6], color=INK, lw=1.1)
    glow(ax, 55, 48.5, 44, 11)
    lit_box(ax, 55, 48.5, 44, 11)
    ax.text(77, 54, days(run.days), ha="center", va="center", fontsize=12, weight="bold", color=LIT)
    ax.text(52, 54, f"= {run.seconds:,.0f} s =", ha="right", va="center", fontsize=10.5)
    heading(ax, "How long a cluster trains", "above the line is work, below it is speed")
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
    high = 0.6 + 0.5 * len(rows)
    fig, ax = panels(NARROW, high, left=0.01, right=0.99, top=1 - 0.434 / high, bottom=0.02)
    limits(ax, 0, 0.58, 0, len(rows), equal=False)
    _block(ax, published[0], 0, published[1] - published[0], len(rows), FAINT, 0.8, zorder=0)
    for i, (name, low, high) in enumerate(rows):
        lit, start = i == 0, 0 if low == high else low
        _block(ax, start, i + 0.46, high - start, 0.4, PAPER)
        _block(ax, start, i + 0.46, high - start, 0.4, POSITIVE, 0.6)
        label(ax, 0, i + 0.26, name, INK, lit=lit, fontsize=8.5)
        text = f"{100 * high:.1f} %" if low == high else f"{100 * low:.0f} to {100 * high:.0f} %"
        label(ax, high + 0.008, i + 0.66, text, INK, lit=lit, fontsize=8.5)
    heading(ax, "One run, five percentages", "Llama 3.1 405B; the band is what was published")
    return show(fig, "; ".join(f"{name} {100 * high:.1f} %" for name, _, high in rows) + ".")


# The calculator

TRILLIONS = (2.0, 4.0, 8.4, 15.6)
CHIPS = (256, 1024, 4096, 16_384)
MFUS = (20, 30, 40, 50)
MARKS = ((1 / 24, "an hour"), (1, "a day"), (7, "a week"), (30, "30 days"), (365, "a year"))


def days_stepper() -> Stepper:
    """Tokens, chips and MFU → the days in which this model's shape is trained on H100s."""
    n, peak = accounting.parameters(RNJ_1_5).total, cluster.PEAKS["H100"]

    def draw(trillions: float, chips: int, mfu: int) -> Frame:
        tokens = trillions * 1e12
        run = accounting.training_run(accounting.six_n_d(n, tokens), chips, peak, mfu / 100)
        fig, ax = panels(NARROW, 1.6, left=0.01, right=0.99, top=0.7, bottom=0.15)
        least, most = MARKS[0][0], MARKS[-1][0]
        ax.set(xscale="log", xlim=(least, most), ylim=(0, 1))
        ax.plot([least, most], [0.3, 0.3], color=MUTED, lw=0.8, clip_on=False, zorder=1)
        ax.plot([run.days], [0.3], "o", color=LIT, ms=7, clip_on=False)
        ax.plot([run.days] * 2, [0.3, 0.62], color=LIT, lw=1)
        side = "left" if run.days < 0.5 else "right" if run.days > 60 else "center"
        ax.text(run.days, 0.7, days(run.days), ha=side, va="bottom", fontsize=9, weight="bold", color=LIT)
        for day, name in MARKS:
            ax.plot([day, day], [0.18, 0.42], color=MUTED, lw=0.8, clip_on=False)
            side = {least: "left", most: "right"}.get(day, "center")
            ax.text(day, 0.05, name, ha=side, va="top", fontsize=8, color=MUTED)
        heading(ax, "Days on this cluster", f"{chips:,} H100 at {mfu} %; the scale is logarithmic")
        text = f"6 · {n:,} · {tokens:.3g} FLOPs".replace("e+", "e") + f" on {chips:,} chips take {days(run.days)}."
        numbers = {"FLOPs": run.flops, "days": run.days, "GPU-days": run.chip_days, "GPU-hours": run.chip_hours}
        return Frame(fig, text, numbers, f"A mark at {days(run.days)} on a scale from an hour to a year.")

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


CALCULATED = ("GPT-3 175B", "Llama 2 70B", "Llama 3.1 405B")
SEEN = tuple(facts.number(f"{model}, tokens") / 1e12 for model in CALCULATED)  # trillions
QUOTED = (34.6, 42.8)  # % MFU: those of the runs with published hours
PRICES = (2.0, 4.0)


def calculator_stepper() -> Stepper:
    """Model, tokens, chip, MFU and price → what a training run costs by 6·N·D, as a receipt.

    At a published run's own settings the published number stands beside the computed one.
    """
    published = {(check.model, check.what): check.published for check in cluster.checks()}

    def draw(model: str, trillions: float, chip: str, mfu: float, price: float) -> Frame:
        n, tokens = cluster.parameters(model), trillions * 1e12
        run = cluster.estimate(model, tokens, chip, mfu / 100, price)
        own = tokens == facts.number(f"{model}, tokens")
        known = {what: published.get((model, what)) if own else None for what in ("FLOPs", "PF-days")}
        check = next((c for c in cluster.checks() if (c.model, c.what) == (model, f"{chip}-hours")), None)
        as_given = own and check is not None and check.given == f"MFU {mfu:g} %"
        hours = check.published if check is not None and as_given else None
        days_of = accounting.petaflop_days(run.flops)
        lines = [
            ("N, parameters", f"{n:,}", ""),
            ("D, tokens", f"{tokens:.3g}".replace("e+", "e"), "as published" if own else ""),
            ("6 · N · D", f"{run.flops:.4g} FLOPs".replace("e+", "e"), _beside(known["FLOPs"], ".3g")),
            ("", f"{days_of:,.0f} PF-days", _beside(known["PF-days"], ",.0f")),
            (f"{chip}, dense peak", f"{cluster.PEAKS[chip] / 1e12:g} TFLOP/s", ""),
            ("MFU", f"{mfu:g} %", ""),
            ("chip-hours", f"{run.chip_hours:,.0f}", _beside(hours, ",.0f")),
            ("price of an hour", f"${price:g}", ""),
        ]
        fig, ax = panels(SCREEN, 3.3, left=0.02, right=0.98, top=0.99, bottom=0.02)
        limits(ax, 0, 34, 0, 21.4, equal=False)
        for i, (name, value, beside) in enumerate(lines):
            y = 1.2 + 2.2 * i
            label(ax, 0.3, y, name, MUTED)
            label(ax, 21.6, y, value, INK, ha="right", fontsize=9)
            label(ax, 33.8, y, beside, POSITIVE, ha="right", fontsize=8)
        ax.plot([0.3, 33.7], [18.1, 18.1], color=INK, lw=0.8)
        glow(ax, 0, 18.5, 34, 2.7)
        label(ax, 0.3, 19.9, "cost", INK, lit=True)
        label(ax, 21.6, 19.9, dollars(run.cost), LIT, ha="right", lit=True, fontsize=10.5)
        text = "By 6·N·D alone: attention, restarts, failed runs and everything tried before are left out."
        numbers: dict[str, float | None]
        numbers = {"FLOPs": run.flops, "chip-hours": run.chip_hours, "dollars": run.cost}
        numbers["off the published hours, %"] = None if hours is None else 100 * (run.chip_hours / hours - 1)
        alt = f"{model}, {trillions:g} trillion tokens on {chip} at {mfu:g} %: {run.chip_hours:,.0f} chip-hours."
        return Frame(fig, text, numbers, alt)

    return Stepper(
        "A calculator for training runs",
        [
            Choice("model", list(CALCULATED), value="Llama 2 70B"),
            Slider("trillions", SEEN, value=2.0, label="tokens", unit="trillion", live_step=0.1),
            Choice("chip", ["A100", "H100"]),
            Slider("mfu", QUOTED, value=42.8, label="MFU", unit="%", live_step=0.1),
            Slider("price", PRICES, value=2.0, unit="dollars a chip-hour", live_step=0.5),
        ],
        draw,
        name="cluster-dollars",
    )


def _beside(value: float | None, spec: str) -> str:
    return "" if value is None else f"published {value:{spec}}".replace("e+", "e")


# Tables --------------------------------------------------------------------------------------------------------------


def models_table(models: Sequence[DenseModel]) -> HTML:
    """Known models as a table, each row counted from its hyperparameters."""
    columns = ("year", "parameters", "cache, B", "L", "D", "F", "N / K", "H", "V")
    rows = []
    for m in models:
        cells = (
            str(m.year),
            f"{m.parameters():,}",
            f"{m.kv_cache_bytes(1):,}",
            f"{m.n_encoder_layers} + {m.n_layers}" if isinstance(m, EncoderDecoder) else str(m.n_layers),
            f"{m.d_model:,}",
            f"{m.d_ff:,}",
            f"{m.n_heads} / {m.n_kv_heads}",
            str(m.head_dim),
            f"{m.vocab_size:,}",
        )
        rows.append(f'<tr><th scope="row">{m.name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    head = f'<th scope="col">model</th>{"".join(f"<th scope=col>{name}</th>" for name in columns)}'
    look = "<style>.rnj-models :is(th,td){white-space:nowrap;text-align:right;padding:.3rem .3rem}"
    look += ".rnj-models tr>:first-child{text-align:left}</style>"
    scroll = '<div class="rnj-models" style="overflow-x:auto" tabindex="0" role="group" aria-label="Known models">'
    table = f'<table class="table" style="font-size:.8rem"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>'
    return HTML(f"{scroll}{look}{table}</table></div>")


def checks_table(rows: Sequence[Row]) -> HTML:
    """The rows of gpu_check.check() as a table: what was checked, found, expected, and whether they agree."""
    mark = {True: "ok", False: "FAILED", None: ""}
    cells: list[list[str]] = []
    for row in rows:
        if row.what:
            cells.append([row.what, row.found, row.expected, mark[row.ok]])
        else:  # the line above goes on
            cells[-1][1] += f" {row.found}"
    body = "".join(
        f'<tr><th scope="row">{escape(what)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for what, *rest in cells
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("what", "found", "expected", ""))
    look = "<style>.rnj-checks :is(th,td){text-align:left;vertical-align:top;padding:.3rem .4rem}</style>"
    scroll = '<div class="rnj-checks" style="overflow-x:auto" tabindex="0" role="group" aria-label="Checks">'
    table = f'<table class="table" style="font-size:.8rem"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
    return HTML(f"{scroll}{look}{table}</table></div>")


STEPPERS = {
    "cache-bytes": cache_stepper,
    "cache-filling": filling_stepper,
    "cluster-days": days_stepper,
    "cluster-dollars": calculator_stepper,
}
