"""Figures and steppers of chapter 3: the gate, the value and their product; four forms; what one feature does.

Where a gate is below zero the product has the opposite sign of the value: such features are red and hollow here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from rnj import accounting
from rnj.config import Config
from rnj.lab import ffn
from rnj.viz.figure import (
    NARROW,
    Shown,
    arrow,
    grid,
    heading,
    label,
    limits,
    lit_box,
    number,
    panels,
    show,
    vector_strip,
)
from rnj.viz.palette import FAINT, GLOW, INK, LIT, MUTED, NEGATIVE, PAPER, POSITIVE
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

FORMULAS = {"ReLU": "relu(g)", "GLU": "sigmoid(g) · u", "SwiGLU": "silu(g) · u", "GeGLU": "gelu(g) · u"}
RANGE = np.linspace(-4, 4, 161)  # of the curves
DASHED = (0, (4, 3))


def _curve(act: Callable[[Tensor], Tensor], x: Any) -> np.ndarray:
    return act(torch.as_tensor(x, dtype=torch.float64)).numpy()


def _value(act: Callable[[Tensor], Tensor], x: float) -> float:
    return act(torch.tensor(x, dtype=torch.float64)).item()


def _signed(value: float, spec: str = ".2f") -> str:
    return number(value, spec)


# --- By hand


def geglu_figure(
    x: Tensor,
    gate: Tensor,
    gate_act: Tensor,
    up: Tensor,
    product: Tensor,
    y: Tensor,
    features: Sequence[int],
    name: str,
) -> Shown:
    """One vector through GeGLU, from top to bottom: eight numbers of x and of y, four features of what lies between.

    x, y: [D]; gate, gate_act, up, product: [F]; features: four of 0 … F - 1, written over the strips.
    """
    chosen = list(features)
    if len(chosen) != 4:
        raise ValueError(f"four features are drawn, not {len(chosen)}")
    d, f = len(x), len(gate)
    fig, ax = panels(NARROW, 5.3, left=0.02, right=0.98, top=0.91, bottom=0.01)
    limits(ax, -0.05, 8.45, -0.9, 17.2, equal=False)
    right, middle = 4.4, 2.2
    strips = (
        ("x", f"[D] = {d}", x[:8], (0.2, 0.0), True),
        ("gate", f"[F] = {f}", gate[chosen], (0.0, 4.2), False),
        ("up", f"[F] = {f}", up[chosen], (right, 4.2), False),
        ("gelu(gate)", "", gate_act[chosen], (0.0, 7.6), False),
        ("product", f"[F] = {f}", product[chosen], (middle, 11.4), False),
        ("y", f"[D] = {d}", y[:8], (0.2, 15.6), True),
    )
    for word, shape, vector, (left, top), lit in strips:
        vector_strip(ax, vector, numbers=".2f", at=(left, top), lit=lit, fontsize=7, vmax=2.6)
        label(ax, left + 0.03, top - 0.45, word, colour=INK, lit=lit)
        label(ax, left + len(vector) - 0.03, top - 0.45, shape, ha="right", fontsize=8)
    for (a, b), text in (((2.0, 2.0), "gate_proj"), ((right + 2, right + 2), "up_proj")):
        arrow(ax, (a, 1.25), (b, 3.2), INK)
        label(ax, a + 0.2, 2.0, text, fontsize=8)
    arrow(ax, (2.0, 5.4), (2.0, 6.65), INK)
    label(ax, 2.2, 5.95, "GELU", fontsize=8)
    ax.plot([2.0, 2.0, 4.0], [8.8, 9.7, 9.7], color=INK, lw=0.9, clip_on=False)
    ax.plot([right + 2, right + 2, 4.4], [5.4, 9.7, 9.7], color=INK, lw=0.9, clip_on=False)
    ax.plot([4.2], [9.7], "o", ms=11, mfc=PAPER, mec=INK, mew=0.9, clip_on=False)
    label(ax, 4.2, 9.67, "×", colour=INK, ha="center", va="center_baseline", fontsize=10)
    arrow(ax, (4.2, 10.1), (4.2, 10.75), INK)
    arrow(ax, (4.2, 12.6), (4.2, 14.7), INK)
    label(ax, 4.4, 13.5, "down_proj", fontsize=8)
    listed = "features " + ", ".join(str(i) for i in chosen)
    heading(ax, f"“{name}”: {d} → {f} → {d}", f"the first 8 numbers of x and y; {listed}")
    alt = f"x of {d} numbers goes through two projections to {f} numbers each, gate and up. "
    pairs = ", ".join(
        f"{_signed(a)} times {_signed(u)} is {_signed(p)}"
        for a, u, p in zip(gate_act[chosen].tolist(), up[chosen].tolist(), product[chosen].tolist(), strict=True)
    )
    return show(
        fig, alt=alt + f"GELU of the gate times up, for four of them: {pairs}. down projects to y, {d} numbers."
    )


# --- Curves


def gelu_figure() -> Shown:
    """The tanh GELU beside ReLU with its minimum, and below it how far the erf form is away."""
    fig, axes = panels(
        NARROW, 4.3, rows=2, bare=False, left=0.13, right=0.97, top=0.89, bottom=0.1, hspace=0.5, height_ratios=(2, 1)
    )  # fmt: skip
    x = np.linspace(-4, 3, 281)
    y = _curve(ffn.gelu_tanh, x)
    least = int(y.argmin())
    ax = axes[0]
    _axes_through_zero(ax, -4, 3, -0.6, 3.05)
    ax.plot(x, np.maximum(x, 0), color=MUTED, lw=1.0, ls=DASHED)
    ax.fill_between(x, y, 0, where=y < 0, color=NEGATIVE, alpha=0.25, lw=0)
    ax.plot(x, y, color=POSITIVE, lw=1.6)
    label(ax, 1.35, 2.25, "ReLU", ha="right")
    label(ax, 1.75, 1.1, "GELU", colour=POSITIVE)
    ax.plot(x[least], y[least], "o", ms=4, color=NEGATIVE)
    label(ax, x[least], -0.46, f"{_signed(y[least])} at {_signed(x[least])}", colour=NEGATIVE, ha="center", fontsize=8)
    ax.set(xticks=[-4, -2, 0, 2], yticks=[0, 1, 2, 3])
    heading(ax, "GELU, the tanh form")
    ax = axes[1]
    wide = np.linspace(-4, 4, 641)
    gap = (_curve(ffn.gelu_tanh, wide) - _curve(ffn.gelu_erf, wide)) * 1e4
    most = int(np.abs(gap).argmax())
    _axes_through_zero(ax, -4, 4, -6, 6)
    ax.plot(wide, gap, color=POSITIVE, lw=1.2)
    ax.plot(-abs(wide[most]), gap[most], "o", ms=3.5, color=INK)
    ax.plot(abs(wide[most]), gap[most], "o", ms=3.5, color=INK)
    label(ax, 0, gap[most] * 0.95, f"{gap[most]:.2f} at ±{abs(wide[most]):.2f}", colour=INK, ha="center", fontsize=8)
    ax.set(xticks=[-4, -2, 0, 2, 4], yticks=[-5, 0, 5])
    ax.set_xlabel("gate", fontsize=8.5, color=MUTED)
    heading(ax, "tanh form − erf form, in units of 10⁻⁴")
    alt = f"The GELU curve: near 0 far to the left, {y[least]:.2f} at {x[least]:.2f}, 0 at 0, then close to ReLU. "
    alt += f"Below, the tanh form less the erf form, at most {gap[most]:.2f}e-4 at {abs(wide[most]):.2f} either side."
    return show(fig, alt=alt)


def _axes_through_zero(ax: Axes, left: float, right: float, low: float, high: float) -> None:
    """Two hairlines through the origin in place of a frame."""
    ax.set(xlim=(left, right), ylim=(low, high))
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.plot([left, right], [0, 0], color=MUTED, lw=0.6, zorder=0)
    ax.plot([0, 0], [low, high], color=FAINT, lw=0.8, zorder=0)
    ax.tick_params(length=0)


def forms_figure() -> Shown:
    """What the gate is multiplied by, or handed on as, in the four forms: four small curves, negative parts filled."""
    fig, axes = panels(
        NARROW, 3.9, rows=2, columns=2, bare=False, left=0.07, right=0.98, top=0.87, bottom=0.07, hspace=0.6, wspace=0.2
    )  # fmt: skip
    least = []
    for ax, form in zip(axes.flat, ffn.FORMS, strict=True):
        y = _curve(ffn.ACTIVATIONS[form], RANGE)
        _axes_through_zero(ax, -4, 4, -0.95, 4)
        ax.fill_between(RANGE, y, 0, where=y < 0, color=NEGATIVE, alpha=0.3, lw=0)
        ax.plot(RANGE, y, color=POSITIVE, lw=1.5)
        ax.set(xticks=[-4, 0, 4], yticks=[0, 1, 4])
        heading(ax, form if form != "ReLU" else "ReLU, no gate", FORMULAS[form])
        least.append(f"{form} {y.min():.2f}")
        if y.min() < -0.01:
            label(ax, -3.9, -0.62, f"least {_signed(y.min())}", colour=NEGATIVE, fontsize=8)
    alt = "Four curves over the gate's input: ReLU bends at 0, the sigmoid of GLU rises from 0 to 1, SiLU and GELU dip "
    return show(fig, alt=alt + "below zero and then follow the input. Least values: " + ", ".join(least) + ".")


# --- Signs


def signs_figure(gate: Tensor, up: Tensor, product: Tensor, name: str) -> Shown:
    """Every feature's product over its up value: those of negative gates lie in the wedge between 0 and -0.17 · up.

    gate, up, product: [F].
    """
    turned = (gate < 0).numpy()
    u, p = up.numpy(), product.numpy()
    far, high = float(np.abs(u).max()) * 1.05, float(np.abs(p).max()) * 1.1
    high = max(high, 0.6 * far)  # so that the wedge leaves room
    least = float(_curve(ffn.gelu_tanh, np.linspace(-1, -0.5, 5001)).min())
    fig, ax = panels(NARROW, 3.9, bare=False, left=0.11, right=0.97, top=0.85, bottom=0.11)
    _axes_through_zero(ax, -far, far, -high, high)
    ends = np.array([-far, 0, far])
    ax.fill_between(ends, 0, least * ends, color=NEGATIVE, alpha=0.16, lw=0, zorder=0.5)
    ax.plot(u[~turned], p[~turned], "o", ms=2.6, color=POSITIVE, mew=0, alpha=0.75)
    ax.plot(u[turned], p[turned], "o", ms=2.6, mfc=PAPER, mec=NEGATIVE, mew=0.7)
    label(ax, far * 0.05, high * 0.93, f"● {int((~turned).sum())} keep the sign", colour=POSITIVE, ha="right")
    label(ax, far * 0.98, -high * 0.93, f"○ {int(turned.sum())} turn it", colour=NEGATIVE, ha="right")
    label(ax, -far * 0.98, -least * far + high * 0.07, f"product = {_signed(least)} · up", colour=NEGATIVE, fontsize=8)
    aside, up_to = (float(f"{edge / 2:.1g}") for edge in (far, high))
    ax.set(xticks=[-aside, 0, aside], yticks=[-up_to, 0, up_to])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: _signed(value, "g"))
    ax.set_xlabel("up", fontsize=8.5, color=MUTED)
    heading(ax, f"“{name}”: {len(u)} features", "product over up, one point a feature")
    alt = f"{len(u)} points, product over up. {int((~turned).sum())} have both of one sign and spread; "
    return show(fig, alt=alt + f"{int(turned.sum())} have opposite signs and lie within {least:.2f} times up.")


def turner_figure(turner: ffn.Turner, gate: Tensor, up: Tensor, product: Tensor, labels: Sequence[str]) -> Shown:
    """One feature over a whole row: a point a token, its gate across, its product up; turned signs hollow and named.

    gate, up, product: [T], of that feature; labels: the row's tokens. The five longest turned ones are named.
    """
    turned = (product * up < 0).numpy()
    g, p = gate.numpy(), product.numpy()
    fig, ax = panels(NARROW * 1.3, 3.9, bare=False, left=0.1, right=0.97, top=0.85, bottom=0.12)
    wide, high = float(np.abs(g).max()) * 1.15, float(np.abs(p).max()) * 1.25
    _axes_through_zero(ax, -wide, wide, -high, high)
    ax.fill_between([-wide, 0], -high, high, color=NEGATIVE, alpha=0.08, lw=0, zorder=0.4)
    ax.plot(g[~turned], p[~turned], "o", ms=3, color=POSITIVE, mew=0, alpha=0.7)
    ax.plot(g[turned], p[turned], "o", ms=3.2, mfc=PAPER, mec=NEGATIVE, mew=0.8)
    said: list[str] = []
    for t in turner.tokens.tolist():
        if labels[t] not in said and len(said) < 5:
            said.append(labels[t])
            y = high * (0.92 - 0.12 * len(said))
            ax.plot([g[t], -0.62 * wide], [p[t], y], color=NEGATIVE, lw=0.5, alpha=0.6)
            label(ax, -0.64 * wide, y, f"{labels[t]}  {_signed(float(p[t]))}", NEGATIVE, ha="right", fontsize=8)
    label(ax, 0.98 * wide, -0.93 * high, f"● {int((~turned).sum())} keep the sign", POSITIVE, ha="right")
    label(ax, -0.98 * wide, -0.93 * high, f"○ {int(turned.sum())} turn it", NEGATIVE)
    ax.set(xticks=[], yticks=[])
    ax.set_xlabel("gate", fontsize=8.5, color=MUTED)
    heading(ax, f"Feature {turner.feature} of block {turner.block}", f"product over gate, {len(g)} tokens")
    alt = (
        f"{len(g)} points, a feature's product over its gate. Left of zero {int(turned.sum())} have the opposite sign "
    )
    return show(fig, alt + f"of their value; the longest are at {', '.join(said)}.")


# --- One feature


def features_figure(product: Tensor, down: Tensor, y: Tensor, name: str, rows: int = 6, columns: int = 6) -> Shown:
    """What single features add to y: product · column of down, the longest first; the sum of the others; y.

    product: [F]; down: [D, F]; y: [D]. The first `columns` numbers of each are drawn.
    """
    added = product * down  # [D, F]
    order = added.norm(dim=0).argsort(descending=True)[:rows]  # features
    others = added.sum(1) - added[:, order].sum(1)  # [D]
    table = torch.cat([added[:columns, order].T, others[None, :columns], y[None, :columns]])  # [rows + 2, columns]
    fig, ax = panels(NARROW, 3.7, left=0.35, right=0.99, top=0.83, bottom=0.02)
    limits(ax, -0.1, columns + 0.1, -0.9, rows + 3.0, equal=False)
    top = float(table.abs().max())
    for i, (feature, vector) in enumerate(zip(order.tolist(), table, strict=False)):
        vector_strip(ax, vector, numbers=".2f", vmax=top, at=(0.0, float(i)), fontsize=7.5)
        label(ax, -1.55, i + 0.5, str(feature), colour=INK, ha="right", fontsize=8)
        label(ax, -0.2, i + 0.5, _signed(product[feature].item()), ha="right", fontsize=8)
    label(ax, -1.55, -0.45, "feature", ha="right", fontsize=8)
    label(ax, -0.2, -0.45, "product", ha="right", fontsize=8)
    label(ax, 0.05, -0.45, "product · its column of down", fontsize=8)
    for word, row, vector in ((f"{len(product) - rows} others", rows + 0.35, table[-2]), ("y", rows + 1.9, table[-1])):
        lit = word == "y"
        vector_strip(ax, vector, numbers=".2f", vmax=top, at=(0.0, row), fontsize=7.0 if lit else 7.5, lit=lit)
        label(ax, -0.2, row + 0.5, word, colour=INK, ha="right", lit=lit, fontsize=8.5 if lit else 8)
    ax.plot([-0.1, columns + 0.1], [rows + 1.62] * 2, color=MUTED, lw=0.8, clip_on=False)
    heading(ax, f"“{name}” is a sum of {len(product)}", f"the first {columns} of {len(y)} numbers")
    listed = ", ".join(f"{i} ({product[i].item():.2f})" for i in order.tolist())
    return show(
        fig, alt=f"Rows of what the features {listed} add, then the sum of the others, then y, which is their sum."
    )


# --- At 8 B


def areas_figure(config: Config) -> Shown:
    """The seven matrices of one layer to scale, [out, in] as they are stored; GeGLU's three filled."""
    d, f = config.d_model, config.d_ff
    q, kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    counted = accounting.layer_parameters(config)
    mlp, attention = counted.mlp, counted.attention
    unit = float(d)
    fig, ax = panels(NARROW, 5.0, left=0.02, right=0.98, top=0.9, bottom=0.01)
    second, third = 1.5, 3.0
    wide, tall = f / unit, f / unit
    limits(ax, -0.03, max(third + 1, wide) + 0.03, -0.3, tall + 1.75)
    rows = (("q", q, d), ("k", kv, d), ("v", kv, d), ("o", d, q))
    y = 0.0
    for word, out, into in rows:
        _area(ax, 0.0, y, into / unit, out / unit, word, lit=False)
        y += out / unit + 0.1
    label(ax, 0.0, y + 0.18, "attention", fontsize=8)
    label(ax, 0.0, y + 0.45, f"{attention:,}", fontsize=8)
    _area(ax, second, 0.0, 1.0, tall, f"gate\n{f * d:,}", lit=True)
    _area(ax, third, 0.0, 1.0, tall, f"up\n{f * d:,}", lit=True)
    _area(ax, 0.0, tall + 0.35, wide, 1.0, f"down\n{f * d:,}", lit=True)
    for left in (second, third):
        label(ax, left + 0.5, -0.14, f"{d:,}", ha="center", fontsize=8)
    label(ax, second - 0.14, tall * 0.75, f"{f:,}", ha="center", fontsize=8, rotation=90)
    label(ax, wide / 2, tall + 1.5, f"{f:,}", ha="center", fontsize=8)
    heading(
        ax, f"One layer: GeGLU {mlp:,}", f"{100 * mlp / (mlp + attention):.1f} % of its {mlp + attention:,} weights"
    )
    alt = f"Matrices to scale. Gate and up are {f:,} by {d:,}, down is {d:,} by {f:,}: {mlp:,} weights. "
    return show(fig, alt=alt + f"The four of attention are smaller: {attention:,} together.")


def _area(ax: Axes, x: float, y: float, width: float, height: float, word: str, lit: bool) -> None:
    shade, strength = (POSITIVE, 0.28) if lit else (MUTED, 0.16)
    ax.add_patch(Rectangle((x, y), width, height, facecolor=shade, alpha=strength, edgecolor="none"))
    ax.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=shade, linewidth=0.8))
    label(ax, x + width / 2, y + height / 2, word, colour=INK, ha="center", fontsize=8)


# --- Steppers

GATES = tuple(i * 0.75 for i in range(-4, 5))
VALUES = (-2.0, -1.0, 0.0, 1.0, 2.0)


def product_stepper() -> Stepper:
    """The gate's input and the value → gate, product: the curve above, the plane of products below it."""
    across, down = np.linspace(-3, 3, 17), np.linspace(2, -2, 9)
    plane = _curve(ffn.gelu_tanh, across)[None] * down[:, None]  # [values, gates]
    shade = np.sign(plane) * np.sqrt(np.abs(plane))
    cell = (0.375, 0.5)

    def draw(gate: float, value: float) -> Frame:
        act = _value(ffn.gelu_tanh, gate)
        product = act * value
        fig, axes = panels(
            NARROW, 4.4, rows=2, left=0.13, right=0.97, top=0.97, bottom=0.13, hspace=0.18, height_ratios=(1, 1.5)
        )  # fmt: skip
        ax = axes[0]
        limits(ax, -3.25, 3.25, 3.4, -0.55, equal=False)
        ax.plot([-3.25, 3.25], [0, 0], color=MUTED, lw=0.6, zorder=0)
        curve = np.linspace(-3.25, 3.25, 131)
        ax.plot(curve, _curve(ffn.gelu_tanh, curve), color=POSITIVE, lw=1.4)
        ax.plot([gate, gate], [0, act], color=LIT, lw=0.9)
        ax.plot(gate, act, "o", ms=7, mfc=GLOW, mec=LIT, mew=1.2, zorder=5)
        label(ax, -3.2, 2.75, f"gate  gelu({_signed(gate)}) = {_signed(act, '.3f')}", colour=INK, lit=True)
        label(ax, -3.2, 2.05, f"value  {_signed(value)}", colour=INK)
        label(ax, -3.2, 1.45, f"product  {_signed(product, '.3f')}", colour=INK)
        ax = axes[1]
        limits(ax, -3.25, 3.25, -2.75, 2.25, equal=False)
        grid(ax, shade, numbers=False, at=(-3 - cell[0] / 2, -2 - cell[1] / 2), cell=cell, fit=False)
        x, y = gate - cell[0] / 2, -value - cell[1] / 2
        ax.plot([0, 0], [-2.3, 2.3], color=MUTED, lw=0.8, ls=DASHED, clip_on=False)
        ax.add_patch(Rectangle((x, y), *cell, fill=False, edgecolor=GLOW, linewidth=4.5, zorder=3.9))
        lit_box(ax, x, y, *cell)
        label(ax, -1.6, -2.5, "sign turned", colour=NEGATIVE, ha="center", fontsize=8, lit=gate < 0)
        label(ax, 1.6, -2.5, "sign kept", colour=POSITIVE, ha="center", fontsize=8, lit=gate > 0)
        for tick in (-2, 0, 2):
            label(ax, -3.32, -tick, _signed(tick, "d"), ha="right", fontsize=8)
            label(ax, tick, 2.5, _signed(tick, "d"), ha="center", fontsize=8)
        label(ax, 0, 2.95, "gate’s input", ha="center", fontsize=8)
        label(ax, -3.75, 0, "value", ha="center", fontsize=8, rotation=90)
        numbers = {"gelu(gate)": act, "value": value, "product": product}
        alt = f"GELU at {gate:g} is {act:.3f}; times the value {value:g} the product is {product:.3f}."
        return Frame(fig, text=_said(gate, value, product), numbers=numbers, alt=alt)

    controls: list[Slider | Choice] = [
        Slider("gate", GATES, value=-0.75, label="gate’s input", format=".2f", live_step=0.05),
        Slider("value", VALUES, value=2.0, format=".1f", live_step=0.1),
    ]
    return Stepper("Gate, value, product", controls, draw, name="product")


def _said(gate: float, value: float, product: float) -> str:
    if product == 0:
        return "Nothing comes out."
    if gate < 0:
        return "The gate is below zero: the product has the opposite sign of the value."
    return "The gate is above zero: the product keeps the sign of the value."


def form_stepper(value: float = 1.5) -> Stepper:
    """Form × gate's input → its curve, the gate, the value and what the feature hands on."""

    def draw(form: str, gate: float) -> Frame:
        act = ffn.ACTIVATIONS[form]
        opened = _value(act, gate)
        one = torch.tensor([gate, value], dtype=torch.float64)
        product = ffn.hidden(form, one[:1], one[1:]).item()
        fig, axes = panels(
            NARROW, 3.9, rows=2, left=0.06, right=0.97, top=0.89, bottom=0.03, hspace=0.16, height_ratios=(1.5, 1)
        )  # fmt: skip
        ax = axes[0]
        limits(ax, -3.2, 3.2, 3.3, -0.8, equal=False)
        ax.plot([-3.2, 3.2], [0, 0], color=MUTED, lw=0.6, zorder=0)
        ax.plot([0, 0], [-0.5, 3.2], color=FAINT, lw=0.8, zorder=0)
        x = np.linspace(-3.2, 3.2, 129)
        y = _curve(act, x)
        ax.fill_between(x, y, 0, where=y < 0, color=NEGATIVE, alpha=0.3, lw=0)
        ax.plot(x, y, color=POSITIVE, lw=1.5)
        ax.plot([gate, gate], [0, opened], color=LIT, lw=0.9)
        ax.plot(gate, opened, "o", ms=7, mfc=GLOW, mec=LIT, mew=1.2, zorder=5)
        for tick in (-3, -2, -1, 1, 2, 3):
            label(ax, tick, -0.42, _signed(tick, "d"), ha="center", va="top", fontsize=7.5)
        heading(ax, f"{form}: {FORMULAS[form]}")
        ax = axes[1]
        limits(ax, -2.3, 6.2, -0.55, 2.75, equal=False)
        bars: list[tuple[str, float | None]] = [
            ("gate" if form in ffn.GATED else "relu(g)", opened),
            ("value u", value if form in ffn.GATED else None),
            ("product" if form in ffn.GATED else "handed on", product),
        ]
        ax.plot([0, 0], [-0.5, 2.6], color=MUTED, lw=0.6)
        for i, (word, length) in enumerate(bars):
            lit = i == 2
            label(ax, -0.75, i, word, colour=INK, ha="right", lit=lit, fontsize=8)
            if length is None:
                label(ax, 0.12, i, "none", fontsize=8)
                continue
            shade = NEGATIVE if length < 0 else POSITIVE
            ax.add_patch(
                Rectangle(
                    (0, i - 0.28), length, 0.56, facecolor=PAPER if length < 0 else shade, edgecolor=shade, linewidth=1
                )
            )
            label(
                ax,
                max(length, 0) + 0.12,
                i,
                _signed(length, ".3f" if i != 1 else ".1f"),
                colour=shade,
                lit=lit,
                fontsize=8,
            )
        numbers = {"activation": opened, "product": product}
        alt = f"{form} at gate {gate:g}: the activation is {opened:.3f}, the feature hands on {product:.3f}."
        return Frame(fig, text=_form_said(form, opened), numbers=numbers, alt=alt)

    controls: list[Slider | Choice] = [
        Choice("form", ffn.FORMS, value="GeGLU"),
        Slider(
            "gate", tuple(i * 0.5 for i in range(-6, 7)), value=-1.0, label="gate’s input", format=".1f", live_step=0.1
        ),
    ]
    return Stepper("Four forms", controls, draw, name="forms")


def _form_said(form: str, opened: float) -> str:
    if form == "ReLU":
        return "No value to multiply: the feature hands on its activation."
    if opened == 0:
        return "The gate is shut."
    return "The gate turns the value’s sign." if opened < 0 else "The gate keeps the value’s sign."


STEPPERS = {"product": product_stepper, "forms": form_stepper}
