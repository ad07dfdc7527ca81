"""Every frame of every registered stepper: no error, distinct pictures, finite numbers; and the chapters show them."""

import pytest

from rnj.viz.stepper import sweep
from tests.book.steppers import REGISTERED, STEPPERS

pytestmark = pytest.mark.book


def test_each_chapter_has_one():
    missing = [
        n for n in ("forward", "norm", "mlp", "attention", "yarn", "core_attention", "math") if n not in REGISTERED
    ]
    assert not missing, f"no STEPPERS in rnj.viz.{', rnj.viz.'.join(missing)}"


def test_names_are_there_once():
    names = [make().name for chapter in REGISTERED.values() for make in chapter.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", sorted(STEPPERS))
def test_every_frame(name):
    stepper = STEPPERS[name]()
    assert sweep(stepper, distinct=0.5) == len(stepper.combinations()) >= 2


@pytest.mark.parametrize("name", sorted(STEPPERS))
def test_every_control_changes_the_picture(name):
    """From where it opens, each control alone leads to another picture."""
    stepper = STEPPERS[name]()
    for control in stepper.controls:
        pictures = {str(stepper.frame(**{control.name: value}).figure) for value in control.values}
        assert len(pictures) > 1, f"{control.name} changes nothing"
