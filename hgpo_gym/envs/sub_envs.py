"""Sub-environments of a TextVectorEnv in this process: starts of episodes, and their replay. `workers` has those in
worker processes."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from hgpo_gym.envs.base import TextEnv

ResetPair = tuple[str, dict[str, Any]]
StepResult = tuple[str, float, bool, bool, dict[str, Any]]
_Response = TypeVar("_Response")


class EpisodeStart(NamedTuple):
    """Start of a member's episode: a task and a seed, the same in the whole group, and the member's number.

    Attributes:
        task_id: the task.
        group_seed: of the reset.
        member: number of the member. From the reset on, `np_random` is `chance_of(group_seed, member)`.
        prefix: actions before the member's own, if the episode branches off another one.
        chances: changes of the random generator within the prefix, in order: (step, member). From that step on,
            `np_random` is that member's.
    """

    task_id: str
    group_seed: int
    member: int
    prefix: tuple[str, ...] = ()
    chances: tuple[tuple[int, int], ...] = ()

    def branch(self, actions: Sequence[str], member: int) -> "EpisodeStart":
        """Return the start of another member, which branches off this start's episode after the first `actions`, prefix
        included.

        Up to there everything happens as in that episode. From there on the new member has its own random generator.
        """
        before = tuple((step, earlier_member) for step, earlier_member in self.chances if step < len(actions))
        return self._replace(prefix=tuple(actions), chances=(*before, (len(actions), member)))


class ResetResult(NamedTuple):
    """Result of beginning an episode: the reset, and the step of each action of the start's prefix."""

    reset: ResetPair
    steps: list[StepResult]


@dataclass
class EpisodeReplay:
    """Start and actions, which bring a deterministic sub-environment back to its state."""

    start: EpisodeStart
    actions: list[str] = field(default_factory=list)


class SubEnvs(Protocol):
    """Interface of sub-environments, addressed by row. The results are by row too. If a sub-environment has failed, its
    result is the exception, and its row has to begin anew.

    A step is sent and its result received. `receive` waits for the results of at least `at_least` rows that were sent
    an action, and returns all available results.
    """

    def begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, ResetResult | Exception]: ...

    def send(self, actions: Mapping[int, str]) -> None: ...

    def receive(self, at_least: int) -> dict[int, StepResult | Exception]: ...

    def close(self) -> None: ...


class LocalSubEnvs:
    """Sub-environments in this process. After an error, the environment is made anew, its episode is replayed, and the
    call is repeated once. If it raises again, the exception is the result.

    Args:
        envs: by row.
        make: makes another one.
    """

    def __init__(self, envs: Mapping[int, gymnasium.Env[str, str]], make: Callable[[], gymnasium.Env[str, str]]):
        self._envs, self._make = dict(envs), make
        self._send_actions = _sender(next(iter(envs.values())))
        self._episodes: dict[int, EpisodeReplay] = {}
        self._results: dict[int, StepResult | Exception] = {}

    def begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, ResetResult | Exception]:
        self._results.clear()
        return {row: self._begin(row, start) for row, start in starts.items()}

    def step(self, actions: Mapping[int, str]) -> dict[int, StepResult | Exception]:
        if self._send_actions and len(actions) > 1:
            self._send_actions([self._envs[row].unwrapped for row in actions], list(actions.values()))
        return {row: self._step(row, action) for row, action in actions.items()}

    def send(self, actions: Mapping[int, str]) -> None:
        self._results |= self.step(actions)

    def receive(self, at_least: int) -> dict[int, StepResult | Exception]:  # noqa: ARG002 - all are there already
        results, self._results = self._results, {}
        return results

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def replay(self, episodes: Mapping[int, EpisodeReplay]) -> dict[int, Exception | None]:
        """Replay the episodes of rows up to their present state."""
        responses: dict[int, Exception | None] = {}
        for row, episode in episodes.items():
            self._episodes[row] = episode
            try:
                self._bring_back(row)
                responses[row] = None
            except Exception as error:  # noqa: BLE001 - whatever an environment raises is its answer
                responses[row] = error
        return responses

    def _begin(self, row: int, start: EpisodeStart) -> ResetResult | Exception:
        self._episodes[row] = EpisodeReplay(start)
        try:
            return begin_episode(self._envs[row], start)
        except Exception:  # noqa: BLE001 - likewise
            return self._once_more(row, lambda: begin_episode(self._envs[row], start))

    def _step(self, row: int, action: str) -> StepResult | Exception:
        def step() -> StepResult:
            return self._envs[row].step(action)  # type: ignore[return-value]

        def step_after_replay() -> StepResult:
            self._bring_back(row)
            return step()

        try:
            result: StepResult | Exception = step()
        except Exception:  # noqa: BLE001 - likewise
            result = self._once_more(row, step_after_replay)
        self._episodes[row].actions.append(action)
        return result

    def _once_more(self, row: int, ask: Callable[[], _Response]) -> _Response | Exception:
        """Return the result of a call in a new environment, or its exception."""
        try:
            with suppress(Exception):  # it is broken already
                self._envs[row].close()
            self._envs[row] = self._make()
            return ask()
        except Exception as error:  # noqa: BLE001 - likewise
            return error

    def _bring_back(self, row: int) -> None:
        """Replay the episode of a row up to its present state."""
        begin_episode(self._envs[row], self._episodes[row].start)
        for action in self._episodes[row].actions:
            self._envs[row].step(action)


def _sender(env: gymnasium.Env[str, str]) -> Callable[[Sequence[Any], Sequence[str]], None] | None:
    """Return the method that sends the actions of several environments like this one at once, if it has one."""
    while isinstance(env, OrderEnforcing | TimeLimit):
        env = env.env
    # Another wrapper may change an action before it arrives.
    if not isinstance(env, TextEnv) or type(env).send_actions.__func__ is TextEnv.send_actions.__func__:  # type: ignore[attr-defined]
        return None
    return env.send_actions


def chance_of(group_seed: int, member: int) -> np.random.Generator:
    """Return a member's random generator after the start of its group. The last number separates it from the generator
    of the reset: NumPy's `default_rng([group_seed, 0])` is `default_rng(group_seed)`, from which a reset has drawn."""
    return np.random.default_rng([group_seed, member, 1])


def begin_episode(env: gymnasium.Env[str, str], start: EpisodeStart) -> ResetResult:
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
            env.unwrapped.np_random = chance_of(start.group_seed, chances[number])
        if number < len(start.prefix):
            steps.append(env.step(start.prefix[number]))  # type: ignore[arg-type]
            _, _, terminated, truncated, _ = steps[-1]
            if terminated or truncated:
                raise ValueError(
                    f"The episode of task {start.task_id!r} ends at step {number + 1} of a prefix of "
                    f"{len(start.prefix)} actions: nothing can begin there. Take a shorter prefix."
                )
    return ResetResult(reset, steps)
