"""HGPO with two other credits for notes that are responses of their own (`memory.every`), to compare with.

A step at which notes are due has two rows: the role `memory` responds first, then the role that acts.
"""

import numpy as np

import hgpo_gym as hg
from hgpo_gym.advantages import StepBatch, needs
from hgpo_gym.advantages.hgpo import hgpo


@needs("agent")
def hgpo_notes_share(batch: StepBatch, *, gamma: float = 0.95) -> np.ndarray:
    """HGPO whose notes have the advantage of the action after them.

    Args:
        batch: the steps.
        gamma: discount of the step returns.
    """
    advantages = hgpo(batch, gamma=gamma)
    rows = batch.in_order
    notes = np.flatnonzero(batch.extras["agent"][rows] != 0)
    advantages[rows[notes]] = advantages[rows[notes + 1]]
    return advantages


@needs("agent")
def hgpo_notes_none(batch: StepBatch, *, gamma: float = 0.95) -> np.ndarray:
    """HGPO whose notes have no advantage: they stay as they were imitated.

    Args:
        batch: the steps.
        gamma: discount of the step returns.
    """
    return np.where(batch.extras["agent"] == 0, hgpo(batch, gamma=gamma), 0.0)


for estimator in (hgpo_notes_share, hgpo_notes_none):
    hg.register_estimator(estimator.__name__, estimator)
