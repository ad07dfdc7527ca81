"""Readings after each layer end in the model's own distribution."""

from __future__ import annotations

import torch

import rnj
from rnj.example import FOLLOWED, row
from rnj.lab.readings import readings

MODEL = rnj.build(rnj.SMALL, seed=0, random_norms=True)
ROW = row()
TRACE = MODEL.trace(ROW.tokens, ROW.positions, ROW.segments)


def test_the_last_reading_is_the_models_output():
    read = readings(MODEL, TRACE)
    assert read.probabilities.shape == (9, 16, 2048)
    torch.testing.assert_close(read.probabilities[-1], TRACE["logits"][0].softmax(-1))


def test_ranks_and_best_agree():
    read = readings(MODEL, TRACE)
    best = read.best(FOLLOWED, 2)
    assert len(best) == 9
    for layer, ((first, p), (second, q)) in enumerate(best):
        assert p >= q and read.rank(FOLLOWED, first)[layer] == 1 and read.rank(FOLLOWED, second)[layer] == 2


def test_a_fresh_model_reads_the_token_itself_in_its_embedding():
    plain = rnj.build(rnj.SMALL, seed=0)
    read = readings(plain, plain.trace(ROW.tokens, ROW.positions, ROW.segments))
    assert read.best(FOLLOWED, 1)[0][0][0] == ROW.tokens[0, FOLLOWED]
