"""Policy gradients with group baselines: collect groups of episodes, assign credit to steps, update the policy."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from hgpo_gym.advantages import ESTIMATORS, assign
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.progress import Progress
from hgpo_gym.randomness import Stream
from hgpo_gym.trainers.environments import make_training_env
from hgpo_gym.trainers.learners.base import Learned, Saving
from hgpo_gym.trainers.metrics import episode_metrics
from hgpo_gym.trainers.policies.base import Scorer, TrainablePolicy
from hgpo_gym.trainers.policies.lora import WithoutAdapter, has_adapter
from hgpo_gym.trainers.processes import Processes
from hgpo_gym.trainers.rollouts.collect import collect
from hgpo_gym.trainers.rollouts.rollout import Rollout, merge
from hgpo_gym.trainers.rollouts.schedule import TaskSchedule
from hgpo_gym.trainers.rollouts.teams import TEAMS, Team
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.update.policy_update import PolicyUpdate

_UPDATE_STATE = "update.pt"


class PolicyGradientLearner:
    """Any estimator (`algo`), any model that scores tokens (`model`).

    Several processes collect the episodes of their own groups, put them together, and then do the same but for their
    parts of each mini-batch.

    Args:
        run: the settings.
        processes: that train together.
        progress: told of a warm start.

    Raises:
        ValueError: an unknown estimator or option, a model that does not go together with other settings.
    """

    packages = ()
    policy: TrainablePolicy
    team: Team
    update: PolicyUpdate | None = None

    def __init__(self, run: RunSettings, processes: Processes, progress: Progress):
        run.model.check(run, processes.count)
        ESTIMATORS.check_options(*run.algo)
        self.team = TEAMS.bind(run.team)()
        self.run, self.processes, self.progress = run, processes, progress

    def start(self) -> None:
        """See `Learner`."""
        self.policy = self.run.model.initial(self.run, self.progress)

    def load(self, checkpoint: Path) -> None:
        """See `Learner`."""
        self.policy = self.run.model.load(self.run, checkpoint / "model")

    def begin(self, checkpoint: Path, initial: Callable[[], Path], state: dict[str, Any]) -> None:  # noqa: ARG002
        """See `Learner`."""
        self.env = make_training_env(self.run, self.processes)
        vector: TextVectorEnv = self.env.unwrapped  # type: ignore[assignment]
        self.schedule = TaskSchedule(vector.task_ids, self.run.seed)
        reference = self._reference(initial() / "model") if self.run.trainer.kl_coef > 0 else None
        self.update = PolicyUpdate(
            self.policy,
            reference,
            self.run.trainer,
            self.run.rollout.temperature,
            self.processes,
            self.run.objective,
        )
        # Processes leave tensors in the file until they are used, and then in memory that they share.
        update_state = torch.load(checkpoint / _UPDATE_STATE, weights_only=True, mmap=self.processes.count > 1)
        if update_state:
            self.update.load_state_dict(update_state)
        self.policy.updated()

    def acting(self) -> AbstractContextManager[Any]:
        """See `Learner`."""
        assert self.update is not None
        return self.update.weights.gathered()

    def collect(self, iteration: int) -> Rollout:
        """See `Learner`: the merged episodes of all processes."""
        groups = range(self.run.rollout.num_tasks)
        seeds = [(Stream.ROLLOUT, self.run.seed, iteration, group) for group in groups]
        with self.acting():
            own = collect(
                self.env,
                self.policy,
                self.run.rollout.sampling,
                task_ids=self.processes.share(self.schedule.tasks(iteration, len(groups))),
                seeds=self.processes.share(seeds),
                invalid_action_penalty=self.run.trainer.invalid_action_penalty,
                team=self.team,
                record=self.run.rollout.record,
            )
        return merge(self.processes.gather([own]))

    def learn(self, iteration: int, collected: Rollout, seconds: float) -> Learned:
        """See `Learner`."""
        assert self.update is not None
        began = time.perf_counter()
        credit = assign(self.run.algo.name, collected.batch, **self.run.algo.options)
        advantages, assigned = credit.values, time.perf_counter()
        seed = (Stream.SHUFFLE, self.run.seed, iteration)
        updated = self.update(collected.tokens, collected.batch, credit, seed)  # type: ignore[arg-type]
        metrics = {
            **episode_metrics(collected.episodes),
            "steps": len(collected.batch),
            "group_sizes": collected.batch.group_sizes(),
            "advantage_mean": float(advantages.mean()),
            "advantage_std": float(advantages.std()),
            "advantage_zero_share": float((advantages == 0).mean()),
            **updated,
            "seconds_rollout": seconds,
            "seconds_advantage": assigned - began,
            "seconds_update": time.perf_counter() - assigned,
        }
        return Learned(metrics, collected)

    def saving(self) -> Saving:
        """See `Learner`."""
        update_state = {} if self.update is None else self.update.state_dict()
        weights = None if self.update is None else self.update.weights.state_dict()

        def write(folder: Path) -> None:
            self.policy.save(folder / "model", weights)
            with (folder / _UPDATE_STATE).open("wb") as file:
                torch.save(update_state, file)

        trained = [weight for weight in self.policy.model.parameters() if weight.requires_grad]
        return Saving(write, sum(map(_nbytes, (trained, update_state))))

    def state(self) -> dict[str, Any]:
        """See `Learner`."""
        return {}

    def close(self) -> None:
        """See `Learner`."""
        if self.update is not None:
            self.env.close()

    def _reference(self, initial: Path) -> Scorer:
        """What the KL loss holds the policy to, the weights that its run began with: those under the policy's adapter,
        or else a second model from the folder `initial`."""
        if has_adapter(self.policy.model):
            return WithoutAdapter(self.policy)
        reference = self.run.model.load(self.run, initial)
        reference.model.eval().requires_grad_(False)
        return reference


def _nbytes(nested: Any) -> int:
    """Of all tensors in it."""
    if isinstance(nested, torch.Tensor):
        return nested.nbytes
    if isinstance(nested, dict | list):
        return sum(map(_nbytes, nested.values() if isinstance(nested, dict) else nested))
    return 0
