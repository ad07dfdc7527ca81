"""Figures and steppers: `show` a figure, a `Stepper` to move, the `model_map`, the followed token's
`journey`, and questions to `predict`.

One file for each chapter's figures (norm.py, mlp.py, …) stands beside what they share: palette.py, figure.py,
stepper.py, map.py, card.py and predict.py.
"""

from rnj.viz.card import journey, token_card
from rnj.viz.figure import NARROW, WIDE, Shown, grid, heading, label, limits, panels, show, vector_strip
from rnj.viz.map import model_map
from rnj.viz.predict import predict
from rnj.viz.stepper import Choice, Frame, Slider, Stepper, sweep

__all__ = [
    "NARROW",
    "WIDE",
    "Choice",
    "Frame",
    "Shown",
    "Slider",
    "Stepper",
    "grid",
    "heading",
    "journey",
    "label",
    "limits",
    "model_map",
    "panels",
    "predict",
    "show",
    "sweep",
    "token_card",
    "vector_strip",
]
