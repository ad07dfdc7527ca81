"""Sampling: from logits to the next token, and on. Chapter 7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from rnj.cache import KVCache
from rnj.model import Transformer
from rnj.text import fim, left_pad

if TYPE_CHECKING:
    from rnj.text import Tokenizer


def probabilities(
    logits: Float[Tensor, "... V"], temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Float[Tensor, "... V"]:
    """The distribution that is sampled from, float32: temperature first, then top-k, then top-p (nucleus).

    temperature 0 puts everything on the largest logit. top_k keeps the k largest. top_p keeps each token while the
    sum before it is below p, so never none. Ties keep the lower id. Source for top-p: Holtzman et al. 2019.
    """
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be a number of at least 0, not {temperature}")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k must be a whole number of at least 1, not {top_k!r}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, not {top_p}")
    logits = logits.float()
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)  # [..., V]
    p = ((ordered - ordered[..., :1]).double() / temperature).softmax(-1).float()  # [..., V], falling
    if top_k is not None and top_k < p.shape[-1]:
        p[..., top_k:] = 0
        p = p / p.sum(-1, keepdim=True)
    if top_p is not None and top_p < 1:  # 1 keeps all: a float32 sum may pass 1 before the last token
        gone = p.cumsum(-1) - p >= top_p
        gone[..., 0] = False  # where p is too small for a float32
        p = p.masked_fill(gone, 0)
        p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


@torch.no_grad()
def generate(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    end_ids: Sequence[int] | int | None = None,
    progress: bool = False,
) -> list[list[int]]:
    """New tokens for each prompt (lists of ids, any lengths), each up to and with its first end token.

    Prompts are left-padded into one batch; a row that has ended waits for the others. end_ids: one or
    several, config.eos_ids if None.
    seed: makes sampling repeatable. Only the last position is projected to the vocabulary.
    """
    config, device = model.config, model.embed.weight.device
    if isinstance(prompts, str) or any(isinstance(prompt, str | int) for prompt in prompts):
        raise ValueError("prompts are a list of lists of ids: [tokenizer.encode(text)] for one text")
    if not prompts or not all(len(prompt) for prompt in prompts):
        raise ValueError("every prompt needs at least one token: start it with bos_id")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    longest = max(len(prompt) for prompt in prompts)
    if longest + max_new_tokens - 1 > config.max_positions:
        raise ValueError(
            f"{longest} prompt tokens and {max_new_tokens} new ones pass the context of {config.max_positions}"
        )
    end_ids = config.eos_ids if end_ids is None else (end_ids,) if isinstance(end_ids, int) else end_ids
    ends = torch.tensor(list(end_ids), dtype=torch.int64, device=device)
    generator = torch.Generator(device)
    generator.manual_seed(seed) if seed is not None else generator.seed()
    probabilities(torch.zeros(1), temperature, top_k, top_p)  # refuses bad settings before the model runs

    tokens, positions, segments = (x.to(device) for x in left_pad(prompts, config.pad_id))  # [B, T]
    cache = KVCache(config, len(prompts), longest + max_new_tokens, model.embed.weight.dtype, device)
    if bool((segments == 1).all()):
        logits = model(tokens, cache=cache, last_only=True)[:, 0]  # [B, V]
    else:
        logits = model(tokens, positions, segments, cache=cache, last_only=True)[:, 0]
    made: list[Int[Tensor, " B"]] = []
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)  # [B]
    for step in tqdm(range(max_new_tokens), desc="tokens", disable=not progress):
        if step:
            logits = model(made[-1][:, None], cache=cache, last_only=True)[:, 0]  # [B, V]
        if not bool(logits.isfinite().all()):
            raise ValueError("the logits are not finite: look for NaN or infinity in the model's weights")
        if temperature == 0:
            new = logits.argmax(-1)  # [B]
        else:
            new = torch.multinomial(probabilities(logits, temperature, top_k, top_p), 1, generator=generator)[:, 0]
        made.append(torch.where(done, config.pad_id, new))
        done |= torch.isin(new, ends)
        if bool(done.all()):
            break
    rows = torch.stack(made, dim=1).tolist()  # [B, new]
    return [_until_end(row, set(ends.tolist())) for row in rows]


def _until_end(row: list[int], ends: set[int]) -> list[int]:
    for i, token in enumerate(row):
        if token in ends:
            return row[: i + 1]
    return row


def fill_in_the_middle(
    model: Transformer,
    tokenizer: Tokenizer,
    prefix: str,
    suffix: str,
    max_new_tokens: int = 64,
    order: str = "psm",
    **sampling: Any,
) -> str:
    """The text between prefix and suffix, as an editor asks for it at the cursor.

    The prompt is a begin of text and a document with an empty middle, in the order "spm" or "psm" (`rnj.text.fim`), as
    in training: the small model knows "spm" far better; `sampling` goes to `generate`. Source: Bavarian et al. 2022.
    """
    prompt = [tokenizer.bos_id, *fim(prefix, "", suffix, tokenizer, order)]
    special = {*tokenizer.special.values(), *model.config.eos_ids}  # none of them is text
    new = generate(model, [prompt], max_new_tokens, **sampling)[0]
    return tokenizer.decode([token for token in new if token not in special])
