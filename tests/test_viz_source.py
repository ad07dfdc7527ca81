"""The source that a chapter shows is the file's own."""

from pathlib import Path

import rnj
from rnj.norm import RMSNorm
from rnj.viz.source import source


def test_shows_the_file_and_its_lines():
    text = source(RMSNorm).data
    path = Path(rnj.__file__).parent / "norm.py"
    file = path.read_text(encoding="utf-8").splitlines()
    first, last = (int(n) for n in text.split("lines ")[1].split("\n")[0].split("–"))
    assert text.startswith("`src/rnj/norm.py`")
    assert "\n".join(file[first - 1 : last]) in text
    assert file[first - 1] == "class RMSNorm(nn.Module):"


def test_a_method_is_dedented():
    assert "\ndef forward(" in source(RMSNorm.forward).data
