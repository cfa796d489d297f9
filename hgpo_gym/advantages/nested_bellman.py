"""Bellman values of nested contexts."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.process import Chain
from hgpo_gym.advantages.statistics import (
    EPISODE_STATISTICS,
    ROUNDING,
    check_shares,
    episode_advantage,
    joint_labels,
    mean_of_group,
    over_unique_steps,
    scaled_to_group,
    success,
)
from hgpo_gym.advantages.values import next_in_episode
from hgpo_gym.suggest import unknown_name


@needs("action")
def nested_bellman(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    prior_visits: float = 8.0,
    td_weight: float = 0.25,
    episode_weight: float = 0.0,
    episode_statistics: str = "trajectories",
    success_reward: float = 10.0,
    norm: str = "mean_std_norm",
    history_length: int | None = None,
    time_aware: bool = False,
) -> np.ndarray:
    """Bellman values of HGPO's nested contexts (arXiv:2602.22817), shrunk from level to level by visit counts.

    This project's design. Contexts are the states of the Bellman solve of `crbc` (arXiv:2609.35082) and `graft`.

        V_0 = Bellman_0(s),  V_k = V_{k-1} + w_k (Bellman_k(s) - V_{k-1}),  w_k = (n_k - 1) / (n_k - 1 + prior_visits)
        T = gamma V_K(next step),  a_k = mean of T over (s, a) - mean of T over s at level k,  shrunk in the same way
        A = (1 - td_weight) a_K + td_weight (T - b_K) - p + episode_weight * A_episode

    with Bellman_k the fixed point of the task group's transitions between contexts of level k (success_reward after a
    success, 0 after other ends), n_k the visits of the step's context at level k, b_k the means of T over s, shrunk in
    the same way, p the step's penalty, and A_episode GRPO's advantage. A context with only one action has a_k = 0, so a
    deep context with many visits reduces the credit of an aliased shallow one. td_weight weighs the step's actual next
    state against all next states seen from this context. In a deterministic environment, the actual one shows what the
    context hides. Family: states of a process or graph.

    Args:
        batch: the steps, with the column `action`; `success`, if recorded, marks the ends of value success_reward.
        gamma: discount, above 0 and up to 1.
        prior_visits: the visits beyond the first at which a level weighs as much as all coarser ones; 0 or more.
        td_weight: from 0 (the mean of equal actions in equal contexts) to 1 (the temporal difference of the step).
        episode_weight: weight of the episode's advantage in its task group, which steps with a unique context have
            too; 0 or more.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        success_reward: the value of a success; with `mean_norm` advantages have its unit.
        norm: `mean_norm`, or `mean_std_norm`, which divides by the root mean square of the task group's advantages.
        history_length: K; None uses every level of the batch.
        time_aware: contexts of every level hold the number of steps taken as well.

    Returns float64[N]. Raises ValueError on an unknown `norm` or `episode_statistics`, a number outside its range, or a
    `history_length` that the batch has no keys for.
    """
    check_shares(gamma=gamma, td_weight=td_weight)
    if not gamma:
        raise ValueError("gamma=0: choose a number above 0.")
    for name, number in (("prior_visits", prior_visits), ("episode_weight", episode_weight)):
        if number < 0:
            raise ValueError(f"{name}={number}: choose a number of 0 or more.")
    if episode_statistics not in EPISODE_STATISTICS:
        raise ValueError(unknown_name("episode_statistics", episode_statistics, EPISODE_STATISTICS))
    deepest = batch.history_length if history_length is None else history_length
    batch.check_level(deepest, "history_length")
    chains = [Chain.of(batch, level, time_aware) for level in range(deepest + 1)]
    states = [chain.state for chain in chains]
    won = success_reward / gamma  # the chain discounts the last step's reward once more than the return does

    def shrunk(by_level: list[np.ndarray]) -> np.ndarray:
        values = by_level[0]
        for state, level_values in zip(states[1:], by_level[1:], strict=True):
            extra_visits = batch.visits(state) - 1.0
            values = values + extra_visits / np.maximum(extra_visits + prior_visits, 1.0) * (level_values - values)
        return values

    value = shrunk([won * chain.values(gamma)[chain.state] for chain in chains])
    target = gamma * next_in_episode(batch, value, end=np.where(success(batch), won, 0.0))
    mean = partial(over_unique_steps, batch, mean_of_group, target)
    means = [mean(state) for state in states]
    action_means = [mean(joint_labels(state, batch.column("action", "nested_bellman"))) for state in states]
    of_action = shrunk([by_action - of_state for by_action, of_state in zip(action_means, means, strict=True)])
    advantages = of_action + td_weight * (target - shrunk(means) - of_action)
    # Rounding must not become a signal: `mean_std_norm` would scale it up.
    advantages[np.abs(advantages) <= ROUNDING * max(1.0, abs(success_reward))] = 0.0
    scaled = partial(scaled_to_group, norm=norm)
    advantages = over_unique_steps(batch, scaled, advantages, batch.group_labels) - batch.penalty
    if episode_weight:
        advantages += episode_weight * episode_advantage(batch, norm, episode_statistics)
    return advantages
