"""Generalized advantage estimation over steps."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import learns_values, needs, over_the_batch
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.statistics import whiten as whitened
from hgpo_gym.advantages.values import generalized_advantages


@needs("value")
@learns_values
@over_the_batch
def gae(batch: StepBatch, *, gamma: float = 1.0, trace_decay: float = 0.95, whiten: bool = True) -> Advantages:
    """Generalized advantage estimation over steps with a critic, as in PPO and StepPO (arXiv:2604.18401).

        delta_t = r_t + gamma v_{t+1} - v_t,   A_t = delta_t + gamma lambda A_{t+1} - p

    with v = 0 after the end and p the step's penalty, which is not part of the recursion. The critic's target is the
    lambda-return, A + p + v before whitening. Family: rewards with a critic. Source: code (AgentR1/StepPO, which adds
    1e-8 to the deviation and not to the variance); the formula is by Schulman et al., 2016, arXiv:1506.02438.

    It compares a step with a critic's expectation, not with a group. A wrong critic makes wrong advantages.

    Args:
        batch: the steps, with the column `value`, a number for every step.
        gamma: discount.
        trace_decay: lambda, from 0 to 1; 1 is the return minus the value.
        whiten: scale to mean 0 and deviation 1 over all steps of the batch, before penalties.

    Returns the values float64[N] and the targets of `value`. Raises ValueError on a gamma or trace_decay outside
    [0, 1], or a step without a value.
    """
    value = batch.column("value", "gae")
    if (missing := np.flatnonzero(np.isnan(value))).size:
        raise ValueError(
            f"Estimator 'gae' needs the column 'value' at every step, row {missing[0]} has none: a critic predicts it "
            "everywhere, vineppo takes values that restarts have sampled at some steps."
        )
    advantages = generalized_advantages(batch, value, gamma, trace_decay)
    values = (whitened(advantages, batch.copies) if whiten else advantages) - batch.penalty
    return Advantages(values, targets={"value": advantages + value})
