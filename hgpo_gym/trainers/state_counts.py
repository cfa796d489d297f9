"""Counts of states over all episodes of a run, for the estimators that need them."""

from collections.abc import Mapping

import numpy as np

from hgpo_gym.advantages.batch import labels
from hgpo_gym.advantages.columns import STATE_COUNTS
from hgpo_gym.advantages.kinds import hashes
from hgpo_gym.advantages.statistics import success
from hgpo_gym.advantages.values import is_last, next_in_episode
from hgpo_gym.memory.keys import link
from hgpo_gym.rollouts.recording import with_extra
from hgpo_gym.rollouts.rollout import Rollout


class StateCounts:
    """How many episodes came through each state, and how many of these succeeded.

    A state is an observation of a task; an episode counts once in each of its states, its final one included.

    Attributes:
        keys: uint64[S], the sorted keys of the states.
        counts: int64[S, 2], the episodes through the state, and those of them that succeeded.
        episodes: all episodes that were counted.
    """

    def __init__(self) -> None:
        self.keys = np.zeros(0, dtype=np.uint64)
        self.counts = np.zeros((0, 2), dtype=np.int64)
        self.episodes = 0

    def counted(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the columns `STATE_COUNTS`, from the episodes that were added before."""
        state, following = _states(rollout)
        seen = np.full(len(state), self.episodes)
        columns = (*self._of(state).T, *self._of(following).T, seen)
        for name, values in zip(STATE_COUNTS, columns, strict=True):
            rollout = with_extra(rollout, name, values)
        return rollout

    def add(self, rollout: Rollout) -> None:
        """Count the episodes of a rollout."""
        batch = rollout.batch
        state, following = _states(rollout)
        is_final = is_last(batch) & (following != 0)
        keys = np.concatenate([state, following[is_final]])
        episode = np.concatenate([batch.trajectory_labels, batch.trajectory_labels[is_final]])
        won = np.concatenate([success(batch), success(batch)[is_final]])
        # One row for each state and episode.
        once = np.unique(np.stack([labels(keys), episode]), axis=1, return_index=True)[1]
        added = np.stack([np.ones(len(once), dtype=np.int64), won[once]], axis=1)
        counts = np.concatenate([self.counts, added])
        self.keys, place = np.unique(np.concatenate([self.keys, keys[once]]), return_inverse=True)
        self.counts = np.zeros((len(self.keys), 2), dtype=np.int64)
        np.add.at(self.counts, place, counts)
        self.episodes += len(batch.first_rows)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what a checkpoint keeps."""
        return {"keys": self.keys, "counts": self.counts, "episodes": np.array(self.episodes)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from the counts of a checkpoint."""
        self.keys, self.counts, self.episodes = state["keys"], state["counts"], int(state["episodes"])

    def _of(self, keys: np.ndarray) -> np.ndarray:
        """Return the counts int64[N, 2] of these states, 0 for states that were not seen."""
        found, is_counted = np.zeros((len(keys), 2), dtype=np.int64), np.isin(keys, self.keys)
        found[is_counted] = self.counts[np.searchsorted(self.keys, keys[is_counted])]
        return found


def _states(rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys uint64[N] of each step's state and of the next one; 0 where a final state is not recorded."""
    batch = rollout.batch
    task = hashes([episode.task_id for episode in rollout.episodes])[batch.trajectory]
    observation = batch.context_keys[:, 0].astype(np.uint64)
    finals = np.zeros_like(observation) if batch.final_keys is None else batch.final_keys[:, 0].astype(np.uint64)
    state = link(task, observation)
    end = np.where(finals == 0, np.uint64(0), link(task, finals))
    rows = next_in_episode(batch, np.arange(len(batch), dtype=np.float64)).astype(np.int64)
    return state, np.where(is_last(batch), end, state[rows])
