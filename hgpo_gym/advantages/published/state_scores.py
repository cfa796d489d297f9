"""Scores of states from counts over all earlier episodes of the run."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import STATE_COUNTS, needs
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import EPSILON, check_shares, over_unique_steps, relative_to_group, success


@needs(*STATE_COUNTS)
def state_scores(
    batch: StepBatch,
    *,
    alpha: float = 50.0,
    max_failures: float = 10.0,
    min_rate: float = 0.1,
    novelty_decay: float = 0.1,
    norm: str = "mean_norm",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """Rewards for leaving known states and for progress in scores of states, after 3SPO (arXiv:2606.09961).

        r = w 1{observation changed} + (1/2 - w) (S(s) - S(s')) + 1/2 1{last step of a won episode},   A = z_S(r) - p
        w = exp(-novelty_decay N(s)) / 2,   S(s) = exp(-alpha ln(t) K / (N + 1e-6))

    N of the run's t earlier episodes came through the state, and K of these succeeded. S is 1 if N = 0. It is 0 after
    `max_failures` lost episodes with a share of successes K / N up to `min_rate`. z_S(x) = x - mean over the visits S
    of the state, p is the step's penalty, and an unknown final state counts as no change of the observation.

    It is the estimator of 3SPO without its tree search, so it has a name of its own: the released scripts run neither.
    They count the reward of success as 10, here it is 1. Family: novelty, subgoals. Source: code (genalyu/3SPO).

    Avoid it where states never come again, and where nearly all or no episodes succeed.

    Args:
        batch: the steps, with the counts before the batch. A run keeps them by task and observation, in its checkpoint.
        alpha: how fast a state's score falls with its successes, 0 or more.
        max_failures: lost episodes after which a state can get the score 0.
        min_rate: the largest share of successes of such a state, from 0 to 1.
        novelty_decay: how fast the reward for a change of the observation falls with visits, 0 or more.
        norm: `mean_norm`, or `mean_std_norm` with the division by the deviation (n - 1) + 1e-6.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown `norm`, a negative alpha or novelty_decay, a min_rate outside
    [0, 1], a missing column or a level without keys.
    """
    check_shares(min_rate=min_rate)
    for name, value in (("alpha", alpha), ("novelty_decay", novelty_decay)):
        if not value >= 0:
            raise ValueError(f"{name}={value}: choose a number of 0 or more.")
    total, wins, next_total, next_wins, episodes = (batch.column(name, "state_scores") for name in STATE_COUNTS)

    def score(total: np.ndarray, wins: np.ndarray) -> np.ndarray:
        rate = wins / (total + EPSILON)
        is_bad = (total - wins >= max_failures) & (rate <= min_rate)
        reward = np.where(is_bad, 0.0, np.exp(-alpha * np.log(np.maximum(episodes, 1)) * rate))
        return np.where(total == 0, 1.0, reward)

    state = transitions(batch, level, time_aware).state
    seen, following, last = transitions(batch)
    novelty = 0.5 * np.exp(-novelty_decay * total)
    reward = (
        novelty * ((following != seen) & (following >= 0))
        + (0.5 - novelty) * (score(total, wins) - score(next_total, next_wins))
        + 0.5 * (last & success(batch))
    )
    return over_unique_steps(batch, partial(relative_to_group, norm=norm, ddof=1), reward, state) - batch.penalty
