"""What the chapters' exercises need: try a reader's answer against a check and say how it went."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any


def attempt(check: Callable[[Any], None], answer: Any) -> bool:
    """Run check(answer); print whether it holds and return that. The check asserts; any exception means "not yet"."""
    if _is_stub(answer):
        print("Not yet: the stub is still empty.")
        return False
    try:
        check(answer)
    except Exception as error:
        reason = str(error).strip().splitlines()
        print(f"Not yet: {type(error).__name__}{': ' + reason[0] if reason else ''}")
        return False
    print("Right.")
    return True


def _is_stub(answer: Any) -> bool:
    """Whether a function does nothing: its body is `...`, or raises NotImplementedError at once."""
    code = getattr(answer, "__code__", None)
    if code is None:
        return False
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP")]
    if code.co_names == ("NotImplementedError",) and len(steps) <= 4:
        return True
    return all(step.opname in ("LOAD_CONST", "RETURN_CONST", "RETURN_VALUE") and step.argval is None for step in steps)
