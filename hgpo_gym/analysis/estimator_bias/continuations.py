"""True advantages in any environment that offers snapshots, by many continuations from the same moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.analysis.estimator_bias.comparison import RETURNS, BiasComparison, Settings, Stage, split_rows
from hgpo_gym.creditbench.measure import Truth
from hgpo_gym.creditbench.noisy_expert import Continuation, NoisyExpert, actions_of_expert
from hgpo_gym.envs.base import Snapshot, TextEnv
from hgpo_gym.memory.keys import chain_keys, hash_text, key_function
from hgpo_gym.randomness import RandomStream

MANY_TASKS = 10
"""From this number of tasks on, standard errors are over tasks; with fewer tasks they are over steps."""


@dataclass(frozen=True, kw_only=True)
class SampledSettings(Settings):
    """The settings of the sampled computation.

    Attributes:
        random_actions: for each stage, the share of steps with a random admissible action instead of the expert's. If
            no actions are listed, it is one that the expert takes in some episode.
        probes: the most steps of each task whose true advantage is computed.
        continuations: for each probe, continuations from its history, and as many after its action. They give the true
            advantage.
        groups: for each probe, the groups in which estimators see one more continuation after its action.
        restarts: for each group, continuations from the probe and from the step after it. Estimators that ask for
            values read them; the true advantage does not.
    """

    random_actions: Sequence[float]
    probes: int
    continuations: int
    groups: int
    restarts: int = 0


@dataclass
class Collected:
    """The trajectories of a stage, and its probes. Groups are drawn from them.

    Attributes:
        pool: for each task, the indices of its episodes.
        of_probe: for each probe, the indices of its continuations, which groups contain as whole episodes.
        source: for each probe, its task and the index of its episode.
        step, advantage, variance: for each probe, its step, its true advantage and that estimate's variance.
        values: by the index of a continuation, the returns of restarts from its probe, float64[R], and those from the
            step after it; the second is None if the episode ended at the probe.
    """

    trajectories: list[Continuation] = field(default_factory=list)
    pool: list[np.ndarray] = field(default_factory=list)
    of_probe: list[np.ndarray] = field(default_factory=list)
    source: list[tuple[int, int]] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    advantage: list[float] = field(default_factory=list)
    variance: list[float] = field(default_factory=list)
    values: dict[int, tuple[np.ndarray, np.ndarray | None]] = field(default_factory=dict)


def sampled_stages(
    env: TextEnv, task_ids: Sequence[str], settings: SampledSettings, on_progress: Callable[[int, int, str], None]
) -> list[Stage]:
    """Return the stages of an expert with random actions, each with the true advantages of some of its steps.

    Args:
        env: made with `expert=True`; must offer `snapshot` and `restore`.
        task_ids: the tasks to play.
        settings: see `SampledSettings`.
        on_progress: called with (tasks done, all tasks, the task id).

    Raises:
        ValueError: the environment cannot be brought back to an earlier moment, or the episodes are too few.
    """
    if not env.can_snapshot:
        raise ValueError(f"{type(env).__name__} has no snapshot and restore, which true advantages need.")
    pool = np.random.default_rng((RandomStream.SAMPLED_POOL, settings.seed))
    expert_actions = actions_of_expert(env, settings.horizon, settings.seed, pool)
    stages = []
    for number, share in enumerate(settings.random_actions):
        generators = [
            np.random.default_rng((stream, settings.seed, number))
            for stream in (RandomStream.SAMPLED_EPISODE, RandomStream.SAMPLED_RESTART)
        ]
        actor, restarting = (noisy_expert(env, share, settings, generator, expert_actions) for generator in generators)
        collected = Collected()
        for index, task_id in enumerate(task_ids):
            collect(collected, actor, task_id, settings, restarting)
            on_progress(number * len(task_ids) + index + 1, len(settings.random_actions) * len(task_ids), task_id)
        if not collected.of_probe:
            raise ValueError(f"No step was probed: raise bias.episodes={settings.episodes}.")
        groups = _Groups(collected, settings)
        won = np.mean([collected.trajectories[episode].won for pool in collected.pool for episode in pool])
        stages.append(Stage(f"{100 * share:g}% random", float(won), groups.compare))
    return stages


def noisy_expert(
    env: TextEnv,
    random_actions: float,
    settings: SampledSettings,
    generator: np.random.Generator,
    otherwise: Sequence[str] = (),
) -> NoisyExpert:
    """Return a `NoisyExpert` whose observations are the hashes of what the context keys read."""
    function = key_function(settings.key)

    def seen(observation: str, admissible_actions: tuple[str, ...]) -> int:
        return hash_text(function.text(observation, admissible_actions))

    return NoisyExpert(env, random_actions, generator, horizon=settings.horizon, seen=seen, otherwise=otherwise)


def collect(
    collected: Collected,
    actor: NoisyExpert,
    task_id: str,
    settings: SampledSettings,
    restarting: NoisyExpert | None = None,
) -> None:
    """Play a task's episodes, and compute the true advantages of steps drawn uniformly from all visited ones.

    `restarting` plays the restarts.
    """
    snapshots: list[tuple[int, int, Snapshot]] = []
    first = len(collected.trajectories)
    for episode in range(settings.episodes):
        # Drawn from all steps up to the horizon, so that every visited step is equally likely.
        keep = int(actor.generator.integers(settings.horizon))
        trajectory, kept = actor.play_task(
            task_id, settings.seed, keep=(keep,) if len(snapshots) < settings.probes else ()
        )
        collected.trajectories.append(trajectory)
        snapshots += [(first + episode, step, snapshot) for step, snapshot in kept.items()]
    collected.pool.append(np.arange(first, first + settings.episodes))
    for episode, step, snapshot in snapshots:
        _probe(collected, actor, restarting or actor, episode, step, snapshot, settings)


def _probe(
    collected: Collected,
    actor: NoisyExpert,
    restarting: NoisyExpert,
    episode: int,
    step: int,
    snapshot: Snapshot,
    settings: SampledSettings,
) -> None:
    trajectory = collected.trajectories[episode]
    action, gamma, count = trajectory.actions[step], settings.gamma, settings.continuations
    # Separate continuations for V and Q, so that their noise is independent and their variances add.
    value = actor.returns(snapshot, step, count, gamma)
    action_value = actor.returns(snapshot, step, count, gamma, action)
    ends = [actor.play_on(snapshot, step, action, keep=(step + 1,)) for _ in range(settings.groups)]
    numbers = np.arange(settings.groups) + len(collected.trajectories)
    for number, (_, kept) in zip(numbers.tolist(), ends if settings.restarts else [], strict=False):
        collected.values[number] = (
            restarting.returns(snapshot, step, settings.restarts, gamma),
            restarting.returns(kept[step + 1], step + 1, settings.restarts, gamma) if kept else None,
        )
    collected.of_probe.append(numbers)
    collected.trajectories += [trajectory.with_end(step, end) for end, _ in ends]
    collected.source.append((len(collected.pool) - 1, episode))
    collected.step.append(step)
    collected.advantage.append(float(action_value.mean() - value.mean()))
    collected.variance.append(float(action_value.var(ddof=1) + value.var(ddof=1)) / count)


class _Groups:
    """Groups of any size: one continuation of a probe, and other episodes of its task."""

    def __init__(self, collected: Collected, settings: SampledSettings):
        self.collected, self.settings = collected, settings
        self.length = np.array([len(trajectory.rewards) for trajectory in collected.trajectories])
        self.start = np.cumsum(self.length) - self.length
        self.reward = np.concatenate([trajectory.rewards for trajectory in collected.trajectories])
        self.context_keys, self.final_keys, self.action = self._keys()
        self.returns = self._returns()
        self.won = np.array([trajectory.won for trajectory in collected.trajectories])
        self.truncated = np.array([trajectory.truncated for trajectory in collected.trajectories])

    def compare(self, group_size: int) -> BiasComparison:
        """Return the independent groups of each probe. Only the probe's step is measured."""
        if group_size > self.settings.episodes:
            raise ValueError(f"Groups of {group_size} need bias.episodes={group_size} or more.")
        generator = np.random.default_rng((RandomStream.SAMPLED_GROUP, self.settings.seed, group_size))
        members = np.concatenate(
            [self._members(probe, group_size, generator) for probe in range(len(self.collected.of_probe))]
        )
        repeats = self.settings.groups
        lengths = self.length[members.ravel()]
        episode = np.repeat(np.arange(members.size), lengths)
        step = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        trajectory = members.ravel()[episode]
        source = self.start[trajectory] + step
        probe_step = np.repeat(self.collected.step, repeats)
        group = episode // group_size
        # The first episode of each group is the probe's continuation, see `_members`.
        probed = (episode % group_size == 0) & (step == probe_step[group])
        rows_of_batches = list(split_rows(group, self.settings.groups_a_batch, generator))
        batches = [
            StepBatch(
                group=group[batch_rows],
                trajectory=episode[batch_rows],
                step=step[batch_rows],
                reward=self.reward[source[batch_rows]],
                context_keys=self.context_keys[source[batch_rows]],
                penalty=np.zeros(len(batch_rows)),
                action=self.action[source[batch_rows]],
                success=self.won[trajectory[batch_rows]],
                final_keys=self.final_keys[trajectory[batch_rows]],
                extras={
                    "truncated": self.truncated[trajectory[batch_rows]],
                    **({RETURNS: self.returns[source[batch_rows]]} if self.settings.restarts else {}),
                },
            )
            for batch_rows in rows_of_batches
        ]
        all_probes = Truth(
            advantage=np.repeat(self.collected.advantage, repeats),
            variance=np.repeat(self.collected.variance, repeats),
            noise=np.zeros(len(members)),
            history=np.repeat(np.arange(len(self.collected.of_probe)), repeats),
            group=np.arange(len(members)),
            drawn=np.repeat(self._drawn(), repeats),
            step=probe_step,
        )
        # The truth must be in the order of the measured rows, and each group has one measured row.
        truth = all_probes[np.concatenate([group[batch_rows[probed[batch_rows]]] for batch_rows in rows_of_batches])]
        return BiasComparison(batches, [np.flatnonzero(probed[batch_rows]) for batch_rows in rows_of_batches], truth)

    def _drawn(self) -> np.ndarray:
        """Return the independent draw of each probe, int64[probes]: its task, or with few tasks the probe itself."""
        tasks = np.array([task for task, _ in self.collected.source])
        return tasks if len(np.unique(tasks)) >= MANY_TASKS else np.arange(len(tasks))

    def _returns(self) -> np.ndarray:
        """Return the returns of restarts from before each step, float64[N, R]; NaN except at and after probes."""
        returns = np.full((len(self.reward), self.settings.restarts), np.nan)
        step = dict(zip(np.concatenate(self.collected.of_probe).tolist(), self._step_of_continuations(), strict=True))
        for number, (probe_returns, next_returns) in self.collected.values.items():
            row = self.start[number] + step[number]
            returns[row] = probe_returns
            if next_returns is not None:
                returns[row + 1] = next_returns
        return returns

    def _step_of_continuations(self) -> list[int]:
        """Return the step of the probe for each continuation."""
        return [
            step
            for continuation_indices, step in zip(self.collected.of_probe, self.collected.step, strict=True)
            for _ in continuation_indices
        ]

    def _members(self, probe: int, group_size: int, generator: np.random.Generator) -> np.ndarray:
        """Return the indices of trajectories, int64[groups, group_size], the probe's continuation first."""
        task, source_episode = self.collected.source[probe]
        candidates = self.collected.pool[task]
        # The probe's episode shares its history with the continuation, so that it is not independent of it.
        candidates = candidates[candidates != source_episode]
        other_members = [
            generator.choice(candidates, group_size - 1, replace=False) for _ in self.collected.of_probe[probe]
        ]
        return np.column_stack([self.collected.of_probe[probe], np.stack(other_members)])

    def _keys(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return context keys of all steps, final keys of all trajectories, and action hashes of all steps.

        Their shapes are int64[N, K + 1], int64[E, K + 1] and int64[N].
        """
        trajectories = self.collected.trajectories
        ends = np.cumsum(self.length + 1) - 1  # the last observation has a row as well, with no action
        starts = np.zeros(ends[-1] + 1, dtype=np.bool_)
        starts[ends - self.length] = True
        observations = np.concatenate([np.array(trajectory.observations, np.uint64) for trajectory in trajectories])
        hashes = [hash_text(action) for trajectory in trajectories for action in (*trajectory.actions, "")]
        actions = np.array(hashes, dtype=np.uint64)
        action_hashes = actions if key_function(self.settings.key).with_action else None
        keys = chain_keys(observations, starts, self.settings.history_length, action_hashes)
        return np.delete(keys, ends, axis=0), keys[ends], np.delete(actions, ends).view(np.int64)
