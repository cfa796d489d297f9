"""Environments with known rules at several stages of training, with true advantages by dynamic programming."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import discounted_returns
from hgpo_gym.analysis.estimator_bias.comparison import RETURNS, BiasComparison, Settings, Stage, split_rows
from hgpo_gym.creditbench.decision_process import NOWHERE, DecisionProcess, Dynamics, Situations, unfold
from hgpo_gym.creditbench.exact import Values, context_bias, solve, success_rate
from hgpo_gym.creditbench.measure import Truth
from hgpo_gym.creditbench.policies import stages_of_training
from hgpo_gym.creditbench.simulate import Steps, restart, roll_out
from hgpo_gym.randomness import RandomStream


@dataclass(frozen=True, kw_only=True)
class ExactSettings(Settings):
    """The settings of the exact computation.

    Attributes:
        improvements: the stages of training, see `stages_of_training`.
        window: past steps that the policy reads.
        restarts: the number of continuations from the state before every step, for estimators that ask for them.
    """

    improvements: Sequence[int]
    window: int | None
    restarts: int = 0


def exact_stages(tasks: Sequence[Dynamics], measured: Sequence[Dynamics], settings: ExactSettings) -> list[Stage]:
    """Return the uniform policy and improved ones, each with the true advantages of its rollouts.

    Args:
        tasks: the rules of those that the policy is improved on.
        measured: the rules of those among them that are rolled out.
        settings: see `ExactSettings`.

    Raises:
        ValueError: the window is not finite.
    """
    if settings.window is None:
        raise ValueError("memory.window=None: exact values need a policy that reads a limited number of past steps.")
    situations = Situations()
    unfolded = partial(unfold, situations=situations, window=settings.window, key=settings.key)
    training_processes = [unfolded(task, history_length=0) for task in tasks]
    processes = [unfolded(task, history_length=settings.history_length) for task in measured]
    policies = stages_of_training(
        situations, training_processes, settings.gamma, settings.horizon, settings.improvements
    )
    return [
        _stage(f"{number} improvements", processes, policy, settings)
        for number, policy in zip(settings.improvements, policies, strict=True)
    ]


def _stage(name: str, processes: Sequence[DecisionProcess], policy: np.ndarray, settings: ExactSettings) -> Stage:
    values = [solve(process, policy, settings.gamma, settings.horizon) for process in processes]
    success = [success_rate(process, policy, task) for process, task in zip(processes, values, strict=True)]
    generator = np.random.default_rng((RandomStream.EXACT_ROLLOUT, settings.seed))
    restart_generator = np.random.default_rng((RandomStream.EXACT_RESTART, settings.seed))
    tasks = []
    for process, value in zip(processes, values, strict=True):
        steps = roll_out(process, policy, settings.horizon, settings.episodes, generator)
        returns = restart(
            process, policy, steps, settings.horizon, settings.gamma, settings.restarts, restart_generator
        )
        tasks.append(_Rollouts.of(process, steps, value, returns))
    rollouts = _Rollouts.concatenate(tasks)
    bias = context_bias(processes, policy, values)
    return Stage(name, float(np.mean(success)), partial(_compare, rollouts, settings=settings), bias)


@dataclass(frozen=True)
class _Rollouts:
    """Steps with their truth; every episode is its own task group.

    Attributes:
        batch: the steps.
        advantage, action_value: float64[N], exact.
        history: int64[N], equal for steps with equal history and action.
    """

    batch: StepBatch
    advantage: np.ndarray
    action_value: np.ndarray
    history: np.ndarray

    @classmethod
    def of(cls, process: DecisionProcess, steps: Steps, value: Values, returns: np.ndarray) -> "_Rollouts":
        """Return the rollouts of one task; `returns`, float64[N, R], are those of restarts."""
        last, outcome_index = steps.last, (steps.state, steps.action, steps.outcome)
        batch = StepBatch(
            group=steps.episode,
            trajectory=steps.episode,
            step=steps.step,
            reward=steps.reward,
            context_keys=process.context_keys[steps.state],
            penalty=np.zeros(len(steps.step)),
            action=process.action_key[steps.state, steps.action],
            success=np.bincount(steps.episode, weights=steps.reward > 0)[steps.episode] > 0,
            final_keys=process.next_keys[outcome_index][last],
            extras={
                "truncated": (process.next_state[outcome_index] != NOWHERE)[last],
                **({RETURNS: returns} if returns.shape[1] else {}),
            },
        )
        visit_index = steps.step, steps.state, steps.action
        history = np.ravel_multi_index(visit_index, value.advantage.shape)
        return cls(batch, value.advantage[visit_index], value.action_value[visit_index], history)

    @classmethod
    def concatenate(cls, tasks: Sequence["_Rollouts"]) -> "_Rollouts":
        """Return the rollouts of all tasks, one task after the other."""
        # Histories of different tasks get different labels.
        offsets = np.cumsum([0] + [int(task.history.max()) + 1 for task in tasks])
        return cls(
            StepBatch.concatenate([task.batch for task in tasks]),
            np.concatenate([task.advantage for task in tasks]),
            np.concatenate([task.action_value for task in tasks]),
            np.concatenate([offset + task.history for offset, task in zip(offsets, tasks, strict=False)]),
        )


def _compare(rollouts: _Rollouts, group_size: int, *, settings: ExactSettings) -> BiasComparison:
    """Return the same episodes in groups of any size that divides their number."""
    if settings.episodes % group_size:
        raise ValueError(f"bias.episodes={settings.episodes} is not a multiple of the group size {group_size}.")
    batch = replace(rollouts.batch, group=rollouts.batch.trajectory // group_size)
    generator = np.random.default_rng((RandomStream.EXACT_BATCH, settings.seed))
    rows_of_batches = list(split_rows(batch.group, settings.groups_a_batch, generator))
    truth = Truth(
        advantage=rollouts.advantage,
        variance=np.zeros(len(batch)),
        noise=discounted_returns(batch, settings.gamma) - rollouts.action_value,
        history=rollouts.history,
        group=batch.group,
        drawn=batch.group,
        step=batch.step,
    )
    batches = [batch.take(batch_rows) for batch_rows in rows_of_batches]
    return BiasComparison(
        batches, [np.arange(len(batch_rows)) for batch_rows in rows_of_batches], truth[np.concatenate(rows_of_batches)]
    )
