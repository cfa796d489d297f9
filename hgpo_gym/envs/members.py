"""The sub-environments of a TextVectorEnv: what an episode starts from, how it is brought back, and those that live in
this process. `workers` has those in processes of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

ResetResult = tuple[str, dict[str, Any]]
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class EpisodeStart(NamedTuple):
    """What a member's episode starts from: a task and a seed, the same in the whole group, and its place there.

    Attributes:
        task_id: the task.
        group_seed: of the reset.
        member: whose chance rules from the reset on: `np_random` is `default_rng([group_seed, member])`.
        prefix: actions that are played before the member's own, if it starts in the middle of an episode.
        chances: from which step of it on chance is another member's: (step, member), in order.
    """

    task_id: str
    group_seed: int
    member: int
    prefix: tuple[str, ...] = ()
    chances: tuple[tuple[int, int], ...] = ()

    def branch(self, actions: Sequence[str], member: int) -> "EpisodeStart":
        """The start of another member, who joins an episode with this start after its first `actions`, prefix included.

        Up to there everything happens as it did; from there on chance is the new member's own.
        """
        before = tuple((step, other) for step, other in self.chances if step < len(actions))
        return self._replace(prefix=tuple(actions), chances=(*before, (len(actions), member)))


class Opening(NamedTuple):
    """How an episode began: what the reset said, and what each action of its start's prefix led to."""

    reset: ResetResult
    steps: list[StepResult]


@dataclass
class EpisodeReplay:
    """All that is needed to bring a deterministic sub-environment back to where it was."""

    start: EpisodeStart
    actions: list[str] = field(default_factory=list)


class Members(Protocol):
    """Sub-environments by row number. Requests name the rows they are for; answers come by row.

    A step is sent and its result received. `receive` waits until there are results of `at_least` so many rows that were
    sent an action, and returns all that there are.
    """

    def begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, Opening]: ...

    def send(self, actions: Mapping[int, str]) -> None: ...

    def receive(self, at_least: int) -> dict[int, StepResult]: ...

    def close(self) -> None: ...


class LocalMembers:
    """Sub-environments in this process."""

    def __init__(self, envs: Mapping[int, gymnasium.Env[str, str]]):
        self._envs = dict(envs)
        self._results: dict[int, StepResult] = {}

    def begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, Opening]:
        self._results.clear()
        return {row: begin_episode(self._envs[row], start) for row, start in starts.items()}

    def step(self, actions: Mapping[int, str]) -> dict[int, StepResult]:
        return {row: self._envs[row].step(action) for row, action in actions.items()}  # type: ignore[misc]

    def send(self, actions: Mapping[int, str]) -> None:
        self._results |= self.step(actions)

    def receive(self, at_least: int) -> dict[int, StepResult]:  # noqa: ARG002 - all results are there already
        results, self._results = self._results, {}
        return results

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def replay(self, episodes: Mapping[int, EpisodeReplay]) -> dict[int, None]:
        """Bring rows to where their episodes had come."""
        self.begin({row: episode.start for row, episode in episodes.items()})
        for row, episode in episodes.items():
            for action in episode.actions:
                self._envs[row].step(action)
        return dict.fromkeys(episodes)


def begin_episode(env: gymnasium.Env[str, str], start: EpisodeStart) -> Opening:
    """Reset an environment and play the prefix of a start.

    Raises:
        ValueError: the episode ends within the prefix.
    """
    reset = env.reset(seed=start.group_seed, options={"task_id": start.task_id})
    # The start is the group's; chance after it is the member's own.
    chances = {0: start.member, **dict(start.chances)}
    steps: list[StepResult] = []
    for number in range(len(start.prefix) + 1):
        if number in chances:
            env.unwrapped.np_random = np.random.default_rng([start.group_seed, chances[number]])
        if number < len(start.prefix):
            steps.append(env.step(start.prefix[number]))  # type: ignore[arg-type]
            _, _, terminated, truncated, _ = steps[-1]
            if terminated or truncated:
                raise ValueError(
                    f"The episode of task {start.task_id!r} ends at step {number + 1} of a prefix of "
                    f"{len(start.prefix)} actions: nothing can begin there. Take a shorter prefix."
                )
    return Opening(reset, steps)
