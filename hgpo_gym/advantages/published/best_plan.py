"""Advantages of plans by their mean return, and of actions under the best plan."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import episode_returns, joint_labels, mean_of_group, relative_to_group


@needs("plan", "opening", "execution")
def best_plan(batch: StepBatch, *, norm: str = "mean_std_norm") -> np.ndarray:
    """Compare plans with plans, and executions of the best plan with executions, within a task group.

    This project's design, after the idea of HiMAC (arXiv:2603.00977). Trials of a task try new plans. Executions follow
    the plan with the highest return.

        opening rows:                 A = z(mean R of the plan's trials)   over the trials of the task group
        other rows of an execution:   A = z(R) - p                         over the executions of the task group
        other rows of a trial:        A = 0

    with z(x) = (x - mean) / (std + 1e-6), n - 1, each episode once, R the episode's return and p the step's penalty.
    Trials of the best plan do not count as executions, because they were selected by their luck.

    Avoid it where plans do not matter: half of the episodes then teach nothing. Family: episodes of a special sampler.

    Args:
        batch: the steps, with the columns `plan`, `opening` and `execution`.
        norm: `mean_std_norm`, or `mean_norm` without the division.

    Returns float64[N]. Raises ValueError on an unknown `norm` or a missing column.
    """
    plan, opening, execution = (batch.column(name, "best_plan") for name in ("plan", "opening", "execution"))
    first, episode = batch.first_rows, batch.trajectory_labels
    returns, task = episode_returns(batch)[first], batch.group_labels[first]
    of_plan = joint_labels(task, plan[first])
    trial = ~execution[first].astype(np.bool_)

    def among(members: np.ndarray, values: np.ndarray) -> np.ndarray:
        return relative_to_group(values, np.where(members, task, -1), norm, ddof=1)

    mean_return = np.zeros(len(first))
    mean_return[trial] = mean_of_group(returns[trial], of_plan[trial])
    plan_advantage = np.zeros(of_plan.max(initial=-1) + 1)
    plan_advantage[of_plan[trial]] = among(trial, mean_return)[trial]
    action_advantage = np.where(trial[episode], 0.0, among(~trial, returns)[episode] - batch.penalty)
    return np.where(opening.astype(np.bool_), plan_advantage[of_plan][episode], action_advantage)
