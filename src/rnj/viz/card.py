"""The followed token: its card at one named point of a forward pass, and its journey through several.

    trace = model.trace(tokens, positions, segments)
    token_card(trace, "block.3.attn.q_rot", FOLLOWED, label="sat")
    journey(trace, ["embed", "block.3.attn.q_rot", "block.3.out", "logits"], FOLLOWED, label="sat")

Both read the first row of the batch and take the slice that belongs to the token: [T, …] at its index; for `scores` and
`weights`, which are [N, T, S], every head's row of it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rnj.viz.figure import number, sheet
from rnj.viz.palette import NEGATIVE, POSITIVE
from rnj.viz.stepper import shown

AXES = {  # the letters of a token's slice, by the last part of a tensor's name
    "q": "N, H",
    "q_norm": "N, H",
    "q_rot": "N, H",
    "k": "K, H",
    "k_norm": "K, H",
    "k_rot": "K, H",
    "v": "K, H",
    "heads": "N, H",
    "scores": "N, S",
    "weights": "N, S",
    "allowed": "S",
    "gate": "F",
    "gate_act": "F",
    "up": "F",
    "product": "F",
    "logits_raw": "V",
    "logits": "V",
}
CSS = Path(__file__).with_name("card.css").read_text(encoding="utf-8")


class Card:
    """A small piece of HTML about one token. Made by `token_card` and `journey`."""

    def __init__(self, body: str, text: str) -> None:
        self.body = body
        self.text = text

    def html(self) -> str:
        style = sheet().replace("</style>", f"\n{CSS}</style>")
        opening = '<div class="rnj-card" tabindex="0" role="group" aria-label="The followed token">'
        return f"{opening}{style}{self.body}</div>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def token_card(
    trace: Mapping[str, Tensor],
    name: str,
    index: int,
    label: str | None = None,
    position: int | None = None,
    values: int = 6,
) -> Card:
    """The followed token at one point: label, tensor name, shape of its slice, norm and first values.

    trace: name → [B, T, …]; index: the token's place in row 0; position: its place in its document, where that differs.
    Raises KeyError for a name that is not in the trace, naming near ones.
    """
    vector = at_token(trace, name, index)
    where = f"token {index}" + (f", position {position}" if position is not None else "")
    first = "  ".join(number(v, ".2f") for v in vector.flatten()[:values].tolist())
    more = " …" if vector.numel() > values else ""
    letters, sizes = _shape(name, vector)
    norm = shown(_norm(vector))
    body = (
        f'<p class="rnj-line">{_token(label, index)}<span class="rnj-quiet">{where}</span>'
        f"<code>{html.escape(name)}</code><span>{letters} = {sizes}</span><span>norm <b>{norm}</b></span></p>"
        f'<p class="rnj-line"><code>{first}{more}</code>{_sparkline(vector)}</p>'
    )
    return Card(body, f"{label or where}: {name} {letters} = {sizes}, norm {norm}, {first}{more}")


def journey(
    trace: Mapping[str, Tensor],
    names: Sequence[str],
    index: int,
    label: str | None = None,
    position: int | None = None,
) -> Card:
    """The followed token at several points, in the order given: a table of names, shapes, norms and small pictures."""
    where = f"token {index}" + (f", position {position}" if position is not None else "")
    rows, lines = [], [f"{label or where}"]
    for name in names:
        vector = at_token(trace, name, index)
        letters, sizes = _shape(name, vector)
        norm = shown(_norm(vector))
        rows.append(
            f'<tr><th scope="row"><code>{html.escape(name)}</code></th>'
            f'<td><span class="rnj-whole">{letters}</span> <span class="rnj-whole rnj-quiet">{sizes}</span></td>'
            f'<td class="rnj-number">{norm}</td><td>{_sparkline(vector)}</td></tr>'
        )
        lines.append(f"{name:32} {letters} = {sizes}  norm {norm}")
    columns = [("tensor", ""), ("shape", ""), ("norm", ' class="rnj-number"'), ("values", "")]
    head = "".join(f'<th scope="col"{look}>{word}</th>' for word, look in columns)
    body = (
        f'<p class="rnj-line">{_token(label, index)}<span class="rnj-quiet">{where}</span></p>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )
    return Card(body, "\n".join(lines))


def at_token(trace: Mapping[str, Tensor], name: str, index: int) -> Tensor:
    """The token's slice of a named tensor, float32: [D], [N, H], … or [N, S] of scores and weights."""
    if name not in trace:
        ending = name.rsplit(".", 1)[-1]
        near = [known for known in trace if known.endswith(ending)][:5] or list(trace)[:5]
        raise KeyError(f"{name!r} is not in the trace; it has {', '.join(near)}, …")
    row = trace[name][0].detach().to("cpu", torch.float32)
    return row[:, index] if name.rsplit(".", 1)[-1] in ("scores", "weights") else row[index]


def _norm(vector: Tensor) -> float:
    finite = vector[torch.isfinite(vector)]
    return float(finite.norm())


def _shape(name: str, vector: Tensor) -> tuple[str, str]:
    """The letters and the sizes of a slice: ("[N, H]", "6 × 32")."""
    letters = AXES.get(name.rsplit(".", 1)[-1], "D" if vector.ndim == 1 else "…")
    return f"[{letters}]", " × ".join(f"{n:,}" for n in vector.shape)


def _token(label: str | None, index: int) -> str:
    return f'<span class="rnj-token">{html.escape(label if label is not None else f"token {index}")}</span>'


def _sparkline(vector: Tensor, most: int = 48) -> str:
    """Up to `most` values as bars around a middle line, full height at the largest: slate above, red below."""
    flat = vector.flatten()
    flat = flat[torch.isfinite(flat)]
    if flat.numel() > most:  # the mean of equal stretches would hide the signs: take every n-th value
        flat = flat[torch.linspace(0, flat.numel() - 1, most).long()]
    top = float(flat.abs().max()) or 1.0 if flat.numel() else 1.0
    bars = {"positive": "", "negative": ""}
    for i, value in enumerate(flat.tolist()):
        height = round(-11 * value / top, 1)  # y counts down
        bars["negative" if value < 0 else "positive"] += f"M{i * 2.5:g} 12v{height:g}h1.8v{-height:g}z"
    colours = {"positive": POSITIVE, "negative": NEGATIVE}
    drawn = "".join(f'<path style="fill:var(--rnj-{k},{colours[k]})" d="{d}"/>' for k, d in bars.items() if d)
    return f'<svg viewBox="0 0 120 24" aria-hidden="true" focusable="false">{drawn}</svg>'
