"""The running rows are what the chapters say they are."""

from __future__ import annotations

import pytest
import torch

from rnj import example
from rnj.config import SMALL
from rnj.text import NO_TARGET, load_tokenizer


def test_the_packed_row_has_two_documents_and_one_padding():
    packed = example.row()
    assert packed.tokens.shape == (1, 16)
    assert packed.segments.tolist() == [[1] * 6 + [2] * 9 + [0]]
    assert packed.positions.tolist() == [[*range(6), *range(9), 0]]
    assert int((packed.targets != NO_TARGET).sum()) == 5 + 8
    assert example.labels(packed) == (
        ["begin", "n", "·=", "·", "7", "end"]
        + ["begin", "def", "·f", "(name", "):", "↵····", "return", "·name", "end", "pad"]
    )


def test_the_followed_token_stands_in_document_2_and_predicts_the_name():
    packed, names = example.row(), example.labels(example.row())
    assert packed.segments[0, example.FOLLOWED] == 2
    assert names[example.FOLLOWED] == "return" and names[example.FOLLOWED + 1] == "·name"
    assert packed.targets[0, example.FOLLOWED] == packed.tokens[0, example.FOLLOWED + 1]


def test_the_long_row_reaches_into_a_fourth_block():
    packed = example.long_row()
    length = packed.tokens.shape[1]
    assert 3 * SMALL.block_size < length < SMALL.original_max_positions and length % SMALL.block_size
    assert packed.segments.unique().tolist() == [1]
    tokenizer = load_tokenizer()
    assert tokenizer.decode(packed.tokens[0, 1:-1].tolist()) == example.LONG_TEXT
    compile(example.LONG_TEXT, "long row", "exec")
    for text in example.DOCUMENTS:
        compile(text, "row", "exec")


def test_the_table_is_printed(capsys):
    example.main()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 18 and "return -> ·name   <- followed" in printed


def test_the_small_model_is_small():
    model = example.small_model()
    assert model.config == SMALL and model.embed.weight.dtype == torch.float32
    assert model(example.row().tokens).shape == (1, 16, 2048)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_without_a_gpu_the_error_says_so(device):
    with pytest.raises(ValueError, match=r"no GPU is available for device 'cuda.*use 'cpu'"):
        example.small_model(device)
