"""Ctrl-C during an update or an evaluation: the first says what it waits for, the second stops at once."""

import os
import signal

import pytest

from hgpo_gym import interrupts as module
from hgpo_gym.interrupts import Interrupts, StoppedAtOnceError
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.learners.policy_gradient import PolicyGradientLearner
from hgpo_gym.trainers.run import Run
from tests.support.small_runs import numbers, settings, train


def press():
    """Ctrl-C, as the terminal sends it."""
    os.kill(os.getpid(), signal.SIGINT)


def work(presses, lines, done):
    """Something that is to be finished, during which Ctrl-C is pressed."""
    interrupts = Interrupts(lines.append)
    interrupts.doing = "the update of iteration 3"
    with interrupts.waiting():
        for _ in range(presses):
            press()
        done.append("finished")
    return interrupts.noted


def test_the_first_waits_and_says_for_what():
    lines, done = [], []
    assert not work(0, lines, done)
    assert not lines
    assert work(1, lines, done)
    assert done == ["finished"] * 2
    [line] = lines
    assert line.startswith("SIGINT: finishing the update of iteration 3 first")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_stops_at_once_but_the_same_one_twice_does_not(monkeypatch):
    """A launcher passes on what the terminal has sent to its processes too."""
    lines, done = [], []
    assert work(2, lines, done)
    assert done == ["finished"]
    monkeypatch.setattr(module, "ONE_PRESS", 0.0)
    with pytest.raises(StoppedAtOnceError):
        work(2, lines, done)
    assert done == ["finished"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Lines(Progress):
    """Progress that records its lines, and sends Ctrl-C at a certain one."""

    def __init__(self, presses):
        super().__init__()
        self.lines, self.presses = [], presses

    def line(self, text):
        self.lines.append(text)
        if self.presses and "Ctrl-C" in text:
            self.presses = 0
            press()


@pytest.mark.parametrize(
    ("where", "waits_for"),
    [("learn", "the update of iteration 2"), ("_evaluate", "the evaluation after iteration 2")],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_run_saves_after_the_first_and_not_after_the_second(where, waits_for, again, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ONE_PRESS", 0.0)
    owner = Run if where == "_evaluate" else PolicyGradientLearner
    real, calls = getattr(owner, where), []

    def interrupted(self, *arguments):
        calls.append(1)
        result = real(self, *arguments)
        if len(calls) == 2:
            press()
        return result

    monkeypatch.setattr(owner, where, interrupted)
    progress = Lines(presses=int(again))
    with Run(settings(tmp_path / "run", "checkpoint.keep_best=false"), progress) as run:
        with pytest.raises(KeyboardInterrupt) as raised:
            run.train()
        assert isinstance(raised.value, StoppedAtOnceError) == again
        newest = run.checkpoints.newest().name
    assert [line for line in progress.lines if line.startswith(f"SIGINT: finishing {waits_for} first")]
    assert newest == ("iteration_0000" if again else "iteration_0002")
    monkeypatch.undo()
    train(tmp_path / "run", "checkpoint.keep_best=false", "resume=auto")
    train(tmp_path / "whole", "checkpoint.keep_best=false")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")
    assert len(read_metrics(tmp_path / "run")) == 4


def test_an_evaluation_tells_of_steps_while_it_goes_on(tmp_path):
    ticks = []

    class Bar(Progress):
        def stage(self, description, *, lines=True):
            from contextlib import nullcontext

            return nullcontext(lambda done, total, words: ticks.append(words))

    train(tmp_path, "trainer.iterations=1", progress=Bar())
    shown = [words for words in ticks if words.startswith("evaluation ")]
    steps = [int(words.split(", ")[1].split()[0].replace(",", "")) for words in shown]
    assert len(shown) > 10
    assert steps[0] < steps[1] < steps[2]
    assert shown[0].startswith("evaluation 0/")
