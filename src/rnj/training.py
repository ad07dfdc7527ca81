"""The training loop behind the small model, in three phases, each of which ends by itself and goes on after a kill.

    python -m rnj.training train  --minutes 22    plain rotation, rows of 512                     into runs/train
    python -m rnj.training names  --minutes 22    the same with many more holes, many of them names that stand on
                                                  both sides, and what fills a hole 8 times as heavy in the loss
                                                                                                  into runs/names
    python -m rnj.training extend --minutes 20    YaRN, factor 8, rows of 4,096                   into runs/extend
    python -m rnj.training export                 into the package, half precision

Run the same command again to go on where it stopped. A run's folder holds checkpoint.pt and log.jsonl: the first
line says how it was started, each later start has a line of its own, and the others are the curve.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm import tqdm

from rnj.config import SMALL, Config
from rnj.corpus import Corpus, CorpusError, read_corpus
from rnj.documents import Documents, Mix
from rnj.model import Block, Transformer, build, loss
from rnj.text import NO_TARGET, SMALL_FOLDER, SPECIAL_TOKENS, Packed, Tokenizer, load_tokenizer, pack
from rnj.yarn import cos_sin, rotate

MIDDLE_ID = SMALL.vocab_size - len(SPECIAL_TOKENS) + SPECIAL_TOKENS.index("<|fim_middle|>")
# How the small model is trained first: as it is, but with the plain rotation.
PLAIN = replace(SMALL, rope_type="default", rope_factor=1.0)


class TrainingError(RuntimeError):
    """The run cannot be started or taken up again; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run's result, but for the machine's rounding."""

    config: Config
    mix: Mix  # the documents
    rows: int = 16  # a step
    matrix_rate: float = 0.006  # Muon, for the blocks' matrices
    other_rate: float = 0.003  # AdamW, for the embedding and the norms
    decay: float = 0.3  # of the run, at its end: the rates go down to 0 in a straight line
    warmup: int = 60  # steps in which the rates go up
    seed: int = 0
    middle_weight: float = 1.0  # of a loss in the middle of a fill-in-the-middle document; any other weighs 1

    @property
    def step_tokens(self) -> int:
        return self.rows * self.mix.length


TRAIN = Recipe(PLAIN, Mix(length=512, fim_length=128, shared_share=0.5, spm_share=0.5))
NAMES = Recipe(
    PLAIN,
    Mix(length=512, fim_share=0.8, fim_length=112, shared_share=0.85, spm_share=0.85),
    matrix_rate=0.004,
    other_rate=0.002,
    decay=0.4,
    warmup=20,
    seed=1,
    middle_weight=8.0,
)
EXTEND = Recipe(
    SMALL,
    Mix(length=4096, fim_share=0.93, fim_length=192, shared_share=0.92, spm_share=0.92),
    rows=2,
    matrix_rate=0.003,
    other_rate=0.0015,
    decay=0.9,
    warmup=20,
    seed=2,
    middle_weight=8.0,
)
PHASES = {"train": TRAIN, "names": NAMES, "extend": EXTEND}
BEFORE = {"names": "runs/train", "extend": "runs/names"}  # the run that a phase begins from


# --- The model's forward pass in the form that trains fastest on a CPU
#
# The same layers and the same numbers as Transformer.forward (a test holds both together). PyTorch's fused attention
# has a slow backward pass on a CPU, so the scores are plain matrix products here, tile by tile.


def first_seen(packed: Packed, config: Config, local: bool) -> Int[Tensor, "B T"]:
    """The first column of the row that each position sees: it sees all columns from there to its own.

    Documents are whole stretches of a row, and so are blocks within them. Padding sees itself only.
    """
    columns = torch.arange(packed.tokens.shape[1], device=packed.tokens.device)  # [T]
    first = torch.zeros_like(packed.positions)  # [B, T], as a position of the document
    if local:
        counted = packed.positions if config.block_origin == "document" else columns.expand_as(first)
        block = counted // config.block_size - config.lookback
        first = (block * config.block_size).clamp(min=0) + (packed.positions - counted)
        first = first.clamp(min=0)
    column = columns - packed.positions + first  # [B, T]
    return torch.where(packed.segments == 0, columns, column).int()


def attend_tiles(
    q: Float[Tensor, "B T N H"],
    k: Float[Tensor, "B T K H"],
    v: Float[Tensor, "B T K H"],
    first: Int[Tensor, "B T"],
    scale: float,
    reach: int | None,
) -> Float[Tensor, "B T N*H"]:
    """Attention where query t sees the columns first[t] … t, and first[t] > t - reach. Tile by tile of queries."""
    B, T, N, H = q.shape
    K = k.shape[2]
    G = N // K
    tile = min(T, max(128, T // 8))
    q = (q * scale).transpose(1, 2).reshape(B, K, G, T, H)  # [B, K, G, T, H]
    k, v = k.permute(0, 2, 3, 1), v.transpose(1, 2)  # [B, K, H, T], [B, K, T, H]
    columns = torch.arange(T, device=q.device, dtype=torch.int32)  # [T]
    made = []
    for start in range(0, T, tile):
        end = min(start + tile, T)
        low = 0 if reach is None else max(0, start - reach + 1)
        scores = q[:, :, :, start:end].reshape(B, K, -1, H) @ k[..., low:end]  # [B, K, G·tile, S]
        scores = scores.view(B, K, G, end - start, end - low).float()
        seen = (columns[low:end] >= first[:, start:end, None]) & (columns[low:end] <= columns[start:end, None])
        weights = scores.masked_fill(~seen[:, None, None], float("-inf")).softmax(-1).to(v.dtype)
        made.append((weights.flatten(2, 3) @ v[:, :, low:end]).view(B, K, G, end - start, H))
    return torch.cat(made, dim=3).permute(0, 3, 1, 2, 4).reshape(B, T, N * H)  # [B, T, N·H]


def _block(
    block: Block, x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, reach: int | None, low: bool = True
) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=low):
        attn, h = block.attn, block.pre_attn_norm(x)
        heads = (-1, attn.head_dim)
        q, k, v = (project(h).unflatten(-1, heads) for project in (attn.q_proj, attn.k_proj, attn.v_proj))
        q, k = rotate(attn.q_norm(q), cos, sin), rotate(attn.k_norm(k), cos, sin)
        x = x + block.post_attn_norm(attn.o_proj(attend_tiles(q, k, v, first, attn.scale, reach)))
        return x + block.post_mlp_norm(block.mlp(block.pre_mlp_norm(x)))  # [B, T, D]


def _head(model: Transformer, x: Tensor, targets: Tensor, weights: Tensor | None = None, low: bool = True) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=low):
        logits = model.head(x)
    return loss(logits, targets) if weights is None else weighted_loss(logits, targets, weights)


def weighted_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], weights: Float[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """The weighted mean of the cross-entropies, in nats; with equal weights it is `rnj.model.loss`."""
    each = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET, reduction="none")
    weights = weights.flatten() * (targets.flatten() != NO_TARGET)
    return (each * weights).sum() / weights.sum().clamp(min=1)


def in_middle(packed: Packed, middle_id: int) -> Bool[Tensor, "B T"]:
    """Whether a position predicts what stands behind its document's <|fim_middle|>: the middle, and the end of text."""
    is_middle = (packed.tokens == middle_id).long()
    start = torch.arange(packed.tokens.shape[1], device=packed.tokens.device) - packed.positions  # [B, T]
    seen = is_middle.cumsum(1)
    return seen > seen.gather(1, start) - is_middle.gather(1, start)


class TrainingForm:
    """Calls a Transformer on packed rows and gives the loss. low: matrix products in bfloat16, all else in float32.

    middle_weight: of the losses behind <|fim_middle|> (`in_middle`). block, angles: another way through a block and
    other cosines and sines, for models that lack a part.
    """

    def __init__(
        self,
        model: Transformer,
        compiled: bool = False,
        low: bool = True,
        middle_weight: float = 1.0,
        block: Callable[..., Tensor] = _block,
        angles: Callable[[Tensor, Config], tuple[Tensor, Tensor]] = cos_sin,
    ) -> None:
        self.model, self.low, self.middle_weight, self._angles = model, low, middle_weight, angles
        wrap: Callable[..., Any] = torch.compile if compiled else lambda function: function
        self._block, self._head = wrap(block), wrap(_head)

    def __call__(self, packed: Packed) -> Float[Tensor, ""]:
        config = self.model.config
        cos, sin = self._angles(packed.positions, config)  # [B, T, H/2]
        first = {kind: first_seen(packed, config, kind == "local") for kind in set(config.layer_types)}
        x = self.model.embed(packed.tokens) * math.sqrt(config.d_model)  # [B, T, D]
        for block, kind in zip(self.model.blocks, config.layer_types, strict=False):  # a rung may have no blocks
            reach = config.local_span if kind == "local" else None
            x = self._block(block, x, cos, sin, first[kind], reach, self.low)
        weights = None
        if self.middle_weight != 1:
            weights = 1 + (self.middle_weight - 1) * in_middle(packed, MIDDLE_ID).float()  # [B, T]
        return self._head(self.model, x, packed.targets, weights, self.low)


# --- Optimizers and their rates


def optimizers(model: torch.nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the embedding and the norms. A group's `base` is its full rate."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    embeddings = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" in name]
    norms = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": embeddings, "weight_decay": 0.01}, {"params": norms, "weight_decay": 0.0}]
    made: list[torch.optim.Optimizer] = [torch.optim.AdamW([g for g in groups if g["params"]], betas=(0.9, 0.95))]
    if matrices:
        made.insert(0, torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["base"] = recipe.matrix_rate if isinstance(optimizer, torch.optim.Muon) else recipe.other_rate
    return made


def rate_at(step: int, recipe: Recipe, decay_from: int | None, last: int | None) -> float:
    """What the rates are multiplied by in this step: up, level, and down to 0 once it is known when the run ends."""
    up = min(1.0, (step + 1) / max(1, recipe.warmup))
    if decay_from is None or last is None or step < decay_from:
        return up
    return up * max(0.0, (last - step) / max(1, last - decay_from))


# --- The run


@dataclass
class State:
    """What a checkpoint holds beside the tensors."""

    step: int = 0
    seconds: float = 0.0  # spent so far, over all starts
    decay_from: int | None = None  # the step from which the rates go down
    last: int | None = None  # the step after the last one


def run(
    recipe: Recipe,
    out: str | Path,
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    minutes: float | None = None,
    tokens: int | None = None,
    start: dict[str, Tensor] | None = None,
    make: Callable[[Recipe, str], Transformer] | None = None,
    form: Callable[..., TrainingForm] = TrainingForm,
    command: str = "",
    compiled: bool = False,
    device: str = "cpu",
    checkpoint_seconds: float = 150.0,
    test_every: int = 200,
    cache: Path | None = None,
    stop_after: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Transformer:
    """Train until the tokens or the minutes are spent; go on where a run in `out` stopped. Returns the model.

    tokens: the run's length, known from the start. minutes: its length in time; the step at which it ends is decided,
    and kept in the checkpoint, when the rates begin to go down. start: weights to begin from. make, form: of a model
    that lacks a part. test_every: steps between two looks at held-out rows. cache: the
    folder of the encoded corpus, else `out`. stop_after: leave after this many steps of
    the run, as if killed just after a checkpoint. stop: asked before each step, True ends it there. Raises
    TrainingError where `out` holds the run of another recipe or another corpus, and where the loss is not finite.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    if tokens is None and minutes is None:
        raise TrainingError("say how long to train: --tokens or --minutes")
    torch.manual_seed(recipe.seed)
    model = (make or _make)(recipe, device)
    if start is not None:
        model.load_state_dict(start)
    used, state = optimizers(model, recipe), State()
    identity = {"recipe": asdict(recipe), "corpus": corpus.sha256}
    log = out / "log.jsonl"
    if (out / "checkpoint.pt").exists():
        state = _take_up(out, model, used, identity, device)
        if state.last is not None and state.step >= state.last:
            print(f"{out} holds a finished run of {state.step} steps: nothing to do", file=sys.stderr)
            return model
        _cut_log(log, state.step)
        _log(log, {"step": state.step, "command": command})
    else:
        log.write_text(json.dumps(_header(identity, command, compiled)) + "\n")
    if tokens is not None and state.last is None:
        state.last = math.ceil(tokens / recipe.step_tokens)
        state.decay_from = int(state.last * (1 - recipe.decay))
    documents = Documents(list(corpus.train.values()), tokenizer, recipe.mix, recipe.seed, cache or out)
    in_training = form(model, compiled=compiled, middle_weight=recipe.middle_weight)
    in_test = form(model, low=False)
    held_out = held_out_rows(corpus, tokenizer, recipe)
    saved = tick = time.monotonic()
    wide = sys.stderr.isatty()
    bar = tqdm(initial=state.step * recipe.step_tokens, unit="tok", unit_scale=True, mininterval=0.5 if wide else 20)
    bar.total = tokens if state.last is None else state.last * recipe.step_tokens
    whole = True  # no step is half done, and what it has to log is logged
    mean, pace, done = None, None, 0  # running means of the loss and of the seconds a step; steps since this start
    try:
        while state.last is None or state.step < state.last:
            if stop() or (stop_after is not None and state.step >= stop_after):
                break
            whole = False
            rate = rate_at(state.step, recipe, state.decay_from, state.last)
            value = _step(in_training, used, _to(documents.batch(state.step * recipe.rows, recipe.rows), device), rate)
            state.step += 1
            done += 1
            took, tick = time.monotonic() - tick, time.monotonic()
            took = took if pace is None else min(took, 10 * pace)  # while the process was paused no time is counted
            state.seconds += took
            mean = value if mean is None else 0.95 * mean + 0.05 * value
            pace = took if pace is None or done < 5 else 0.95 * pace + 0.05 * took
            if minutes is not None and state.last is None and done >= 5:  # a start's first steps say little of the pace
                _plan(state, minutes, recipe, pace)
                if state.last is not None:
                    bar.total = state.last * recipe.step_tokens
            if state.step <= 20 or state.step % 10 == 0:
                entry = {"step": state.step, "loss": round(value, 5), "rate": round(rate, 5)}
                _log(log, entry | {"seconds": round(state.seconds, 1)})
            if state.step % test_every == 0 or state.step == state.last:
                _log(log, {"step": state.step, "held_out": held_out_loss(in_test, held_out, device)})
            left = None if minutes is None else max(0.0, minutes - state.seconds / 60)
            shown = {"loss": f"{mean:.3f}", "tok/s": f"{recipe.step_tokens / pace:.0f}", "step": state.step}
            bar.set_postfix(shown | ({} if left is None else {"min_left": f"{left:.0f}"}), refresh=False)
            bar.update(recipe.step_tokens)
            whole = True
            if time.monotonic() - saved > checkpoint_seconds:
                _save(out, model, used, state, identity)
                saved = time.monotonic()
    finally:
        bar.close()
        if state.step and whole:
            _save(out, model, used, state, identity)
    return model


def _make(recipe: Recipe, device: str) -> Transformer:
    return build(recipe.config, seed=recipe.seed, device=device)


def _step(form: Callable[[Packed], Tensor], used: list[torch.optim.Optimizer], packed: Packed, rate: float) -> float:
    value = form(packed)
    if not value.isfinite():  # no weight has moved yet
        raise TrainingError(f"the loss is {value.item()}: lower the rates")
    value.backward()
    for optimizer in used:
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return value.item()


def _plan(state: State, minutes: float, recipe: Recipe, pace: float) -> None:
    """Once the level part's time is spent, decide at which step the run ends."""
    if state.seconds >= 60 * minutes * (1 - recipe.decay):
        left = max(60 * minutes - state.seconds, 0.0)
        state.decay_from, state.last = state.step, state.step + max(1, int(left / pace))


def held_out_rows(corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe, count: int = 16_384) -> Packed:
    """The beginnings of the longest held-out files, one a row, `count` positions in all: plain, without any hole."""
    length = recipe.mix.length
    texts = sorted(corpus.held_out.values(), key=len, reverse=True)[: max(1, count // length)]
    ids = [ids[: length - 2] for ids in tokenizer.encode_all(texts)]
    return pack(ids, length, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)


@torch.no_grad()
def held_out_loss(form: Callable[[Packed], Tensor], packed: Packed, device: str = "cpu") -> float:
    """Nats a token on held-out rows."""
    total, count = 0.0, 0
    for i in range(len(packed.tokens)):
        one = Packed(
            packed.tokens[i : i + 1], packed.positions[i : i + 1], packed.segments[i : i + 1], packed.targets[i : i + 1]
        )
        kept = int((one.targets != NO_TARGET).sum())
        total, count = total + float(form(_to(one, device))) * kept, count + kept
    return round(total / count, 5)


def _to(packed: Packed, device: str) -> Packed:
    return Packed(*(getattr(packed, name).to(device) for name in ("tokens", "positions", "segments", "targets")))


# --- Checkpoints and the log


def _save(out: Path, model: Transformer, used: list[Any], state: State, identity: dict[str, Any]) -> None:
    """Written beside the old one and then put in its place, so that a kill leaves the one or the other."""
    content = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in used],
        "random": torch.get_rng_state(),
        "state": asdict(state),
        "identity": json.dumps(identity),
    }
    beside = out / "checkpoint.pt.new"
    with beside.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, out / "checkpoint.pt")


def read_checkpoint(out: str | Path, device: str = "cpu") -> dict[str, Any]:
    """A run's last checkpoint: model, optimizers, random, state, identity. Raises TrainingError where there is none."""
    path = Path(out) / "checkpoint.pt"
    if not path.exists():
        raise TrainingError(f"{path} does not exist: there is no run in this folder, train it first")
    return torch.load(path, map_location=device, weights_only=True)


def _take_up(out: Path, model: Transformer, used: list[Any], identity: dict[str, Any], device: str) -> State:
    kept = read_checkpoint(out, device)
    theirs, ours = json.loads(kept["identity"]), json.loads(json.dumps(identity))
    if theirs != ours:
        other = [key for key in ours["recipe"] if ours["recipe"][key] != theirs["recipe"].get(key)]
        what = f"another recipe ({', '.join(other)})" if other else "another corpus"
        raise TrainingError(f"{out} holds a run of {what}: give another --out")
    model.load_state_dict(kept["model"])
    for optimizer, values in zip(used, kept["optimizers"], strict=True):
        bases = [group["base"] for group in optimizer.param_groups]
        optimizer.load_state_dict(values)
        for group, base in zip(optimizer.param_groups, bases, strict=True):
            group["base"] = base
    torch.set_rng_state(kept["random"].cpu())
    return State(**kept["state"])


def _header(identity: dict[str, Any], command: str, compiled: bool) -> dict[str, Any]:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    threads = {"threads": torch.get_num_threads(), "compiled": compiled}
    return {"command": command, "seed": identity["recipe"]["seed"], "versions": versions} | threads | identity


def _log(path: Path, entry: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def _cut_log(path: Path, step: int) -> None:
    """Drop what was logged after the checkpoint: those steps come again."""
    lines = path.read_text().splitlines()
    kept = [line for i, line in enumerate(lines) if i == 0 or _logged_step(line) <= step]
    path.write_text("\n".join(kept) + "\n")


def _logged_step(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except ValueError:  # a line that a kill cut off
        return math.inf


def read_log(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A log's first line and its curve."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return lines[0], lines[1:]


# --- The command


def export(out: str | Path, folder: str | Path = SMALL_FOLDER) -> None:
    """Write a run's weights as a Hugging Face folder in half precision: model.safetensors, config.json, tokenizer."""
    from rnj import weights

    kept = read_checkpoint(out)
    fields = json.loads(kept["identity"])["recipe"]["config"]
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    model = build(Config(**fields))
    model.load_state_dict(kept["model"])
    weights.save(model.half(), folder)
    load_tokenizer().save(folder)


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m rnj.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("phase", nargs="?", default="train", choices=(*PHASES, "export"))
    parser.add_argument("--out", help="the run's folder (default: runs/ and the phase's name)")
    parser.add_argument("--from", dest="source", help="the run to begin from, or to export (default: the one before)")
    parser.add_argument("--to", default=SMALL_FOLDER, help="export: the folder to write (default: the package's)")
    parser.add_argument("--minutes", type=float, help="how long to train, by the clock")
    parser.add_argument("--tokens", type=int, help="how long to train, in tokens (default: 30 million)")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--corpus", help="another folder of .py files, with --any-corpus")
    parser.add_argument("--any-corpus", action="store_true", help="train on files that are not those of the manifest")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=shutil.which("c++") is not None)
    parser.add_argument("--matrix-rate", type=float, help="another rate for the matrices")
    parser.add_argument("--other-rate", type=float, help="another rate for the embedding and the norms")
    options = parser.parse_args(given)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        _command(options, shlex.join(["python", "-m", "rnj.training", *given]))
    except (TrainingError, CorpusError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Stopped in a step: the same command goes on from the last checkpoint.")


def _command(options: argparse.Namespace, command: str) -> None:
    if options.phase == "export":
        if options.out:
            raise TrainingError("export takes the run's folder as --from, and writes the folder --to")
        export(options.source or "runs/extend", options.to)
        print(f"written: {options.to}")
        return
    if any(length is not None and not length > 0 for length in (options.minutes, options.tokens)):
        raise TrainingError("--minutes and --tokens must be above 0")
    recipe = PHASES[options.phase]
    for name in ("matrix_rate", "other_rate"):
        if getattr(options, name) is not None:
            recipe = replace(recipe, **{name: getattr(options, name)})
    out, source = options.out or f"runs/{options.phase}", options.source or BEFORE.get(options.phase)
    start = read_checkpoint(source)["model"] if source else None
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        """The first signal ends the run after this step, with a checkpoint; the second ends it at once."""
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    run(
        recipe,
        out,
        read_corpus(options.corpus, options.any_corpus),
        load_tokenizer(),
        minutes=options.minutes,
        tokens=options.tokens if options.tokens or options.minutes else 30_000_000,
        start=start,
        command=command,
        compiled=options.compile,
        device=options.device,
        stop=lambda: bool(asked),
    )
    if asked:
        sys.exit("Stopped after a whole step: the same command goes on there.")


if __name__ == "__main__":
    main()
