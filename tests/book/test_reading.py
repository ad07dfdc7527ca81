"""The rules themselves: what they catch and what they let through."""

import pytest

from tests.book.reading import count_assertions, empty_assertions, numerals, prose_numerals


@pytest.mark.parametrize(
    "line",
    [
        "assert True",
        "assert 1",
        "assert 'shapes agree'",
        "assert (x == y, 'a message')",
        "assert [x == y]",
        "assert 2 + 2 == 4",
        "assert not False",
        "assert x == x",
        "assert x.shape == x.shape",
        "assert x is x",
        "assert x >= x",
        "assert len(rows) >= 0",
        "assert x == y or True",
        "assert torch.equal(x, x)",
        "assert torch.allclose(f(x), f(x))",
        "torch.testing.assert_close(x, x)",
        "assert isinstance(x, object)",
        "assert all([])",
        "assert all(a == a for a in rows)",
        "assert (x == y for x in rows)",
        "assert f'{x}'",
        "assert lambda: x == y",
        "try:\n    assert x == y\nexcept AssertionError:\n    pass",
        "try:\n    assert x == y\nexcept:\n    print('no')",
        "try:\n    assert x == y\nexcept Exception as error:\n    print(error)",
        "if False:\n    assert x == y",
    ],
)
def test_empty_assertions_are_caught(line):
    assert len(empty_assertions(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "assert x == y",
        "assert x.shape == (2, 3), 'a message'",
        "assert torch.equal(x, y)",
        "assert torch.allclose(f(x), g(x), atol=1e-6)",
        "assert x",
        "assert not x.isnan().any()",
        "assert 0 < x < 1",
        "assert len(rows) >= 1",
        "assert len(rows) > 0 and rows[0] == 1",
        "assert all(a == b for a, b in rows)",
        "%pip install nothing\nassert x == y",
        "try:\n    f()\nexcept ValueError:\n    pass\nassert x == y",
        "try:\n    assert x == y\nexcept AssertionError:\n    raise",
    ],
)
def test_real_assertions_pass(line):
    assert empty_assertions(line) == []
    assert count_assertions(line) == 1


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8,310,501,376 parameters", [8310501376]),
        ("$4{,}096$ and $8\\,192$", [4096, 8192]),
        ("163\u202f840 positions", [163840]),
        ("1.2995732, 1e-06 and 1.6888906", [1.2995732, 1.6888906]),
        ("rows [128, 256, 512]", [128, 256, 512]),
        ("12 of 16, 3.5 %", []),
        ("`RNJ_1_5`, block_128, fp16, v1.2.345", []),
        ("in 2019, Zhang & Sennrich 2019, Vaswani et al. (2017)", []),
        ("2048 tokens and 1999 keys", [2048, 1999]),
        ("[a link 333](https://example.org/444)", [333]),
        ("{cite}`peng2023yarn`, {numref}`fig-05-table` and https://arxiv.org/abs/2309.00071", []),
        ("```python\nx = 4096\n```\nand 512", [512]),
        (":::{note}\n4096 keys\n:::\n", [4096]),
        ("(label-5000)=\n# Title", []),
        ("0.333 of it", [0.333]),
    ],
)
def test_prose_numerals(text, values):
    assert [value for _, value in prose_numerals(text)] == values


def test_numerals_of_outputs():
    assert [v for _, v in numerals("tensor([1.5, 2.0]) 4,096 keys, 1e-06, −3.25")] == [1.5, 2.0, 4096, 1e-06, 3.25]
