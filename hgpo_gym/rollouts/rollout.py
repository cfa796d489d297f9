"""What was collected: episodes, and a row for every answer that was given in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.policies.base import TokenRecord


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """How one episode went: its steps in the environment, and those that were valid, understood and admissible."""

    task_id: str
    task_type: str
    won: bool
    episode_return: float
    steps: int
    valid_steps: int


class StepText(NamedTuple):
    """What was seen and done at one step, in words.

    Attributes:
        task: the instruction.
        observation: what was seen.
        admissible_actions: what could be done; empty where actions are open-ended.
        action: what was read in the answer; empty where no action was found.
        expert_action: what the expert would have done, where it was asked.
        prompt, answer: what the policy was asked, and what it said to that, word for word.
        cut_off: the answer ended at the longest length and not by itself.
        action_descriptions: what the admissible actions stand for, where the environment says so.
    """

    task: str
    observation: str
    admissible_actions: tuple[str, ...]
    action: str
    expert_action: str | None
    prompt: str = ""
    answer: str = ""
    cut_off: bool = False
    action_descriptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedEpisode:
    """An attempt at an episode whose environment raised an error, died or hung.

    Attributes:
        group: the place of its task among those that were played.
        attempt: from 1.
        failed: there was no further one.
        error: type and message.
        traceback: where it comes from.
        outcome: how far it came; not won, and of an unknown type where not even the reset was over.
        texts, rewards: what was said up to there and what it earned, what was said last included.
        steps, tokens: that were played in this attempt.
    """

    group: int
    attempt: int
    failed: bool
    error: str
    traceback: str
    outcome: EpisodeOutcome
    texts: tuple[StepText, ...]
    rewards: tuple[float, ...]
    steps: int
    tokens: int


@dataclass(frozen=True)
class Rollout:
    """Episodes, and a row for every answer that was given in them: a step, or what a role of a team said before one.

    Attributes:
        batch: the arrays for credit assignment; `trajectory` indexes `episodes`.
        tokens: the token record of each row, None where the policy cannot be trained.
        steps: the text of each row.
        episodes: one an environment, in order; those of a group are neighbours.
        steps_left_out, episodes_left_out, tokens_left_out: that were played, and are not in it.
        chains: where episodes branch, those that were played from their start; else None. Others tell less of the
            policy's success: long episodes have more places to branch at.
        failures: attempts whose environment failed; groups with an episode that was given up are not in it.
    """

    batch: StepBatch
    tokens: tuple[TokenRecord | None, ...]
    steps: tuple[StepText, ...]
    episodes: tuple[EpisodeOutcome, ...]
    steps_left_out: int = 0
    episodes_left_out: int = 0
    tokens_left_out: int = 0
    chains: tuple[EpisodeOutcome, ...] | None = None
    failures: tuple[FailedEpisode, ...] = ()

    @property
    def success(self) -> float:
        return float(np.mean([episode.won for episode in self.episodes]))

    @property
    def groups(self) -> np.ndarray:
        """int64[episodes]: the group of each episode, 0, 1, 2, ..."""
        return self.batch.group_labels[self.batch.first_rows]

    @property
    def played_steps(self) -> int:
        """Steps of the environment that were played, each once: episodes that branch share those before."""
        rows = last_of_turn(self.batch)
        return int((rows if self.batch.trained is None else rows & self.batch.trained).sum()) + self.steps_left_out

    @property
    def played_episodes(self) -> int:
        return len(self.episodes) + self.episodes_left_out

    @property
    def played_tokens(self) -> int:
        """Tokens of the answers that were given, each once."""
        once = np.ones(len(self.batch), dtype=np.bool_) if self.batch.trained is None else self.batch.trained
        return answer_tokens(self.tokens[row] for row in np.flatnonzero(once)) + self.tokens_left_out


def answer_tokens(records: Iterable[TokenRecord | None]) -> int:
    """How many tokens these answers have; none where the policy says nothing of them."""
    return sum(len(record.token_ids) for record in records if record is not None)


def merge(rollouts: Sequence[Rollout]) -> Rollout:
    """Rollouts of groups that follow one another as one, its rows in the order that `collect` would have given them.

    Those without groups are left out, unless there is no other.
    """
    everything, rollouts = rollouts, [rollout for rollout in rollouts if rollout.episodes] or list(rollouts[:1])
    if len(rollouts) == 1 and not any(rollout.failures for rollout in everything):
        return rollouts[0]
    batch = StepBatch.concatenate([rollout.batch for rollout in rollouts])
    order = np.lexsort((batch.trajectory, batch.step))
    tokens = [record for rollout in rollouts for record in rollout.tokens]
    steps = [words for rollout in rollouts for words in rollout.steps]
    return Rollout(
        batch=batch.take(order),
        tokens=tuple(tokens[row] for row in order),
        steps=tuple(steps[row] for row in order),
        episodes=tuple(episode for rollout in rollouts for episode in rollout.episodes),
        steps_left_out=sum(rollout.steps_left_out for rollout in everything),
        episodes_left_out=sum(rollout.episodes_left_out for rollout in everything),
        tokens_left_out=sum(rollout.tokens_left_out for rollout in everything),
        chains=None if rollouts[0].chains is None else tuple(one for own in rollouts for one in own.chains or ()),
        failures=tuple(episode for rollout in everything for episode in rollout.failures),
    )


def last_of_turn(batch: StepBatch) -> np.ndarray:
    """bool[N]: the rows after which the environment stepped; all of them but where a team says more in a turn."""
    if "turn" not in batch.extras:
        return np.ones(len(batch), dtype=np.bool_)
    order = batch.in_order
    trajectory, turn = batch.trajectory[order], batch.extras["turn"][order]
    ends = np.ones(len(batch), dtype=np.bool_)
    ends[order[:-1]] = (trajectory[1:] != trajectory[:-1]) | (turn[1:] != turn[:-1])
    return ends


def _trained(batch: StepBatch) -> np.ndarray | None:
    """`batch.trained`, and of a shared step whose trained copy is not in the batch the first one that is."""
    if batch.trained is None or "answer" not in batch.extras:
        return batch.trained
    _, first, step = np.unique(
        np.stack([batch.group, batch.extras["answer"]]), axis=1, return_index=True, return_inverse=True
    )
    trained = batch.trained.copy()
    trained[first[np.bincount(step.ravel(), weights=trained) == 0]] = True
    return trained


def take_episodes(rollout: Rollout, kept: np.ndarray) -> Rollout:
    """Some of the episodes, with their groups and trajectories numbered anew.

    Args:
        kept: bool[episodes].
    """
    if kept.all():
        return rollout
    rows = np.flatnonzero(kept[rollout.batch.trajectory])
    batch = rollout.batch.take(rows)
    batch = replace(batch, group=labels(batch.group), trajectory=labels(batch.trajectory), trained=_trained(batch))
    return Rollout(
        batch=batch,
        tokens=tuple(rollout.tokens[row] for row in rows),
        steps=tuple(rollout.steps[row] for row in rows),
        episodes=tuple(episode for episode, own in zip(rollout.episodes, kept, strict=True) if own),
    )
