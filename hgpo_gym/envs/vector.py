"""TextVectorEnv: tasks x group members, stepped together, in this process or in worker processes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from hgpo_gym.envs.making import make
from hgpo_gym.envs.spec import PortableSpec
from hgpo_gym.envs.sub_envs import EpisodeStart, LocalSubEnvs, ResetResult, StepResult, SubEnvs
from hgpo_gym.envs.text_sources import texts_key
from hgpo_gym.envs.workers import WorkerSubEnvs
from hgpo_gym.suggest import unknown_name

RESET_OPTIONS = ("task_ids", "group_seeds", "reset_mask")


class TextVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], np.ndarray]):
    """`num_tasks * group_size` copies of a registered text environment; rows of a group are neighbours.

    The members of a group get the same task and the same initial state. After the start, each member has its own random
    generator. There is no autoreset: a sub-environment that has ended ignores its action and repeats its last
    observation with reward 0. Count episodes by `active`, which marks the running ones, since Gymnasium's vector
    wrapper `RecordEpisodeStatistics` counts each repetition as an episode. With `workers > 0` the sub-environments run
    in that many processes. A worker that dies is replaced and its episodes are replayed.

    Args:
        id: a registered id.
        num_tasks: groups, each with a task of its own.
        group_size: members of a group.
        workers: worker processes; 0 runs everything in this one.
        contain_failures: limit a failure to its own episode. A failure is an error that occurs again in a new
            environment, or a worker that dies or hangs twice. The episode is truncated with reward 0; its info has a
            text `failure`, and `failures` has the error. If False, that episode ends too, and the error is raised.
        worker_timeout: seconds for a reset or a step in a worker; a slower worker counts as hung. A worker with several
            calls gets as many times that. None: no limit.
        options: keyword options of the environment, `max_episode_steps` included.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 - Gymnasium's own attribute
    spec = cast("EnvSpec | None", PortableSpec())

    def __init__(
        self,
        id: str,
        num_tasks: int,
        group_size: int = 1,
        *,
        workers: int = 0,
        worker_timeout: float | None = None,
        contain_failures: bool = False,
        **options: Any,
    ):
        for name, value, least in (("num_tasks", num_tasks, 1), ("group_size", group_size, 1), ("workers", workers, 0)):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}.")
        if worker_timeout is not None and not worker_timeout > 0:
            raise ValueError(f"worker_timeout={worker_timeout}: a number of seconds above 0, or None.")
        if worker_timeout is not None and not workers:
            raise ValueError(f"worker_timeout={worker_timeout}: only a worker process can be given up: set workers=1.")
        self.num_tasks, self.group_size = num_tasks, group_size
        self.num_envs = num_tasks * group_size
        first = make(id, **options)
        self.spec = first.spec
        self.split: str = first.get_wrapper_attr("split")
        self.task_ids: Sequence[str] = first.get_wrapper_attr("task_ids")
        self._kind, self._options = type(first.unwrapped), options
        self._env_texts_key: str = first.get_wrapper_attr("texts_key")
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = cast("Any", batch_space(self.single_observation_space, self.num_envs))
        self.action_space = cast("Any", batch_space(self.single_action_space, self.num_envs))
        self._sub_envs: SubEnvs
        if workers:
            first.close()
            self._sub_envs = WorkerSubEnvs(
                cast("Any", self.spec), self.num_envs, min(workers, self.num_envs), worker_timeout
            )
        else:
            rest = {row: make(id, **options) for row in range(1, self.num_envs)}
            self._sub_envs = LocalSubEnvs({0: first, **rest}, partial(make, id, **options))
        self._observations = [""] * self.num_envs
        self._terminations = np.ones(self.num_envs, dtype=np.bool_)
        self._truncations = np.zeros(self.num_envs, dtype=np.bool_)
        self._env_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.starts: dict[int, EpisodeStart] = {}
        """Start of each row's episode."""
        self._contain_failures = contain_failures
        self.failures: dict[int, Exception] = {}
        """Error that ended a row's episode, until it begins anew; empty unless `contain_failures`."""
        self.stepping: set[int] = set()
        """Sub-environments that were sent an action whose result was not received yet."""

    @cached_property
    def texts_key(self) -> str:
        """Key that changes whenever the environment's texts may: see `text_sources.texts_key`."""
        assert self.spec is not None
        return texts_key(self._kind, self.spec.id, self._options, self._env_texts_key)

    @property
    def active(self) -> np.ndarray:
        """bool[num_envs]: the sub-environments whose episode goes on."""
        return ~(self._terminations | self._truncations)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begin an episode in every sub-environment.

        Args:
            seed: seeds the choice of tasks and every sub-environment.
            options: `task_ids`, one for each group (drawn without repetition, as far as there are enough, if absent);
                `group_seeds`, an int for each group (drawn if absent); `reset_mask`, bool[num_envs], to reset some
                groups only, in which case the other two have an entry for each of these.

        Raises:
            ValueError: an unknown option or task, a wrong number of tasks, a mask of another length or that splits a
                group, or one while sub-environments are stepping, whose results would be lost.
            ClosedEnvironmentError: it was closed.
        """
        super().reset(seed=seed)
        options = options or {}
        if options.get("reset_mask") is not None:
            self._check_received("reset() of some groups")
        for name in options.keys() - set(RESET_OPTIONS):
            raise ValueError(unknown_name("reset option", name, RESET_OPTIONS))
        groups = self._groups_to_reset(options.get("reset_mask"))
        task_ids, group_seeds = options.get("task_ids"), options.get("group_seeds")
        if task_ids is None:
            task_ids = self._draw_tasks(len(groups))
        if group_seeds is None:
            group_seeds = self.np_random.integers(2**31, size=len(groups))
        for name, values in (("task_ids", task_ids), ("group_seeds", group_seeds)):
            if len(values) != len(groups):
                raise ValueError(f"options[{name!r}] has {len(values)} entries for {len(groups)} groups.")
        starts = {}
        for group, task_id, group_seed in zip(groups, task_ids, group_seeds, strict=True):
            for member in range(self.group_size):
                starts[group * self.group_size + member] = EpisodeStart(task_id, int(group_seed), member)
        # Before anything changes, so that an unknown task leaves the episodes as they are.
        self._check_tasks(starts)
        self.stepping.clear()
        self._begin(starts)
        return tuple(self._observations), self._collect_infos()

    def begin_at(self, starts: Mapping[int, tuple[EpisodeStart, Sequence[str], int]]) -> dict[int, ResetResult]:
        """Begin episodes of single sub-environments as branches of earlier episodes.

        Args:
            starts: by row, (start, actions, member). `start` is the start of the episode to branch from, as
                `self.starts` had it. `actions` are that episode's actions from its reset to the branch. `member` is the
                number of the new member, whose random generator is used from there on. Without actions, an ordinary
                episode of this member begins.

        Returns the reset and the replayed steps of each row; rows of `failures` are left out. The replayed steps count
        for the step limit.

        Raises:
            ValueError: an unknown task, an episode that ends before the branch, or results that were not received yet.
        """
        self._check_received("begin_at()")
        branches = {row: start.branch(actions, member) for row, (start, actions, member) in starts.items()}
        self._check_tasks(branches)
        return self._begin(branches)

    def _check_received(self, call: str) -> None:
        if self.stepping:
            raise ValueError(f"Sub-environments {sorted(self.stepping)} are stepping: call receive() before {call}.")

    def _check_tasks(self, starts: Mapping[int, EpisodeStart]) -> None:
        for task_id in dict.fromkeys(start.task_id for start in starts.values()):
            if task_id not in self.task_ids:
                raise ValueError(unknown_name("task_id", task_id, self.task_ids))

    def _begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, ResetResult]:
        self._check_open("begin an episode")
        reset_results: dict[int, ResetResult] = {}
        responses = self._sub_envs.begin(starts)
        for row, reset_result in responses.items():
            self.starts[row] = starts[row]
            self.failures.pop(row, None)
            if isinstance(reset_result, Exception):
                self._observations[row], self._env_infos[row] = "", {}
                self._fail(row, reset_result)
                continue
            reset_results[row] = reset_result
            reset, steps = reset_result
            last = steps[-1] if steps else reset
            self._observations[row], self._env_infos[row] = last[0], last[-1]
            self._terminations[row] = self._truncations[row] = False
        self._raise_first(responses)
        return reset_results

    def _fail(self, row: int, error: Exception) -> StepResult:
        """End the episode of a sub-environment that has failed."""
        if self._contain_failures:
            self.failures[row] = error
        self._env_infos[row] = {**self._env_infos[row], "failure": f"{type(error).__name__}: {error}"}
        self._terminations[row], self._truncations[row] = False, True
        return self._observations[row], 0.0, False, True, self._env_infos[row]

    def _raise_first(self, responses: Mapping[int, object]) -> None:
        """Raise the first error among the answers, all of which were processed, unless failures are contained."""
        for response in responses.values():
            if isinstance(response, Exception) and not self._contain_failures:
                raise response

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{self} was closed, and cannot {what}: make another one.")

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Send one action to each sub-environment; what is sent to one that has ended is ignored.

        Returns observations, rewards float64[num_envs], terminations and truncations bool[num_envs], infos.

        Raises:
            ValueError: a wrong number of actions.
            ResetNeeded: no episode has begun.
            TypeError, ClosedEnvironmentError: see `send`.
        """
        if not self.starts:
            raise ResetNeeded("There is no episode yet: call reset() before step().")
        if len(actions) != self.num_envs:
            raise ValueError(f"{len(actions)} actions for {self.num_envs} sub-environments.")
        rewards = np.zeros(self.num_envs)
        self.send({row: actions[row] for row in np.flatnonzero(self.active).tolist()})
        for row, (_, reward, _, _, _) in self.receive(self.num_envs).items():
            rewards[row] = reward
        return (
            tuple(self._observations),
            rewards,
            self._terminations.copy(),
            self._truncations.copy(),
            self._collect_infos(),
        )

    def send(self, actions: Mapping[int, str]) -> None:
        """Begin a step of some sub-environments, by row, without waiting for the others; `receive` has its results.

        Raises:
            ResetNeeded: the episode of a row has ended.
            ValueError: the result of the row's last action was not received yet.
            TypeError: an action is not a string; none was sent.
            ClosedEnvironmentError: it was closed.
        """
        self._check_open("take a step")
        active = self.active
        for row, action in actions.items():
            if not isinstance(action, str):
                raise TypeError(
                    f"An action is a string; sub-environment {row} was sent {type(action).__name__} {action!r}."
                )
            if not active[row]:
                raise ResetNeeded(f"The episode of sub-environment {row} has ended: call reset() before send().")
            if row in self.stepping:
                raise ValueError(f"Sub-environment {row} was sent an action already: call receive() before send().")
        self.stepping |= actions.keys()
        self._sub_envs.send(actions)

    def receive(self, at_least: int = 1) -> dict[int, StepResult]:
        """Return the results of `send` by row: observation, reward, terminated, truncated, info, as a single
        environment's `step` returns them.

        Waits for the results of at least `at_least` rows, or all that are stepping, and returns all available results.
        """
        responses = self._sub_envs.receive(min(at_least, len(self.stepping)))
        self.stepping -= responses.keys()
        results: dict[int, StepResult] = {}
        for row, response in responses.items():
            results[row] = self._fail(row, response) if isinstance(response, Exception) else response
            observation, _, terminated, truncated, info = results[row]
            self._observations[row], self._env_infos[row] = observation, info
            self._terminations[row], self._truncations[row] = terminated, truncated
        self._raise_first(responses)
        return results

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002 - Gymnasium's signature
        self._sub_envs.close()

    def _groups_to_reset(self, mask: np.ndarray | None) -> list[int]:
        if mask is None:
            return list(range(self.num_tasks))
        if np.shape(mask) != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] has the shape {np.shape(mask)}: it is bool[{self.num_envs}].")
        by_group = np.asarray(mask, dtype=np.bool_).reshape(self.num_tasks, self.group_size)
        if (by_group.any(axis=1) != by_group.all(axis=1)).any():
            raise ValueError("options['reset_mask'] splits a group: its members start together.")
        return [int(group) for group in np.flatnonzero(by_group.all(axis=1))]

    def _draw_tasks(self, count: int) -> list[str]:
        drawn: list[str] = []
        while len(drawn) < count:
            # One permutation after another: no task repeats before all were drawn.
            drawn.extend(self.task_ids[index] for index in self.np_random.permutation(len(self.task_ids)))
        return drawn[:count]

    def _collect_infos(self) -> dict[str, Any]:
        infos = _zeros_of_mixed_numbers(self._env_infos)
        for row, info in enumerate(self._env_infos):
            infos = self._add_info(infos, info, row)
        return infos


def _zeros_of_mixed_numbers(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return zeros for each key whose numbers have several types: of the common type, one per info. Gymnasium uses the
    first one's type, and an int array turns 0.5 into 0."""
    kinds: dict[str, dict[Any, Any]] = defaultdict(dict)
    for info in infos:
        for key, value in info.items():
            kind = type(value)
            kinds[key][value.dtype if kind is np.ndarray else kind] = value
    zeros: dict[str, Any] = {}
    for key, examples in kinds.items():
        if examples.keys() == {dict}:
            zeros[key] = _zeros_of_mixed_numbers([info.get(key, {}) for info in infos])
        elif len(examples) > 1 and all(np.dtype(kind).kind in "biuf" for kind in examples):
            shape = np.shape(next(iter(examples.values())))
            zeros[key] = np.zeros((len(infos), *shape), dtype=np.result_type(*examples))
    return zeros
