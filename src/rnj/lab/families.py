"""Three families from the package's own blocks: encoder-only, decoder-only, encoder-decoder. Interlude B tells of them.

What sets them apart is who may look at whom and what is predicted. The blocks are those of rnj.model; only the mask is
handed in, and the encoder-decoder's second stack gets one more attention, whose keys and values come from the first.
All are trained on one small made-up language, described below.

    python -m rnj.lab.families        train all of them and write data/families.json and data/families.safetensors
"""

from __future__ import annotations

import json
import math
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rnj.attention import Attention
from rnj.config import Config
from rnj.core_attention import attend_explicit, causal, same_document
from rnj.generate import generate
from rnj.model import IGNORED, Block, Transformer, build, loss
from rnj.norm import RMSNorm
from rnj.trace import Note, into, silent, within
from rnj.yarn import cos_sin, rotate

DATA = Path(__file__).parent / "data" / "families.json"
WEIGHTS = DATA.with_suffix(".safetensors")

# --- A language of 41 English words, and one that nobody speaks
#
# A sentence is  determiner adjectives* noun  verb  determiner adjectives* noun  (adverb): "the big dog saw two cats
# today". Its translation begins with the adverb, then comes the object, the verb, the subject; adjectives follow their
# noun in reversed order. Determiners and adjectives take the ending of their noun: -o or -a by the noun's class, with
# an n in the plural. The verb takes -et or -ent by the number of the subject, which stands after it.

NOUNS = {
    **{"baker": "pano", "dog": "kano", "farmer": "telo", "horse": "roko", "king": "sulo"},
    **{"bird": "lira", "cat": "misa", "girl": "pula", "queen": "rena", "sister": "zora"},
}
ADJECTIVES = {
    **{"young": "jun", "tall": "alt", "big": "mag", "small": "pik"},
    **{"red": "rub", "green": "ver", "quick": "fel", "slow": "len"},
}
DETERMINERS = {"the": "l", "a": "un", "two": "du"}
VERBS = {"saw": "vid", "heard": "aud", "found": "trov", "followed": "sek", "fed": "nut", "feared": "tim"}
ADVERBS = {"today": "oji", "often": "sepe", "once": "unek", "here": "ibi"}
KINDS = ("determiner", "noun", "adjective", "verb", "adverb")
ENDINGS = ("o", "a", "on", "an")

SPECIAL = ("<pad>", "<begin>", "<end>", "<to>", "<mask>")
PAD, BEGIN, END, TO, MASK = range(5)
SOURCE_WORDS = (
    *(*DETERMINERS, *ADJECTIVES, *NOUNS),
    *(f"{noun}s" for noun in NOUNS),
    *(*VERBS, *ADVERBS),
)
_TARGET_KINDS = {
    "determiner": [stem + end for stem in DETERMINERS.values() for end in ENDINGS
                   if not (stem == "un" and "n" in end) and not (stem == "du" and "n" not in end)],
    "noun": [form for noun in NOUNS.values() for form in (noun, noun + "n")],
    "adjective": [stem + end for stem in ADJECTIVES.values() for end in ENDINGS],
    "verb": [stem + end for stem in VERBS.values() for end in ("et", "ent")],
    "adverb": list(ADVERBS.values()),
}  # fmt: skip
KIND = {word: kind for kind, words in _TARGET_KINDS.items() for word in words}  # of each word of the translation
VOCABULARY = (*SPECIAL, *SOURCE_WORDS, *KIND)
ID = {word: i for i, word in enumerate(VOCABULARY)}
FIRST_TARGET = ID[next(iter(KIND))]  # the words of the translations are the last of the vocabulary


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation, and for each word of the translation the place of the source word it renders."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    aligned: tuple[int, ...]


@dataclass(frozen=True)
class _Phrase:
    """A noun with what belongs to it."""

    determiner: str
    adjectives: tuple[str, ...]
    noun: str
    plural: bool

    def source(self) -> list[str]:
        return [self.determiner, *self.adjectives, self.noun + "s" * self.plural]

    def target(self, start: int) -> list[tuple[str, int]]:
        """The words with the places that they render; the phrase begins at `start` of the source."""
        end = NOUNS[self.noun][-1] + "n" * self.plural
        n = len(self.adjectives)
        words = [(DETERMINERS[self.determiner] + end, start), (NOUNS[self.noun] + "n" * self.plural, start + n + 1)]
        return words + [(ADJECTIVES[self.adjectives[i]] + end, start + 1 + i) for i in reversed(range(n))]


def make_pair(subject: _Phrase, verb: str, obj: _Phrase, adverb: str | None) -> Pair:
    """The sentence and its translation, by the rule above."""
    first, last = subject.source(), obj.source()
    source = [*first, verb, *last, *([adverb] if adverb else [])]
    words = [(ADVERBS[adverb], len(source) - 1)] if adverb else []
    words += obj.target(len(first) + 1)
    words += [(VERBS[verb] + ("ent" if subject.plural else "et"), len(first)), *subject.target(0)]
    return Pair(tuple(source), tuple(w for w, _ in words), tuple(i for _, i in words))


def parse(source: Sequence[str]) -> Pair | None:
    """The pair of a source sentence, or None where it is no sentence of the language."""
    words = list(source)

    def phrase() -> _Phrase | None:
        if not words or words[0] not in DETERMINERS:
            return None
        determiner, adjectives = words.pop(0), []
        while words and words[0] in ADJECTIVES:
            adjectives.append(words.pop(0))
        noun = words.pop(0) if words else ""
        plural = noun not in NOUNS
        if noun.removesuffix("s") not in NOUNS or determiner == ("a" if plural else "two"):
            return None
        return _Phrase(determiner, tuple(adjectives), noun.removesuffix("s"), plural)

    subject = phrase()
    verb = words.pop(0) if words else ""
    obj = phrase()
    adverb = words.pop(0) if words else None
    if subject is None or verb not in VERBS or obj is None or words or (adverb and adverb not in ADVERBS):
        return None
    if any(len(set(p.adjectives)) < len(p.adjectives) or len(p.adjectives) > 2 for p in (subject, obj)):
        return None
    return make_pair(subject, verb, obj, adverb)


def is_held_out(source: Sequence[str]) -> bool:
    """One sentence in 16 is kept from training, by a checksum of its words and nothing else."""
    return zlib.crc32(" ".join(source).encode()) % 16 == 0


def pairs(seed: int, held_out: bool = False) -> Iterator[Pair]:
    """Pairs without end, those of training or the held-out ones; the same for the same seed."""
    rng = random.Random(seed)

    def phrase() -> _Phrase:
        plural = rng.random() < 0.5
        determiner = rng.choice(("the", "two" if plural else "a"))
        return _Phrase(
            determiner, tuple(rng.sample(list(ADJECTIVES), rng.randrange(3))), rng.choice(list(NOUNS)), plural
        )

    while True:
        adverb = rng.choice(list(ADVERBS)) if rng.random() < 0.5 else None
        pair = make_pair(phrase(), rng.choice(list(VERBS)), phrase(), adverb)
        if is_held_out(pair.source) == held_out:
            yield pair


def take(count: int, seed: int, held_out: bool = False) -> list[Pair]:
    """The first `count` of `pairs`."""
    stream = pairs(seed, held_out)
    return [next(stream) for _ in range(count)]


HELD_OUT = 500  # pairs on which accuracy is measured


def held_out_pairs(count: int = HELD_OUT) -> list[Pair]:
    """The held-out pairs of all figures."""
    return take(count, seed=1, held_out=True)


def ids(words: Sequence[str]) -> list[int]:
    return [ID[word] for word in words]


def rows_of(sentences: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Sentences of ids as one batch, padded on the right: tokens and segments (1, and 0 for padding)."""
    longest = max(len(s) for s in sentences)
    tokens = torch.tensor([[*s, *[PAD] * (longest - len(s))] for s in sentences])  # [B, T]
    return tokens, (tokens != PAD).long()


def one_row(pair: Pair) -> list[int]:
    """A pair as the decoder-only model reads it: source, separator, translation."""
    return [BEGIN, *ids(pair.source), TO, *ids(pair.target), END]


# --- Three masks. True means "may look".


def both_ways(segments: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """An encoder's mask: every token sees every token of its row."""
    return same_document(segments[:, :, None], segments[:, None])


def left_to_right(segments: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """A decoder's mask: every token sees itself and what stands before it."""
    at = torch.arange(segments.shape[1])
    return both_ways(segments) & causal(at[:, None], at[None])


def across(segments: Int[Tensor, "B T"], memory_segments: Int[Tensor, "B S"]) -> Bool[Tensor, "B T S"]:
    """Cross-attention's mask: every token of one row sees every token of the other."""
    return same_document(segments[:, :, None], memory_segments[:, None])


# --- The package's blocks under any mask

Turn = tuple[Tensor, Tensor]  # cosine and sine of each position, [B, T, H/2] each


def attend_to(
    attn: Attention,
    x: Float[Tensor, "B T D"],
    memory: Float[Tensor, "B S D"],
    allowed: Bool[Tensor, "B T S"],
    turn: Turn | None = None,
    note: Note = silent,
) -> Float[Tensor, "B T D"]:
    """The package's attention with queries from x, keys and values from memory, and the mask handed in.

    turn: rotate queries and keys, where x and memory are one row; None in cross-attention, whose two rows share no
    positions. Source: Vaswani et al. 2017, section 3.2.3.
    """
    heads = (-1, attn.head_dim)
    q = attn.q_norm(attn.q_proj(x).unflatten(-1, heads))  # [B, T, N, H]
    k = attn.k_norm(attn.k_proj(memory).unflatten(-1, heads))  # [B, S, K, H]
    v = attn.v_proj(memory).unflatten(-1, heads)  # [B, S, K, H]
    if turn is not None:
        q, k = rotate(q, *turn), rotate(k, *turn)
    out = attend_explicit(q, k, v, allowed, attn.scale, note)  # [B, T, N, H]
    return attn.o_proj(out.flatten(2))  # [B, T, D]


def positions_of(tokens: Int[Tensor, "B T"], config: Config) -> Turn:
    """Cosine and sine for rows that begin at position 0."""
    return cos_sin(torch.arange(tokens.shape[1]).expand_as(tokens), config)


def through(
    block: Block, x: Float[Tensor, "B T D"], allowed: Bool[Tensor, "B T T"], turn: Turn, note: Note = silent
) -> Float[Tensor, "B T D"]:
    """One of the package's blocks under a mask."""
    h = block.pre_attn_norm(x)  # [B, T, D]
    x = x + block.post_attn_norm(attend_to(block.attn, h, h, allowed, turn, within(note, "attn")))
    return x + block.post_mlp_norm(block.mlp(block.pre_mlp_norm(x)))


def read(
    model: Transformer, tokens: Int[Tensor, "B T"], allowed: Bool[Tensor, "B T T"], note: Note = silent
) -> Float[Tensor, "B T D"]:
    """Embedding and blocks of the package's model under a mask: with `left_to_right` what the model itself computes."""
    turn = positions_of(tokens, model.config)
    x = model.embed(tokens) * math.sqrt(model.config.d_model)  # [B, T, D]
    for layer, block in enumerate(model.blocks):
        x = through(block, x, allowed, turn, within(note, f"block.{layer}"))
    return x


class CrossBlock(Block):
    """A block of an encoder-decoder's second stack: cross-attention between attention and MLP, with its two norms."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.pre_cross_norm = RMSNorm(config.d_model, config.norm_eps)
        self.cross = Attention(config, layer)
        self.post_cross_norm = RMSNorm(config.d_model, config.norm_eps)


def through_cross(
    block: CrossBlock,
    x: Float[Tensor, "B T D"],
    memory: Float[Tensor, "B S D"],
    to_itself: Bool[Tensor, "B T T"],
    to_source: Bool[Tensor, "B T S"],
    turn: Turn,
    note: Note = silent,
) -> Float[Tensor, "B T D"]:
    """`through`, with a look at the other row between attention and MLP."""
    h = block.pre_attn_norm(x)  # [B, T, D]
    x = x + block.post_attn_norm(attend_to(block.attn, h, h, to_itself, turn, within(note, "attn")))
    h = block.pre_cross_norm(x)  # [B, T, D]
    x = x + block.post_cross_norm(attend_to(block.cross, h, memory, to_source, None, within(note, "cross")))
    return x + block.post_mlp_norm(block.mlp(block.pre_mlp_norm(x)))


class EncoderDecoder(nn.Module):
    """An encoder that reads the source both ways, and a decoder that writes while it looks at what was read.

    One embedding serves both rows and the head; L layers each. Source: Vaswani et al. 2017, section 3.1, with the
    norms, MLP and attention of this package.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = Transformer(config)
        self.blocks = nn.ModuleList(CrossBlock(config, layer) for layer in range(config.n_layers))
        self.final_norm = RMSNorm(config.d_model, config.norm_eps)

    def encode(self, source: Int[Tensor, "B S"], note: Note = silent) -> Float[Tensor, "B S D"]:
        """What the decoder looks at: made once for a source."""
        return self.encoder.final_norm(
            read(self.encoder, source, both_ways((source != PAD).long()), within(note, "encoder"))
        )

    def decode(
        self,
        memory: Float[Tensor, "B S D"],
        source: Int[Tensor, "B S"],
        written: Int[Tensor, "B T"],
        note: Note = silent,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the next word after each word written."""
        segments, turn = (written != PAD).long(), positions_of(written, self.config)
        to_itself, to_source = left_to_right(segments), across(segments, (source != PAD).long())
        x = self.encoder.embed(written) * math.sqrt(self.config.d_model)  # [B, T, D]
        for layer, block in enumerate(self.blocks):
            x = through_cross(block, x, memory, to_itself, to_source, turn, within(note, f"decoder.{layer}"))
        return F.linear(self.final_norm(x), self.encoder.embed.weight)  # [B, T, V]

    def forward(
        self, source: Int[Tensor, "B S"], written: Int[Tensor, "B T"], note: Note = silent
    ) -> Float[Tensor, "B T V"]:
        return self.decode(self.encode(source, note), source, written, note)


# --- Sizes: two layers each way, or four layers with an MLP that makes up for the two attentions that are missing

BASE = Config(
    d_model=64,
    d_ff=128,
    n_layers=2,
    n_heads=4,
    n_kv_heads=2,
    head_dim=16,
    vocab_size=len(VOCABULARY),
    block_size=64,
    layer_types=("global",) * 2,
    rope_type="default",
    original_max_positions=64,
    final_logit_softcap=None,
    bos_id=BEGIN,
    eos_ids=(END,),
    pad_id=PAD,
)
DECODER = replace(BASE, n_layers=4, layer_types=("global",) * 4, d_ff=160)


def fresh(name: str, seed: int = 0) -> Any:
    """An untrained model of a family: a Transformer, or an EncoderDecoder. Raises KeyError for an unknown name."""
    if name != "encoder-decoder":
        return build({"encoder-only": BASE, CAUSAL: BASE, "decoder-only": DECODER, TARGETS: DECODER}[name], seed)
    model = EncoderDecoder(BASE)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
            else:
                weight.zero_()
    return model


def parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


# --- What each family is trained on


def source_rows(batch: Sequence[Pair]) -> Int[Tensor, "B S"]:
    return rows_of([[BEGIN, *ids(pair.source), END] for pair in batch])[0]


def target_rows(batch: Sequence[Pair]) -> Int[Tensor, "B T"]:
    return rows_of([[BEGIN, *ids(pair.target), END] for pair in batch])[0]


def shifted(rows: Int[Tensor, "B T"]) -> tuple[Int[Tensor, "B T-1"], Int[Tensor, "B T-1"]]:
    """What is read and what is to be said: every token's target is the next one; padding has none."""
    return rows[:, :-1], rows[:, 1:].masked_fill(rows[:, 1:] == PAD, IGNORED)


def mask_words(
    rows: Int[Tensor, "B T"], generator: torch.Generator, share: float = 0.15
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Rows to read, and their targets: the words chosen, `share` of all, and nothing elsewhere.

    Of the words chosen 80 % become <mask>, 10 % another word of the translations, 10 % stay. begin, end and padding are
    never chosen. Source: Devlin et al. 2018, section 3.1.
    """
    words = rows > MASK  # [B, T]
    chosen = words & (torch.rand(rows.shape, generator=generator) < share)
    fate = torch.rand(rows.shape, generator=generator)  # [B, T]
    other = torch.randint(FIRST_TARGET, len(VOCABULARY), rows.shape, generator=generator)
    seen = torch.where(chosen & (fate < 0.8), MASK, rows)
    seen = torch.where(chosen & (fate >= 0.9), other, seen)
    return seen, rows.masked_fill(~chosen, IGNORED)


def masked_loss(
    model: Transformer,
    seen: Int[Tensor, "B T"],
    targets: Int[Tensor, "B T"],
    mask: Callable[[Tensor], Tensor] = both_ways,
) -> Float[Tensor, ""]:
    """Cross-entropy at the words chosen."""
    return loss(model.head(read(model, seen, mask((seen != PAD).long()))), targets)


def continuation_loss(model: Transformer, batch: Sequence[Pair], translation_only: bool = False) -> Float[Tensor, ""]:
    """Cross-entropy of every next token of source, separator, translation and end; or of the last two alone."""
    seen, targets = shifted(rows_of([one_row(pair) for pair in batch])[0])
    if translation_only:
        targets = targets.masked_fill((seen == TO).cumsum(1) == 0, IGNORED)
    return loss(model.head(read(model, seen, left_to_right((seen != PAD).long()))), targets)


def translation_loss(model: EncoderDecoder, batch: Sequence[Pair]) -> Float[Tensor, ""]:
    """Cross-entropy of the translation's words and its end, given the source."""
    seen, targets = shifted(target_rows(batch))
    return loss(model(source_rows(batch), seen), targets)


# --- Training

CAUSAL, TARGETS = "encoder-only, causal", "decoder-only, translation only"  # two variants to compare with
STEPS = {"encoder-only": 600, CAUSAL: 600, "decoder-only": 450, TARGETS: 450, "encoder-decoder": 450}
SEEDS = {
    "encoder-only": (0,),
    CAUSAL: (0,),
    "encoder-decoder": (0, 1, 2),
    "decoder-only": (0, 1, 2),
    TARGETS: (0,),
}
KEPT = ("encoder-only", "decoder-only", "encoder-decoder")  # whose weights of seed 0 are shipped
A_STEP = 64  # pairs
RATE, WARMUP = 3e-3, 50
EVERY = 25  # steps between two measurements of accuracy
WATCHED = 200  # held-out pairs on which it is measured meanwhile


def rate(step: int, steps: int) -> float:
    """Up in a straight line over WARMUP steps, then down to 0."""
    return RATE * min(1.0, (step + 1) / WARMUP) * (steps - step) / steps


def step_loss(name: str, model: Any, batch: Sequence[Pair], generator: torch.Generator) -> Tensor:
    """The loss of a family's own task on a batch."""
    if name == "encoder-decoder":
        return translation_loss(model, batch)
    if name in ("decoder-only", TARGETS):
        return continuation_loss(model, batch, translation_only=name == TARGETS)
    seen, targets = mask_words(target_rows(batch), generator)
    return masked_loss(model, seen, targets, both_ways if name == "encoder-only" else left_to_right)


def train(
    name: str, seed: int = 0, stop: int | None = None, watch: Callable[[int, Any], None] = lambda *_: None
) -> tuple[Any, list[float]]:
    """Train a family from scratch on pairs that are not held out: the model and the loss of each step.

    stop: end after that many of the steps. watch(steps done, model): called every EVERY steps.
    """
    model, steps = fresh(name, seed), STEPS[name]
    stream, generator = pairs(100 + seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    losses = []
    for step in range(steps if stop is None else stop):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        lost = step_loss(name, model, [next(stream) for _ in range(A_STEP)], generator)
        optimizer.zero_grad()
        lost.backward()
        optimizer.step()
        losses.append(lost.item())
        if (step + 1) % EVERY == 0:
            watch(step + 1, model)
    return model, losses


# --- Translating, and how well

LONGEST = 11  # words of a translation, and its end


@torch.no_grad()
def translate(model: Transformer | EncoderDecoder, sources: Sequence[Sequence[str]]) -> list[list[str]]:
    """The most probable next word again and again, until the end. The decoder-only model goes on from the separator."""
    if isinstance(model, Transformer):
        prompts = [[BEGIN, *ids(source), TO] for source in sources]
        made = generate(model, prompts, LONGEST, end_ids=END)
    else:
        tokens = rows_of([[BEGIN, *ids(source), END] for source in sources])[0]  # [B, S]
        memory, written = model.encode(tokens), torch.full((len(sources), 1), BEGIN)
        for _ in range(LONGEST):
            new = model.decode(memory, tokens, written)[:, -1].argmax(-1, keepdim=True)  # [B, 1]
            written = torch.cat([written, new], dim=1)
        made = written[:, 1:].tolist()
    words = [[VOCABULARY[i] for i in row] for row in made]
    return [row[: row.index("<end>")] if "<end>" in row else row for row in words]


def exact(model: Transformer | EncoderDecoder, batch: Sequence[Pair]) -> float:
    """The share of pairs whose whole translation is right, word by word."""
    made = translate(model, [pair.source for pair in batch])
    return sum(tuple(words) == pair.target for words, pair in zip(made, batch, strict=True)) / len(batch)


@torch.no_grad()
def alignment(model: EncoderDecoder, batch: Sequence[Pair]) -> tuple[Float[Tensor, "L N"], float]:
    """How much of its weight each head of cross-attention puts on the source word that is being rendered.

    The mean over all words of the translations, and the same for weights that are equal on all source tokens.
    """
    kept: dict[str, Tensor] = {}
    model(source_rows(batch), target_rows(batch)[:, :-1], into(kept))
    layers = [kept[f"decoder.{i}.cross.weights"] for i in range(len(model.blocks))]
    weights = torch.stack(layers, dim=1)  # [B, L, N, T, S]
    shares = []
    for one, pair in zip(weights, batch, strict=True):
        at = torch.tensor(pair.aligned) + 1  # the source's begin token stands before its words
        shares.append(one[:, :, torch.arange(len(at)), at].mean(-1))  # [L, N]
    return torch.stack(shares).mean(0), sum(1 / (len(pair.source) + 2) for pair in batch) / len(batch)


# --- Masked words, and how well they are found


def open_words(pair: Pair, place: int) -> int:
    """How many words the rest of a translation leaves open at a place, all equally probable.

    A noun's ending is given by its determiner, so the nouns of one class are left; a noun with two adjectives never
    has the same one twice.
    """
    kind = KIND[pair.target[place]]
    if kind == "adjective":
        neighbours = [pair.target[i] for i in (place - 1, place + 1) if i < len(pair.target)]
        return len(ADJECTIVES) - sum(KIND[word] == "adjective" for word in neighbours)
    return {"determiner": 2, "noun": len(NOUNS) // 2, "verb": len(VERBS), "adverb": len(ADVERBS)}[kind]


def unigram(count: int = 2000) -> Float[Tensor, "V"]:
    """Log-probability of each word of the translations by its share in training pairs, one added to every count."""
    seen = Counter(word for pair in take(count, seed=100) for word in pair.target)
    counts = torch.tensor([seen[word] + (word in KIND) for word in VOCABULARY], dtype=torch.float32)  # [V]
    return (counts / counts.sum()).log()


@dataclass(frozen=True)
class Gaps:
    """Translations with one word masked, a row for each word: what to read, what to find, and what it is."""

    tokens: Int[Tensor, "B T"]
    places: Int[Tensor, "B"]  # of the masked token in its row
    words: Int[Tensor, "B"]
    kinds: tuple[str, ...]
    open: Float[Tensor, "B"]  # words that the rest leaves open


def gaps(batch: Sequence[Pair], shuffle: int | None = None) -> Gaps:
    """Every word of every translation masked in turn. shuffle: a seed by which the other words change places."""
    rows, places, words, kinds, left = [], [], [], [], []
    rng = random.Random(shuffle)
    for pair in batch:
        for place, word in enumerate(pair.target):
            others = [w for i, w in enumerate(pair.target) if i != place]
            if shuffle is not None:
                rng.shuffle(others)
            rows.append([BEGIN, *ids(others[:place]), MASK, *ids(others[place:]), END])
            places.append(place + 1)
            words.append(ID[word])
            kinds.append(KIND[word])
            left.append(float(open_words(pair, place)))
    return Gaps(rows_of(rows)[0], torch.tensor(places), torch.tensor(words), tuple(kinds), torch.tensor(left))


@torch.no_grad()
def gap_losses(model: Transformer, given: Gaps, mask: Callable[[Tensor], Tensor] = both_ways) -> Float[Tensor, "B"]:
    """Cross-entropy of each masked word."""
    hidden = read(model, given.tokens, mask((given.tokens != PAD).long()))  # [B, T, D]
    at = hidden[torch.arange(len(given.places)), given.places]  # [B, D]
    return F.cross_entropy(model.head(at), given.words, reduction="none")


def by_kind(losses: Float[Tensor, "B"], kinds: Sequence[str]) -> dict[str, float]:
    """The mean of each kind of word, and of all."""
    means = {kind: losses[torch.tensor([k == kind for k in kinds])].mean().item() for kind in KINDS}
    return means | {"all": losses.mean().item()}


# --- Work: FLOPs of matrix products, a multiply and an add are two


def _matrices(*modules: nn.Module) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters() if weight.ndim == 2)


def new_token_flops(model: Transformer | EncoderDecoder, source: int, written: int) -> int:
    """FLOPs of the next token, with the keys and values of everything before it kept.

    source: tokens of the source; written: tokens after it, the newest included. The decoder-only model sends the token
    through all of its layers, the encoder-decoder through its decoder, whose cross-attention has its keys and values.
    """
    c = model.config
    weights = _matrices(model.blocks) + c.vocab_size * c.d_model
    if isinstance(model, EncoderDecoder):
        weights -= sum(_matrices(block.cross.k_proj, block.cross.v_proj) for block in model.blocks)
    return 2 * weights + 4 * c.n_heads * c.head_dim * len(model.blocks) * (source + written)


def source_flops(model: Transformer | EncoderDecoder, source: int) -> int:
    """FLOPs of reading the source once: keys and values of every layer that will look at it, no logits."""
    c = model.config
    pair = 4 * c.n_heads * c.head_dim * c.n_layers  # FLOPs of one query and one key, in all layers
    if isinstance(model, Transformer):
        return 2 * _matrices(model.blocks) * source + pair * source * (source + 1) // 2
    kept = sum(_matrices(block.cross.k_proj, block.cross.v_proj) for block in model.blocks)
    return 2 * (_matrices(model.encoder.blocks) + kept) * source + pair * source**2


def translation_flops(model: Transformer | EncoderDecoder, source: int, words: int) -> int:
    """FLOPs of reading a source and writing a translation and its end, with everything kept that can be kept.

    source: tokens of the source, its two special ones included. The decoder-only model says the first word when it has
    read the separator; the decoder says it when it has read its own begin token.
    """
    c = model.config
    once = source_flops(model, source)
    if isinstance(model, Transformer):
        return once + 2 * c.vocab_size * c.d_model + sum(new_token_flops(model, source, t + 1) for t in range(words))
    return once + sum(new_token_flops(model, source, t + 1) for t in range(words + 1))


# --- Data that is kept


def data() -> dict[str, Any]:
    """What the last run of this file measured."""
    return json.loads(DATA.read_text(encoding="utf-8"))


def trained(name: str) -> Any:
    """A family's shipped model, float32. Raises KeyError for an unknown name."""
    model = fresh(name)
    kept = load_file(WEIGHTS)
    own = {key.removeprefix(f"{name}."): value.float() for key, value in kept.items() if key.startswith(f"{name}.")}
    model.load_state_dict(own, strict=True)
    return model.eval()


def measure(name: str, seed: int) -> tuple[dict[str, Any], Any]:
    """Train a family and measure it on held-out pairs: what the data says of the run, and the model."""
    watched, curve, began = held_out_pairs(WATCHED), [], time.process_time()
    translates = not name.startswith("encoder-only")

    def watch(steps: int, model: Any) -> None:
        if translates:
            curve.append([steps, exact(model, watched)])

    model, losses = train(name, seed, watch=watch)
    run: dict[str, Any] = {"family": name, "seed": seed, "parameters": parameters(model), "steps": STEPS[name]}
    run["losses"] = [round(x, 4) for x in losses[:20]]  # the first ones
    run["last_loss"] = round(sum(losses[-20:]) / 20, 4)
    if translates:
        run |= {"exact": curve, "exact_at_the_end": exact(model, held_out_pairs())}
    else:
        given = gaps(watched)
        lost = gap_losses(model, given, left_to_right if name == CAUSAL else both_ways)
        run["gaps"] = {kind: round(mean, 4) for kind, mean in by_kind(lost, given.kinds).items()}
    return run | {"seconds": round(time.process_time() - began, 1)}, model


def write(runs: list[dict[str, Any]], models: dict[str, Any]) -> None:
    """Write the data and, in half precision, the weights of the models."""
    DATA.parent.mkdir(exist_ok=True)
    made = {"made_by": "python -m rnj.lab.families", "pairs_a_step": A_STEP, "runs": runs}
    DATA.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    states = {name: model.state_dict() for name, model in models.items()}
    save_file({f"{name}.{key}": x.half() for name, state in states.items() for key, x in state.items()}, WEIGHTS)


def main() -> None:
    """Train every family with every seed, on one thread, and write what the interlude shows."""
    torch.set_num_threads(1)
    runs, models = [], {}
    for name, seeds in SEEDS.items():
        for seed in seeds:
            run, model = measure(name, seed)
            runs.append(run)
            print({key: run[key] for key in run if key not in ("exact", "losses")}, flush=True)
            if seed == 0 and name in KEPT:
                models[name] = model
    write(runs, models)
    print(f"{sum(run['seconds'] for run in runs):.0f} s; {WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
