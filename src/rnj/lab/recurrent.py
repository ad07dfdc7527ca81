"""Recurrent networks beside attention: gradients, chains of operations, time, a recall task. For interlude A.

torch's own RNN and LSTM stand beside a Block of this package, at about equal numbers of weights. The recall task's
results are kept in data/recall.json; its training is made again by

    python -m rnj.lab.recurrent        about five minutes on one quiet core
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rnj import accounting
from rnj.config import Config
from rnj.core_attention import Rows
from rnj.model import Block
from rnj.yarn import cos_sin

NETWORKS = ("RNN", "LSTM", "attention")
WIDTH = 64  # D, of every vector that goes into a network
SMOOTH = 100  # steps that are averaged into one kept loss
FIRST = 20  # steps whose losses are kept one by one
DATA = Path(__file__).with_name("data") / "recall.json"


# --- Three networks that mix positions


class Network(nn.Module):
    """One layer in which a position can learn of earlier ones, with torch's initial weights. x: [B, T, D].

    RNN: torch.nn.RNN with 2 · D units; LSTM: torch.nn.LSTM with D units, so that both carry 2 · D numbers from step to
    step; attention: a global Block of two heads. y: [B, T, 2 · D] of the RNN, [B, T, D] of the others.
    forget_bias: of an LSTM's forget gates; None: as torch has it, near 0. Source: Gers et al. 2000 (the gate).
    """

    def __init__(self, kind: str, seed: int = 0, width: int = WIDTH, forget_bias: float | None = None) -> None:
        super().__init__()
        if kind not in NETWORKS:
            raise ValueError(f"kind must be one of {', '.join(NETWORKS)}, not {kind!r}")
        if forget_bias is not None and kind != "LSTM":
            raise ValueError(f"forget_bias belongs to an LSTM, not to {kind!r}")
        self.kind = kind
        self.out = 2 * width if kind == "RNN" else width
        self.config = Config(
            width, width, 1, 2, 2, width // 2, 3, block_size=64, layer_types=("global",), rope_type="default"
        )
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            if kind == "attention":
                self.layer: nn.Module = Block(self.config, 0)
            else:
                self.layer = (nn.RNN if kind == "RNN" else nn.LSTM)(width, self.out, batch_first=True)
        if forget_bias is not None:
            with torch.no_grad():
                self.layer.bias_ih_l0[width : 2 * width] = forget_bias  # torch's order: input, forget, cell, output
                self.layer.bias_hh_l0[width : 2 * width] = 0.0  # it has two biases, which are added

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T O"]:
        if self.kind != "attention":
            return self.layer(x)[0]  # [B, T, O]
        rows = Rows.plain(x.shape[0], x.shape[1], device=x.device)
        return self.layer(x, *cos_sin(rows.positions, self.config), rows)  # [B, T, D]


def weights_of(network: nn.Module) -> int:
    """How many numbers it learns."""
    return sum(p.numel() for p in network.parameters())


# --- Gradients by distance


def gradient_by_distance(
    network: Callable[[Tensor], Tensor], length: int = 65, seed: int = 0, rows: int = 16, width: int = WIDTH
) -> Float[Tensor, "T"]:
    """How much of the last output's gradient arrives at the input d steps back: T values, d = 0 … T - 1.

    The gradient of the last output along a random direction of unit length; its norm at each input, as a root mean
    square over rows of standard normal inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, length, width, generator=generator).requires_grad_()  # [B, T, D]
    last = network(x)[:, -1]  # [B, O]
    direction = F.normalize(torch.randn(last.shape, generator=generator), dim=-1)  # [B, O]
    (gradient,) = torch.autograd.grad((last * direction).sum(), x)  # [B, T, D]
    return gradient.norm(dim=-1).pow(2).mean(0).sqrt().flip(0)  # [T]


def scaled_recurrence(scale: float, squash: bool, width: int = WIDTH, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """A recurrence whose matrix is `scale` times a rotation: h = f(scale · Q h + x), f = tanh or nothing.

    x, h: [B, T, D]. A rotation keeps every length, so `scale` alone decides what becomes of a gradient.
    """
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q * scale  # [D, D]

    def run(x: Tensor) -> Tensor:
        h, states = torch.zeros_like(x[:, 0]), []  # [B, D]
        for step in x.unbind(1):
            h = h @ turn.T + step
            h = torch.tanh(h) if squash else h
            states.append(h)
        return torch.stack(states, dim=1)  # [B, T, D]

    return run


# --- Steps that wait for each other, work, time


def longest_chain(output: Tensor) -> int:
    """The longest chain of operations, each of which needs the one before it, that autograd recorded for a tensor.

    No machine, however wide, can compute the tensor in fewer rounds than that without another algorithm.
    """
    longest: dict[Any, int] = {}
    waiting = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        inputs = [n for n, _ in node.next_functions if n is not None]
        open_inputs = [n for n in inputs if n not in longest]
        if open_inputs:
            waiting += open_inputs
        else:
            longest[node] = 1 + max((longest[n] for n in inputs), default=0)
            waiting.pop()
    return longest[output.grad_fn]


def chain(network: Network, length: int) -> int:
    """The longest chain of a network's forward pass over one row of that length."""
    # torch runs a float32 LSTM as one operation with the loop inside, where autograd does not see it; not so float64.
    wide = copy.deepcopy(network).double()
    return longest_chain(wide(torch.zeros(1, length, WIDTH, dtype=torch.float64)))


def multiply_adds(network: Network, length: int) -> int:
    """Multiplications with an addition, forward, for one row: each weight once a token, and attention's pairs."""
    matrices = sum(p.numel() for p in network.parameters() if p.ndim == 2)
    pairs = accounting.attention_flops(network.config, length) // 2 if network.kind == "attention" else 0
    return matrices * length + pairs


def rounds(network: Network, length: int, lanes: int) -> float:
    """The most rounds that a row takes where every round has room for `lanes` multiply-adds: work / lanes + chain.

    A count, no measurement: moving data costs nothing here. Source: Brent 1974, lemma 2. The chain grows by the same
    number at every position, so two short rows tell it for a long one.
    """
    short, long = chain(network, 8), chain(network, 16)
    return multiply_adds(network, length) / lanes + short + (long - short) / 8 * (length - 8)


def seconds(network: Network, length: int, repeats: int = 3) -> float:
    """The shortest of a few forward and backward passes over one row, on this machine."""
    x = torch.randn(1, length, WIDTH, generator=torch.Generator().manual_seed(0))  # [1, T, D]
    times = []
    for _ in range(repeats + 1):  # the first one warms up
        began = time.perf_counter()
        network(x).sum().backward()
        times.append(time.perf_counter() - began)
        network.zero_grad()
    return min(times[1:])


# --- A state that is written over


def two_memories(
    kind: str, distractors: int = 32, seed: int = 0, forget_bias: float | None = None
) -> tuple[Float[Tensor, "S D"], Float[Tensor, "S D"]]:
    """What a fresh network carries along two rows that differ in their first input only; S = 1 + distractors.

    The RNN's state, or the LSTM's cell: its first D numbers at each step, float64, so that small differences survive.
    """
    if kind == "attention":
        raise ValueError("attention carries no state: every input stays in reach as it is")
    network = Network(kind, seed, forget_bias=forget_bias).double()
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(2, 1, WIDTH, generator=generator)  # [2, 1, D]
    rest = torch.randn(1, distractors, WIDTH, generator=generator)  # [1, S - 1, D]
    x = torch.cat([first, rest.expand(2, -1, -1)], dim=1).double()  # [2, S, D]
    state, kept = None, []
    with torch.no_grad():
        for step in x.split(1, dim=1):
            _, state = network.layer(step, state)
            memory = state if kind == "RNN" else state[1]  # [1, 2, O]
            kept.append(memory[0, :, :WIDTH])
    memories = torch.stack(kept, dim=1)  # [2, S, D]
    return memories[0], memories[1]


# --- Recall: a key and a value among distractors, asked for later


class Items(NamedTuple):
    """Rows of the recall task. The last column is the question: a key without a value."""

    keys: Int[Tensor, "B T"]  # `Recipe.items` where an item has no key
    values: Int[Tensor, "B T"]  # `Recipe.choices` in the question
    answers: Int[Tensor, "B"]  # the value that stood with the asked key
    distances: Int[Tensor, "B"]  # how many columns back that was


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run, but for the machine's rounding."""

    network: str
    pairs: int  # how many items of a row have a key; the others are distractors, values alone
    seed: int = 0
    items: int = 16  # a row, and as many keys
    choices: int = 8  # values
    rows: int = 64  # a step
    steps: int = 2000
    rate: float = 0.002  # Adam's
    decay: float = 0.2  # of the run, at its end: the rate goes down to 0 in a straight line


class Reader(nn.Module):
    """Embeddings of keys and values, one Network, and a linear layer that reads the answer off its last output."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(recipe.seed)
            self.key = nn.Embedding(recipe.items + 1, WIDTH)
            self.value = nn.Embedding(recipe.choices + 1, WIDTH)
            self.network = Network(recipe.network, recipe.seed + 100)  # other numbers than the embeddings'
            self.head = nn.Linear(self.network.out, recipe.choices)

    def forward(self, keys: Int[Tensor, "B T"], values: Int[Tensor, "B T"]) -> Float[Tensor, "B choices"]:
        x = self.key(keys) + self.value(values)  # [B, T, D]
        return self.head(self.network(x)[:, -1])  # [B, choices]


def make_items(
    recipe: Recipe, rows: int, generator: torch.Generator, distance: int | None = None, items: int | None = None
) -> Items:
    """Random rows: values everywhere, `recipe.pairs` keys at random places, one of them asked for.

    distance: of the asked key, by default random; items: how many a row has, by default `recipe.items`.
    """
    n = items or recipe.items
    order = torch.rand(rows, n, generator=generator).argsort(1)  # [B, n], places in random order
    if distance is not None:
        asked = n - distance
        order = torch.cat([torch.full((rows, 1), asked), order[order != asked].view(rows, n - 1)], dim=1)
    some = torch.rand(rows, recipe.items, generator=generator).argsort(1)[:, : recipe.pairs]  # [B, pairs]
    keys = torch.full((rows, n + 1), recipe.items)  # [B, T]
    keys.scatter_(1, order[:, : recipe.pairs], some)
    keys[:, -1] = some[:, 0]
    values = torch.randint(recipe.choices, (rows, n + 1), generator=generator)  # [B, T]
    values[:, -1] = recipe.choices
    return Items(keys, values, values.gather(1, order[:, :1])[:, 0], n - order[:, 0])


def train(recipe: Recipe, steps: int | None = None) -> tuple[Reader, list[float]]:
    """Train a Reader, or its first `steps` steps only. Returns it and the loss of every step, in nats."""
    reader = Reader(recipe)
    optimizer = torch.optim.Adam(reader.parameters(), lr=recipe.rate)
    generator = torch.Generator().manual_seed(recipe.seed)
    losses = []
    for step in range(recipe.steps if steps is None else steps):
        left = 1 - step / recipe.steps
        optimizer.param_groups[0]["lr"] = recipe.rate * min(1.0, left / recipe.decay)
        made = make_items(recipe, recipe.rows, generator)
        loss = F.cross_entropy(reader(made.keys, made.values), made.answers)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)  # a recurrent gradient can also explode
        optimizer.step()
        losses.append(loss.item())
    return reader, losses


@torch.no_grad()
def accuracy(reader: Callable[[Tensor, Tensor], Tensor], recipe: Recipe, distance: int, rows: int = 500) -> float:
    """The share of right answers at one distance; rows grow beyond `recipe.items` where the distance asks for it."""
    generator = torch.Generator().manual_seed(10_000 + distance)  # no row of the training
    made = make_items(recipe, rows, generator, distance, max(distance, recipe.items))
    return (reader(made.keys, made.values).argmax(-1) == made.answers).float().mean().item()


@dataclass(frozen=True)
class Run:
    """What came of one recipe."""

    recipe: Recipe
    weights: int  # of the Network alone
    first: list[float]  # the losses of the first FIRST steps
    losses: list[float]  # means of SMOOTH steps each
    near: list[float]  # accuracy at the distances 1 … items, which training had
    far: dict[int, float]  # and beyond, where there is one pair only


FAR = (24, 32, 48, 64)
SEEDS = (0, 1, 2)
RECIPES = tuple(Recipe(network, pairs, seed) for pairs in (1, 16) for network in NETWORKS for seed in SEEDS)


def measure(recipe: Recipe) -> Run:
    """Train and test."""
    reader, losses = train(recipe)
    smooth = torch.tensor(losses).view(-1, SMOOTH).mean(1).tolist()
    near = [accuracy(reader, recipe, distance) for distance in range(1, recipe.items + 1)]
    far = {distance: accuracy(reader, recipe, distance) for distance in FAR} if recipe.pairs == 1 else {}
    return Run(recipe, weights_of(reader.network), losses[:FIRST], smooth, near, far)


def read_recall(path: Path = DATA) -> list[Run]:
    """The kept runs."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return [
        Run(**run | {"recipe": Recipe(**run["recipe"]), "far": {int(d): share for d, share in run["far"].items()}})
        for run in kept["runs"]
    ]


def write_recall(runs: Sequence[Run], path: Path = DATA) -> None:
    """Keep runs, with the command that makes them, numbers rounded to what rounding on another machine leaves alone."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        if isinstance(value, dict):
            return {key: rounded(inner) for key, inner in value.items()}
        return [rounded(inner) for inner in value] if isinstance(value, list) else value

    lines = ",\n".join(f"  {json.dumps(rounded(asdict(run)))}" for run in runs)
    path.parent.mkdir(exist_ok=True)
    head = f'{{"command": "python -m rnj.lab.recurrent", "torch": "{torch.__version__}",\n "runs": [\n'
    path.write_text(f"{head}{lines}\n]}}\n", encoding="utf-8")


def main() -> None:
    """Train every recipe, one after another, on one thread, and keep what comes of it."""
    torch.set_num_threads(1)
    runs = []
    for recipe in RECIPES:
        began = time.monotonic()
        runs.append(measure(recipe))
        share = sum(runs[-1].near) / len(runs[-1].near)
        took = time.monotonic() - began
        said = f"{recipe.network:10} {recipe.pairs:2} keys, seed {recipe.seed}"
        print(f"{said}: {share:.3f} right, {took:.0f} s", flush=True)
    write_recall(runs)
    print(DATA)


if __name__ == "__main__":
    main()
