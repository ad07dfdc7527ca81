"""What the small model has learned, measured on held-out files. Interlude C shows it.

python -m rnj.lab.learned        print the table
"""

from __future__ import annotations

import keyword
import lzma
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rnj.corpus import read_sample
from rnj.documents import NAME, cut_a_hole, cut_a_shared_name
from rnj.generate import fill_in_the_middle
from rnj.lab.heads import looks
from rnj.model import Transformer, meta
from rnj.text import NO_TARGET, Packed, Tokenizer, fim, load_tokenizer, pack

PIECE = (
    240  # tokens: cases of fill-in-the-middle are cut from pieces of this length, so that local layers see both sides
)


def with_config(model: Transformer, **changes: Any) -> Transformer:
    """The same weights, not copied, under a config that differs: rope_type, layer_types, final_logit_softcap, …

    Raises ConfigError where the changed config makes no sense.
    """
    made = meta(replace(model.config, **changes))
    made.load_state_dict(model.state_dict(), assign=True)
    return made


@torch.no_grad()
def nats(model: Transformer, packed: Packed) -> Float[Tensor, "B T"]:
    """The cross-entropy of each position's target, float32; 0 where there is none. Row by row, to keep memory small."""
    rows = []
    for i in range(len(packed.tokens)):
        tokens, positions, segments, targets = (
            x[i : i + 1] for x in (packed.tokens, packed.positions, packed.segments, packed.targets)
        )
        logits = model(tokens, positions, segments)[0]  # [T, V]
        rows.append(F.cross_entropy(logits, targets[0], ignore_index=NO_TARGET, reduction="none"))
    return torch.stack(rows)


def framed(documents: Sequence[Sequence[int]], tokenizer: Tokenizer) -> Packed:
    """Each document in a row of its own, between begin and end of text."""
    length = max(len(ids) for ids in documents) + 2
    rows = [
        pack([ids], length, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)
        for ids in documents
    ]
    names = ("tokens", "positions", "segments", "targets")
    return Packed(*(torch.cat([getattr(row, name) for row in rows]) for name in names))


# --- Bits per byte


def bits_per_byte(
    model: Transformer, texts: Mapping[str, str] | None = None, tokenizer: Tokenizer | None = None
) -> dict[str, float]:
    """Bits for each byte of each file, and of all under "all".

    texts: file names and texts, None: the sample that ships. A file that is longer than the context is cut into pieces,
    of which each begins anew; the end of text is not counted.
    """
    texts, tokenizer = read_sample() if texts is None else texts, tokenizer or load_tokenizer()
    longest = model.config.max_positions - 2
    bits: dict[str, float] = {}
    for name, text in texts.items():
        ids = tokenizer.encode(text)
        bits[name] = 0.0
        for start in range(0, len(ids), longest):
            packed = framed([ids[start : start + longest]], tokenizer)
            bits[name] += float(nats(model, packed)[0, :-2].double().sum()) / math.log(2)
    sizes = {name: len(text.encode()) for name, text in texts.items()}
    return {name: bits[name] / sizes[name] for name in texts} | {"all": sum(bits.values()) / sum(sizes.values())}


def xz_bits_per_byte(texts: Mapping[str, str] | None = None) -> dict[str, float]:
    """What `xz -9e` needs: "one by one", each file by itself, and "together", all files as one."""
    datas = [text.encode() for text in (read_sample() if texts is None else texts).values()]
    total = sum(len(data) for data in datas)
    preset = 9 | lzma.PRESET_EXTREME

    def packed(data: bytes) -> int:
        return len(lzma.compress(data, preset=preset))

    return {
        "one by one": 8 * sum(packed(data) for data in datas) / total,
        "together": 8 * packed(b"".join(datas)) / total,
    }


# --- Fill-in-the-middle


@dataclass(frozen=True)
class Hole:
    """A piece of a held-out file and what was cut out of it."""

    prefix: str
    middle: str
    suffix: str
    names: int = 0  # how many different names stand on both sides


def _pieces(tokenizer: Tokenizer, texts: Mapping[str, str] | None) -> list[list[int]]:
    files = tokenizer.encode_all(list((read_sample() if texts is None else texts).values()))
    return [ids[i : i + PIECE] for ids in files for i in range(0, len(ids) - PIECE, PIECE)]


def holes(tokenizer: Tokenizer, count: int = 200, seed: int = 0, texts: Mapping[str, str] | None = None) -> list[Hole]:
    """Holes as in training (a name, a line's end, some tokens, some characters), cut from pieces drawn by the seed.

    A piece whose middle is empty is passed over.
    """
    rng = np.random.default_rng(seed)
    pieces = _pieces(tokenizer, texts)
    found: list[Hole] = []
    for i in rng.permutation(len(pieces)):
        hole = Hole(*cut_a_hole(tokenizer, pieces[i], rng))
        if hole.middle and len(found) < count:
            found.append(hole)
    return found


def name_holes(
    tokenizer: Tokenizer, count: int = 100, seed: int = 0, texts: Mapping[str, str] | None = None
) -> list[Hole]:
    """Names that stand on both sides of the hole: one case a piece, pieces and places drawn by the seed.

    A name is an identifier of three letters or more that is no keyword of Python. Of the places where one stands that
    occurs before and after it as well, one is drawn, each as likely as any other.
    """
    rng = np.random.default_rng(seed)
    pieces = _pieces(tokenizer, texts)
    found: list[Hole] = []
    for i in rng.permutation(len(pieces)):
        text = tokenizer.decode(pieces[i])
        parts = cut_a_shared_name(text, rng)
        if parts and len(found) < count:
            before, after = (set(NAME.findall(part)) for part in (parts[0], parts[2]))
            both = {name for name in before & after if not keyword.iskeyword(name)}
            found.append(Hole(*parts, len(both)))
    return found


@dataclass(frozen=True)
class MiddleLoss:
    """Nats a token of the same middle tokens, without and with the text behind them."""

    left_to_right: float
    fill_in_the_middle: float
    tokens: int


def middle_loss(
    model: Transformer, cases: Sequence[Hole], tokenizer: Tokenizer | None = None, order: str = "psm"
) -> MiddleLoss:
    """The middles' loss after the prefix alone, and with the suffix in the order "spm" or "psm" (`rnj.text.fim`)."""
    tokenizer = tokenizer or load_tokenizer()
    plain, filled, count = 0.0, 0.0, 0
    for case in cases:
        middle = tokenizer.encode(case.middle)
        last = slice(
            -len(middle) - 2, -2
        )  # the positions that predict the middle; then come its last token and the end
        for ids, known in (
            ([*tokenizer.encode(case.prefix), *middle], False),
            (fim(case.prefix, middle, case.suffix, tokenizer, order), True),
        ):
            total = float(nats(model, framed([ids], tokenizer))[0, last].sum())
            filled, plain = (filled + total, plain) if known else (filled, plain + total)
        count += len(middle)
    return MiddleLoss(plain / count, filled / count, count)


@dataclass(frozen=True)
class Filled:
    """How many names were filled in exactly, and how many a blind choice among those on both sides would hit."""

    right: int
    cases: int
    chance: float


def fill_names(
    model: Transformer, cases: Sequence[Hole], tokenizer: Tokenizer | None = None, order: str = "psm"
) -> Filled:
    """Greedy filling; right is the name, nothing more and nothing less, and then the end of text."""
    tokenizer = tokenizer or load_tokenizer()
    greedy: Mapping[str, Any] = {"max_new_tokens": 16, "temperature": 0, "order": order}
    right = [fill_in_the_middle(model, tokenizer, case.prefix, case.suffix, **greedy) == case.middle for case in cases]
    return Filled(sum(right), len(cases), sum(1 / case.names for case in cases))


# --- Copying


def repeated(tokenizer: Tokenizer, length: int, rows: int = 8, seed: int = 0) -> Packed:
    """Random ordinary tokens, twice over, in each row: begin, `length` tokens, the same again, end."""
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(0, tokenizer.bos_id, (rows, length), generator=generator)
    return framed(torch.cat([once, once], dim=1).tolist(), tokenizer)


@dataclass(frozen=True, eq=False)
class Copying:
    """Loss of a random sequence and of its copy, and each head's induction score."""

    first: float
    second: float
    induction: Float[Tensor, "L N"]
    even: Float[Tensor, "L"]  # the score of weights that are equal on all keys seen

    @property
    def ratio(self) -> float:
        return self.second / self.first

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the highest score."""
        layer, head = divmod(int(self.induction.argmax()), self.induction.shape[1])
        return layer, head


def copying(model: Transformer, length: int = 64, rows: int = 8, tokenizer: Tokenizer | None = None) -> Copying:
    """Random tokens twice over. The copy's first token is not counted: nothing tells that a copy begins.

    A head's induction score is the weight that it gives, in the copy, to the token that came after the same token
    before. Source: Olsson et al. 2022, "Induction heads".
    """
    tokenizer = tokenizer or load_tokenizer()
    packed = repeated(tokenizer, length, rows)
    losses = nats(model, packed)  # [B, T]; position i predicts token i + 1, and token 0 is the begin
    scores, even = [], []
    for i in range(rows):
        trace = model.trace(packed.tokens[i : i + 1], packed.positions[i : i + 1], packed.segments[i : i + 1])
        look = looks(trace, model.config.n_layers, packed.tokens[i], packed.positions[i])["after the same token"]
        scores.append(look.share)
        even.append(look.even)
    return Copying(
        float(losses[:, :length].mean()),
        float(losses[:, length + 1 : 2 * length].mean()),
        torch.stack(scores).mean(0),
        torch.stack(even).mean(0),
    )


# --- The table


def table() -> dict[str, str]:
    """Every measure of the shipped model, as it is printed."""
    from rnj.example import small_model

    model, tokenizer = small_model(), load_tokenizer()
    xz, cases, blanks = xz_bits_per_byte(), holes(tokenizer), name_holes(tokenizer)
    orders = {"prefix first": "psm", "suffix first": "spm"}
    filled = {word: middle_loss(model, cases, tokenizer, order) for word, order in orders.items()}
    names = {word: fill_names(model, blanks, tokenizer, order) for word, order in orders.items()}
    near, far = copying(model), copying(model, 200)
    layer, head = near.best
    return {
        "bits per byte, held-out sample": f"{bits_per_byte(model)['all']:.3f}",
        "xz -9e, file by file / together": f"{xz['one by one']:.3f} / {xz['together']:.3f}",
        **{
            f"middle, {word}": f"{m.left_to_right:.3f} → {m.fill_in_the_middle:.3f} nats a token, {m.tokens:,} tokens"
            for word, m in filled.items()
        },
        **{f"names, {word}": f"{n.right} of {n.cases} right (chance {n.chance:.0f})" for word, n in names.items()},
        "copy of 64 random tokens": f"{near.first:.2f} → {near.second:.2f} nats, ratio {near.ratio:.2f}",
        "copy of 200 random tokens": f"{far.first:.2f} → {far.second:.2f} nats, ratio {far.ratio:.2f}",
        "best induction score": (
            f"{near.induction[layer, head]:.2f}, layer {layer}, head {head} (chance {near.even[layer]:.3f})"
        ),
    }


def main() -> None:
    rows = table()
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
