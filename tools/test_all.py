"""Every check, one stage after another: `make test`. A stage that fails does not stop the others, but fails the whole.

Stages by name: python tools/test_all.py unit browser
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PY = sys.executable
BIN = Path(PY).parent
PYTEST = [PY, "-m", "pytest", "-q", "--no-header", "--durations=5", "--durations-min=5"]
TWO = ["-n", "2", "--dist", "loadfile"]  # two workers; a file stays in one of them

# name: (what it does, commands)
STAGES: dict[str, tuple[str, list[list[str]]]] = {
    "lint": (
        "ruff, lint and format",
        [[str(BIN / "ruff"), "check", "."], [str(BIN / "ruff"), "format", "--check", "."]],
    ),
    "types": ("mypy", [[PY, "-m", "mypy"]]),
    "unit": (
        "unit, parity and property tests",
        [[*PYTEST, *TWO, "tests", *(f"--ignore=tests/{name}" for name in ("book", "browser", "curves"))]],
    ),
    "curves": (
        "the kept training runs, and the first steps of each anew",
        [[*PYTEST, "-n", "2", "--dist", "loadgroup", "tests/curves"]],
    ),
    "rules": (
        "notebooks: rules, each cell twice, prose numbers; all frames of all steppers",
        [[*PYTEST, "-n", "2", "--dist", "loadgroup", "tests/book"]],
    ),
    "nbval": (
        "notebooks: every cell under nbval",
        [[*PYTEST, *TWO, "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=300", "book"]],
    ),
    "book": ("the site, from a clean _build, warnings as errors", [[PY, "tools/book.py"]]),
    "chromium": ("a browser, found or installed", [[PY, "tools/browser.py"]]),
    "browser": (
        "the built pages, in headless Chromium",
        [[*PYTEST, "-n", "2", "--dist", "loadgroup", "tests/browser"]],
    ),
}


def run(name: str) -> tuple[bool, float]:
    """Run one stage; whether it passed, and its seconds."""
    what, commands = STAGES[name]
    print(f"\n=== {name}: {what}", flush=True)
    began = time.monotonic()
    env = dict(os.environ, OMP_NUM_THREADS="1", PYDEVD_DISABLE_FILE_VALIDATION="1")
    env["PATH"] = f"{BIN}{os.pathsep}{env.get('PATH', '')}"
    passed = True
    for command in commands:
        passed = subprocess.run(command, cwd=ROOT, env=env).returncode == 0 and passed
    return passed, time.monotonic() - began


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"no stage is named {', '.join(unknown)}; there are: {', '.join(STAGES)}", file=sys.stderr)
        return 2
    results = {name: run(name) for name in names or STAGES}
    print("\nWhere the time went")
    ready = BIN.parent / ".ready"
    setup = ready.read_text().strip() if ready.is_file() else ""
    if setup:
        print(f"  {'setup':<10}{float(setup):>7.0f} s   the environment, when it was last made or changed")
    for name, (passed, seconds) in results.items():
        print(f"  {name:<10}{seconds:>7.0f} s   {'passed' if passed else 'FAILED':<8}{STAGES[name][0]}")
    print(f"  {'all':<10}{sum(seconds for _, seconds in results.values()):>7.0f} s")
    failed = [name for name, (passed, _) in results.items() if not passed]
    print(f"FAILED: {', '.join(failed)}" if failed else "All passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
