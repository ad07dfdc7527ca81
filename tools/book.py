"""Build the site into _build/html: always from a clean _build, with warnings as errors, and look at what came out.

A second run over an old _build would say that all is well where the first one failed, and a cache would not see that
the package changed: so there is neither.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def toc_files(root: Path) -> list[str]:
    """The pages of _toc.yml in their order, without suffixes: book/index, book/01_forward_pass, …"""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = [toc["root"]]

    def walk(entries: list[dict]) -> None:
        for entry in entries:
            if "file" in entry:
                found.append(entry["file"])
            walk(entry.get("chapters", []) + entry.get("sections", []))

    walk(toc.get("chapters", []))
    walk(toc.get("parts", []))
    return found


def faults(root: Path) -> list[str]:
    """What is wrong with the built pages: missing, with a traceback, with a message of the builder."""
    found = []
    for name in toc_files(root):
        page = root / "_build" / "html" / f"{name}.html"
        if not page.is_file():
            found.append(f"{name}: no page was built")
            continue
        text = page.read_text(encoding="utf-8")
        for sign in (
            "Traceback (most recent call last)",
            'class="system-message',
            "cell_output traceback",
            "problematic",
        ):
            if sign in text:
                found.append(f"{name}: the page holds {sign!r}")
    return found


def build(root: Path) -> int:
    """Build; 0 where all went well."""
    missing = [name for name in toc_files(root) if not any((root / f"{name}{s}").is_file() for s in (".md", ".ipynb"))]
    if missing:
        print(f"_toc.yml names pages that do not exist: {', '.join(missing)}", file=sys.stderr)
        return 1
    shutil.rmtree(root / "_build", ignore_errors=True)
    began = time.monotonic()
    env = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1", PYDEVD_DISABLE_FILE_VALIDATION="1")
    env.setdefault("OMP_NUM_THREADS", "1")  # the chapters' tensors are small: threads would only wait for each other
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
    jupyter_book = str(Path(sys.executable).parent / "jupyter-book")
    command = [jupyter_book, "build", str(root), "-W", "-n", "--keep-going"]
    print(f"Building {len(toc_files(root))} pages; each notebook is executed, some minutes in all.", flush=True)
    lines = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            executed = re.search(r"([^/]+)\.ipynb: Executed notebook in ([0-9.]+) seconds", line)
            if executed:
                print(f"  {executed[1]}: {float(executed[2]):.0f} s", flush=True)
    wrong = faults(root)
    if process.returncode or wrong:
        print("".join(lines))
        print("\n".join(wrong))
        print("The book did not build.", file=sys.stderr)
        return 1
    pages = len(toc_files(root))
    print(f"Built {pages} pages in {time.monotonic() - began:.0f} s: open {root / '_build' / 'html' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT))
