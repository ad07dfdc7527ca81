"""What several tests share: models whose every weight is random, packed rows, a watch on how large tensors get, and the
texts of a picture."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import rnj
from rnj import Config, Transformer
from rnj.viz import figure
from rnj.viz.figure import Shown

TOLERANCE = 5e-5  # float32 against float64, on logits that reach ±15


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Imported by a test file: its models are tiny, and more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model(config: Config = rnj.TINY, seed: int = 0, **changes: Any) -> Transformer:
    """A model that hides nothing: norm weights random, gates and logits large enough to feel GELU and the soft cap."""
    built = rnj.build(replace(config, **changes), seed=seed, random_norms=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in built.named_parameters():
            if name == "embed.weight":
                weight.normal_(0, 0.5, generator=generator)
            elif weight.ndim == 2:
                weight.normal_(0, 1.5 * weight.shape[1] ** -0.5, generator=generator)
    return built.eval()


def numpy_weights(built: Transformer) -> dict[str, Any]:
    """The model's weights as the reference takes them."""
    return {name: weight.detach().double().numpy() for name, weight in built.state_dict().items()}


def random_tokens(batch: int, length: int, seed: int = 0, vocab: int = 90) -> Tensor:
    """Ordinary tokens [B, T] of TINY: its special ones begin at 90."""
    return torch.randint(0, vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def random(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed_row(*lengths: int, padding: int = 0, left: int = 0) -> tuple[Tensor, Tensor]:
    """positions and segments [1, T] of documents of these lengths, between `left` and `padding` padding tokens."""
    positions, segments = [0] * left, [0] * left
    for number, length in enumerate(lengths, start=1):
        positions += range(length)
        segments += [number] * length
    positions += [0] * padding
    segments += [0] * padding
    return torch.tensor([positions]), torch.tensor([segments])


def largest_difference(a: Any, b: Any) -> float:
    """The largest absolute difference; NaN anywhere counts as infinite."""
    a, b = (np.asarray(x.detach().double() if isinstance(x, Tensor) else x) for x in (a, b))
    assert a.shape == b.shape, f"{a.shape} against {b.shape}"
    if np.isnan(a).any() or np.isnan(b).any():
        return float("inf")
    return float(np.abs(a - b).max(initial=0.0))


class Watch(TorchDispatchMode):
    """Records every tensor that an operation makes inside the block: the largest, and all shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0  # elements
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_flatten(out)[0]:
            if isinstance(tensor, Tensor):
                # A view made by expand holds no memory: count what the storage can hold.
                held = tensor.untyped_storage().nbytes() // tensor.element_size() if tensor.device.type != "meta" else 0
                self.largest = max(self.largest, min(tensor.numel(), held))
                self.shapes.add(tuple(tensor.shape))
        return out


def words(picture: Shown | str, narrow: bool = False) -> list[str]:
    """The texts that a picture holds, in order; narrow: those of its drawing for phones."""
    svg = picture if isinstance(picture, str) else (picture.narrow if narrow else picture.svg)
    assert svg is not None
    found = re.findall(r"<text[^>]*>(.*?)</text>", svg, flags=re.S)
    return [html.unescape(re.sub(r"<[^>]+>", "", text)) for text in found]


def nothing_over_the_edge(module: ModuleType, for_phones: bool = False) -> Any:
    """A fixture for all tests of a file: every figure that `module` shows holds its texts, the one for phones too.

    for_phones: and every figure has one.
    """

    @pytest.fixture(autouse=True)
    def held(monkeypatch: pytest.MonkeyPatch) -> None:
        def show(fig: Figure, alt: str, caption: str | None = None, narrow: Figure | None = None) -> Shown:
            assert narrow is not None or not for_phones
            over = [text for drawing in (fig, narrow) if drawing is not None for text in figure.clipped(drawing)]
            assert not over, f"over the edge: {over}"
            return figure.show(fig, alt, caption, narrow)

        monkeypatch.setattr(module, "show", show)

    return held
