"""Runs of Stable-Baselines3's algorithms: its own rollouts and updates, everything else as in all other runs."""

import time
from typing import Any

import numpy as np
from omegaconf import DictConfig
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import ConstantSchedule

from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.randomness import Stream
from hgpo_gym.trainers.assemble import make_env
from hgpo_gym.trainers.learners.sb3.networks import MaskedDQN
from hgpo_gym.trainers.learners.sb3.policy import Sb3Policy, check_listed, steps_each
from hgpo_gym.trainers.metrics import episode_metrics
from hgpo_gym.trainers.run import Learned, Trainer
from hgpo_gym.trainers.update.policy_update import NonFiniteError
from hgpo_gym.trainers.update.weights import Weights

UPDATE_METRICS = {"loss": "train/loss", "kl_behaviour": "train/approx_kl", "value_loss": "train/value_loss"}
"""What Stable-Baselines3 says of an update, by our names."""


class Sb3Trainer(Trainer):
    """One run of PPO or DQN.

    An iteration plays the same tasks as that of the other algorithms, each in `rollout.group_size` sub-environments,
    from their beginning and for as many steps as an episode may have; who is done sooner begins the task again. Every
    iteration has new environments and random numbers of its own, drawn from the seed and the iteration, and
    checkpoints hold model, optimiser and replay buffer, so that a resumed run goes on with the same numbers.

    The metrics of a rollout are those of each sub-environment's first episode: as many, and of the same tasks, as the
    other algorithms have.
    """

    policy: Sb3Policy

    def _check_algorithm(self) -> None:
        if self.processes.count > 1:
            raise ValueError(f"algo={self.estimator} trains in one process: set distributed=none and launch one.")

    def _make_env(self, config: DictConfig) -> ContextWrapper:
        self.steps_each = steps_each(config)
        num_envs = self.rollout.num_tasks * self.rollout.group_size
        env = make_env(config, num_tasks=num_envs, group_size=1, workers=self.rollout.workers)
        first = {"task_ids": env.unwrapped.task_ids[:1], "reset_mask": np.arange(num_envs) == 0}  # type: ignore[attr-defined]
        check_listed(env.reset(seed=0, options=first)[1]["admissible_actions"][0])
        return env

    def _make_update(self, _config: DictConfig) -> "_OwnUpdate":  # type: ignore[override]
        return _OwnUpdate(self.policy)

    def _collect(self) -> None:  # type: ignore[override]
        """Nothing: rollouts and updates take turns inside `_learn`, which Ctrl-C waits for."""

    def _learn(self, _rollout: None, _seconds: float) -> Learned:  # type: ignore[override]
        began = time.perf_counter()
        algorithm, episodes = self.policy.algorithm, self.policy.episodes
        tasks = self.sampler.tasks(self.iteration, self.rollout.num_tasks, ())
        seed = (Stream.ROLLOUT, self.seed, self.iteration)
        episodes.play(self.env, [task for task in tasks for _ in range(self.rollout.group_size)], seed)
        algorithm.set_env(episodes)  # which also makes it begin new episodes
        algorithm.set_random_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        if isinstance(algorithm, MaskedDQN):
            algorithm.exploration_schedule = ConstantSchedule(self._exploration(algorithm))
        clock, before = _RolloutClock(), algorithm.num_timesteps
        algorithm.learn(episodes.num_envs * self.steps_each, clock, log_interval=None, reset_num_timesteps=False)  # type: ignore[arg-type]
        steps = algorithm.num_timesteps - before
        metrics = {
            **episode_metrics([own[0] for own in episodes.episodes]),
            "steps": steps,
            "episodes": sum(map(len, episodes.episodes)),
            "actions_left_out": episodes.actions_left_out / steps,
            **self._update_metrics(),
            "seconds_rollout": clock.seconds,
            "seconds_advantage": 0.0,  # a part of the rollout's
            "seconds_update": time.perf_counter() - began - clock.seconds,
        }
        return Learned(metrics, None)

    def _exploration(self, algorithm: MaskedDQN) -> float:
        """The share of random actions in this iteration."""
        share = min(1.0, self.iteration / self.estimator_options["exploration_iterations"])
        first, last = algorithm.exploration_initial_eps, algorithm.exploration_final_eps
        return first + share * (last - first)

    def _update_metrics(self) -> dict[str, float]:
        """Raises NonFiniteError where a loss is not a number."""
        told = self.policy.algorithm.logger.name_to_value
        metrics = {name: float(told[theirs]) for name, theirs in UPDATE_METRICS.items() if theirs in told}
        if "train/entropy_loss" in told:
            metrics["entropy"] = -float(told["train/entropy_loss"])
        for name, value in metrics.items():
            if not np.isfinite(value):
                raise NonFiniteError(f"{name} is {value}.")
        return metrics


class _OwnUpdate:
    """What the run asks of an update, where the model of Stable-Baselines3 keeps its own state."""

    def __init__(self, policy: Sb3Policy):
        self.weights = Weights(policy)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """It came with the model."""


class _RolloutClock(BaseCallback):
    """Seconds of rollouts."""

    seconds = 0.0

    def _on_rollout_start(self) -> None:
        self._began = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self.seconds += time.perf_counter() - self._began

    def _on_step(self) -> bool:
        return True
