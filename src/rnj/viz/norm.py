"""Figures and steppers of chapter 2: what a norm keeps and loses, and where the block's norms stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from torch import Tensor

from rnj.lab.norms import PLACEMENTS, Profile, depth_profile, layer_norm
from rnj.norm import RMSNorm
from rnj.viz.figure import NARROW, Shown, end_label, heading, label, limits, panels, show, vector_strip
from rnj.viz.palette import FAINT, GLOW, INK, LIT, MUTED, PAPER, POSITIVE
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

SCREEN = 3.55  # inches: a stepper on a phone, without scrolling
START = (1.2, -0.4, 0.3, -1.6, 0.9, 0.1, -0.7, 0.5)  # the vector that the stepper scales and shifts
COLOURS = {"post": MUTED, "pre": POSITIVE, "four": INK}
TITLES = {"post": "post-norm", "pre": "pre-norm", "four": "four norms"}


def rms(x: Tensor) -> float:
    """The root of the mean square."""
    return x.float().pow(2).mean().sqrt().item()


# --- By hand


def steps_figure(x: Tensor, size: float, scaled: Tensor, gain: Tensor, y: Tensor, name: str) -> Shown:
    """The first eight of D numbers through RMSNorm: vector, squares, scaled vector, gain 1 + w, result.

    x, scaled, gain, y: [D]; size: the root-mean-square that x was divided by.
    """
    fig, ax = panels(NARROW, 3.6, left=0.15, right=0.99, top=0.9, bottom=0.04)
    limits(ax, -0.1, 8.3, -0.2, 8.2, equal=False)
    rows = [
        ("x", x, f"root-mean-square {rms(x):.4f}", INK),
        ("x²", x.pow(2), f"mean over all {len(x)}: {x.pow(2).mean():.4f}, its root {size:.4f}", MUTED),
        ("x / rms", scaled, f"root-mean-square {rms(scaled):.4f}", INK),
        ("1 + w", gain, "one number a place, learned", MUTED),
        ("y", y, f"root-mean-square {rms(y):.4f}", INK),
    ]
    for i, (word, vector, note, shade) in enumerate(rows):
        at = (0.0, 1.65 * i)
        vector_strip(ax, vector[:8], numbers=".2f", at=at, lit=word in ("x", "y"), fontsize=7)
        label(ax, -0.25, at[1] + 0.5, word, colour=shade, ha="right", lit=word in ("x", "y"))
        label(ax, 0.02, at[1] + 1.22, note, fontsize=8)
    heading(ax, f"“{name}”, 8 of {len(x)} numbers")
    alt = f"Five strips of eight numbers: x, its squares with mean {x.pow(2).mean():.4f}, x divided by {size:.4f}, "
    return show(fig, alt=alt + "the gain 1 + w, and the product of the last two, y.")


def plane_figure(points: Tensor, by_rms: Tensor, by_layer: Tensor) -> Shown:
    """Vectors of two numbers before and after both norms. points, by_rms, by_layer: [n, 2]."""
    alt = "Vectors in the plane. RMSNorm moves each along its own direction to a circle of radius root 2; "
    alt += "LayerNorm puts every one on one of two points, (1, -1) or (-1, 1)."
    wide, axes = panels(NARROW * 1.9, 3.3, columns=2, left=0.01, right=0.99, top=0.84, bottom=0.01, wspace=0.08)
    tall, stacked = panels(NARROW, 6.4, rows=2, left=0.01, right=0.99, top=0.92, bottom=0.01, hspace=0.18)
    for pair in (axes, stacked):
        _plane(pair[0], points, by_rms, layer=False)
        _plane(pair[1], points, by_layer, layer=True)
    return show(wide, alt=alt, narrow=tall)


def _plane(ax: Axes, points: Tensor, after: Tensor, layer: bool) -> None:
    ax.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
    ax.plot([-3, 3], [0, 0], [0, 0], [-3, 3], color=FAINT, lw=0.8, zorder=0)
    if layer:
        ax.plot([-2.4, 2.4], [-2.4, 2.4], color=MUTED, lw=0.8, ls=(0, (4, 3)), zorder=0)
        label(ax, 1.75, 2.35, "mean only", ha="right")
        heading(ax, "LayerNorm", "what lies along (1, 1) goes")
    else:
        turn = np.linspace(0, 2 * math.pi, 120)
        ax.plot(math.sqrt(2) * np.cos(turn), math.sqrt(2) * np.sin(turn), color=MUTED, lw=0.8, zorder=0)
        label(ax, 0.12, -0.75, "radius √2")
        label(ax, -2.9, -2.75, "○ before")
        label(ax, -1.2, -2.75, "● after", colour=INK)
        heading(ax, "RMSNorm", "the direction stays")
    for (a, b), (c, d) in zip(points.tolist(), after.tolist(), strict=True):
        ax.plot([a, c], [b, d], color=POSITIVE, lw=0.5, alpha=0.5, zorder=1)
    ax.plot(*points.T.numpy(), "o", ms=3.2, mfc=PAPER, mec=MUTED, mew=0.9, zorder=2)
    ax.plot(*after.T.numpy(), "o", ms=4.6, color=INK, zorder=3)


# --- In the block


def sizes_figure(trace: Mapping[str, Tensor], block: int, token: int, name: str) -> Shown:
    """The followed token's root-mean-square at nine points of one block, in the order in which they are made."""
    points = {
        "in": "residual stream",
        "pre_attn_norm": "norm",
        "attn.out": "attention",
        "post_attn_norm": "norm",
        "mid": "residual stream",
        "pre_mlp_norm": "norm",
        "mlp.out": "GeGLU",
        "post_mlp_norm": "norm",
        "out": "residual stream",
    }
    sizes = [rms(trace[f"block.{block}.{point}"][0, token]) for point in points]
    fig, ax = panels(NARROW, 3.3, left=0.34, right=0.85, top=0.86, bottom=0.02)
    low, high = min(sizes), max(sizes)
    left, right = math.log10(low) - 0.15, math.log10(high) + 0.1
    limits(ax, left, right, -0.6, len(points) - 0.4, equal=False)
    for i, (point, kind) in enumerate(points.items()):
        stream, norm = kind == "residual stream", kind == "norm"
        shade = LIT if stream else POSITIVE if norm else MUTED
        ax.plot([left, math.log10(sizes[i])], [i, i], color=FAINT if not stream else GLOW, lw=5 if stream else 1)
        ax.plot(math.log10(sizes[i]), i, "s" if norm else "o", ms=6, color=shade, mfc=PAPER if norm else shade)
        label(ax, left - 0.03 * (right - left), i, point, colour=shade, ha="right", lit=stream)
        label(ax, math.log10(sizes[i]) + 0.035 * (right - left), i, f"{sizes[i]:.3g}", colour=shade, lit=stream)
    heading(ax, f"“{name}” in block {block}", "root-mean-square at each point")
    listed = ", ".join(f"{point} {size:.3g}" for point, size in zip(points, sizes, strict=True))
    return show(fig, alt=f"Root-mean-square of the followed token's vector in block {block}: {listed}.")


def _log_axis(axis: Axes, ticks: Sequence[float]) -> None:
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def depth_figure(profiles: Mapping[str, Sequence[Profile]]) -> Shown:
    """Signal and gradient by depth for each placement of the norms: geometric mean over seeds, with the range."""
    fig, axes = panels(NARROW * 1.5, 5.4, rows=2, bare=False, left=0.11, right=0.76, top=0.91, bottom=0.08, hspace=0.45)
    texts = (
        ("Signal", "root-mean-square of the residual stream", (1, 2, 4, 8)),
        ("Gradient", "at the stream, as a share of the last layer's", (1, 2, 5, 10, 20, 50)),
    )
    for ax, kind, (title, below, ticks) in zip(axes, ("signal", "gradient"), texts, strict=True):
        _log_axis(ax, ticks)
        for placement, runs in profiles.items():
            values = np.array([getattr(run, kind) for run in runs])  # [seeds, layers + 1]
            mean = np.exp(np.log(values).mean(0))
            depth = np.arange(len(mean))
            shade = COLOURS[placement]
            ax.fill_between(depth, values.min(0), values.max(0), color=shade, alpha=0.18, lw=0)
            style = {"post": (0, (4, 2)), "pre": "-", "four": "-"}[placement]
            ax.plot(depth, mean, color=shade, lw=1.6 if placement == "four" else 1.2, ls=style)
            if kind == "signal":
                end_label(ax, depth[-1], mean[-1], f"{TITLES[placement]} {mean[-1]:.1f}", shade)
        ax.set(xlim=(0, depth[-1]))
        ax.set_xticks([0, depth[-1] // 2, depth[-1]])
        heading(ax, title, below)
    axes[1].set_xlabel("layers passed", fontsize=8.5, color=MUTED)
    starts = {p: float(np.exp(np.log([run.gradient[0] for run in runs]).mean())) for p, runs in profiles.items()}
    axes[1].set_ylim(0.8, 60)
    for rank, (placement, start) in enumerate(sorted(starts.items(), key=lambda item: -item[1])):
        text = f"{TITLES[placement]}: {start:.1f} at the input"
        label(axes[1], depth[-1] * 0.4, 45 / 1.5**rank, text, colour=COLOURS[placement])
    alt = "Two panels over depth. Signal: " + ", ".join(
        f"{TITLES[p]} ends at {np.exp(np.log([run.signal[-1] for run in runs]).mean()):.1f}"
        for p, runs in profiles.items()
    )
    alt += ". Gradient at the input: " + ", ".join(f"{TITLES[p]} {start:.1f}" for p, start in starts.items())
    return show(fig, alt=alt + " times the last layer's.")


# --- Steppers


def vector_stepper() -> Stepper:
    """A vector scaled and shifted, and what both norms make of it."""
    start = torch.tensor(START)  # [8]
    norm = RMSNorm(len(START))
    one, none = torch.ones(len(START)), torch.zeros(len(START))
    kept_rms, kept_layer = norm(start).detach(), layer_norm(start, one, none)

    def draw(scale: float, offset: float) -> Frame:
        x = scale * start + offset  # [8]
        by_rms, by_layer = norm(x).detach(), layer_norm(x, one, none)
        fig, ax = panels(SCREEN, 2.9, left=0.02, right=0.98, top=0.97, bottom=0.02)
        limits(ax, -0.05, 8.05, -0.9, 7.2, equal=False)
        strips = (
            ("x", x, "scale · start + offset"),
            ("RMSNorm(x)", by_rms, _moved(by_rms, kept_rms)),
            ("LayerNorm(x)", by_layer, _moved(by_layer, kept_layer)),
        )
        for i, (name, vector, note) in enumerate(strips):
            at = (0.0, 2.5 * i)
            label(ax, 0.05, at[1] - 0.4, name, colour=INK, lit=True)
            label(ax, 7.95, at[1] - 0.4, note, ha="right", fontsize=8)
            vector_strip(ax, vector, numbers=".2f", vmax=3.0, at=at, cell=(1.0, 1.35), fontsize=7)
        numbers = {
            "mean of x": x.mean().item(),
            "root-mean-square of x": rms(x),
            "RMSNorm moved by": (by_rms - kept_rms).norm().item(),
            "LayerNorm moved by": (by_layer - kept_layer).norm().item(),
        }
        alt = "Three strips: x, RMSNorm of x and LayerNorm of x. "
        return Frame(fig, numbers=numbers, alt=alt + f"RMSNorm {_moved(by_rms, kept_rms)}.")

    controls = [
        Slider("scale", (0.25, 0.5, 1.0, 2.0, 4.0), value=1.0, live_step=0.05),
        Slider("offset", (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0), value=0.0, live_step=0.05),
    ]
    return Stepper("What a norm keeps of a vector", controls, draw, name="vector")


def _moved(now: Tensor, start: Tensor) -> str:
    distance = (now - start).norm().item()
    return "as at the start" if distance < 1e-3 else f"moved by {distance:.2f}"


def eps_stepper() -> Stepper:
    """Small vectors meet eps: the size that comes out, by the size that goes in."""
    sizes = np.logspace(-7, 1, 81)

    def after(size: float, eps: float) -> float:
        return rms(RMSNorm(8, eps)(torch.full((8,), size)).detach())

    def draw(size: float, eps: float) -> Frame:
        out = after(size, eps)
        fig, ax = panels(SCREEN, 2.6, bare=False, left=0.13, right=0.97, top=0.86, bottom=0.17)
        ax.set(xscale="log", xlim=(1e-7, 10), ylim=(0, 1.12))
        ax.axvline(math.sqrt(eps), color=MUTED, lw=0.8, ls=(0, (4, 3)))
        label(ax, math.sqrt(eps) * 0.8, 1.05, "√eps", ha="right")
        ax.plot(sizes, [after(s, eps) for s in sizes], color=POSITIVE, lw=1.4)
        ax.plot(size, out, "o", ms=9, mfc=GLOW, mec=LIT, mew=1.3, zorder=5)
        ax.set_xticks([1e-6, 1e-4, 1e-2, 1])
        ax.set_xticklabels(["1e−6", "1e−4", "0.01", "1"])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_yticks([0, 0.5, 1])
        ax.set_xlabel("size of x", fontsize=8.5, color=MUTED)
        heading(ax, "Size after RMSNorm")
        text = "The vector is scaled to size 1." if out > 0.99 else "eps holds the vector back: it stays below size 1."
        alt = f"A curve that rises from 0 to 1 around the root of eps; the point at size {size:g} stands at {out:.4f}."
        return Frame(fig, text=text, numbers={"size before": size, "size after": out}, alt=alt)

    controls: list[Slider | Choice] = [
        Slider("size", (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.1, 1.0), value=1e-4, label="size of x"),
        Choice("eps", (1e-5, 1e-6, 1e-8), value=1e-6),
    ]
    return Stepper("What eps is for", controls, draw, name="eps")


DEPTHS = (4, 12, 24)
SCALES = (0.5, 1.0, 2.0)


@cache
def _profiles(layers: int, scale: float) -> dict[str, Profile]:
    return {p: depth_profile(p, layers, d_model=32, length=16, scale=scale) for p in PLACEMENTS}


def depth_stepper() -> Stepper:
    """The number of layers and the size of all weights → signal and gradient by depth, for three places of the norms.

    Measured anew for every setting, on a narrow stack with fresh weights.
    """

    def draw(layers: int, scale: float) -> Frame:
        profiles = _profiles(layers, scale)
        fig, axes = panels(SCREEN, 4.3, rows=2, bare=False, left=0.14, right=0.68, top=0.895, bottom=0.09, hspace=0.5)
        texts = (
            ("signal", "Signal", "root-mean-square of the stream", (1, 10, 100)),
            ("gradient", "Gradient", "as a share of the last layer's", (1, 100, 10_000)),
        )
        for ax, (kind, title, below, ticks) in zip(axes, texts, strict=True):
            _log_axis(ax, ticks)
            ax.set(xlim=(0, layers), ylim=(0.6, 150) if kind == "signal" else (0.6, 3e4))
            ends = {}
            for placement, profile in profiles.items():
                values = getattr(profile, kind)
                style = {"post": (0, (4, 2)), "pre": "-", "four": "-"}[placement]
                width = 1.6 if placement == "four" else 1.2
                ax.plot(range(layers + 1), values, color=COLOURS[placement], lw=width, ls=style)
                ends[placement] = values[-1] if kind == "signal" else values[0]
            rank = sorted(ends, key=lambda placement: -ends[placement])
            for i, placement in enumerate(rank):
                said = f"{TITLES[placement]} {ends[placement]:,.3g}".replace("e+0", "e")
                shade, at = COLOURS[placement], (1.04, 0.92 - 0.2 * i)
                ax.text(*at, said, transform=ax.transAxes, color=shade, fontsize=8.5, va="center", clip_on=False)
            ax.set_xticks([0, layers])
            heading(ax, title, below)
        axes[1].set_xlabel("layers passed", fontsize=8.5, color=MUTED)
        far = {p: profile.gradient[0] for p, profile in profiles.items()}
        most = max(far, key=lambda placement: far[placement])
        numbers = {f"signal at the end, {TITLES[p]}": profiles[p].signal[-1] for p in PLACEMENTS}
        numbers |= {f"gradient at the input, {TITLES[p]}": far[p] for p in PLACEMENTS}
        return Frame(
            fig,
            text=f"{layers} layers, weights times {scale:g}: the gradient grows most with {TITLES[most]}.",
            numbers=numbers,
            alt=f"Two panels over {layers} layers. " + ", ".join(f"{k} {v:.3g}" for k, v in numbers.items()) + ".",
        )

    controls: list[Slider | Choice] = [
        Slider("layers", DEPTHS, value=12, live_step=1),
        Slider("scale", SCALES, value=1.0, label="size of the weights", live_step=0.25),
    ]
    return Stepper("Depth, and the size of the weights", controls, draw, name="norm-depth")


def points_in_the_plane(n: int = 14) -> Tensor:
    """Vectors of two numbers in all directions, at seeded lengths: [n, 2]."""
    generator = torch.Generator().manual_seed(1)
    turn = torch.arange(n) * 2 * math.pi / n + 0.1
    length = 0.5 + 2.3 * torch.rand(n, generator=generator)
    return torch.stack([length * turn.cos(), length * turn.sin()], dim=1)


STEPPERS = {"vector": vector_stepper, "eps": eps_stepper, "norm-depth": depth_stepper}
