"""What runs through the book: a packed row of 16 positions, one of more than three blocks, and the small model."""

from __future__ import annotations

import torch

from rnj.config import SMALL
from rnj.model import Transformer
from rnj.text import NO_TARGET, SMALL_FOLDER, Packed, Tokenizer, load_tokenizer, pack
from rnj.weights import load

ROW_LENGTH = 16
DOCUMENTS = ("n = 7", "def f(name):\n    return name")  # 6 and 9 positions with begin and end; one is padding
FOLLOWED = 12  # " return" in the second document: what comes next is the name that stands three tokens before it

LONG_TEXT = '''\
class Shelf:
    """Books in the order in which they were put."""

    def __init__(self, width):
        self.width = width
        self.books = []

    def room(self):
        """How much of the shelf is still free."""
        used = 0
        for book in self.books:
            used += book.width
        return self.width - used

    def put(self, book):
        """Put a book at the end, if there is room for it."""
        if book.width > self.room():
            raise ValueError("no room for this book")
        self.books.append(book)

    def find(self, name):
        """The first book of this name, or None."""
        for book in self.books:
            if book.name == name:
                return book
        return None


class Book:
    def __init__(self, name, width=3):
        self.name = name
        self.width = width

    def __repr__(self):
        return "Book(%r, %r)" % (self.name, self.width)


def fill(shelf, names):
    """Put books on a shelf until it is full, and return those that are left."""
    left = []
    for name in names:
        book = Book(name)
        try:
            shelf.put(book)
        except ValueError:
            left.append(book)
    return left


if __name__ == "__main__":
    shelf = Shelf(10)
    left = fill(shelf, ["a", "b", "c", "d"])
    print(shelf.find("b"), left)
'''


def row(tokenizer: Tokenizer | None = None) -> Packed:
    """The packed row: two documents and one position of padding. [1, 16]"""
    return _pack(DOCUMENTS, ROW_LENGTH, tokenizer or load_tokenizer())


def long_row(tokenizer: Tokenizer | None = None) -> Packed:
    """One document that reaches into a fourth block of the small model's local layers, without padding. [1, T]"""
    tokenizer = tokenizer or load_tokenizer()
    return _pack((LONG_TEXT,), len(tokenizer.encode(LONG_TEXT)) + 2, tokenizer)


def small_model(device: torch.device | str = "cpu") -> Transformer:
    """The trained small model that ships with the package, in float32.

    Raises ValueError for a CUDA device where there is none.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"no GPU is available for device {str(device)!r}: torch.cuda.is_available() is False; use 'cpu'"
        )
    return load(SMALL_FOLDER, dtype=torch.float32, device=device)


def labels(packed: Packed, tokenizer: Tokenizer | None = None, row: int = 0) -> list[str]:
    """A row's tokens as figures show them; special tokens by a short name."""
    tokenizer = tokenizer or load_tokenizer()
    short = {tokenizer.bos_id: "begin", tokenizer.eos_id: "end", tokenizer.pad_id: "pad"}
    return [short.get(i) or tokenizer.token(i) for i in packed.tokens[row].tolist()]


def _pack(texts: tuple[str, ...], length: int, tokenizer: Tokenizer) -> Packed:
    ids = tokenizer.encode_all(texts)
    return pack(ids, length, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)


def main() -> None:
    """Print the packed row, one position a line: python -m rnj.example"""
    packed = row()
    names = labels(packed)
    print(f"{'row':>3} {'document':>8} {'position':>8} {'id':>5}  token -> target")
    for i, name in enumerate(names):
        target = "nothing" if packed.targets[0, i] == NO_TARGET else names[i + 1]
        where = f"{i:>3} {packed.segments[0, i]:>8} {packed.positions[0, i]:>8} {packed.tokens[0, i]:>5}"
        print(f"{where}  {name} -> {target}{'   <- followed' if i == FOLLOWED else ''}")
    print(f"the long row has {long_row().tokens.shape[1]} positions, a block has {SMALL.block_size}")


if __name__ == "__main__":
    main()
