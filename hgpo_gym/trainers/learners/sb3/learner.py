"""Stable-Baselines3's algorithms in a run. They do rollouts and updates; everything else is as in other runs."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import ConstantSchedule

from hgpo_gym.processes import Processes
from hgpo_gym.progress import Progress
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.metrics import episode_metrics
from hgpo_gym.rollouts.samplers import tasks_in_order
from hgpo_gym.runs.checkpoints import Saving
from hgpo_gym.trainers.environments import make_env, training_tasks
from hgpo_gym.trainers.learners.base import Learned
from hgpo_gym.trainers.learners.sb3.networks import MaskedDQN
from hgpo_gym.trainers.learners.sb3.policy import Sb3Policy, check_listed
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.update.diverged import NonFiniteError

UPDATE_METRICS = {"loss": "train/loss", "kl_behaviour": "train/approx_kl", "value_loss": "train/value_loss"}
"""Metrics of an update, mapped to the names that Stable-Baselines3 logs."""


class Sb3Learner:
    """PPO or DQN, with a separate network in place of the run's model.

    An iteration plays the same tasks as other algorithms, each in `rollout.group_size` sub-environments. They play
    from the task's beginning, for as many steps as an episode may have. A sub-environment that ends sooner begins
    the task again. Every iteration draws new environments and random numbers from seed and iteration. Checkpoints
    hold model, optimiser and replay buffer, so a resumed run gives the same numbers.

    The rollout metrics cover the first episode of each sub-environment. They have the same number and tasks as those
    of other algorithms.

    Raises:
        ValueError: several processes, or settings that these algorithms do not support.
    """

    packages = ("stable_baselines3",)
    policy: Sb3Policy
    env = None

    def __init__(self, run: RunSettings, processes: Processes, progress: Progress):
        if processes.count > 1:
            raise ValueError(f"algo={run.algo.name} trains in one process: set distributed=none and launch one.")
        for group, choice, only in (
            ("team", run.team, "solo"),
            ("sampler", run.sampler, "in_order"),
            ("shaping", run.shaping, "none"),
            ("objective", run.objective, "ppo_clip"),
        ):
            if choice.name != only:
                raise ValueError(f"{group}={choice.name}: algo={run.algo.name} knows {group}={only} alone.")
        if run.memory.make().writes_notes:
            raise ValueError(f"memory={run.memory.name}: algo={run.algo.name} writes no notes. Choose memory=window.")
        if run.prompt.subgoals is not None:
            raise ValueError(
                f"prompt.subgoals={run.prompt.subgoals}: algo={run.algo.name} writes no plans. Choose a prompt "
                "without, such as prompt=bare."
            )
        if run.rollout.staleness:
            raise ValueError(
                f"rollout.staleness={run.rollout.staleness}: algo={run.algo.name} plays by its present weights "
                "alone. Set 0."
            )
        self.run, self.progress = run, progress
        self.num_envs = run.rollout.num_tasks * run.rollout.group_size

    def check(self) -> None:
        """See `Learner`. The constructor has checked everything."""

    def start(self) -> None:
        self.policy = Sb3Policy.initial(self.run.algo, self.num_envs, self.run.env.step_limit, self.run.seed)

    def load(self, checkpoint: Path) -> None:
        self.policy = Sb3Policy.load(self.run.algo, self.num_envs, checkpoint / "model")

    def begin(self, checkpoint: Path, initial: Callable[[], Path], state: dict[str, Any]) -> None:  # noqa: ARG002
        """See `Learner`. The checkpoint's model is the whole state."""
        self.env = make_env(self.run.environments, num_tasks=self.num_envs, group_size=1, contain_failures=False)
        self.task_ids = training_tasks(self.run.rollout.train_tasks, self.env)
        first = {"task_ids": self.task_ids[:1], "reset_mask": np.arange(self.num_envs) == 0}
        check_listed(self.env.reset(seed=0, options=first)[1]["admissible_actions"][0])

    def rollout_weights(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def collect(self, iteration: int) -> None:
        """Do nothing: rollouts and updates alternate inside `learn`, which Ctrl-C waits for."""

    def learn(self, iteration: int, collected: None, seconds: float) -> Learned:  # noqa: ARG002 - Learner
        assert self.env is not None
        started = time.perf_counter()
        algorithm, episodes = self.policy.algorithm, self.policy.episodes
        tasks = tasks_in_order(self.task_ids, self.run.seed, iteration, self.run.rollout.num_tasks)
        seed = (RandomStream.ROLLOUT, self.run.seed, iteration)
        episodes.play(self.env, [task for task in tasks for _ in range(self.run.rollout.group_size)], seed)
        algorithm.set_env(episodes)  # which also makes it begin new episodes
        algorithm.set_random_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        if isinstance(algorithm, MaskedDQN):
            algorithm.exploration_schedule = ConstantSchedule(self._exploration(algorithm, iteration))
        clock, before = _RolloutClock(), algorithm.num_timesteps
        total = episodes.num_envs * self.run.env.step_limit
        algorithm.learn(total, clock, log_interval=None, reset_num_timesteps=False)  # type: ignore[arg-type]
        steps = algorithm.num_timesteps - before
        metrics = {
            **episode_metrics([outcomes[0] for outcomes in episodes.episodes]),
            "steps": steps,
            "episodes": sum(map(len, episodes.episodes)),
            "actions_left_out": episodes.actions_left_out / steps,
            **self._update_metrics(),
            "seconds_rollout": clock.seconds,
            "seconds_advantage": 0.0,  # a part of the rollout's
            "seconds_update": time.perf_counter() - started - clock.seconds,
        }
        return Learned(metrics, None)

    def saving(self) -> Saving:
        nbytes = sum(weight.nbytes for weight in self.policy.algorithm.policy.parameters())
        return Saving(lambda folder: self.policy.save(folder / "model"), nbytes)

    def state(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        if self.env is not None:
            self.env.close()

    def _exploration(self, algorithm: MaskedDQN, iteration: int) -> float:
        """Return the share of random actions in this iteration."""
        share = min(1.0, iteration / self.run.algo.options["exploration_iterations"])
        first, last = algorithm.exploration_initial_eps, algorithm.exploration_final_eps
        return first + share * (last - first)

    def _update_metrics(self) -> dict[str, float]:
        """Return the metrics of the update. Raises NonFiniteError if a loss is not finite."""
        logged = self.policy.algorithm.logger.name_to_value
        metrics = {name: float(logged[sb3_name]) for name, sb3_name in UPDATE_METRICS.items() if sb3_name in logged}
        if "train/entropy_loss" in logged:
            metrics["entropy"] = -float(logged["train/entropy_loss"])
        for name, value in metrics.items():
            if not np.isfinite(value):
                raise NonFiniteError(f"{name} is {value}.")
        return metrics


class _RolloutClock(BaseCallback):
    """A callback that measures the seconds of rollouts."""

    seconds = 0.0

    def _on_rollout_start(self) -> None:
        self._began = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self.seconds += time.perf_counter() - self._began

    def _on_step(self) -> bool:
        return True
