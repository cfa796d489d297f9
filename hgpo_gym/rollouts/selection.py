"""Selection by a sampler: the episodes for credit assignment, and the steps of the update.

rollout = select_episodes(rollout, sampler, iteration)
...shaping, advantages...
rows = select_steps(batch, advantages, sampler, iteration, progress)
"""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.rollout import Rollout, take_episodes
from hgpo_gym.rollouts.samplers.base import Sampler

_EPISODES, _STEPS = 1, 2


def select_episodes(rollout: Rollout, sampler: Sampler, iteration: int) -> Rollout:
    """Return the rollout with the episodes that the sampler selects.

    Raises:
        ValueError: it selects none, or returns a wrong shape.
    """
    if not sampler.filter.overrides("episodes"):
        return rollout
    selected = sampler.filter.episodes(rollout.batch, _generator(sampler, iteration, _EPISODES))
    checked(selected, len(rollout.episodes), "episode", sampler, "episodes")
    if not selected.any():
        raise ValueError(_nothing_left("episodes", sampler, iteration))
    return take_episodes(rollout, selected)


def select_steps(
    batch: StepBatch, advantages: np.ndarray, sampler: Sampler, iteration: int, progress: float
) -> np.ndarray:
    """Return bool[N]: the rows of the update, which the sampler selects and `batch.trained` allows.

    Raises:
        ValueError: no row is left, or the sampler returns a wrong shape.
    """
    rows = np.ones(len(batch), dtype=np.bool_) if batch.trained is None else batch.trained.copy()
    if sampler.filter.overrides("steps"):
        selected = sampler.filter.steps(batch, advantages, progress, _generator(sampler, iteration, _STEPS))
        rows &= checked(selected, len(batch), "step", sampler, "steps")
    if not rows.any():
        raise ValueError(_nothing_left("steps", sampler, iteration))
    return rows


def checked(mask: np.ndarray, count: int, what: str, sampler: Sampler, method: str) -> np.ndarray:
    """Return the filter's mask. Raise ValueError unless it has one bool per group, episode or step."""
    if getattr(mask, "shape", None) != (count,) or mask.dtype != np.bool_:
        found = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else repr(mask)
        raise ValueError(
            f"{sampler.described}: {method}() has to return bool[{count}], an entry a {what}; it returned {found}."
        )
    return mask


def _generator(sampler: Sampler, iteration: int, part: int) -> np.random.Generator:
    return np.random.default_rng((RandomStream.SAMPLER, sampler.seed, iteration, part))


def _nothing_left(what: str, sampler: Sampler, iteration: int) -> str:
    return (
        f"{sampler.described} leaves no {what} to learn from in iteration {iteration + 1}: give it options that keep "
        "some, or choose sampler=in_order."
    )
