"""From text to tensors: a byte-level tokenizer, special tokens that no text can reach, packed rows. Chapter 1."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
from jaxtyping import Int
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from torch import Tensor

SMALL_FOLDER = Path(__file__).with_name("small")

# In the order of their ids, which are the last of the vocabulary.
SPECIAL_TOKENS = (
    "<|begin_of_text|>",  # begins every document
    "<|end_of_text|>",  # ends every document
    "<|end_of_turn|>",  # ends one side's turn in a conversation
    "<|pad|>",  # fills a row
    "<|fim_prefix|>",  # fill-in-the-middle: what stands before the cursor follows
    "<|fim_suffix|>",  # what stands after the cursor follows
    "<|fim_middle|>",  # what is to be filled in follows
    "<|repo_name|>",  # the name of a repository follows
    "<|file_sep|>",  # the next file of the same repository follows
    "<|tool_call|>",  # the call of a tool follows
    "<|end_of_tool_call|>",  # ends it
    "<|tool_result|>",  # what the tool gave back follows
    "<|reserved_0|>",  # kept for later uses
    "<|reserved_1|>",
    "<|reserved_2|>",
    "<|reserved_3|>",
)

NO_TARGET = -100  # the target of a position that predicts nothing; the loss skips it

# Where text is cut before any merging: words with the one sign before them, runs of signs, a line's end with the next
# line's indentation, other white space. Digits are cut off one by one beforehand. Close to Llama 3's pattern.
_PIECES = (
    r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s*[\r\n]+[ ]*(?=\S| \S)|\s+(?!\S)|\s+"
)
_SHOWN = {" ": "·", "\n": "↵", "\t": "→", "\r": "\\r"}


class TextError(ValueError):
    """Text, tokens or documents that cannot be turned into a row; the message says what to do."""


class Tokenizer:
    """Byte-level BPE: every text has tokens, and `decode(encode(text)) == text`.

    `encode` makes ordinary ids only, whatever the text says: the special tokens, the last ids of the vocabulary, are
    put in by name (`tokenizer.bos_id`, `tokenizer.special["<|fim_middle|>"]`).
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.encode_special_tokens = True  # "<|pad|>" in a text is six ordinary characters and more, not one token
        self._inner = inner
        self.vocab_size: int = inner.get_vocab_size(with_added_tokens=True)
        first = self.vocab_size - len(SPECIAL_TOKENS)
        self.special: dict[str, int] = {name: first + i for i, name in enumerate(SPECIAL_TOKENS)}
        for name, i in self.special.items():
            if inner.token_to_id(name) != i:
                raise TextError(f"{name} must have the id {i}, not {inner.token_to_id(name)}: it is another tokenizer")
        self.bos_id = self.special["<|begin_of_text|>"]
        self.eos_id = self.special["<|end_of_text|>"]
        self.end_of_turn_id = self.special["<|end_of_turn|>"]
        self.pad_id = self.special["<|pad|>"]
        self.fim_prefix_id = self.special["<|fim_prefix|>"]
        self.fim_suffix_id = self.special["<|fim_suffix|>"]
        self.fim_middle_id = self.special["<|fim_middle|>"]
        byte_of = _byte_of_letter()
        self._bytes = [bytes(byte_of[letter] for letter in inner.id_to_token(i) or "") for i in range(first)]
        self._bytes += [name.encode() for name in SPECIAL_TOKENS]

    def encode(self, text: str) -> list[int]:
        """The text's ordinary ids. Raises TextError where the text holds half of a surrogate pair."""
        _check_text(text)
        return self._inner.encode(text, add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for many texts, faster."""
        for text in texts:
            _check_text(text)
        return [encoding.ids for encoding in self._inner.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; special tokens by their names; bytes that are no UTF-8 as U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the ids: nothing is lost where a letter of several bytes is cut in two."""
        return b"".join(self._bytes[self._checked(i)] for i in ids)

    def token(self, i: int) -> str:
        """One token as it is shown in figures: a blank as ·, a line's end as ↵, a lone byte as \\xe2."""
        text = self._bytes[self._checked(i)].decode("utf-8", errors="backslashreplace")
        return "".join(_SHOWN.get(c, c if c.isprintable() else f"\\x{ord(c):02x}") for c in text)

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, and the tokenizer_config.json that Hugging Face's loaders ask for."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(json.loads(self._inner.to_str()), ensure_ascii=False, separators=(",", ":"))
        (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
        names = {"bos_token": SPECIAL_TOKENS[0], "eos_token": SPECIAL_TOKENS[1], "pad_token": SPECIAL_TOKENS[3]}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | names
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    def _checked(self, i: int) -> int:
        if not 0 <= i < self.vocab_size:
            raise TextError(f"token {i} is outside the vocabulary of {self.vocab_size}")
        return int(i)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Merge the most frequent neighbours, beginning with the 256 bytes, until the vocabulary is full.

    The last len(SPECIAL_TOKENS) of the vocab_size ids are the special tokens. The same texts give the same tokenizer.
    """
    ordinary = vocab_size - len(SPECIAL_TOKENS)
    if ordinary < 256:
        raise TextError(f"vocab_size must be at least {256 + len(SPECIAL_TOKENS)}, for the bytes and special tokens")
    inner = tokenizers.Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    pieces = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, pieces, to_bytes])
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=ordinary, initial_alphabet=alphabet, show_progress=False)
    )
    if inner.get_vocab_size() != ordinary:
        raise TextError(f"the texts have merges for {inner.get_vocab_size()} tokens, not {ordinary}: give more text")
    inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL_TOKENS])
    return Tokenizer(inner)


def load_tokenizer(folder: str | Path | None = None) -> Tokenizer:
    """Read a folder's tokenizer.json; without a folder, the one that ships with the book's model."""
    path = (SMALL_FOLDER if folder is None else Path(folder)) / "tokenizer.json"
    try:
        text = path.read_text(encoding="utf-8")
        return Tokenizer(tokenizers.Tokenizer.from_str(text))
    except FileNotFoundError:
        raise TextError(f"{path} does not exist: give a folder that holds a tokenizer.json") from None
    except TextError:
        raise
    except Exception as error:  # the library raises bare Exceptions
        raise TextError(f"{path} is not a readable tokenizer: {error}") from None


@dataclass(frozen=True)
class Packed:
    """Rows that hold several documents each. All four tensors are int64 [B, T]."""

    tokens: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"]  # from 0 again in each document; 0 in padding
    segments: Int[Tensor, "B T"]  # 1, 2, … for a row's documents; 0 in padding
    targets: Int[Tensor, "B T"]  # the token that follows in the same document; NO_TARGET where there is none


def pack(
    documents: Sequence[Sequence[int]], length: int, *, bos_id: int | None, eos_id: int | None, pad_id: int
) -> Packed:
    """Put whole documents one after another into rows of `length` positions, in the order in which they come.

    Each document gets bos_id before it and eos_id after it (None: neither). A row is closed when the next document
    does not fit, and the rest is padding. The last token of a document predicts nothing: what stands behind it in the
    row is another document. Raises TextError for a document that is empty or longer than a row.
    """
    framed = []
    before, after = ([] if bos_id is None else [bos_id]), ([] if eos_id is None else [eos_id])
    for i, document in enumerate(documents):
        framed.append([*before, *document, *after])
        if not framed[-1]:
            raise TextError(f"document {i} is empty")
        if len(framed[-1]) > length:
            room = length - len(before) - len(after)
            raise TextError(
                f"document {i} needs {len(framed[-1])} positions, a row has {length}: "
                f"cut it first, chunk(document, {room})"
            )
    if not framed:
        raise TextError("there are no documents to pack")
    rows: list[list[list[int]]] = [[]]
    for ids in framed:
        if sum(len(other) for other in rows[-1]) + len(ids) > length:
            rows.append([])
        rows[-1].append(ids)
    tokens = torch.full((len(rows), length), pad_id)  # [B, T]
    positions, segments = torch.zeros_like(tokens), torch.zeros_like(tokens)  # [B, T]
    targets = torch.full_like(tokens, NO_TARGET)  # [B, T]
    for b, row in enumerate(rows):
        start = 0
        for segment, ids in enumerate(row, start=1):
            end = start + len(ids)
            tokens[b, start:end] = torch.tensor(ids)
            positions[b, start:end] = torch.arange(len(ids))
            segments[b, start:end] = segment
            targets[b, start : end - 1] = tokens[b, start + 1 : end]
            start = end
    return Packed(tokens, positions, segments, targets)


def chunk(document: Sequence[int], length: int) -> list[list[int]]:
    """Cut a document that is too long for a row into pieces of at most `length` tokens, the last one the rest."""
    if length < 1:
        raise TextError(f"a piece must hold at least 1 token, not {length}")
    return [list(document[i : i + length]) for i in range(0, len(document), length)]


def left_pad(
    prompts: Sequence[Sequence[int]], pad_id: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Prompts of any lengths as one batch that ends together: tokens, positions and segments, int64 [B, T].

    Padding stands on the left and is segment 0; a prompt is segment 1 and its first token has position 0.
    """
    if not prompts or any(len(prompt) == 0 for prompt in prompts):
        raise TextError("give at least one prompt, and in each prompt at least one token: bos_id alone will do")
    length = max(len(prompt) for prompt in prompts)
    tokens = torch.full((len(prompts), length), pad_id)  # [B, T]
    positions, segments = torch.zeros_like(tokens), torch.zeros_like(tokens)  # [B, T]
    for b, prompt in enumerate(prompts):
        start = length - len(prompt)
        tokens[b, start:] = torch.tensor(list(prompt))
        positions[b, start:] = torch.arange(len(prompt))
        segments[b, start:] = 1
    return tokens, positions, segments


def fim(
    prefix: str | Sequence[int],
    middle: str | Sequence[int],
    suffix: str | Sequence[int],
    tokenizer: Tokenizer,
    order: str = "psm",
) -> list[int]:
    """Fill-in-the-middle as ids without begin and end of text: the model reads both sides of the cursor, then writes.

    order: "psm", prefix, suffix, middle, or "spm", suffix, prefix, middle, each part behind its own token. With an
    empty middle it is a prompt. Each part is text or ids. Source: Bavarian et al. 2022, section 3 (SPM in the first of
    its two forms). Raises TextError for another order.
    """
    if order not in ("psm", "spm"):
        raise TextError(f'order must be "psm" or "spm", not {order!r}')
    before, inside, after = (
        tokenizer.encode(part) if isinstance(part, str) else list(part) for part in (prefix, middle, suffix)
    )
    first, second, third = tokenizer.fim_prefix_id, tokenizer.fim_suffix_id, tokenizer.fim_middle_id
    if order == "spm":
        return [second, *after, first, *before, third, *inside]
    return [first, *before, second, *after, third, *inside]


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"character {error.start} of the text is half of a surrogate pair ({text[error.start]!a}), which has no "
            'bytes: replace it, text.encode("utf-8", "replace").decode()'
        ) from None


def _byte_of_letter() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable letter; this is GPT-2's table, backwards."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + i): byte for i, byte in enumerate(moved)}
