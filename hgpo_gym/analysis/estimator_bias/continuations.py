"""Any environment that can be kept and brought back: true advantages by many continuations from the same moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.analysis.estimator_bias.comparison import RETURNS, BiasComparison, Settings, Stage, split_rows
from hgpo_gym.analysis.estimator_bias.measure import Truth
from hgpo_gym.envs.base import Snapshot, TextEnv
from hgpo_gym.memory.keys import chain_keys, hash_text, key_function
from hgpo_gym.randomness import RandomStream

MANY_TASKS = 10
"""With as many tasks or more, standard errors are those of drawing tasks; with fewer, of drawing steps."""
EPISODES_OF_EXPERT = 100
"""Where no action is listed, what the expert does in as many episodes is what random actions are drawn from."""


@dataclass(frozen=True, kw_only=True)
class SampledSettings(Settings):
    """Of the sampled computation.

    Attributes:
        random_actions: the stages: the share of steps at which the policy takes a random admissible action instead of
            the expert's. Where none is listed it is one that the expert takes in some episode.
        probes: steps of each task whose true advantage is found, at most.
        continuations: of each probe: so many from its history, and so many after its action, for its true advantage.
        groups: of each probe, in which estimators see one more continuation after its action.
        restarts: in each group, continuations from the probe and from the step after it, for estimators that ask for
            values; they have no part in the true advantage.
    """

    random_actions: Sequence[float]
    probes: int
    continuations: int
    groups: int
    restarts: int = 0


class Continuation(NamedTuple):
    """An episode, or its end: of each step the hash of what was seen, the action and the reward; and how it ended.
    The hash of what was seen last comes after those of the steps."""

    observations: list[int]
    actions: list[str]
    rewards: list[float]
    won: bool
    truncated: bool

    def with_end(self, step: int, end: "Continuation") -> "Continuation":
        """The same before `step`, then another end."""
        return Continuation(
            self.observations[:step] + end.observations,
            self.actions[:step] + end.actions,
            self.rewards[:step] + end.rewards,
            end.won,
            end.truncated,
        )

    def discounted(self, gamma: float) -> float:
        """The return of the first step."""
        return float(np.dot(self.rewards, gamma ** np.arange(len(self.rewards))))


class Actor:
    """Does what the environment's expert says, but for a share of random actions: admissible ones, or, where none is
    listed, those of `otherwise`."""

    def __init__(
        self,
        env: TextEnv,
        random_actions: float,
        settings: Settings,
        generator: np.random.Generator,
        otherwise: Sequence[str] = (),
    ):
        self.env, self.random_actions, self.generator, self.otherwise = env, random_actions, generator, otherwise
        self.horizon, self.key = settings.horizon, key_function(settings.key)

    def play_task(self, task_id: str, seed: int, *, keep: int = -1) -> tuple[Continuation, Snapshot | None]:
        """An episode that begins as all of its task, and in which chance falls as in no other; otherwise as `play`."""
        observation, info = self.env.reset(seed=seed, options={"task_id": task_id})
        return self.play(observation, self._with_other_chance(info), keep=keep)

    def play(
        self, observation: str, info: dict[str, Any], first: int = 0, *, action: str | None = None, keep: int = -1
    ) -> tuple[Continuation, Snapshot | None]:
        """From step `first` to the end, the first time by `action` if there is one; and the moment of step `keep`."""
        observations, actions, rewards, kept = [self._seen(observation, info)], [], [], None
        for step in range(first, self.horizon):
            if step == keep:
                kept = self.env.snapshot()
            taken = self._choose(info) if action is None else action
            action = None
            actions.append(taken)
            observation, reward, terminated, _, info = self.env.step(taken)
            rewards.append(reward)
            observations.append(self._seen(observation, info))
            if terminated:
                break
        return Continuation(observations, actions, rewards, info["won"], not terminated), kept

    def play_on(
        self, moment: Snapshot, step: int, action: str | None = None, *, keep: int = -1
    ) -> tuple[Continuation, Snapshot | None]:
        """Another end of the episode, from a moment before `step`; otherwise as `play`."""
        observation, info = self.env.restore(moment)
        return self.play(observation, self._with_other_chance(info), step, action=action, keep=keep)

    def returns(self, moment: Snapshot, step: int, count: int, gamma: float, action: str | None = None) -> np.ndarray:
        """float64[count]: the discounted returns of so many other ends."""
        return np.array([self.play_on(moment, step, action)[0].discounted(gamma) for _ in range(count)])

    def _with_other_chance(self, info: dict[str, Any]) -> dict[str, Any]:
        """The info of the present turn, from which on chance falls otherwise, what its expert leaves to it too."""
        self.env.np_random = self.generator
        expert_action = self.env.redraw_expert()
        return info if expert_action is None else {**info, "expert_action": expert_action}

    def _seen(self, observation: str, info: dict[str, Any]) -> int:
        return hash_text(self.key.canonical(observation, info["admissible_actions"]))

    def _choose(self, info: dict[str, Any]) -> str:
        if self.generator.random() < self.random_actions:
            choices = info["admissible_actions"] or self.otherwise
            return choices[int(self.generator.integers(len(choices)))]
        return info["expert_action"]


@dataclass
class Collected:
    """Trajectories of a stage, and the probes; groups are drawn from them.

    Attributes:
        pool: for each task, the numbers of its episodes.
        own: for each probe, the numbers of the continuations that are put into groups, as whole episodes.
        source: for each probe, its task and the number of the episode that it was found in.
        step, advantage, variance: of each probe.
        values: by the number of a continuation, the returns of restarts from its probe, float64[R], and, unless the
            episode ended there, from the step after it.
    """

    trajectories: list[Continuation] = field(default_factory=list)
    pool: list[np.ndarray] = field(default_factory=list)
    own: list[np.ndarray] = field(default_factory=list)
    source: list[tuple[int, int]] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    advantage: list[float] = field(default_factory=list)
    variance: list[float] = field(default_factory=list)
    values: dict[int, tuple[np.ndarray, np.ndarray | None]] = field(default_factory=dict)


def sampled_stages(
    env: TextEnv, task_ids: Sequence[str], settings: SampledSettings, on_progress: Callable[[int, int, str], None]
) -> list[Stage]:
    """The expert with random actions in between, each stage with the true advantages of some of its steps.

    Args:
        env: made with `expert=True`; has to offer `snapshot` and `restore`.
        task_ids: the tasks to play.
        settings: see there.
        on_progress: called with (tasks done, tasks in all, a few words).

    Raises:
        ValueError: the environment cannot be brought back to an earlier moment, or the episodes are too few.
    """
    if not env.can_snapshot:
        raise ValueError(f"{type(env).__name__} has no snapshot and restore, which true advantages need.")
    otherwise = _actions_of_expert(env, settings)
    stages = []
    for number, share in enumerate(settings.random_actions):
        generators = [
            np.random.default_rng((stream, settings.seed, number))
            for stream in (RandomStream.SAMPLED_EPISODE, RandomStream.SAMPLED_RESTART)
        ]
        actor, restarting = (Actor(env, share, settings, own, otherwise) for own in generators)
        collected = Collected()
        for done, task_id in enumerate(task_ids):
            collect(collected, actor, task_id, settings, restarting)
            on_progress(number * len(task_ids) + done + 1, len(settings.random_actions) * len(task_ids), task_id)
        if not collected.own:
            raise ValueError(f"No step was probed: raise bias.episodes={settings.episodes}.")
        groups = _Groups(collected, settings)
        won = np.mean([collected.trajectories[episode].won for pool in collected.pool for episode in pool])
        stages.append(Stage(f"{100 * share:g}% random", float(won), groups.compare))
    return stages


def _actions_of_expert(env: TextEnv, settings: SampledSettings) -> list[str]:
    """What random actions are drawn from where none is listed: each action of the expert once, in tasks one after the
    other; empty where actions are listed."""
    _, info = env.reset(seed=settings.seed)
    if info["admissible_actions"]:
        return []
    actor = Actor(env, 0.0, settings, np.random.default_rng((RandomStream.SAMPLED_POOL, settings.seed)))
    found: dict[str, None] = {}
    for episode in range(EPISODES_OF_EXPERT):
        played, _ = actor.play_task(env.task_ids[episode % len(env.task_ids)], settings.seed)
        found |= dict.fromkeys(played.actions)
    return list(found)


def collect(
    collected: Collected, actor: Actor, task_id: str, settings: SampledSettings, restarting: Actor | None = None
) -> None:
    """Play a task's episodes, and find the true advantages of steps that are drawn from all visited ones alike.
    `restarting` plays the restarts."""
    moments: list[tuple[int, int, Snapshot]] = []
    first = len(collected.trajectories)
    for episode in range(settings.episodes):
        keep = int(actor.generator.integers(settings.horizon))  # a step of all possible ones: it counts if visited
        played, moment = actor.play_task(task_id, settings.seed, keep=keep if len(moments) < settings.probes else -1)
        collected.trajectories.append(played)
        if moment is not None:
            moments.append((first + episode, keep, moment))
    collected.pool.append(np.arange(first, first + settings.episodes))
    for episode, step, moment in moments:
        _probe(collected, actor, restarting or actor, episode, step, moment, settings)


def _probe(
    collected: Collected,
    actor: Actor,
    restarting: Actor,
    episode: int,
    step: int,
    moment: Snapshot,
    settings: SampledSettings,
) -> None:
    found_in = collected.trajectories[episode]
    action, gamma, count = found_in.actions[step], settings.gamma, settings.continuations
    value = actor.returns(moment, step, count, gamma)
    action_value = actor.returns(moment, step, count, gamma, action)
    ends = [actor.play_on(moment, step, action, keep=step + 1) for _ in range(settings.groups)]
    numbers = np.arange(settings.groups) + len(collected.trajectories)
    for number, (_, following) in zip(numbers.tolist(), ends if settings.restarts else [], strict=False):
        collected.values[number] = (
            restarting.returns(moment, step, settings.restarts, gamma),
            None if following is None else restarting.returns(following, step + 1, settings.restarts, gamma),
        )
    collected.own.append(numbers)
    collected.trajectories += [found_in.with_end(step, end) for end, _ in ends]
    collected.source.append((len(collected.pool) - 1, episode))
    collected.step.append(step)
    collected.advantage.append(float(action_value.mean() - value.mean()))
    collected.variance.append(float(action_value.var(ddof=1) + value.var(ddof=1)) / count)


class _Groups:
    """Groups of any size: a continuation of a probe, and other episodes of its task."""

    def __init__(self, collected: Collected, settings: SampledSettings):
        self.collected, self.settings = collected, settings
        self.length = np.array([len(played.rewards) for played in collected.trajectories])
        self.start = np.cumsum(self.length) - self.length
        self.reward = np.concatenate([played.rewards for played in collected.trajectories])
        self.context_keys, self.final_keys, self.action = self._keys()
        self.returns = self._returns()
        self.won = np.array([played.won for played in collected.trajectories])
        self.truncated = np.array([played.truncated for played in collected.trajectories])

    def compare(self, group_size: int) -> BiasComparison:
        """The independent groups of each probe, whose step is measured."""
        if group_size > self.settings.episodes:
            raise ValueError(f"Groups of {group_size} need bias.episodes={group_size} or more.")
        generator = np.random.default_rng((RandomStream.SAMPLED_GROUP, self.settings.seed, group_size))
        members = np.concatenate(
            [self._members(probe, group_size, generator) for probe in range(len(self.collected.own))]
        )
        repeats = self.settings.groups
        lengths = self.length[members.ravel()]
        episode = np.repeat(np.arange(members.size), lengths)
        step = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        played = members.ravel()[episode]
        source = self.start[played] + step
        probe_step = np.repeat(self.collected.step, repeats)
        group = episode // group_size
        probed = (episode % group_size == 0) & (step == probe_step[group])
        rows = list(split_rows(group, self.settings.groups_a_batch, generator))
        batches = [
            StepBatch(
                group=group[some],
                trajectory=episode[some],
                step=step[some],
                reward=self.reward[source[some]],
                context_keys=self.context_keys[source[some]],
                penalty=np.zeros(len(some)),
                action=self.action[source[some]],
                success=self.won[played[some]],
                final_keys=self.final_keys[played[some]],
                extras={
                    "truncated": self.truncated[played[some]],
                    **({RETURNS: self.returns[source[some]]} if self.settings.restarts else {}),
                },
            )
            for some in rows
        ]
        everything = Truth(
            advantage=np.repeat(self.collected.advantage, repeats),
            variance=np.repeat(self.collected.variance, repeats),
            noise=np.zeros(len(members)),
            history=np.repeat(np.arange(len(self.collected.own)), repeats),
            group=np.arange(len(members)),
            drawn=np.repeat(self._drawn(), repeats),
            step=probe_step,
        )
        truth = everything[np.concatenate([group[some[probed[some]]] for some in rows])]
        return BiasComparison(batches, [np.flatnonzero(probed[some]) for some in rows], truth)

    def _drawn(self) -> np.ndarray:
        """int64[probes]: the task of each, or, where there are few tasks, the probe itself."""
        tasks = np.array([task for task, _ in self.collected.source])
        return tasks if len(np.unique(tasks)) >= MANY_TASKS else np.arange(len(tasks))

    def _returns(self) -> np.ndarray:
        """float64[N, R] of all steps: what restarts from before them earned; NaN but at probes and the steps after."""
        returns = np.full((len(self.reward), self.settings.restarts), np.nan)
        step = dict(zip(np.concatenate(self.collected.own).tolist(), self._step_of_own(), strict=True))
        for number, (before, after) in self.collected.values.items():
            row = self.start[number] + step[number]
            returns[row] = before
            if after is not None:
                returns[row + 1] = after
        return returns

    def _step_of_own(self) -> list[int]:
        """Of each continuation, the step of its probe."""
        return [step for own, step in zip(self.collected.own, self.collected.step, strict=True) for _ in own]

    def _members(self, probe: int, group_size: int, generator: np.random.Generator) -> np.ndarray:
        """int64[groups, group_size], numbers of trajectories, the probe's own first."""
        task, found_in = self.collected.source[probe]
        others = self.collected.pool[task]
        others = others[others != found_in]
        drawn = [generator.choice(others, group_size - 1, replace=False) for _ in self.collected.own[probe]]
        return np.column_stack([self.collected.own[probe], np.stack(drawn)])

    def _keys(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of all steps the context keys, int64[N, K + 1], of all trajectories those of what came last, int64[E, K + 1],
        and of all steps the hash of the action, int64[N]."""
        trajectories = self.collected.trajectories
        ends = np.cumsum(self.length + 1) - 1  # the last observation has a row as well, with no action
        starts = np.zeros(ends[-1] + 1, dtype=np.bool_)
        starts[ends - self.length] = True
        observations = np.concatenate([np.array(played.observations, np.uint64) for played in trajectories])
        hashes = [hash_text(action) for played in trajectories for action in (*played.actions, "")]
        actions = np.array(hashes, dtype=np.uint64)
        counted = actions if key_function(self.settings.key).with_action else None
        keys = chain_keys(observations, starts, self.settings.history_length, counted)
        return np.delete(keys, ends, axis=0), keys[ends], np.delete(actions, ends).view(np.int64)
