"""What a model can learn that has only the parts built so far; a race of feed-forward forms; a twin, all global.

    python -m rnj.lab.ladder              every run below that is not finished, in order; again to go on after a kill
    python -m rnj.lab.ladder --collect    their logs into the package (src/rnj/lab/data), where `curve` reads them

All are trained from scratch by `rnj.training.run` on the small model's corpus, each rung and each form with two seeds
and 1 M tokens at the same width.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rnj.config import Config
from rnj.corpus import read_corpus
from rnj.documents import Mix
from rnj.lab.ffn import FORMS, FeedForward, equal_width
from rnj.mlp import GeGLU
from rnj.model import Block, Transformer, build
from rnj.text import load_tokenizer
from rnj.training import PHASES, PLAIN, Recipe, TrainingForm, read_log, run

DATA = Path(__file__).with_name("data")
SEEDS = (0, 1)
TOKENS = 1_000_000
TWIN = replace(PLAIN, layer_types=("global",) * PLAIN.n_layers)  # the small model, every layer global
TWIN_MINUTES = 15
TEST_EVERY = 25  # steps between two looks at held-out rows


# --- Models that lack a part


def without_blocks(recipe: Recipe, device: str) -> Transformer:
    """Rung 2: the embedding, the final norm and the head. What comes next follows from one token alone."""
    model = build(recipe.config, seed=recipe.seed, device=device)
    model.blocks = nn.ModuleList()
    return model


def bare(recipe: Recipe, device: str) -> Transformer:
    """Rung 1: the embedding and the head alone."""
    model = without_blocks(recipe, device)
    model.final_norm = cast(Any, nn.Identity())
    return model


def without_attention(recipe: Recipe, device: str) -> Transformer:
    """Rung 3: blocks of an MLP with its two norms. Every vector goes through the model by itself."""
    model = build(recipe.config, seed=recipe.seed, device=device)
    for block in model.blocks:
        for name in ("pre_attn_norm", "attn", "post_attn_norm"):
            delattr(block, name)
    return model


def with_form(form: str, recipe: Recipe, device: str) -> Transformer:
    """The whole model with another feed-forward form, as many parameters as with GeGLU at the most.

    The widths compare with a ReLU network of 3/2 of the model's d_ff. Raises ValueError for an unknown form.
    """
    model = build(recipe.config, seed=recipe.seed, device=device)
    if form == "GeGLU":
        return model
    width = equal_width(form, 3 * recipe.config.d_ff // 2)
    generator = torch.Generator(device).manual_seed(recipe.seed + 1)
    for block in model.blocks:
        mlp = FeedForward(form, recipe.config.d_model, width).to(device)
        with torch.no_grad():
            for weight in mlp.parameters():
                weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
        block.mlp = cast(GeGLU, mlp)
    return model


def _mlp_block(block: Block, x: Tensor, *attention: Any) -> Tensor:
    """A block of rung 3; what only attention uses is left alone. The last argument says whether bfloat16 is used."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=attention[-1]):
        return x + block.post_mlp_norm(block.mlp(block.pre_mlp_norm(x)))  # [B, T, D]


def no_turn(positions: Int[Tensor, "B T"], config: Config) -> tuple[Float[Tensor, "B T H/2"], Float[Tensor, "B T H/2"]]:
    """Rung 4: cosines of 1 and sines of 0, which leave queries and keys as they are. Attention knows no positions."""
    sin = torch.zeros(*positions.shape, config.head_dim // 2, device=positions.device)  # [B, T, H/2]
    return sin + 1, sin


# --- The runs


@dataclass(frozen=True)
class Rung:
    """One model of the ladder or of the race."""

    name: str
    new: str  # what this rung has and the one below has not
    config: Config
    make: Callable[[Recipe, str], Transformer] | None = None
    form: Callable[..., TrainingForm] = TrainingForm

    def recipe(self, seed: int) -> Recipe:
        return Recipe(self.config, Mix(length=512), rows=8, warmup=20, seed=seed)


LADDER = (
    Rung("rung-1", "embedding and head", TWIN, bare),
    Rung("rung-2", "the final norm", TWIN, without_blocks),
    Rung("rung-3", "GeGLU blocks", TWIN, without_attention, partial(TrainingForm, block=_mlp_block)),
    Rung("rung-4", "attention", TWIN, None, partial(TrainingForm, angles=no_turn)),
    Rung("rung-5", "the rotation", TWIN),
    Rung("rung-6", "local layers", PLAIN),
)
RACE = tuple(Rung(f"form-{form}", form, PLAIN, partial(with_form, form)) for form in FORMS if form != "GeGLU")
RUN_NAMES = tuple(f"{rung.name}-seed-{seed}" for rung in LADDER + RACE for seed in SEEDS)


def curve(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A kept run's header and its curve: small-train, small-names, small-extend, twin, and RUN_NAMES.

    Raises FileNotFoundError where the package holds no such run.
    """
    return read_log(DATA / f"{name}.jsonl")


def held_out(name: str) -> dict[int, float]:
    """Nats a token on held-out rows, by the number of tokens trained on."""
    header, entries = curve(name)
    step_tokens = header["recipe"]["rows"] * header["recipe"]["mix"]["length"]
    return {entry["step"] * step_tokens: entry["held_out"] for entry in entries if "held_out" in entry}


@dataclass(frozen=True)
class Standing:
    """How a model of the ladder or of the race came out, with both seeds."""

    new: str  # what it has that the one below has not
    parameters: int
    curves: tuple[dict[int, float], ...]  # a seed each: nats a token on held-out rows, by tokens trained on

    @property
    def ends(self) -> list[float]:
        return [curve[max(curve)] for curve in self.curves]

    @property
    def mean(self) -> float:
        return sum(self.ends) / len(self.ends)

    @property
    def spread(self) -> float:
        """The largest distance of two seeds."""
        return max(self.ends) - min(self.ends)

    def __str__(self) -> str:
        ends = ", ".join(f"{end:.3f}" for end in self.ends)
        return f"{self.new:<26} {self.parameters:9,} parameters, held out {ends}"


def standing(rung: Rung) -> Standing:
    """Read from the kept curves. Raises FileNotFoundError where one is missing."""
    return Standing(rung.new, parameters(rung), tuple(held_out(f"{rung.name}-seed-{seed}") for seed in SEEDS))


def standings(rungs: int = len(LADDER)) -> list[Standing]:
    """The ladder's first rungs, from the lowest."""
    return [standing(rung) for rung in LADDER[:rungs]]


def race() -> dict[str, Standing]:
    """The four feed-forward forms in the whole model. GeGLU's model is the ladder's last rung."""
    entrants = {rung.new: rung for rung in RACE} | {"GeGLU": LADDER[-1]}
    return {form: standing(entrants[form]) for form in FORMS}


def parameters(rung: Rung) -> int:
    """How many a rung's model has."""
    recipe = rung.recipe(0)
    model = rung.make(recipe, "cpu") if rung.make else build(recipe.config)
    return sum(p.numel() for p in model.parameters())


def _runs() -> Iterator[tuple[str, Rung, Recipe, dict[str, Any]]]:
    """Every run in order: name, model, recipe, and how long. The ladder seed by seed, the twin, the race."""
    for seed in SEEDS:
        for rung in LADDER:
            yield f"{rung.name}-seed-{seed}", rung, rung.recipe(seed), {"tokens": TOKENS, "test_every": TEST_EVERY}
    yield "twin", Rung("twin", "", TWIN), Recipe(TWIN, Mix(length=512)), {"minutes": TWIN_MINUTES}
    for seed in SEEDS:
        for form in RACE:
            yield f"{form.name}-seed-{seed}", form, form.recipe(seed), {"tokens": TOKENS, "test_every": TEST_EVERY}


def run_all(folder: Path, only: str = "", **options: Any) -> None:
    """Train what is not finished. only: runs whose name begins so. The options go to `rnj.training.run`."""
    corpus, tokenizer, cache = read_corpus(), load_tokenizer(), folder / "tokens"
    cache.mkdir(parents=True, exist_ok=True)
    for name, rung, recipe, length in _runs():
        if name.startswith(only):
            print(name, flush=True)
            torch.compiler.reset()  # what was compiled for one model is of no use to the next
            given = {"make": rung.make, "form": rung.form, "cache": cache} | length | options
            run(recipe, folder / name, corpus, tokenizer, **given)


def collect(folder: Path, small: Path, to: Path = DATA) -> None:
    """Copy the finished runs' logs into the package, and say which are missing. small: holds the small model's runs."""
    to.mkdir(parents=True, exist_ok=True)
    sources = {f"small-{phase}": small / phase for phase in PHASES} | {n: folder / n for n in ("twin", *RUN_NAMES)}
    for name, source in sources.items():
        if (source / "log.jsonl").exists():
            shutil.copyfile(source / "log.jsonl", to / f"{name}.jsonl")
        else:
            print(f"{name} is missing", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m rnj.lab.ladder", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"), help="the runs' folder")
    parser.add_argument("--only", default="", help="only runs whose name begins like this, e.g. rung-3")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=shutil.which("c++") is not None)
    parser.add_argument("--collect", action="store_true", help="copy the logs into the package")
    parser.add_argument("--small", type=Path, default=Path("runs"), help="with --collect: the small model's runs")
    options = parser.parse_args(given)
    if options.collect:
        collect(options.out, options.small)
        return
    command = shlex.join(["python", "-m", "rnj.lab.ladder", *given])
    run_all(options.out, options.only, device=options.device, compiled=options.compile, command=command)


if __name__ == "__main__":
    main()
