"""How far the small model reads: loss by position up to 8 times the trained length. Interlude C and chapter 5.

    python -m rnj.lab.long_context      the short further trainings, then the table, into src/rnj/lab/data

The hybrid is the small model before its extension, the twin the same with every layer global. Each is read with the
plain rotation, with position interpolation and with YaRN, and with the last two once more after a short further
training. All on the same held-out rows, so that differences are paired.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from rnj.config import SMALL, Config
from rnj.corpus import Corpus, read_corpus
from rnj.documents import Mix
from rnj.lab.ladder import DATA, TWIN
from rnj.lab.learned import nats, with_config
from rnj.model import Transformer, build
from rnj.text import Packed, Tokenizer, load_tokenizer, pack
from rnj.training import PLAIN, Recipe, read_checkpoint, run

TABLE = DATA / "long_context.json"
LENGTH = SMALL.max_positions  # 8 times the trained length
BIN = 256  # positions in one number of the table
STEPS = 50  # of further training
MODELS = {"hybrid": PLAIN, "twin": TWIN}
ROTATIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"rope_type": "default", "rope_factor": 1.0, "original_max_positions": LENGTH},
    "interpolation": {"rope_type": "linear", "rope_factor": 8.0},
    "YaRN": {"rope_type": "yarn", "rope_factor": 8.0},
}
FURTHER = ("interpolation", "YaRN")  # those that are trained on
COLUMNS = (*ROTATIONS, *(f"{name} + {STEPS} steps" for name in FURTHER))


def further(config: Config, rotation: str) -> Recipe:
    """The short further training: rows of 8 times the length, under the rotation."""
    changed = replace(config, **ROTATIONS[rotation])
    return Recipe(changed, Mix(length=LENGTH), rows=2, matrix_rate=0.002, other_rate=0.001, decay=0.9, warmup=5, seed=1)


def long_rows(corpus: Corpus, tokenizer: Tokenizer, most: int = 64) -> Packed:
    """Stretches of held-out files that fill a row of LENGTH, at most `most`, in the corpus's order."""
    size = LENGTH - 2
    files = tokenizer.encode_all(list(corpus.held_out.values()))
    ids = [file[i : i + size] for file in files for i in range(0, len(file) - size + 1, size)]
    return pack(ids[:most], LENGTH, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)


def by_position(model: Transformer, rows: Packed) -> Float[Tensor, "B T/256"]:
    """Nats a token, in bins of BIN positions. The last bin leaves out the end of text and what follows it."""
    losses = nats(model, rows)[:, :-2]  # [B, T - 2]
    return torch.stack([part.mean(1) for part in losses.split(BIN, dim=1)], dim=1)


@dataclass(frozen=True)
class Spread:
    """A mean over rows and its standard error."""

    mean: float
    error: float

    @classmethod
    def over(cls, values: Float[Tensor, "B"]) -> Spread:
        return cls(float(values.mean()), float(values.std() / len(values) ** 0.5))


def near(losses: Float[Tensor, "B T/256"]) -> Float[Tensor, "B"]:
    """Each row's loss within the trained length, its first BIN positions left out: they have little to go by."""
    return losses[:, 1 : SMALL.original_max_positions // BIN].mean(1)


def far(losses: Float[Tensor, "B T/256"]) -> Float[Tensor, "B"]:
    """Each row's loss in the last eighth, seven to eight times the trained length."""
    return losses[:, -SMALL.original_max_positions // BIN :].mean(1)


def read_table(path: Path = TABLE) -> dict[str, dict[str, Float[Tensor, "B T/256"]]]:
    """The kept losses: model, column (COLUMNS), rows and bins."""
    kept = json.loads(path.read_text())["losses"]
    return {model: {name: torch.tensor(rows) for name, rows in columns.items()} for model, columns in kept.items()}


def measure(model: Transformer, rows: Packed) -> dict[str, Float[Tensor, "B T/256"]]:
    """The three columns that need no further training."""
    return {name: by_position(with_config(model, **changes), rows) for name, changes in ROTATIONS.items()}


def make(folder: Path, sources: Mapping[str, Path], to: Path = TABLE, **options: Any) -> None:
    """Train on, measure, and write the table. A training that was stopped goes on; finished ones are left alone."""
    corpus, tokenizer = read_corpus(), load_tokenizer()
    rows, cache = long_rows(corpus, tokenizer), folder / "tokens"
    cache.mkdir(parents=True, exist_ok=True)
    losses: dict[str, dict[str, Tensor]] = {}
    for name, config in MODELS.items():
        start = read_checkpoint(sources[name])["model"]
        trained = {}
        for rotation in FURTHER:
            torch.compiler.reset()  # what was compiled for one model is of no use to the next
            recipe, out = further(config, rotation), folder / f"{name}-{rotation}"
            tokens = STEPS * recipe.step_tokens
            trained[rotation] = run(recipe, out, corpus, tokenizer, tokens=tokens, start=start, cache=cache, **options)
            shutil.copyfile(out / "log.jsonl", to.parent / f"{name}-{rotation}.jsonl")
        model = build(config)
        model.load_state_dict(start)
        losses[name] = measure(model, rows)
        for rotation in tqdm(FURTHER, desc=name):
            losses[name][f"{rotation} + {STEPS} steps"] = by_position(trained[rotation].cpu(), rows)
    kept = {
        "command": options.get("command", ""),
        "corpus": corpus.sha256,
        "torch": torch.__version__,
        "rows": len(rows.tokens),
        "bin": BIN,
        "losses": {
            model: {name: [[round(x, 4) for x in row] for row in values.tolist()] for name, values in columns.items()}
            for model, columns in losses.items()
        },
    }
    beside = to.with_suffix(".new")
    beside.write_text(json.dumps(kept) + "\n")
    beside.replace(to)


def summary(losses: Mapping[str, Float[Tensor, "B T/256"]]) -> dict[str, tuple[Spread, Spread, Spread]]:
    """For each column: near, far, and far less near, over rows."""
    return {
        name: (Spread.over(near(x)), Spread.over(far(x)), Spread.over(far(x) - near(x))) for name, x in losses.items()
    }


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m rnj.lab.long_context", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/long"), help="the further trainings' folder")
    parser.add_argument(
        "--hybrid", type=Path, default=Path("runs/names"), help="the small model's last run before YaRN"
    )
    parser.add_argument("--twin", type=Path, default=Path("runs/ladder/twin"), help="the twin's folder")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=shutil.which("c++") is not None)
    parser.add_argument("--print", dest="show", action="store_true", help="print the table that is kept")
    options = parser.parse_args(given)
    if not options.show:
        command = shlex.join(["python", "-m", "rnj.lab.long_context", *given])
        sources = {"hybrid": options.hybrid, "twin": options.twin}
        make(options.out, sources, device=options.device, compiled=options.compile, command=command)
    for model, losses in read_table().items():
        for name, spreads in summary(losses).items():
            shown = " ".join(f"{s.mean:6.3f} ± {s.error:.3f}" for s in spreads)
            print(f"{model:<7} {name:<25} near, far, difference: {shown}")


if __name__ == "__main__":
    main()
