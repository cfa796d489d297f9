"""Policies as tables, and a policy at several stages of training, without a training run."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.analysis.estimator_bias.decision_process import DecisionProcess, Situations
from hgpo_gym.analysis.estimator_bias.exact import solve

STEP_SIZE = 0.05


def uniform_policy(situations: Situations) -> np.ndarray:
    """float64[M, A]: every admissible action of a situation is equally likely."""
    admissible = situations.admissible
    return admissible / admissible.sum(axis=1, keepdims=True)


def improved(policy: np.ndarray, processes: Sequence[DecisionProcess], gamma: float, horizon: int) -> np.ndarray:
    """The policy, float64[M, A], after one step of exact natural policy gradient on all tasks alike.

    For a table of softmax logits that is pi'(a|m) ~ pi(a|m) * exp(size * A(m, a)), with the mean advantage of the
    action over all visits to the situation (Agarwal et al., 2021, arXiv:1908.00261).
    """
    advantage, visits = np.zeros_like(policy), np.zeros(len(policy))
    for process in processes:
        values = solve(process, policy, gamma, horizon)
        weighted = (values.visits[:, :, None] * values.advantage).sum(axis=0)
        np.add.at(advantage[:, : weighted.shape[1]], process.situation, weighted)
        np.add.at(visits, process.situation, values.visits.sum(axis=0))
    mean_advantage = advantage / np.where(visits > 0, visits, 1.0)[:, None]
    better = policy * np.exp(STEP_SIZE * mean_advantage)
    return better / better.sum(axis=1, keepdims=True)


def stages_of_training(
    situations: Situations,
    processes: Sequence[DecisionProcess],
    gamma: float,
    horizon: int,
    improvements: Sequence[int],
) -> list[np.ndarray]:
    """The policies that so many steps of improvement on the tasks `processes` make of the uniform one."""
    policies = [uniform_policy(situations)]
    while len(policies) <= max(improvements):
        policies.append(improved(policies[-1], processes, gamma, horizon))
    return [policies[number] for number in improvements]
