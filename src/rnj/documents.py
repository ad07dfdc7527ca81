"""From the corpus's files to rows to train on: pieces, fill-in-the-middle, repeats. All of it follows from a seed."""

from __future__ import annotations

import hashlib
import keyword
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rnj.text import Packed, Tokenizer, fim, pack

NAME = re.compile(r"\b[^\W\d]\w{2,}\b")
LEAST = 16  # tokens: no piece is shorter, but for a file's or a row's rest


@dataclass(frozen=True)
class Mix:
    """What kinds of documents there are and how long they are, in tokens."""

    length: int = 512  # positions of a row
    fim_share: float = 0.66  # of the pieces: fill-in-the-middle form; half of the documents once rows are full
    fim_length: int = 256  # most of these are no longer than this, so that local layers see both sides
    shared_share: float = 0.0  # of the holes: a name that also stands before the hole and after it
    spm_share: float = 0.0  # of the documents with a hole: suffix first; the others prefix first
    repeat_share: float = 0.04  # of the pieces: random tokens, written again and again


class Documents:
    """The documents of any number of passes over the corpus, in rows. Rows are full but for a few positions.

    Which documents there are, and in what order, follows from the seed and the pass alone, so that a run that was
    stopped goes on with the row at which it stopped.
    """

    def __init__(
        self, texts: list[str], tokenizer: Tokenizer, mix: Mix, seed: int = 0, cache: Path | None = None
    ) -> None:
        self.tokenizer, self.mix, self.seed = tokenizer, mix, seed
        self.files = encode_files(texts, tokenizer, cache)
        self._epoch, self._before = -1, 0
        self._rows: list[list[np.ndarray]] = []

    def batch(self, first: int, count: int) -> Packed:
        """Rows first … first + count - 1 of the endless sequence of rows. [count, length]"""
        frame = {"bos_id": self.tokenizer.bos_id, "eos_id": self.tokenizer.eos_id, "pad_id": self.tokenizer.pad_id}
        packed = [
            pack([ids.tolist() for ids in self._row(i)], self.mix.length, **frame) for i in range(first, first + count)
        ]
        names = ("tokens", "positions", "segments", "targets")
        return Packed(*(torch.cat([getattr(one, name) for one in packed]) for name in names))

    def _row(self, i: int) -> list[np.ndarray]:
        if i < self._before:
            self._epoch, self._rows, self._before = -1, [], 0
        while i >= self._before + len(self._rows):
            self._epoch, self._before = self._epoch + 1, self._before + len(self._rows)
            self._rows = self._make_rows(self._epoch)
        return self._rows[i - self._before]

    def _make_rows(self, epoch: int) -> list[list[np.ndarray]]:
        """One pass over the corpus."""
        rng = np.random.default_rng([self.seed, epoch])
        plain, holed = self._pieces(rng)
        longest = self.mix.length - 2
        whole = [ids for ids in plain if len(ids) == longest]  # rows of one document, for the far positions
        plain = [ids for ids in plain if len(ids) < longest]
        plain = [plain[i] for i in rng.permutation(len(plain))]
        whole += [self._with_a_hole(ids, rng) for ids in holed]
        repeats = int(self.mix.repeat_share * (len(plain) + len(whole)))
        whole += [self._repeats(rng) for _ in range(repeats)]
        whole = [whole[i] for i in rng.permutation(len(whole))]
        rows = fill_rows(plain, whole, self.mix.length)
        return [rows[i] for i in rng.permutation(len(rows))]

    def _pieces(self, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Each file cut into pieces: those that stay as they are, and those that become fill-in-the-middle."""
        plain: list[np.ndarray] = []
        holed: list[np.ndarray] = []
        longest = self.mix.length - 2
        for ids in self.files:
            start = 0
            while start < len(ids):
                with_hole = rng.random() < self.mix.fim_share
                if with_hole:
                    most = self.mix.fim_length if rng.random() < 0.75 else min(4 * self.mix.fim_length, longest)
                    size = int(rng.integers(min(48, most), most + 1)) - 16  # cutting makes some more tokens
                else:
                    size = longest if rng.random() < 0.35 else int(rng.integers(min(64, longest), longest + 1))
                piece = ids[start : start + max(size, LEAST)]
                (holed if with_hole and len(piece) > LEAST else plain).append(piece)
                start += len(piece)
        return plain, holed

    def _with_a_hole(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        shared = self.mix.shared_share and rng.random() < self.mix.shared_share
        parts = cut_a_shared_name(self.tokenizer.decode(ids.tolist()), rng) if shared else None
        prefix, middle, suffix = parts or cut_a_hole(self.tokenizer, ids.tolist(), rng)
        order = "spm" if self.mix.spm_share and rng.random() < self.mix.spm_share else "psm"
        made = fim(prefix, middle, suffix, self.tokenizer, order)
        return np.array(made if len(made) <= self.mix.length - 2 else ids, dtype=np.int32)

    def _repeats(self, rng: np.random.Generator) -> np.ndarray:
        """Random tokens, two to four times over: nothing but copying helps."""
        times = int(rng.integers(2, 5))
        most = min(self.mix.length - 2, 2 * self.mix.fim_length) // times
        once = rng.integers(0, self.tokenizer.bos_id, int(rng.integers(min(8, most), most + 1)))
        return np.tile(once, times).astype(np.int32)


def encode_files(texts: list[str], tokenizer: Tokenizer, cache: Path | None = None) -> list[np.ndarray]:
    """Each text's ids, int32. Kept in the folder `cache`, if there is one, for the next start."""
    if cache is None:
        return [np.array(ids, dtype=np.int32) for ids in tokenizer.encode_all(texts)]
    seen = hashlib.sha256(repr((tokenizer.decode_bytes(range(tokenizer.vocab_size)), texts)).encode())
    path = cache / f"tokens-{seen.hexdigest()[:16]}.npz"
    if not path.exists():
        files = encode_files(texts, tokenizer)
        beside = cache / "tokens.new.npz"
        np.savez(beside, ids=np.concatenate(files), ends=np.cumsum([len(ids) for ids in files]))
        beside.replace(path)
    with np.load(path) as kept:
        return np.split(kept["ids"], kept["ends"][:-1])


def cut_a_hole(tokenizer: Tokenizer, ids: list[int], rng: np.random.Generator) -> tuple[str, str, str]:
    """Prefix, middle and suffix of a piece: the hole is a name, a line's end, some tokens or some characters."""
    text, kind = tokenizer.decode(ids), rng.random()
    names = [match for match in NAME.finditer(text) if len(text) > match.end()]
    if kind < 0.25 and names:
        match = names[int(rng.integers(len(names)))]
        start, end = match.span()
    elif kind < 0.5 and "\n" in text.strip():
        start = int(rng.integers(len(text)))
        end = start
        for _ in range(int(rng.integers(1, 4))):
            end = text.find("\n", end + 1) if text.find("\n", end + 1) >= 0 else end
    elif kind < 0.75:
        places = sorted(int(i) for i in rng.integers(0, len(ids) + 1, 2))
        places[1] = min(places[1], places[0] + len(ids) // 3)
        start, end = (len(tokenizer.decode(ids[:place])) for place in places)
    else:
        start, end = sorted(int(i) for i in rng.integers(0, len(text) + 1, 2))
        end = min(end, start + len(text) // 3)
    return text[:start], text[start:end], text[end:]


def shared_names(text: str) -> list[re.Match[str]]:
    """Where in the text a name stands that also stands before and after that place. Python's keywords are no names."""
    matches = [match for match in NAME.finditer(text) if not keyword.iskeyword(match[0])]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, match in enumerate(matches):
        first.setdefault(match[0], i)
        last[match[0]] = i
    return [match for i, match in enumerate(matches) if first[match[0]] < i < last[match[0]]]


def cut_a_shared_name(text: str, rng: np.random.Generator) -> tuple[str, str, str] | None:
    """Prefix, middle and suffix: the hole is one of `shared_names`, each place as likely. None where there is none."""
    matches = shared_names(text)
    if not matches:
        return None
    start, end = matches[int(rng.integers(len(matches)))].span()
    return text[:start], text[start:end], text[end:]


def fill_rows(plain: list[np.ndarray], whole: list[np.ndarray], length: int) -> list[list[np.ndarray]]:
    """Lay documents into rows, begin and end of text counted. `plain` ones are cut where a row ends, others never."""
    plain_left, whole_left = deque(plain), deque(whole)
    rows: list[list[np.ndarray]] = []
    while plain_left or whole_left:
        row: list[np.ndarray] = []
        room = length
        while room >= LEAST + 2:
            if whole_left and len(whole_left[0]) + 2 <= room:
                row.append(whole_left.popleft())
            elif plain_left:
                ids = plain_left.popleft()
                row.append(ids[: room - 2])
                if len(ids) - (room - 2) >= LEAST:
                    plain_left.appendleft(ids[room - 2 :])
            else:
                break
            room -= len(row[-1]) + 2
        rows.append(row)
    return rows
