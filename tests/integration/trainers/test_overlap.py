"""rollout.overlap: what is played ahead is what would be played after the update; errors and Ctrl-C find their way."""

import multiprocessing
import os
import signal

import gymnasium
import pytest

from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.failures import EpisodesFailedError
from hgpo_gym.rollouts.samplers import tasks_in_order
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.learners import async_rollout
from hgpo_gym.trainers.learners.async_rollout import AsyncRolloutDiedError
from hgpo_gym.trainers.learners.policy_gradient import UNCORRECTED, PolicyGradientLearner
from hgpo_gym.trainers.run import Run
from tests.support import forks
from tests.support.breaking import BREAKING
from tests.support.small_runs import numbers, settings, train

SCORER = [
    "model=features", "warmstart.source=none", "env.sections=1", "env.max_episode_steps=24",
    "trainer.learning_rate=0.05", "trainer.warmup_steps=0", "rollout.staleness=1",
]  # fmt: skip
"""Learns in a few steps, so that weights of other updates play otherwise."""
AHEAD = [*SCORER, "rollout.overlap=true"]


@pytest.fixture(autouse=True, scope="module")
def forked():
    """Processes that play ahead are forks of one that knows as little as a new interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(async_rollout, "multiprocessing", forks)
        yield


@pytest.mark.parametrize(
    "options",
    [
        ["rollout.staleness=2", "algo=empg"],
        ["sampler=gaussian", "sampler.episodes=3", "sampler.iterations=4"],
        ["sampler=dynamic", "algo=grpo", "rollout.workers=1"],
        [
            "model=tiny", "algo=gae", "warmstart.source=random", "warmstart.episodes=20", "warmstart.epochs=1",
            "trainer.learning_rate=1e-3",
        ],
    ],
    ids=["older", "measured", "drawn anew", "critic"],
)  # fmt: skip
def test_the_numbers_are_those_without(tmp_path, options):
    train(tmp_path / "after", *SCORER, *options)
    train(tmp_path / "ahead", *AHEAD, *options)
    assert numbers(tmp_path / "ahead") == numbers(tmp_path / "after")
    assert all(line["seconds_played"] > 0 for line in read_metrics(tmp_path / "ahead"))


def test_a_run_goes_on_to_the_same_numbers_with_and_without(tmp_path):
    train(tmp_path / "whole", *SCORER)
    train(tmp_path / "fresh", *SCORER, "rollout.staleness=0")
    assert numbers(tmp_path / "fresh") != numbers(tmp_path / "whole")
    for name, then in {"with": AHEAD, "without": SCORER}.items():
        train(tmp_path / name, *AHEAD, "trainer.iterations=2")
        train(tmp_path / name, *then, "resume=must")
        assert numbers(tmp_path / name) == numbers(tmp_path / "whole")


@pytest.mark.parametrize("waiting", [False, True], ids=["in the update", "in the wait for the rollout"])
def test_ctrl_c_leaves_no_process_and_loses_no_iteration(tmp_path, monkeypatch, waiting):
    where = "collect" if waiting else "learn"
    real = getattr(PolicyGradientLearner, where)

    def interrupted(self, iteration, *arguments):
        if iteration == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, iteration, *arguments)

    monkeypatch.setattr(PolicyGradientLearner, where, interrupted)
    with Run(settings(tmp_path / "run", *AHEAD), Progress()) as run, pytest.raises(KeyboardInterrupt):
        run.train()
    assert run.checkpoints.newest().name == f"iteration_{2 if waiting else 3:04d}"
    assert not multiprocessing.active_children()
    monkeypatch.undo()
    train(tmp_path / "run", *AHEAD, "resume=must")
    train(tmp_path / "whole", *SCORER)
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")


SEED = 1


def breaking(folder, *overrides):
    """A run whose second iteration plays a task that cannot begin."""
    run = [
        *AHEAD, "plugins=[tests.support.breaking]", f"env.id={BREAKING}", f"+env.folder={folder}",
        "env.sections=2", "env.split=all", "evaluation.split=all", "evaluation.tasks=1", "evaluation.every=0",
        "rollout.num_tasks=1", "checkpoint.every=1", f"seed={SEED}",
    ]  # fmt: skip
    tasks = gymnasium.make(BREAKING, folder=str(folder), sections=2, split="all").unwrapped.task_ids
    (first,), (second,) = (tasks_in_order(tasks, SEED, iteration, 1) for iteration in (0, 1))
    assert len({tasks[0], first, second}) == 3  # the first is evaluated
    return Run(settings(folder / "run", *run, f"+env.broken={second}", *overrides), Progress())


def test_an_error_of_an_environment_is_raised_where_its_rollout_is_read(tmp_path):
    with breaking(tmp_path, "rollout.max_retries=null") as run:
        with pytest.raises(ConnectionResetError, match="the backend hung up") as raised:
            run.train()
        assert run.iteration == 1
    assert "in begin_episode" in "".join(raised.value.__notes__)
    assert run.checkpoints.newest().name == "iteration_0001"


def test_what_failed_ahead_is_kept(tmp_path):
    with breaking(tmp_path, "rollout.max_retries=0") as run:
        with pytest.raises(EpisodesFailedError, match="so that 1 of 1 task groups are lost"):
            run.train()
        assert [path.name for path in run.directory.failures_path.iterdir()] == ["training_0002.jsonl.gz"]


def test_a_process_that_dies_is_reported(tmp_path):
    with Run(settings(tmp_path / "run", *AHEAD), Progress()) as run:
        run.learner.learn(0, run.learner.collect(0), 0.0)
        (process,) = multiprocessing.active_children()
        process.kill()
        process.join()
        with pytest.raises(
            AsyncRolloutDiedError, match=r"exit code -9.*Set rollout\.overlap=false, which changes no numbers"
        ):
            run.learner.learn(1, run.learner.collect(1), 0.0)  # what it had played already can be taken


def test_what_keeps_the_process_from_starting_is_reported_before_training(tmp_path):
    """The environment is registered here, and not there."""
    run = Run(settings(tmp_path / "run", *AHEAD, f"env.id={BREAKING}", f"+env.folder={tmp_path}"), Progress())
    with run, pytest.raises(Exception, match="hgpo_gym_tests") as raised:
        run.train()
    assert run.iteration == 0
    assert "name that in plugins=[...]" in "".join(raised.value.__notes__)


def test_a_run_without_correction_says_so(tmp_path):
    lines = []

    class Lines(Progress):
        def line(self, text):
            lines.append(text)

    for correction in ("token", "none"):
        assert not lines
        options = [*SCORER, f"correction={correction}"]
        with Run(settings(tmp_path / correction, *options), Lines()):
            pass
    assert lines == [UNCORRECTED.format(1)]
