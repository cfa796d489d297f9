"""Any environment that can be kept and brought back: true advantages by many continuations from the same moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.analysis.estimator_bias.comparison import Comparison, Settings, Stage, split_rows
from hgpo_gym.analysis.estimator_bias.measure import Truth
from hgpo_gym.envs.base import Snapshot, TextEnv
from hgpo_gym.memory.keys import chain_keys, hash_text, key_function
from hgpo_gym.randomness import Stream


@dataclass(frozen=True, kw_only=True)
class SampledSettings(Settings):
    """Of the sampled computation.

    Attributes:
        random_actions: the stages: the share of steps at which the policy takes a random admissible action instead of
            the expert's.
        probes: steps of each task whose true advantage is found, at most.
        continuations: of each probe: so many from its history, so many after its action, and so many groups.
    """

    random_actions: Sequence[float]
    probes: int
    continuations: int


class Played(NamedTuple):
    """An episode, or its end: of each step the hash of what was seen, the action and the reward; and how it ended.
    The hash of what was seen last comes after those of the steps."""

    observations: list[int]
    actions: list[str]
    rewards: list[float]
    won: bool
    truncated: bool

    def with_end(self, step: int, end: "Played") -> "Played":
        """The same before `step`, then another end."""
        return Played(
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
    """Does what the environment's expert says, but for a share of random admissible actions."""

    def __init__(self, env: TextEnv, random_actions: float, settings: Settings, generator: np.random.Generator):
        self.env, self.random_actions, self.generator = env, random_actions, generator
        self.horizon, self.key = settings.horizon, key_function(settings.key)

    def play(
        self, observation: str, info: dict[str, Any], first: int = 0, *, action: str | None = None, keep: int = -1
    ) -> tuple[Played, Snapshot | None]:
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
        return Played(observations, actions, rewards, info["won"], not terminated), kept

    def play_on(self, moment: Snapshot, step: int, action: str | None = None) -> Played:
        """Another end of the episode, from a moment before `step`."""
        observation, info = self.env.restore(moment)
        self.env.np_random = self.generator  # chance falls otherwise this time
        return self.play(observation, info, step, action=action)[0]

    def _seen(self, observation: str, info: dict[str, Any]) -> int:
        return hash_text(self.key.canonical(observation, info["admissible_actions"]))

    def _choose(self, info: dict[str, Any]) -> str:
        if self.generator.random() < self.random_actions:
            admissible = info["admissible_actions"]
            return admissible[self.generator.integers(len(admissible))]
        return info["expert_action"]


@dataclass
class Collected:
    """Trajectories of a stage, and the probes; groups are drawn from them.

    Attributes:
        pool: for each task, the numbers of its episodes.
        own: for each probe, the numbers of its continuations as whole episodes.
        source: for each probe, its task and the number of the episode that it was found in.
        step, advantage, variance: of each probe.
    """

    trajectories: list[Played] = field(default_factory=list)
    pool: list[np.ndarray] = field(default_factory=list)
    own: list[np.ndarray] = field(default_factory=list)
    source: list[tuple[int, int]] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    advantage: list[float] = field(default_factory=list)
    variance: list[float] = field(default_factory=list)


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
    stages = []
    for number, share in enumerate(settings.random_actions):
        actor = Actor(env, share, settings, np.random.default_rng((Stream.SAMPLED_EPISODE, settings.seed, number)))
        collected = Collected()
        for done, task_id in enumerate(task_ids):
            collect(collected, actor, task_id, settings)
            on_progress(number * len(task_ids) + done + 1, len(settings.random_actions) * len(task_ids), task_id)
        if not collected.own:
            raise ValueError(f"No step was probed: raise diagnose.episodes={settings.episodes}.")
        groups = _Groups(collected, settings)
        won = np.mean([collected.trajectories[episode].won for pool in collected.pool for episode in pool])
        stages.append(Stage(f"{share:.0%} random", float(won), groups.compare))
    return stages


def collect(collected: Collected, actor: Actor, task_id: str, settings: SampledSettings) -> None:
    """Play a task's episodes, and find the true advantages of steps that are drawn from all visited ones alike."""
    moments: list[tuple[int, int, Snapshot]] = []
    first = len(collected.trajectories)
    for episode in range(settings.episodes):
        keep = int(actor.generator.integers(settings.horizon))  # a step of all possible ones: it counts if visited
        observation, info = actor.env.reset(seed=settings.seed, options={"task_id": task_id})
        played, moment = actor.play(observation, info, keep=keep if len(moments) < settings.probes else -1)
        collected.trajectories.append(played)
        if moment is not None:
            moments.append((first + episode, keep, moment))
    collected.pool.append(np.arange(first, first + settings.episodes))
    for episode, step, moment in moments:
        _probe(collected, actor, episode, step, moment, settings)


def _probe(
    collected: Collected, actor: Actor, episode: int, step: int, moment: Snapshot, settings: SampledSettings
) -> None:
    found_in = collected.trajectories[episode]
    action = found_in.actions[step]

    def returns(taken: str | None) -> np.ndarray:
        ends = [actor.play_on(moment, step, taken) for _ in range(settings.continuations)]
        return np.array([end.discounted(settings.gamma) for end in ends])

    value, action_value = returns(None), returns(action)
    own = [found_in.with_end(step, actor.play_on(moment, step, action)) for _ in range(settings.continuations)]
    collected.own.append(np.arange(len(own)) + len(collected.trajectories))
    collected.trajectories += own
    collected.source.append((len(collected.pool) - 1, episode))
    collected.step.append(step)
    collected.advantage.append(float(action_value.mean() - value.mean()))
    collected.variance.append(float(action_value.var(ddof=1) + value.var(ddof=1)) / settings.continuations)


class _Groups:
    """Groups of any size: a continuation of a probe, and other episodes of its task."""

    def __init__(self, collected: Collected, settings: SampledSettings):
        self.collected, self.settings = collected, settings
        self.length = np.array([len(played.rewards) for played in collected.trajectories])
        self.start = np.cumsum(self.length) - self.length
        self.reward = np.concatenate([played.rewards for played in collected.trajectories])
        self.context_keys, self.final_keys, self.action = self._keys()
        self.won = np.array([played.won for played in collected.trajectories])
        self.truncated = np.array([played.truncated for played in collected.trajectories])

    def compare(self, group_size: int) -> Comparison:
        """As many independent groups of each probe as it has continuations; the probe's step is measured."""
        if group_size > self.settings.episodes:
            raise ValueError(f"Groups of {group_size} need diagnose.episodes={group_size} or more.")
        generator = np.random.default_rng((Stream.SAMPLED_GROUP, self.settings.seed, group_size))
        members = np.concatenate(
            [self._members(probe, group_size, generator) for probe in range(len(self.collected.own))]
        )
        repeats = self.settings.continuations
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
                extras={"truncated": self.truncated[played[some]]},
            )
            for some in rows
        ]
        everything = Truth(
            advantage=np.repeat(self.collected.advantage, repeats),
            variance=np.repeat(self.collected.variance, repeats),
            noise=np.zeros(len(members)),
            history=np.repeat(np.arange(len(self.collected.own)), repeats),
            group=np.arange(len(members)),
            drawn=np.repeat(np.arange(len(self.collected.own)), repeats),
            step=probe_step,
        )
        truth = everything[np.concatenate([group[some[probed[some]]] for some in rows])]
        return Comparison(batches, [np.flatnonzero(probed[some]) for some in rows], truth)

    def _members(self, probe: int, group_size: int, generator: np.random.Generator) -> np.ndarray:
        """int64[continuations, group_size], numbers of trajectories, the probe's own first."""
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
