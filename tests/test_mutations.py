"""Each named fault turns its unit test red: the tests are worth what they claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.mutations import MUTATIONS, ROOT, Mutation, source


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_to_break_stands_once(mutation: Mutation) -> None:
    assert source(mutation).count(mutation.old) == 1
    assert mutation.old != mutation.new
    compile(source(mutation).replace(mutation.old, mutation.new), mutation.file, "exec")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_named_test_exists(mutation: Mutation) -> None:
    file, name = mutation.test.split("::")
    assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_names_differ_and_every_chapter_has_faults() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert {mutation.chapter for mutation in MUTATIONS} >= set(range(1, 8))


def test_every_fault_is_noticed() -> None:
    run = subprocess.run(
        [sys.executable, "tests/mutations.py"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(MUTATIONS)} faults, 0 not noticed" in run.stdout
