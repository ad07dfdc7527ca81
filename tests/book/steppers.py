"""The steppers that the chapters of rnj.viz register."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable

import rnj.viz
from rnj.viz.stepper import Stepper

# chapter of rnj.viz -> {handle: function without arguments}
REGISTERED: dict[str, dict[str, Callable[[], Stepper]]] = {}
for _module in pkgutil.iter_modules(rnj.viz.__path__):
    _found = getattr(importlib.import_module(f"rnj.viz.{_module.name}"), "STEPPERS", None)
    if _found:
        REGISTERED[_module.name] = dict(_found)

STEPPERS = {f"{chapter}.{handle}": make for chapter, makers in REGISTERED.items() for handle, make in makers.items()}


@functools.cache
def by_name() -> dict[str, Stepper]:
    """The steppers by what stands in data-stepper."""
    return {stepper.name: stepper for stepper in (make() for make in STEPPERS.values())}
