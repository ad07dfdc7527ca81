"""Find Chromium, or install it: apt as root, Playwright's own installer otherwise. Prints its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# Headless, and silent: without these flags Chromium looks for updates and for its maker's hosts.
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
)
ADVICE = (
    "No Chromium was found and none could be installed, so the site cannot be tested. Install it (Debian, Ubuntu: "
    "`apt-get install chromium`; elsewhere: `python -m playwright install --with-deps chromium`), "
    "or set CHROMIUM=/path/to/it."
)


class NoBrowser(RuntimeError):
    """No browser, and no way to get one; the message says what to do."""


def flags() -> list[str]:
    """Chromium refuses its sandbox to root."""
    return [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(FLAGS)


def find() -> str | None:
    """The path of a Chromium that is there: $CHROMIUM, the system's, Playwright's."""
    named = os.environ.get("CHROMIUM")
    if named:
        if not shutil.which(named):
            raise NoBrowser(f"CHROMIUM={named} is not a program that can be run")
        return shutil.which(named)
    for name in NAMES:
        if shutil.which(name):
            return shutil.which(name)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if own and Path(own).is_file() else None


def install() -> None:
    """Try apt where this is root's machine, then Playwright."""
    tries = []
    if os.geteuid() == 0 and shutil.which("apt-get"):
        apt = "apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core"
        tries.append(["sh", "-c", apt])
    tries.append([sys.executable, "-m", "playwright", "install", "chromium"])
    for command in tries:
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0 and find():
            return
        print(f"{' '.join(command)}\n{done.stdout[-2000:]}", file=sys.stderr)


def ensure() -> str:
    """The path of Chromium, installed if need be. Raises NoBrowser, which says what to do."""
    if not find():
        install()
    found = find()
    if not found:
        raise NoBrowser(ADVICE)
    return found


if __name__ == "__main__":
    try:
        print(ensure())
    except NoBrowser as trouble:
        sys.exit(str(trouble))
