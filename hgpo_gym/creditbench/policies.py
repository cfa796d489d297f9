"""Policies as tables, and a policy at several stages of training, without a training run."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hgpo_gym.creditbench.decision_process import DecisionProcess, Situations
from hgpo_gym.creditbench.exact import solve

STEP_SIZE = 0.05


def uniform_policy(situations: Situations) -> np.ndarray:
    """Return the policy that takes every admissible action of a situation with equal probability, float64[M, A]."""
    admissible = situations.admissible
    return admissible / admissible.sum(axis=1, keepdims=True)


def improved(policy: np.ndarray, processes: Sequence[DecisionProcess], gamma: float, horizon: int) -> np.ndarray:
    """Return the policy, float64[M, A], after one step of exact natural policy gradient on all tasks.

    For a table of softmax logits the step is pi'(a|m) ~ pi(a|m) * exp(size * A(m, a)). A(m, a) is the mean advantage of
    the action over all visits to the situation (Agarwal et al., 2021, arXiv:1908.00261).
    """
    advantage, visits = np.zeros_like(policy), np.zeros(len(policy))
    for process in processes:
        values = solve(process, policy, gamma, horizon)
        weighted = (values.visits[:, :, None] * values.advantage).sum(axis=0)
        # Several states share a situation: `.at` adds them up.
        np.add.at(advantage[:, : weighted.shape[1]], process.situation, weighted)
        np.add.at(visits, process.situation, values.visits.sum(axis=0))
    # A situation without visits has advantage 0; the guard avoids 0 / 0.
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
    """Return the policies after the given numbers of improvements of the uniform policy on the tasks `processes`."""
    policies = [uniform_policy(situations)]
    while len(policies) <= max(improvements):
        policies.append(improved(policies[-1], processes, gamma, horizon))
    return [policies[number] for number in improvements]


def language_model_policy(situations: Situations) -> np.ndarray:
    """Return the policy of SmolLM2-135M-Instruct, float64[M, A], which `benchmarks/language_model_stage.py` recorded.

    Raises:
        KeyError: it was not asked in one of the situations.
    """
    lines = json.loads((Path(__file__).parent / "smollm2.json").read_text(encoding="utf-8"))
    weights = {json.dumps(situation): values for *situation, values in lines}
    policy = situations.admissible.astype(np.float64)
    for row, situation in enumerate(situations.rows):
        policy[row, : len(situation.admissible_actions)] = weights[json.dumps(situation[:2])]
    return policy / policy.sum(axis=1, keepdims=True)
