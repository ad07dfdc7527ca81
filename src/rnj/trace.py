"""How a forward pass hands out its intermediates: every part passes what it makes through `note`."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from torch import Tensor

# note(name, tensor) returns the tensor unchanged; what else it does is the caller's affair.
Note = Callable[[str, Tensor], Tensor]


def silent(name: str, tensor: Tensor) -> Tensor:
    """The note of an ordinary forward pass: keeps nothing."""
    return tensor


class Trace(dict[str, Tensor]):
    """Tensors by name; a name that is not there is a KeyError that says which ones come near."""

    def __missing__(self, name: str) -> Tensor:
        near = get_close_matches(str(name), self, n=3) or list(self)[:3]
        raise KeyError(f"the trace has no {name!r}; among its {len(self)} names are {', '.join(near)}")


def into(trace: dict[str, Tensor]) -> Note:
    """A note that keeps every tensor in `trace` under its name."""

    def note(name: str, tensor: Tensor) -> Tensor:
        trace[name] = tensor
        return tensor

    return note


def within(note: Note, prefix: str) -> Note:
    """The same note for a part of the model: its names get the prefix and a dot."""
    if note is silent:
        return silent
    return lambda name, tensor: note(f"{prefix}.{name}", tensor)
