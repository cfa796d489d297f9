"""The training loop: collect groups, assign credit, update, log, evaluate, checkpoint."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.config.compose import plain
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.progress import Progress
from hgpo_gym.randomness import Stream
from hgpo_gym.trainers.assemble import (
    initial_policy,
    load_policy,
    make_evaluation_env,
    make_training_env,
    reference_policy,
)
from hgpo_gym.trainers.checkpoint import CheckpointNotSavedError, Checkpoints, load_update_state, read_state
from hgpo_gym.trainers.evaluation import Evaluation, best_evaluation, evaluate
from hgpo_gym.trainers.loggers import find_loggers
from hgpo_gym.trainers.metrics import LEGEND, PARTS, describe_iteration, episode_metrics
from hgpo_gym.trainers.policies.base import Scorer, TrainablePolicy
from hgpo_gym.trainers.processes import ALONE, Processes, check_seen_by_all
from hgpo_gym.trainers.rollouts import saved as kept_rollouts
from hgpo_gym.trainers.rollouts.collect import collect
from hgpo_gym.trainers.rollouts.rollout import Rollout, merge
from hgpo_gym.trainers.rollouts.samplers import InOrder
from hgpo_gym.trainers.run_directory import RunDirectory
from hgpo_gym.trainers.settings import CheckpointSettings, EvaluationSettings, RolloutSettings, TrainerSettings
from hgpo_gym.trainers.update.policy_update import PolicyUpdate


class Learned(NamedTuple):
    """What an iteration gave: its metrics, `steps` and the seconds of each part among them, and the rollout that it
    learned from, where it is kept."""

    metrics: dict[str, Any]
    rollout: Rollout | None


class Trainer:
    """One run of one algorithm.

    All randomness is drawn from (stream, seed, iteration), so a resumed run needs no random state and goes on with the
    same numbers. Several processes collect the episodes of their own groups, put them together, and then do the same
    but for their parts of each mini-batch; the main one writes the run directory.
    """

    def __init__(self, config: DictConfig, run: RunDirectory, progress: Progress, processes: Processes = ALONE):
        self.run_dir, self.progress, self.processes, self.seed = run, progress, processes, int(config.seed)
        self.rollout = RolloutSettings(**plain(config.rollout))
        self.settings = TrainerSettings(**plain(config.trainer))
        self.evaluation = EvaluationSettings(**plain(config.evaluation))
        self.checkpoint = CheckpointSettings(**plain(config.checkpoint))
        self.estimator_options = plain(config.algo)
        self.estimator = self.estimator_options.pop("name")
        self._check_algorithm()
        self.loggers = find_loggers(config.loggers)
        self.checkpoints = Checkpoints(run.checkpoint_path, self.checkpoint.keep)
        self.env = self._make_env(config)
        self.evaluation_env = make_evaluation_env(config, processes)
        vector: TextVectorEnv = self.env.unwrapped  # type: ignore[assignment]
        self.sampler = InOrder(vector.task_ids, self.seed)
        newest = processes.on_main(lambda: self.checkpoints.newest_sound(progress.line))
        new: dict[str, Any] = {"iteration": 0, "evaluations": [], "metrics": []}
        state = processes.on_main(lambda: read_state(newest) if newest else new)
        self.iteration: int = state["iteration"]
        self.evaluations: list[dict[str, Any]] = state["evaluations"]
        self.policy = self._begin(config, newest, state)
        self.unsaved = False
        last = (state["metrics"] or [{}])[-1]
        self.steps_so_far, self.seconds_so_far = last.get("steps_so_far", 0), last.get("seconds_so_far", 0.0)
        self.update = self._make_update(config)
        if newest is not None and self.iteration > 0:
            self.update.load_state_dict(load_update_state(newest, mapped=processes.count > 1))
        self.policy.updated()

    def train(self) -> dict[str, Any]:
        """Run to `trainer.iterations` and return the summary.

        A checkpoint that the disk does not take is tried again after the next iteration.

        Raises:
            KeyboardInterrupt: after a checkpoint of the last finished iteration, if this process is alone; others would
                have to take part, and may be anywhere.
            NonFiniteError: the checkpoints stay as they were.
            CheckpointNotSavedError: the last one, or that of an interrupted run.
            NotWrittenError: metrics, rollouts or the summary, because the disk is full.
        """
        try:
            with self.progress.stage(f"{self.estimator} seed {self.seed}", lines=False) as tick:
                if not self.evaluations:
                    before = self._evaluate()
                    self.progress.line(f"Before training: evaluation of {before.split} {before.success:.1%}; {LEGEND}")
                while self.iteration < self.settings.iterations:
                    metrics = self._iterate()
                    self.progress.line(describe_iteration(metrics, self.settings.iterations))
                    tick(self.iteration, self.settings.iterations, f"success {metrics['success']:.0%}")
        except KeyboardInterrupt:
            if self.processes.count == 1:
                with _finish_before_interrupt():
                    self._save(last=True)
            raise
        summary = self._summary()
        if self.processes.main:
            self.run_dir.write_summary(summary)
        return summary

    def close(self) -> None:
        self.env.close()
        self.evaluation_env.close()
        self.run_dir.close()

    def _begin(self, config: DictConfig, newest: Path | None, state: dict[str, Any]) -> TrainablePolicy:
        """The policy of the newest checkpoint, or of a first one. The main process makes the run directory ours and
        puts it in the state of that checkpoint before others look into it."""
        policy, start = None, newest or self.checkpoints.first
        if self.processes.main:
            policy = initial_policy(config, self.progress) if newest is None else load_policy(config, newest / "model")
            self.run_dir.begin(config)
            self.run_dir.restore_metrics(state["metrics"])
            kept_rollouts.forget_after(self.run_dir.rollout_path, self.iteration)
            self.checkpoints.tidy(self.iteration, self.progress.line)
            if newest is None:
                self.checkpoints.save(0, policy, {}, state)
            else:
                self.progress.line(f"Going on after iteration {self.iteration} from {newest}")
            self.run_dir.begin_logging(self.loggers, config, after=self.iteration)
        check_seen_by_all(self.processes, start)
        return load_policy(config, start / "model") if policy is None else policy

    def _check_algorithm(self) -> None:
        ESTIMATORS.check_options(self.estimator, self.estimator_options)

    def _make_env(self, config: DictConfig) -> ContextWrapper:
        return make_training_env(config, self.processes)

    def _make_update(self, config: DictConfig) -> PolicyUpdate:
        reference = self._reference(config) if self.settings.kl_coef > 0 else None
        return PolicyUpdate(self.policy, reference, self.settings, self.rollout.temperature, self.processes)

    def _iterate(self) -> dict[str, Any]:
        began = time.perf_counter()
        rollout = self._collect()
        with _finish_before_interrupt():
            learned = self._learn(rollout, time.perf_counter() - began)
            self.iteration += 1
            self.steps_so_far += learned.metrics["steps"]
            self.seconds_so_far += sum(learned.metrics[f"seconds_{part}"] for part in PARTS)
            metrics = {
                "iteration": self.iteration,
                **learned.metrics,
                "steps_so_far": self.steps_so_far,
                "seconds_so_far": self.seconds_so_far,
            }
            last = self.iteration == self.settings.iterations
            if last or (self.evaluation.every and self.iteration % self.evaluation.every == 0):
                metrics |= {"evaluation_success": self._evaluate().success}
            if self.processes.main:
                self._log(metrics, learned.rollout)
            if last or self.unsaved or self.iteration % self.checkpoint.every == 0 or self._best() == self.iteration:
                self._save(last)
        return metrics

    def _collect(self) -> Rollout:
        """The episodes of this iteration; Ctrl-C may end it."""
        groups = range(self.rollout.num_tasks)
        seeds = [(Stream.ROLLOUT, self.seed, self.iteration, group) for group in groups]
        with self.update.weights.gathered():
            own = collect(
                self.env,
                self.policy,
                self.rollout.sampling,
                task_ids=self.processes.share(self.sampler.tasks(self.iteration, len(groups), ())),
                seeds=self.processes.share(seeds),
                invalid_action_penalty=self.settings.invalid_action_penalty,
            )
        return merge(self.processes.gather([own]))

    def _learn(self, rollout: Rollout, seconds_rollout: float) -> Learned:
        """Change the policy by what was collected in that time; Ctrl-C waits for it."""
        began = time.perf_counter()
        advantages = estimate(self.estimator, rollout.batch, **self.estimator_options)
        assigned = time.perf_counter()
        updated = self.update(rollout.tokens, advantages, (Stream.SHUFFLE, self.seed, self.iteration))  # type: ignore[arg-type]
        metrics = {
            **episode_metrics(rollout.episodes),
            "steps": len(rollout.batch),
            "group_sizes": rollout.batch.group_sizes(),
            "advantage_mean": float(advantages.mean()),
            "advantage_std": float(advantages.std()),
            "advantage_zero_share": float((advantages == 0).mean()),
            **updated,
            "seconds_rollout": seconds_rollout,
            "seconds_advantage": assigned - began,
            "seconds_update": time.perf_counter() - assigned,
        }
        return Learned(metrics, rollout)

    def _log(self, metrics: dict[str, Any], rollout: Rollout | None) -> None:
        self.run_dir.log(metrics)
        if rollout and self.checkpoint.rollouts_every and self.iteration % self.checkpoint.rollouts_every == 0:
            kept_rollouts.keep(rollout, self.iteration, self.run_dir.rollout_path)

    def _evaluate(self) -> Evaluation:
        began = time.perf_counter()
        with self.update.weights.gathered():
            result = evaluate(
                self.evaluation_env,
                self.policy,
                self.evaluation.sampling(self.rollout.max_new_tokens),
                range(self.evaluation.decoding_seeds),
                processes=self.processes,
            )
        self.evaluations.append(
            {"iteration": self.iteration, "seconds": time.perf_counter() - began, **result.summary()}
        )
        return result

    def _save(self, last: bool) -> None:
        update_state, weights = self.update.state_dict(), self.update.weights.state_dict()
        self.unsaved = not self.processes.on_main(lambda: self._saved(update_state, weights, last))

    def _saved(self, update_state: dict[str, Any], weights: dict[str, Any] | None, last: bool) -> bool:
        """Save a checkpoint. Returns False, or at last raises CheckpointNotSavedError, if the disk is full."""
        state = {"evaluations": self.evaluations, "metrics": self.run_dir.metrics()}
        try:
            self.checkpoints.save(self.iteration, self.policy, update_state, state, self._best(), weights)
        except CheckpointNotSavedError as error:
            if last:
                raise
            self.progress.line(f"{error} The run goes on and tries again after the next iteration.")
            return False
        return True

    def _best(self) -> int | None:
        """The iteration of the best evaluation so far, if its checkpoint is to be kept."""
        return (
            best_evaluation(self.evaluations)["iteration"] if self.evaluations and self.checkpoint.keep_best else None
        )

    def _reference(self, config: DictConfig) -> Scorer:
        initial = self.processes.on_main(lambda: self.checkpoints.sound(0))
        return reference_policy(config, self.policy, initial / "model")

    def _summary(self) -> dict[str, Any]:
        metrics = self.run_dir.metrics()
        seconds = {name: sum(line[f"seconds_{name}"] for line in metrics) for name in PARTS}
        seconds["evaluation"] = sum(result["seconds"] for result in self.evaluations)
        return {
            "algorithm": self.estimator,
            "seed": self.seed,
            "iterations": self.iteration,
            "success_before": self.evaluations[0]["success"],
            "success_after": self.evaluations[-1]["success"],
            "best": {name: best_evaluation(self.evaluations)[name] for name in ("iteration", "success")},
            "success_while_training": float(np.mean([line["success"] for line in metrics])) if metrics else None,
            "iterations_to_80_percent": next(
                (result["iteration"] for result in self.evaluations if result["success"] >= 0.8), None
            ),
            "seconds": seconds,
            "evaluations": self.evaluations,
        }


@contextmanager
def _finish_before_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done, so that weights, metrics and checkpoint belong together."""
    interrupted = False

    def note(_signal: int, _frame: object) -> None:
        nonlocal interrupted
        interrupted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted:
        raise KeyboardInterrupt
