"""Every comparison with transformers reports its error; they are printed together at the end of the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is fetched

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The models are tiny: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[..., None]:
    """measured(what, error, at_most=…) or (…, above=…): note the error for the summary, and assert the bound."""

    def note(what: str, error: float, at_most: float | None = None, above: float | None = None) -> None:
        bound = f"≤ {at_most:.3g}" if above is None else f"> {above:.3g}"
        request.node.user_properties.append(("parity", (what, f"{error:.2e}", bound)))
        if at_most is not None:
            assert error <= at_most, f"{what}: {error} is above {at_most}"
        if above is not None:
            assert error > above, f"{what}: {error} is not above {above}"

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    rows = [
        row for report in reports if report.when == "call" for key, row in report.user_properties if key == "parity"
    ]
    if rows:
        terminalreporter.section("largest errors against transformers (logits unless said otherwise)")
        width = max(len(row[0]) for row in rows)
        for what, error, bound in rows:
            terminalreporter.write_line(f"{what:<{width}}  {error}  {bound}")
