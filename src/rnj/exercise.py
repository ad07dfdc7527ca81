"""What the chapters' exercises need: try a reader's answer against a check and say how it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def attempt(check: Callable[[Any], None], answer: Any) -> bool:
    """Run check(answer); print whether it holds and return that. The check asserts; any exception means "not yet"."""
    try:
        check(answer)
    except NotImplementedError:
        print("Not yet: the stub is still empty.")
        return False
    except Exception as error:
        reason = str(error).strip().splitlines()
        print(f"Not yet: {type(error).__name__}{': ' + reason[0] if reason else ''}")
        return False
    print("Right.")
    return True
