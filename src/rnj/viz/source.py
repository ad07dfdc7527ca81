"""The real source of a part of the package, as a chapter shows it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import Markdown


def source(part: Callable[..., Any] | type) -> Markdown:
    """The source of a function, method or class, with its file and lines, read from the file that Python runs."""
    lines, first = inspect.getsourcelines(part)
    file = Path(inspect.getsourcefile(part) or "")
    where = "/".join(("src", *file.parts[file.parts.index("rnj") :])) if "rnj" in file.parts else file.name
    code = textwrap.dedent("".join(lines)).rstrip()
    return Markdown(f"`{where}`, lines {first}–{first + len(lines) - 1}\n\n~~~~python\n{code}\n~~~~")
