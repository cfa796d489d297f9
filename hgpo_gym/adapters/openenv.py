"""OpenEnv: serve any registered environment to OpenEnv clients, such as TRL, verifiers and torchforge.

    app = make_app("hgpo_gym/ALFWorld-v0", split="train")      # serve by: uvicorn my_module:app

An action is a text. An observation has the text for the model and further fields. `examples/openenv_server` is a folder
for `openenv push`. Written for OpenEnv 0.10.
"""

import secrets
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

import numpy as np

import hgpo_gym
from hgpo_gym.adapters.single_episode import SingleEpisode

try:
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
except ModuleNotFoundError as error:
    if error.name != "openenv":
        raise
    raise ModuleNotFoundError("hgpo_gym.adapters.openenv needs OpenEnv: pip install 'openenv>=0.10'") from error


class GameAction(Action):
    """An action as text."""

    action: str


class GameObservation(Observation):
    """The observation after a reset or step.

    Attributes:
        text: for the model: the task (after a reset), the observation and the admissible actions.
        task_id: the environment's name of the task.
        admissible_actions: empty where any text may be an action, and after the end.
        won: the task is solved.
        action_valid: the last action was understood and admissible.
        context_keys: of the current state, K + 1 integers of 64 bits, see `hgpo_gym.memory.keys`; empty before the
            first reset.
    """

    text: str
    task_id: str
    admissible_actions: list[str]
    won: bool
    action_valid: bool
    context_keys: list[int]


class GameServer(Environment[GameAction, GameObservation, State]):
    """One session with its own environment.

    Args:
        env_id: a registered id.
        options: of the environment and of `SingleEpisode`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_id: str, **options: Any):
        super().__init__()
        self._make: Callable[[], SingleEpisode] = partial(SingleEpisode, env_id, **options)
        self._id, self._state, self._task_id = env_id, State(), ""

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        split: str | None = None,
        index: int | None = None,
        task_id: str | None = None,
        **unknown: Any,
    ) -> GameObservation:
        """Begin an episode of `task_id`, of the task at `index` of the split, or of a task drawn by the seed.

        Without a seed, chance differs from call to call.

        Raises:
            ValueError: no such task or split, or an unknown argument.
        """
        if unknown:
            raise ValueError(f"reset has seed, episode_id, split, index and task_id, not {', '.join(unknown)}.")
        if split is not None:
            self._check_split(split)
        if task_id is None:
            if index is None:
                index = int(np.random.default_rng(seed).integers(len(self._task_ids)))
            self._check_index(index, ValueError)
            task_id = self._task_ids[index]
        text = self._episode.begin(task_id, seed=secrets.randbits(31) if seed is None else seed)
        self._task_id, self._state = task_id, State(episode_id=episode_id or str(uuid4()), step_count=0)
        return self._observation(text, reward=0.0)

    def step(self, action: GameAction, timeout_s: float | None = None, **_others: Any) -> GameObservation:  # noqa: ARG002
        """Take an action. After the end and before the first reset, the text says that the episode is over."""
        before = self._episode.total_reward()
        self._state.step_count += not self._episode.over
        text = self._episode.act(action.action)
        return self._observation(text, reward=self._episode.total_reward() - before)

    @property
    def state(self) -> State:
        """Return the episode's id and its steps so far."""
        return self._state

    def close(self) -> None:
        # cached_property: an environment that was never made need not be made to be closed.
        if "_episode" in vars(self):
            self._episode.env.close()

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self._id, description=f"{self._id} of hgpo_gym", version=hgpo_gym.__version__)

    def list_splits(self) -> list[str]:
        """Return the split of this server."""
        return [self._split]

    def num_tasks(self, split: str) -> int:
        self._check_split(split)
        return len(self._task_ids)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return the id and index of a task. Raises IndexError: no such task."""
        self._check_split(split)
        self._check_index(index, IndexError)
        return {"id": self._task_ids[index], "index": index}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]

    @cached_property
    def _episode(self) -> SingleEpisode:
        return self._make()

    @property
    def _task_ids(self) -> tuple[str, ...]:
        return self._episode.env.get_wrapper_attr("task_ids")

    @property
    def _split(self) -> str:
        return self._episode.env.get_wrapper_attr("split")

    def _check_split(self, split: str) -> None:
        if split != self._split:
            raise ValueError(f"This server has the split {self._split!r}, not {split!r}: ask for that one.")

    def _check_index(self, index: int, kind: type[Exception]) -> None:
        count = len(self._task_ids)
        if not 0 <= index < count:
            raise kind(f"index={index}: the split {self._split!r} has {count} tasks, 0 to {count - 1}.")

    def _observation(self, text: str, reward: float) -> GameObservation:
        episode = self._episode
        return GameObservation(
            text=text,
            task_id=self._task_id,
            admissible_actions=list(episode.admissible_actions),
            won=episode.won,
            action_valid=episode.info.get("action_valid", True),
            context_keys=episode.context_keys.tolist() if self._task_id else [],
            done=episode.over,
            reward=reward,
        )


def make_app(env_id: str, *, sessions: int = 64, **options: Any) -> Any:
    """Make the server's application, for uvicorn.

    Args:
        env_id: a registered id.
        sessions: the maximum number of concurrent clients.
        options: of the environment, and `history_length` and `key` of the context keys.
    """
    make_session = partial(GameServer, env_id, **options)
    return create_app(make_session, GameAction, GameObservation, env_name=env_id, max_concurrent_envs=sessions)
