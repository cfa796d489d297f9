"""Rollout: the collected episodes, with a row for every response."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.memory.context import SplitPrompt
from hgpo_gym.policies.base import TokenRecord


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The result of one episode. A step is valid if its action was understood and admissible."""

    task_id: str
    task_type: str
    won: bool
    episode_return: float
    steps: int
    valid_steps: int


class StepText(NamedTuple):
    """The texts of one step.

    Attributes:
        task: the instruction.
        observation: before the action.
        admissible_actions: empty where actions are open-ended.
        action: parsed from the response; empty where none was found.
        expert_action: of the environment's expert, where one was asked.
        kept_prompt: the exact prompt, without a copy of a long history; `prompt` is its text.
        response: the exact response.
        truncated: the response reached the maximum length.
        action_descriptions: meanings of the admissible actions, where the environment gives them.
        notes: what the agent read of its own, with `memory=notes`.
        expert_notes: what the environment's expert would write, where it was asked and keeps notes.
    """

    task: str
    observation: str
    admissible_actions: tuple[str, ...]
    action: str
    expert_action: str | None
    kept_prompt: str | SplitPrompt = ""
    response: str = ""
    truncated: bool = False
    action_descriptions: tuple[str, ...] = ()
    notes: str = ""
    expert_notes: str | None = None

    @property
    def prompt(self) -> str:
        """The exact prompt."""
        return str(self.kept_prompt)


@dataclass(frozen=True, slots=True)
class FailedEpisode:
    """An attempt at an episode whose environment raised an error, died or hung.

    Attributes:
        group: the index of its task group.
        attempt: from 1.
        failed: this was the last attempt.
        error: type and message.
        traceback: of the error.
        outcome: up to the failure; not won. The task type is "unknown" if the reset failed.
        texts, rewards: of all responses up to the failure, the last one included.
        steps, tokens: played in this attempt.
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
    """Episodes, with a row for every response: the action of a step, or a message of a team's role before it.

    Attributes:
        batch: the arrays for credit assignment; `trajectory` indexes `episodes`.
        tokens: the token record of each row, None where the policy cannot be trained.
        steps: the texts of each row.
        episodes: one per environment, in order; episodes of a group are adjacent.
        steps_left_out, episodes_left_out, tokens_left_out: played, but not part of this rollout.
        chains: where episodes branch, those played from the start of their task; else None. Branches are a biased
            sample of the policy's success: long episodes have more places to branch at.
        failures: attempts whose environment failed. Groups with a failed episode are left out.
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
        """Return the group of each episode, int64[episodes], labelled 0, 1, 2, ..."""
        return self.batch.group_labels[self.batch.first_rows]

    @property
    def played_steps(self) -> int:
        """Return the number of environment steps played. Steps that branches share count once."""
        rows = last_of_turn(self.batch)
        return int((rows if self.batch.trained is None else rows & self.batch.trained).sum()) + self.steps_left_out

    @property
    def played_episodes(self) -> int:
        return len(self.episodes) + self.episodes_left_out

    @property
    def played_tokens(self) -> int:
        """Return the number of response tokens played. Responses that branches share count once."""
        once = np.ones(len(self.batch), dtype=np.bool_) if self.batch.trained is None else self.batch.trained
        return response_tokens(self.tokens[row] for row in np.flatnonzero(once)) + self.tokens_left_out


def response_tokens(records: Iterable[TokenRecord | None]) -> int:
    """Return the number of response tokens; 0 for policies that report none."""
    return sum(len(record.token_ids) for record in records if record is not None)


def merge(rollouts: Sequence[Rollout]) -> Rollout:
    """Merge rollouts of successive groups into one, with its rows in the order of `collect`.

    Rollouts without groups are skipped, unless all are empty.
    """
    all_rollouts, rollouts = rollouts, [rollout for rollout in rollouts if rollout.episodes] or list(rollouts[:1])
    if len(rollouts) == 1 and not any(rollout.failures for rollout in all_rollouts):
        return rollouts[0]
    batch = StepBatch.concatenate([rollout.batch for rollout in rollouts])
    # `collect` orders rows by step, then episode; lexsort's last key comes first.
    order = np.lexsort((batch.trajectory, batch.step))
    tokens = [record for rollout in rollouts for record in rollout.tokens]
    steps = [words for rollout in rollouts for words in rollout.steps]
    return Rollout(
        batch=batch.take(order),
        tokens=tuple(tokens[row] for row in order),
        steps=tuple(steps[row] for row in order),
        episodes=tuple(episode for rollout in rollouts for episode in rollout.episodes),
        steps_left_out=sum(rollout.steps_left_out for rollout in all_rollouts),
        episodes_left_out=sum(rollout.episodes_left_out for rollout in all_rollouts),
        tokens_left_out=sum(rollout.tokens_left_out for rollout in all_rollouts),
        chains=None
        if rollouts[0].chains is None
        else tuple(outcome for part in rollouts for outcome in part.chains or ()),
        failures=tuple(episode for rollout in all_rollouts for episode in rollout.failures),
    )


def last_of_turn(batch: StepBatch) -> np.ndarray:
    """Return bool[N]: true on rows after which the environment stepped, the last of each turn."""
    if "turn" not in batch.extras:
        return np.ones(len(batch), dtype=np.bool_)
    order = batch.in_order
    trajectory, turn = batch.trajectory[order], batch.extras["turn"][order]
    # A row ends its turn if the next row of its episode has another turn, or if there is none.
    ends_turn = np.ones(len(batch), dtype=np.bool_)
    ends_turn[order[:-1]] = (trajectory[1:] != trajectory[:-1]) | (turn[1:] != turn[:-1])
    return ends_turn


def _trained(batch: StepBatch) -> np.ndarray | None:
    """Return `batch.trained`, with one trained copy for each shared step.

    If the trained copy of a step is not in the batch, its first copy is trained.
    """
    if batch.trained is None or "response" not in batch.extras:
        return batch.trained
    _, first, step = np.unique(
        np.stack([batch.group, batch.extras["response"]]), axis=1, return_index=True, return_inverse=True
    )
    trained = batch.trained.copy()
    # NumPy 2.0 returns an inverse of another shape with axis: ravel serves all versions.
    trained[first[np.bincount(step.ravel(), weights=trained) == 0]] = True
    return trained


def take_episodes(rollout: Rollout, selected: np.ndarray) -> Rollout:
    """Return the selected episodes, with groups and trajectories renumbered.

    Args:
        selected: bool[episodes].
    """
    if selected.all():
        return rollout
    rows = np.flatnonzero(selected[rollout.batch.trajectory])
    batch = rollout.batch.take(rows)
    batch = replace(batch, group=labels(batch.group), trajectory=labels(batch.trajectory), trained=_trained(batch))
    return Rollout(
        batch=batch,
        tokens=tuple(rollout.tokens[row] for row in rows),
        steps=tuple(rollout.steps[row] for row in rows),
        episodes=tuple(episode for episode, is_selected in zip(rollout.episodes, selected, strict=True) if is_selected),
    )
