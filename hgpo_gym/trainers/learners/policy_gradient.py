"""Policy gradients with group baselines: collect groups of episodes, assign credit to steps, update the policy."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgpo_gym.advantages import Advantages, StepBatch
from hgpo_gym.advantages.columns import STATE_COUNTS
from hgpo_gym.policies.base import CopyingPolicy, LikelihoodModel, TrainablePolicy
from hgpo_gym.policies.lora import WithoutAdapter, has_adapter
from hgpo_gym.policies.stale_weights import StaleWeights
from hgpo_gym.processes import Processes
from hgpo_gym.progress import Progress
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.measures import TaskMeasures, measure_tasks
from hgpo_gym.rollouts.metrics import credit_metrics, episode_metrics, memory_gib, response_metrics
from hgpo_gym.rollouts.plans import plan_metrics
from hgpo_gym.rollouts.recording import ENTROPY, with_extra
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.rounds import Rounds
from hgpo_gym.rollouts.samplers import GroupOutcome
from hgpo_gym.rollouts.selection import select_episodes, select_steps
from hgpo_gym.runs.checkpoints import Saving
from hgpo_gym.trainers.critic.critic import Critic, States
from hgpo_gym.trainers.environments import make_env
from hgpo_gym.trainers.learners.async_rollout import AsyncRollout, async_rollout
from hgpo_gym.trainers.learners.base import Learned
from hgpo_gym.trainers.learners.rollout_worker import RolloutWorker, assign_credit, reads_rewards
from hgpo_gym.trainers.learners.validate import (
    check_critic,
    check_keys,
    check_notes,
    check_overlap,
    check_plans,
    check_roles,
    check_sampler,
    check_values,
    try_shaping,
    validate_estimator,
)
from hgpo_gym.trainers.memory_estimate import memory_lines
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.state_counts import StateCounts
from hgpo_gym.trainers.update.loss import Loss
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from hgpo_gym.trainers.update.settings import TrainerSettings

_UPDATE_STATE = "update.pt"
_CRITIC_STATE = "critic.pt"
_PAST_WEIGHTS = "past_weights.pt"
_STATE_COUNTS = "state_counts.npz"
UNCORRECTED = (
    "Rollouts by older weights (rollout.staleness={}) and no correction: with correction=token they cost less in "
    "learning."
)
NOT_READ = (
    "shaping={} changes rewards, and algo={} does not read them: these changes have no effect. Choose another algo."
)


class PolicyGradientLearner:
    """Train with any estimator (`algo`) and any model that scores tokens (`model`).

    Several processes collect the episodes of different groups and merge them. They then run the same computation,
    but each on its part of every mini-batch.

    Args:
        run: the settings.
        processes: the processes that train together.
        progress: reports the warm start.

    Raises:
        ValueError: a choice or option is unknown, the estimator or objective refuses a value, the run does not record
            a column that the estimator needs, or the estimator does not return extras that the objective needs.
    """

    packages = ()
    policy: TrainablePolicy
    update: PolicyUpdate | None = None
    critic: Critic | None = None
    state_counts: StateCounts | None = None
    outcomes: list[list[GroupOutcome]] = []  # noqa: RUF012 - replaced, never changed
    measured: TaskMeasures | None = None
    async_rollout: AsyncRollout | None = None

    def __init__(self, run: RunSettings, processes: Processes, progress: Progress):
        run.model.check(run.for_model, processes.count)
        if run.rollout.staleness and processes.count > 1:
            raise ValueError(
                f"rollout.staleness={run.rollout.staleness} is for one process, {processes.count} were launched: "
                "launch one, or set it to 0."
            )
        check_plans(run)
        check_keys(run)
        check_notes(run)
        trial = validate_estimator(run)
        check_critic(run, trial.targets)
        # Raises now instead of after the rollout.
        Loss(_with_constant(run), run.objective, trial.extras, run.correction)
        self._predicted = tuple(trial.targets)
        self.run, self.processes, self.progress = run, processes, progress
        self._shaping_seen = False

    def check(self) -> None:
        """See `Learner`. Raises if the sampler or the shaping refuses its settings, or if team and estimator
        conflict. Also raises if values by restarts conflict with shaping or discount, or if rollouts cannot overlap
        with updates."""
        check_roles(self.run)
        check_sampler(self.run)
        check_values(self.run)
        check_overlap(self.run, self._predicted)
        try_shaping(self.run)

    def start(self) -> None:
        self.policy = self.run.model.initial(self.run.for_model, self.progress)

    def load(self, checkpoint: Path) -> None:
        self.policy = self.run.model.load(self.run.for_model, checkpoint / "model")

    def begin(self, checkpoint: Path, initial: Callable[[], Path], state: dict[str, Any]) -> None:
        if self.processes.main and getattr(self.run.model, "path", None) is not None:
            for line in memory_lines(
                self.run.trainer,
                self.run.rollout,
                self.run.engine,
                scores_old=Loss(self.run.trainer, self.run.objective, correction=self.run.correction).recomputes,
                conversations=self.run.memory.name == "conversation",
                model=self.policy.model,
                processes=self.processes,
            ):
                self.progress.line(line)
        self.worker = RolloutWorker(self.run, self.policy, self.processes)
        self.sampler = self.worker.sampler
        reference = self._reference(initial() / "model") if self.run.trainer.kl_coef > 0 else None
        self.update = PolicyUpdate(
            self.policy,
            reference,
            _with_constant(self.run),
            self.run.rollout.temperature,
            self.processes,
            self.run.objective,
            self.run.correction,
        )
        loss = self.update.loss
        if self.run.rollout.staleness and not (loss.corrected or loss.objective.needs_old):
            self.progress.line(UNCORRECTED.format(self.run.rollout.staleness))
        # Load to main memory; the optimiser moves the state to the device of its weights. Several processes map the
        # file instead, so that they share its memory.
        path, distributed = checkpoint / _UPDATE_STATE, self.processes.count > 1
        update_state = torch.load(path, map_location="cpu", weights_only=True, mmap=distributed)
        if update_state:
            self.update.load_state_dict(update_state)
        self.policy.updated()
        self.past = StaleWeights(self.policy, self.run.rollout.staleness)
        if (path := checkpoint / _PAST_WEIGHTS).exists():
            self.past.load(torch.load(path, map_location="cpu", weights_only=True))
        self.critic = self._critic(checkpoint)
        self.state_counts = self._state_counts(checkpoint)
        self.outcomes = [[GroupOutcome(*group) for group in groups] for groups in state["outcomes"]]
        self.measured = TaskMeasures(*state["measured"]) if state.get("measured") else self._measured()
        if self.measured:
            self.sampler.measured = self.measured.values
        if self.run.rollout.overlap:
            self.async_rollout = async_rollout(self.worker, checkpoint / "model", self.measured)

    def rollout_weights(self) -> AbstractContextManager[Any]:
        assert self.update is not None
        if self.async_rollout is not None:
            self.async_rollout.release()
        gathered = self.update.weights.gathered
        return self.policy.rollout_weights(gathered) if isinstance(self.policy, CopyingPolicy) else gathered()

    def collect(self, iteration: int) -> Rounds:
        """See `Learner`. It returns the merged episodes of all processes."""
        if self.async_rollout is not None and self.async_rollout.iteration == iteration:
            return self.async_rollout.result()
        with self.past.rollout_weights(), self.rollout_weights():
            return self.worker.collect(
                iteration, self.outcomes[:iteration], lambda rollout: self._credit(rollout)[1].values
            )

    def learn(self, iteration: int, collected: Rounds, seconds: float) -> Learned:
        assert self.update is not None
        learn_started = time.perf_counter()
        self.outcomes = [*self.outcomes[:iteration], list(collected.outcomes)]
        # Keep these weights before the update changes them: a later rollout may use them.
        self.past.keep()
        if self.async_rollout is not None and iteration + 1 < self.run.trainer.iterations:
            # Submit before the update, so that the rollout runs meanwhile.
            self.async_rollout.submit(iteration + 1, self.outcomes, self.past)
        started = time.perf_counter()
        seconds += started - learn_started
        rollout = select_episodes(collected.rollout, self.sampler, iteration)
        batch, credit, states = self._credit(rollout)
        if self.state_counts is not None:
            self.state_counts.add(collected.rollout)
        self._warn_of_shaping(rollout, batch, credit)
        progress = iteration / self.run.trainer.iterations
        batch = replace(batch, trained=select_steps(batch, credit.values, self.sampler, iteration, progress))
        credit_ended = time.perf_counter()
        seed = (RandomStream.SHUFFLE, self.run.seed, iteration)
        update_metrics = self.update(rollout.tokens, batch, credit, seed)  # type: ignore[arg-type]
        critic_metrics = (
            self.critic.learn(states, batch, credit.targets, (self.run.seed, iteration)) if self.critic else {}
        )
        ended = time.perf_counter()
        measurement = self.measured if self.measured and iteration == 0 else TaskMeasures({}, 0, 0)
        metrics = {
            **episode_metrics(collected.first_round),
            "steps": collected.steps + measurement.steps,
            "episodes": collected.episodes + measurement.episodes,
            "tokens": collected.tokens + measurement.tokens,
            "rounds": collected.rounds,
            "groups_kept": collected.groups_kept,
            "failed_episodes": len(collected.failures),
            "group_sizes": batch.group_sizes(),
            **response_metrics(rollout),
            **credit_metrics(batch, credit.values),
            **update_metrics,
            **critic_metrics,
            **plan_metrics(batch.extras),
            "seconds_rollout": seconds + measurement.seconds,
            "seconds_advantage": credit_ended - started,
            "seconds_update": ended - credit_ended,
            "tokens_per_second": _tokens_learned_from(rollout, batch) / (seconds + ended - started),
            "memory_gib": memory_gib(),
            **({} if self.async_rollout is None else {"seconds_played": collected.seconds}),
        }
        return Learned(metrics, rollout, batch, collected.failures, self.outcomes[-1])

    def saving(self) -> Saving:
        update_state = {} if self.update is None else self.update.state_dict()
        weights = None if self.update is None else self.update.weights.state_dict()
        critic_state = None if self.critic is None else self.critic.state_dict()
        past = [] if self.update is None else self.past.state()
        counts = None if self.state_counts is None else self.state_counts.state_dict()

        def write(folder: Path) -> None:
            self.policy.save(folder / "model", weights)
            states = {_UPDATE_STATE: update_state, _CRITIC_STATE: critic_state, _PAST_WEIGHTS: past or None}
            for name, state in states.items():
                if state is not None:
                    with (folder / name).open("wb") as file:
                        torch.save(state, file)
            if counts is not None:
                with (folder / _STATE_COUNTS).open("wb") as file:
                    np.savez(file, **counts)  # type: ignore[arg-type]

        trained = [weight for weight in self.policy.model.parameters() if weight.requires_grad]
        return Saving(write, sum(map(_nbytes, (trained, update_state, critic_state, past, counts))))

    def state(self) -> dict[str, Any]:
        """See `Learner`. It holds what the sampler has measured before training."""
        return {"measured": self.measured}

    def close(self) -> None:
        if self.async_rollout is not None:
            self.async_rollout.close()
        if self.update is not None:
            self.worker.close()

    def _critic(self, checkpoint: Path) -> Critic | None:
        """Return the critic for the columns that the estimator has targets for, in the state of the checkpoint."""
        if not self._predicted:
            return None
        run = self.run
        critic = Critic(self.policy, self._predicted, run.credit.critic, run.trainer, run.seed, self.processes)
        if (path := checkpoint / _CRITIC_STATE).exists():  # the first checkpoint has no critic yet
            critic.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return critic

    def _state_counts(self, checkpoint: Path) -> StateCounts | None:
        """Return the counts that the estimator needs, in the state of the checkpoint."""
        if not self.worker.needs.keys() & set(STATE_COUNTS):
            return None
        counts = StateCounts()
        if (path := checkpoint / _STATE_COUNTS).exists():  # the first checkpoint has no counts yet
            with np.load(path, allow_pickle=False) as arrays:
                counts.load_state_dict(dict(arrays))
        return counts

    def _credit(self, rollout: Rollout) -> tuple[StepBatch, Advantages, States]:
        """Return the batch that credit assignment uses, its advantages, and the states that the critic has read."""
        assert self.update is not None
        states: States = {}
        if ENTROPY in self.worker.record:
            rollout = with_extra(rollout, ENTROPY, self.update.entropies(rollout.tokens))  # type: ignore[arg-type]
        if self.state_counts is not None:
            rollout = self.state_counts.counted(rollout)
        if self.critic is not None:
            with self.update.weights.gathered():
                states = self.critic.states(rollout)
            rollout = replace(rollout, batch=self.critic.valued(rollout.batch, states))
        return *assign_credit(self.run.algo, self.run.shaping, rollout), states

    def _warn_of_shaping(self, rollout: Rollout, batch: StepBatch, credit: Advantages) -> None:
        """Warn once if shaping changes rewards that the estimator does not read."""
        if self._shaping_seen or np.array_equal(batch.reward, rollout.batch.reward):
            return
        self._shaping_seen = True
        if not reads_rewards(self.run.algo, batch, credit):
            self.progress.line(NOT_READ.format(self.run.shaping.name, self.run.algo.name))

    def _measured(self) -> TaskMeasures | None:
        """Return the measurements of every task that the sampler needs before training."""
        if self.sampler.curriculum.measure is None:
            return None
        rollout, started = self.run.rollout, time.perf_counter()
        with self.rollout_weights():
            measured = measure_tasks(
                self.sampler,
                self.worker.play,
                lambda: make_env(self.run.environments, num_tasks=rollout.num_tasks, group_size=1, expert=True),
                num_tasks=rollout.num_tasks,
                group_size=rollout.group_size,
                max_retries=rollout.max_retries or 0,
                max_failed=rollout.max_failed,
            )
        return measured._replace(seconds=time.perf_counter() - started)

    def _reference(self, initial: Path) -> LikelihoodModel:
        """Return the reference policy of the KL loss, with the weights that the run began with. These are the
        weights under the policy's adapter, or else a second model from the folder `initial`."""
        if has_adapter(self.policy.model):
            return WithoutAdapter(self.policy)
        reference = self.run.model.load(self.run.for_model, initial)
        reference.model.eval().requires_grad_(False)
        return reference


def _with_constant(run: RunSettings) -> TrainerSettings:
    """Return the settings of the update. The constant of its loss is the longest response, unless it is set."""
    if run.trainer.loss_constant is not None:
        return run.trainer
    return run.trainer.model_copy(update={"loss_constant": run.rollout.max_new_tokens})


def _nbytes(nested: Any) -> int:
    """Return the bytes of all tensors and arrays in nested containers."""
    if isinstance(nested, torch.Tensor | np.ndarray):
        return nested.nbytes
    if isinstance(nested, dict | list):
        return sum(map(_nbytes, nested.values() if isinstance(nested, dict) else nested))
    return 0


def _tokens_learned_from(rollout: Rollout, batch: StepBatch) -> int:
    """Count the tokens of prompts and responses that were trained on. A response that is part of several episodes
    counts once."""
    trained = np.ones(len(batch), dtype=np.bool_) if batch.trained is None else batch.trained
    return sum(len(rollout.tokens[row] or ()) for row in np.flatnonzero(trained))
