"""What a sampler selects of what was played: the episodes that credit assignment sees, the steps that are learned from.

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
    """The episodes that the sampler keeps.

    Raises:
        ValueError: it keeps none, or answers in another shape.
    """
    if not overrides(sampler, "episodes"):
        return rollout
    kept = sampler.episodes(rollout.batch, _generator(sampler, iteration, _EPISODES))
    checked(kept, len(rollout.episodes), "episode", sampler, "episodes")
    if not kept.any():
        raise ValueError(_nothing_left("episodes", sampler, iteration))
    return take_episodes(rollout, kept)


def select_steps(
    batch: StepBatch, advantages: np.ndarray, sampler: Sampler, iteration: int, progress: float
) -> np.ndarray:
    """bool[N]: the rows that the update learns from: those that the sampler keeps, less those of `batch.trained`.

    Raises:
        ValueError: none are left, or the sampler answers in another shape.
    """
    rows = np.ones(len(batch), dtype=np.bool_) if batch.trained is None else batch.trained.copy()
    if overrides(sampler, "steps"):
        kept = sampler.steps(batch, advantages, progress, _generator(sampler, iteration, _STEPS))
        rows &= checked(kept, len(batch), "step", sampler, "steps")
    if not rows.any():
        raise ValueError(_nothing_left("steps", sampler, iteration))
    return rows


def overrides(sampler: Sampler, hook: str) -> bool:
    """Whether this sampler does anything at the hook."""
    return getattr(type(sampler), hook) is not getattr(Sampler, hook)


def checked(kept: np.ndarray, count: int, what: str, sampler: Sampler, hook: str) -> np.ndarray:
    """What the hook has returned. Raises ValueError if it is not one truth value a group, episode or step."""
    if getattr(kept, "shape", None) != (count,) or kept.dtype != np.bool_:
        found = f"{kept.dtype}{list(kept.shape)}" if isinstance(kept, np.ndarray) else repr(kept)
        raise ValueError(
            f"{sampler.described}: {hook}() has to return bool[{count}], an entry a {what}; it returned {found}."
        )
    return kept


def _generator(sampler: Sampler, iteration: int, part: int) -> np.random.Generator:
    return np.random.default_rng((RandomStream.SAMPLER, sampler.seed, iteration, part))


def _nothing_left(what: str, sampler: Sampler, iteration: int) -> str:
    return (
        f"{sampler.described} leaves no {what} to learn from in iteration {iteration + 1}: give it options that keep "
        "some, or choose sampler=in_order."
    )
