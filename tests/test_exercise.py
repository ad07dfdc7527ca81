"""The check of an exercise: right, wrong, empty."""

from rnj.exercise import attempt


def check(double):
    assert double(3) == 6, "3 doubled is 6"


def test_right_answer_passes(capsys):
    assert attempt(check, lambda x: x + x)
    assert capsys.readouterr().out == "Right.\n"


def test_wrong_answer_says_why(capsys):
    assert not attempt(check, lambda x: x + 1)
    assert "3 doubled is 6" in capsys.readouterr().out


def test_empty_stub_and_crash_are_not_yet(capsys):
    def stub(x):
        raise NotImplementedError

    def dots(x): ...  # your code

    assert not attempt(check, stub) and not attempt(check, dots)
    assert not attempt(check, lambda x: x / 0)
    out = capsys.readouterr().out
    assert out.count("stub is still empty") == 2 and "ZeroDivisionError" in out
