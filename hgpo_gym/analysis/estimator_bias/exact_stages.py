"""SignpostMaze at several stages of training, with true advantages by dynamic programming."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import discounted_returns
from hgpo_gym.analysis.estimator_bias.comparison import Comparison, Settings, Stage, split_rows
from hgpo_gym.analysis.estimator_bias.decision_process import DecisionProcess, Situations, unfold
from hgpo_gym.analysis.estimator_bias.exact import context_bias, solve, success_rate
from hgpo_gym.analysis.estimator_bias.measure import Truth
from hgpo_gym.analysis.estimator_bias.policies import stages_of_training
from hgpo_gym.analysis.estimator_bias.simulate import roll_out
from hgpo_gym.envs.signpost_maze import SignpostMaze
from hgpo_gym.randomness import Stream


@dataclass(frozen=True, kw_only=True)
class ExactSettings(Settings):
    """Of the exact computation.

    Attributes:
        improvements: the stages of training, see `stages_of_training`.
        window: past steps that the policy reads.
    """

    improvements: Sequence[int]
    window: int | None


def exact_stages(
    mazes: Sequence[SignpostMaze], measured: Sequence[SignpostMaze], settings: ExactSettings
) -> list[Stage]:
    """The uniform policy and better ones, each with the true advantages of its rollouts.

    Args:
        mazes: the tasks that the policy is improved on.
        measured: those of them that are rolled out.
        settings: see there.

    Raises:
        ValueError: no finite window.
    """
    if settings.window is None:
        raise ValueError("memory.window=None: exact values need a policy that reads a limited number of past steps.")
    situations = Situations()
    unfolded = partial(unfold, situations=situations, window=settings.window, key=settings.key)
    lessons = [unfolded(maze, history_length=0) for maze in mazes]
    processes = [unfolded(maze, history_length=settings.history_length) for maze in measured]
    policies = stages_of_training(situations, lessons, settings.gamma, settings.horizon, settings.improvements)
    return [
        _stage(f"{number} improvements", processes, policy, settings)
        for number, policy in zip(settings.improvements, policies, strict=True)
    ]


def _stage(name: str, processes: Sequence[DecisionProcess], policy: np.ndarray, settings: Settings) -> Stage:
    values = [solve(process, policy, settings.gamma, settings.horizon) for process in processes]
    success = [success_rate(process, policy, task) for process, task in zip(processes, values, strict=True)]
    generator = np.random.default_rng((Stream.EXACT_ROLLOUT, settings.seed))
    columns: list[tuple[np.ndarray, ...]] = []
    histories = 0
    for task, (process, value) in enumerate(zip(processes, values, strict=True)):
        steps = roll_out(process, policy, settings.horizon, settings.episodes, generator)
        where = steps.step, steps.state, steps.action
        columns.append(
            (
                task * settings.episodes + steps.episode,
                steps.step,
                steps.reward,
                process.context_keys[steps.state],
                value.advantage[where],
                value.action_value[where],
                histories + np.ravel_multi_index(where, value.advantage.shape),
            )
        )
        histories += value.advantage.size
    rollouts = _Rollouts(settings, *(np.concatenate(column) for column in zip(*columns, strict=True)))
    bias = context_bias(processes, policy, values)
    return Stage(name, float(np.mean(success)), rollouts.compare, bias)


@dataclass(frozen=True)
class _Rollouts:
    """A row a step, all tasks one after the other."""

    settings: Settings
    episode: np.ndarray
    step: np.ndarray
    reward: np.ndarray
    context_keys: np.ndarray
    advantage: np.ndarray
    action_value: np.ndarray
    history: np.ndarray

    def compare(self, group_size: int) -> Comparison:
        """The same episodes in groups of any size that divides their number."""
        if self.settings.episodes % group_size:
            raise ValueError(
                f"diagnose.episodes={self.settings.episodes} is not a multiple of the group size {group_size}."
            )
        everything = np.arange(len(self.episode))
        noise = discounted_returns(self._batch(everything, group_size), self.settings.gamma) - self.action_value
        generator = np.random.default_rng((Stream.EXACT_BATCH, self.settings.seed))
        rows = list(split_rows(self.episode // group_size, self.settings.groups_a_batch, generator))
        order = np.concatenate(rows)
        truth = Truth(
            advantage=self.advantage,
            variance=np.zeros(len(order)),
            noise=noise,
            history=self.history,
            group=self.episode // group_size,
            drawn=self.episode // group_size,
            step=self.step,
        )
        batches = [self._batch(some, group_size) for some in rows]
        return Comparison(batches, [np.arange(len(some)) for some in rows], truth[order])

    def _batch(self, rows: np.ndarray, group_size: int) -> StepBatch:
        return StepBatch(
            group=self.episode[rows] // group_size,
            trajectory=self.episode[rows],
            step=self.step[rows],
            reward=self.reward[rows],
            context_keys=self.context_keys[rows],
            penalty=np.zeros(len(rows)),
        )
