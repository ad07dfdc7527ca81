"""The built site, served on this machine, in headless Chromium. Whatever asks for another host is stopped and counted.

BOOK_ROOT names another folder with _toc.yml and _build/html than this repository.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tools import browser as chromium

from tests.book.reading import ROOT

SITE = ROOT / "_build" / "html"
# The theme declares one constant in two scripts; the page works all the same.
HARMLESS = ("Identifier 'THEBE_JS_URL' has already been declared",)
READY = "[...document.querySelectorAll('.rnj-stepper')].every(e => e.dataset.ready === '1')"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Path:
    assert (SITE / "index.html").is_file(), "the site is not built: make book"
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = chromium.ensure()  # raises, and says what to do, where there is none: never skipped
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=chromium.flags())
        yield made
        made.close()


@dataclass
class Visit:
    """A page and what happened on it."""

    page: Page
    foreign: list[str] = field(default_factory=list)  # requests to other hosts
    troubles: list[str] = field(default_factory=list)  # of the console, and requests that failed


Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Open]:
    """visit("book/index", width=360, scheme="dark") opens a page of the site; file=True opens it from the disk."""
    contexts: list[BrowserContext] = []

    def go(name: str, width: int = 1280, scheme: str = "light", file: bool = False, query: str = "", **more) -> Visit:
        base = SITE.as_uri() if file else address
        height = 900 if width > 600 else 740
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        made = Visit(context.new_page())

        def route(route) -> None:
            if route.request.url.startswith((base, "data:", "blob:")):
                route.continue_()
            else:
                made.foreign.append(route.request.url)
                route.abort()

        def heard(text: str) -> None:
            if not any(known in text for known in HARMLESS):
                made.troubles.append(text[:300])

        context.route("**/*", route)
        made.page.on("console", lambda message: heard(message.text) if message.type in ("error", "warning") else None)
        made.page.on("pageerror", lambda error: heard(str(error)))
        made.page.on("requestfailed", lambda request: heard(f"failed: {request.url}"))
        made.page.on(
            "response", lambda answer: heard(f"{answer.status}: {answer.url}") if answer.status >= 400 else None
        )
        made.page.goto(f"{base}/{name}.html{query}", wait_until="load")
        settle(made.page)
        return made

    yield go
    for context in contexts:
        context.close()


def settle(page: Page) -> None:
    """Wait until the steppers are live and the formulas set."""
    page.wait_for_function(READY, timeout=20_000)
    page.evaluate("window.MathJax?.startup?.promise ?? null")
