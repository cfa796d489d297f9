"""The run loop: collect, learn, log, evaluate, checkpoint. It knows no algorithm: a learner does the first two."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.interrupts import Interrupts, StoppedAtOnceError, interrupts_raised
from hgpo_gym.plain_text import counted
from hgpo_gym.processes import ALONE, Processes, check_seen_by_all, join_processes, launched
from hgpo_gym.progress import Progress, ProgressCallback
from hgpo_gym.rollouts import failures as saved_failures
from hgpo_gym.rollouts import saved as saved_rollouts
from hgpo_gym.rollouts.conversations import write as write_conversations
from hgpo_gym.rollouts.evaluation import Evaluation, eval_drop, evaluate
from hgpo_gym.rollouts.metrics import LEGEND, PARTS, describe_iteration
from hgpo_gym.rollouts.rollout import FailedEpisode
from hgpo_gym.rollouts.samplers import spread
from hgpo_gym.rollouts.teams import TEAMS
from hgpo_gym.runs.checkpoints import CheckpointNotSavedError, Checkpoints, Saving, best_evaluation
from hgpo_gym.runs.diagnostics import Monitor
from hgpo_gym.runs.directory import flatten
from hgpo_gym.runs.loggers import find_loggers
from hgpo_gym.trainers.code_used import changed_code, code_used
from hgpo_gym.trainers.columns import recorded_columns
from hgpo_gym.trainers.environments import Tasks, make_evaluation_env, try_environment
from hgpo_gym.trainers.learners import LEARNERS, Learned, Learner
from hgpo_gym.trainers.open_run import DefaultSettings, check_same_tasks, open_run
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.template_date import DATE_LINE, date_of
from hgpo_gym.trainers.update.diverged import NonFiniteError


def code_of(settings: RunSettings) -> dict[str, str]:
    """Return the external code that a run uses, see `code_used`."""
    return code_used(settings.env, settings.resolved["model"]["kind"], settings.choices)


def make_learner(settings: RunSettings, progress: Progress, processes: Processes = ALONE) -> Learner:
    """Return the learner of a run before it begins.

    Raises:
        ValueError: settings that do not go together.
        ModuleNotFoundError: its library is missing.
    """
    return LEARNERS.bind(settings.learner)(settings, processes, progress)


def processes_of(settings: RunSettings) -> Processes:
    """Return the processes that were launched for a run, once all have joined.

    Raises:
        ValueError: the settings are not for several processes, or not for as many.
    """
    if (count := launched()) > 1:
        settings.model.check(settings.for_model, count)
    on_cpu = settings.resolved["model"].get("device") == "cpu"
    return join_processes(settings.distributed, groups=settings.rollout.num_tasks, on_cpu=on_cpu)


class Run:
    """Training run, used as a context manager: entering it locks the run directory and restores a checkpoint.

    Several processes train together; the main one writes the run directory.

    Args:
        settings: of the run.
        progress: shows progress.
        processes: the processes that train this run.
        defaults: see `open_run`.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: as `open_run` and `make_learner` say; nothing is written yet.
        EpisodesFailedError: on entering, episodes of the warm start or of a sampler's measures failed.
    """

    def __init__(
        self,
        settings: RunSettings,
        progress: Progress,
        processes: Processes = ALONE,
        defaults: DefaultSettings = lambda _: {},
    ):
        date = processes.on_main(lambda: date_of(settings.engine, settings.run_dir, settings.model))
        settings = settings.at_date(date)
        if date is not None:
            progress.line(DATE_LINE.format(date))
        self.settings, self.progress, self.processes = settings, progress, processes
        self.directory = open_run(
            settings.run_dir, settings.resume, settings.resolved, settings.trainer.iterations, defaults
        )
        self.learner = make_learner(settings, progress, processes)
        self.learner.check()
        self.loggers = find_loggers(settings.loggers)
        self.checkpoints = Checkpoints(self.directory.checkpoint_path, settings.checkpoint.keep)
        self.iteration = 0
        self.evaluations: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self.monitor = Monitor(flatten(settings.resolved))
        self.steps_so_far, self.seconds_so_far = 0, 0.0
        self.unsaved = False
        self.interrupts = Interrupts(progress.line, twice=processes.count == 1)
        self.report_progress: ProgressCallback = lambda _done, _total, _words: None

    def __enter__(self) -> Self:
        try:
            settings = self.settings
            recorded = recorded_columns(settings.algo, settings.shaping, settings.rollout.record)
            training = try_environment(settings.env, settings.seed, recorded)
            self.evaluation_env = make_evaluation_env(settings.environments, settings.evaluation, self.processes)
            evaluation = Tasks.of(self.evaluation_env)
            self.tasks = {"training": training.describe(), "evaluation": evaluation.describe()}
            if line := evaluation.overlap(training):
                self.progress.line(line)
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def train(self) -> dict[str, Any]:
        """Run to `trainer.iterations` and return the summary.

        If the disk is full, saving is tried again after the next iteration.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM in any process, after a checkpoint of the last finished iteration. An
                update, evaluation or checkpoint in progress is finished first.
            StoppedAtOnceError: a second Ctrl-C; no checkpoint is saved.
            NonFiniteError: the loss diverged; the mini-batch is in the run directory, checkpoints are unchanged.
            EpisodesFailedError: too many episodes failed; they are in the run directory, checkpoints are unchanged.
            CheckpointNotSavedError: the last checkpoint, or that of an interrupted run, could not be saved.
            NotWrittenError: the disk is full.
        """
        with self.progress.stage(
            f"{self.settings.algo.name} seed {self.settings.seed}", lines=False
        ) as report_progress:
            self.report_progress = report_progress
            report_progress(self.iteration, self.settings.trainer.iterations, "")
            if not self.evaluations:
                with interrupts_raised():
                    evaluation = self._evaluate()
                self.progress.line(
                    f"Before training: evaluation of {evaluation.split} {evaluation.success:.1%}; {LEGEND}"
                )
            self._iterate_to_the_end()
        if found := self.monitor.found:
            self.progress.line(f"Warnings: {len(found)}. All of them again: hgpo-gym health {self.directory.path}")
        summary = self._summary()
        if self.processes.main:
            self.directory.write_summary(summary)
        return summary

    def _iterate_to_the_end(self) -> None:
        iterations = self.settings.trainer.iterations
        # Several processes stop together: a signal waits for where they can agree.
        with self.interrupts.waiting() if self.processes.count > 1 else interrupts_raised():
            try:
                while self.iteration < iterations:
                    metrics = self._iterate()
                    self.progress.line(describe_iteration(metrics, iterations))
                    for diagnostic in self.monitor.add(metrics):
                        self.progress.line(f"Warning: {diagnostic}")
                    self.report_progress(self.iteration, iterations, f"success {metrics['success']:.0%}")
                if self._evaluation_left:
                    self._evaluate_late()
            except StoppedAtOnceError:
                raise
            except KeyboardInterrupt:
                self.interrupts.doing = "the checkpoint"
                with self.interrupts.waiting():
                    self._save(last=True)
                raise

    def close(self) -> None:
        """Close the environments and the run directory."""
        self.learner.close()
        if hasattr(self, "evaluation_env"):
            self.evaluation_env.close()
        self.directory.close()

    def _begin(self) -> None:
        """Resume from the newest checkpoint, or save a first one. The main process locks the run directory and resets
        it to that checkpoint before other processes read it."""
        new: dict[str, Any] = {"iteration": 0, "evaluations": [], "learner": {}, "tasks": self.tasks}
        newest, state, history = self.processes.on_main(
            lambda: (*(self.checkpoints.resume(self.progress.line) or (None, new)), self.checkpoints.history.rows)
        )
        check_same_tasks(state.get("tasks", self.tasks), self.tasks, self.directory.path)
        self.iteration, self.metrics = state["iteration"], [row["metrics"] for row in history]
        evaluations = [*state["evaluations"], *(row["evaluation"] for row in history if "evaluation" in row)]
        by_iteration = {evaluation["iteration"]: evaluation for evaluation in evaluations}
        self.evaluations = [by_iteration[iteration] for iteration in sorted(by_iteration)]
        for line in self.metrics:
            self.monitor.add(line)
        so_far = (self.metrics or [{}])[-1]
        self.steps_so_far, self.seconds_so_far = so_far.get("steps_so_far", 0), so_far.get("seconds_so_far", 0.0)
        if self.processes.main:
            if newest is None:
                self.learner.start()
            else:
                self.learner.load(newest)
            code = code_of(self.settings)
            changed = changed_code(self.directory.path, code) if newest else []
            self.directory.begin(self.settings.resolved, self.learner.packages, code)
            self.directory.restore_metrics(self.metrics)
            saved_rollouts.forget_after(self.directory.rollout_path, self.iteration)
            saved_failures.forget_after(self.directory.failures_path, self.iteration)
            self.checkpoints.prune(self.iteration, self.progress.line)
            if newest is None:
                self.checkpoints.save(0, self.learner.saving(), new)
            else:
                self.progress.line(f"Going on after iteration {self.iteration} from {newest}")
                for change in changed:
                    self.progress.line(f"Warning: {change} has changed since this run was last started.")
            # A last iteration without its evaluation is logged again, with it.
            last = self.iteration - self._evaluation_left
            self.directory.begin_logging(self.loggers, self.settings.resolved, after=last)
        checkpoint = newest or self.checkpoints.first
        check_seen_by_all(self.processes, checkpoint)
        if not self.processes.main:
            self.learner.load(checkpoint)
        learner_state = {**state["learner"], "outcomes": [row["outcomes"] for row in history]}
        self.learner.begin(checkpoint, lambda: self.processes.on_main(lambda: self.checkpoints.valid(0)), learner_state)

    def _iterate(self) -> dict[str, Any]:
        started, self.interrupts.doing = time.perf_counter(), f"the rollout of iteration {self.iteration + 1}"
        with self._keeping_failures("training", self.iteration + 1):
            collected = self.learner.collect(self.iteration)
        self.interrupts.doing = f"the update of iteration {self.iteration + 1}"
        with self._finishing():
            with self._keeping_divergence():
                learned = self.learner.learn(self.iteration, collected, time.perf_counter() - started)
            self.iteration += 1
            metrics = self._counted(learned)
            last = self.iteration == self.settings.trainer.iterations
            every = self.settings.evaluation.every
            row: dict[str, Any] = {"metrics": metrics, "outcomes": learned.outcomes}
            if last or (every and self.iteration % every == 0):
                metrics |= self._evaluated()
                row["evaluation"] = self.evaluations[-1]
            self.interrupts.doing = f"the checkpoint of iteration {self.iteration}"
            self.metrics.append(metrics)
            self.checkpoints.history.rows.append(row)
            if self.processes.main:
                self._log(metrics, learned)
            due = self.iteration % self.settings.checkpoint.every == 0
            if last or self.unsaved or due or self._best() == self.iteration:
                self._save(last)
        return metrics

    @property
    def _evaluation_left(self) -> bool:
        """True if all iterations are done and the last of them was not evaluated."""
        done = self.iteration == self.settings.trainer.iterations
        return done and bool(self.evaluations) and self.evaluations[-1]["iteration"] < self.iteration

    def _evaluate_late(self) -> None:
        """Evaluate a last iteration that was not the last when its checkpoint was saved."""
        with self._finishing():
            self.metrics[-1] |= self._evaluated()
            if self.processes.main:
                self.directory.restore_metrics(self.metrics[:-1])
                self.directory.log(self.metrics[-1])
        self.progress.line(describe_iteration(self.metrics[-1], self.iteration))

    def _evaluated(self) -> dict[str, float]:
        """Evaluate and return the metrics."""
        self.interrupts.doing = f"the evaluation after iteration {self.iteration}"
        result = self._evaluate()
        return {
            "evaluation_success": result.success,
            "evaluation_drop": eval_drop(self.evaluations),
            "evaluation_failed": result.failed,
        }

    @contextmanager
    def _keeping_failures(self, phase: str, iteration: int) -> Iterator[None]:
        """Save the failed episodes of an EpisodesFailedError, and add their place to its message."""
        try:
            yield
        except saved_failures.EpisodesFailedError as error:
            self._keep_failures(error.failures, phase, iteration)
            shown = f"Prompts and responses until then: hgpo-gym inspect {self.directory.path} --failures."
            raise saved_failures.EpisodesFailedError(f"{error} {shown}", error.failures) from None

    @contextmanager
    def _keeping_divergence(self) -> Iterator[None]:
        """Save the mini-batch of a NonFiniteError, each process its part, and add the folder to its message."""
        try:
            yield
        except NonFiniteError as error:
            folder = self.directory.path / "diverged" / f"iteration_{self.iteration + 1:04d}"
            if error.mini_batch is None:
                raise
            name = "mini_batch" if self.processes.count == 1 else f"mini_batch_{self.processes.rank}"
            error.mini_batch.write(folder, name, str(error))
            raise NonFiniteError(f"{error} Its rows and gradient norms are in {folder}.") from error

    def _keep_failures(self, failures: Sequence[FailedEpisode], phase: str, iteration: int) -> None:
        if self.processes.main:
            saved_failures.write(failures, saved_failures.path_of(self.directory.failures_path, phase, iteration))

    @contextmanager
    def _finishing(self) -> Iterator[None]:
        """Delay Ctrl-C and SIGTERM until the block is done in all processes, so that weights, metrics and checkpoint
        belong together."""
        with self.interrupts.waiting():
            yield
        if any(self.processes.gather([self.interrupts.noted])):
            raise KeyboardInterrupt

    def _counted(self, learned: Learned) -> dict[str, Any]:
        """Return the metrics of an iteration, with totals over all iterations."""
        self.steps_so_far += learned.metrics["steps"]
        self.seconds_so_far += sum(learned.metrics[f"seconds_{part}"] for part in PARTS)
        so_far = {"steps_so_far": self.steps_so_far, "seconds_so_far": self.seconds_so_far}
        return {"iteration": self.iteration, **learned.metrics, **so_far}

    def _log(self, metrics: dict[str, Any], learned: Learned) -> None:
        self.directory.log(metrics)
        self._keep_failures(learned.failures, "training", self.iteration)
        every = self.settings.checkpoint.rollouts_every
        if learned.rollout and every and self.iteration % every == 0:
            saved_rollouts.keep(
                learned.rollout,
                self.iteration,
                self.directory.rollout_path,
                learned.batch,
                self.settings.checkpoint.transcripts,
            )

    def _evaluate(self) -> Evaluation:
        started = time.perf_counter()
        settings, iterations = self.settings.evaluation, self.settings.trainer.iterations
        if not self.evaluations:
            vector: TextVectorEnv = self.evaluation_env.unwrapped  # type: ignore[assignment]
            episodes = len(spread(len(vector.task_ids), settings.tasks)) * settings.decoding_seeds
            self.progress.line(f"Evaluating {counted(episodes, 'episode')} of {vector.split} before training")
        with self.learner.rollout_weights(), self._keeping_failures("evaluation", self.iteration):
            result = evaluate(
                self.evaluation_env,
                self.learner.policy,
                settings.sampling(self.settings.rollout.max_new_tokens),
                range(settings.decoding_seeds),
                lambda done, total, steps: self.report_progress(
                    self.iteration, iterations, f"evaluation {done}/{total}, {steps:,} steps"
                ),
                processes=self.processes,
                team=TEAMS.bind(self.settings.team)(),
                tasks=settings.tasks,
                keep=self.settings.checkpoint.transcripts,
                max_retries=self.settings.rollout.max_retries or 0,
                max_failed=self.settings.rollout.max_failed,
            )
        self._keep_failures(result.failures, "evaluation", self.iteration)
        if failure_line := result.failures_line:
            self.progress.line(failure_line)
        if self.processes.main and result.conversations:
            write_conversations(result.conversations, self.directory.evaluation_path(self.iteration))
        seconds = time.perf_counter() - started
        self.evaluations.append({"iteration": self.iteration, "seconds": seconds, **result.summary()})
        return result

    def _save(self, last: bool) -> None:
        saving = self.learner.saving()
        self.unsaved = not self.processes.on_main(lambda: self._saved(saving, last))

    def _saved(self, saving: Saving, last: bool) -> bool:
        """Save a checkpoint. Returns False if the disk is full; raises CheckpointNotSavedError for the last one."""
        state = {
            # The first, the best and the last: enough to choose a checkpoint. The history has all.
            "evaluations": [self.evaluations[0], best_evaluation(self.evaluations), self.evaluations[-1]],
            "learner": self.learner.state(),
            "tasks": self.tasks,
        }
        try:
            self.checkpoints.save(self.iteration, saving, state, self._best())
        except CheckpointNotSavedError as error:
            if last:
                raise
            self.progress.line(f"{error} The run goes on and tries again after the next iteration.")
            return False
        return True

    def _best(self) -> int | None:
        """Return the iteration of the best evaluation so far; None without evaluations or with keep_best=false."""
        if not (self.evaluations and self.settings.checkpoint.keep_best):
            return None
        return best_evaluation(self.evaluations)["iteration"]

    def _summary(self) -> dict[str, Any]:
        metrics = self.metrics
        seconds = {name: sum(line[f"seconds_{name}"] for line in metrics) for name in PARTS}
        seconds["evaluation"] = sum(result["seconds"] for result in self.evaluations)
        return {
            "algorithm": self.settings.algo.name,
            "seed": self.settings.seed,
            "iterations": self.iteration,
            "success_before": self.evaluations[0]["success"],
            "success_after": self.evaluations[-1]["success"],
            "best": {name: best_evaluation(self.evaluations)[name] for name in ("iteration", "success")},
            "success_while_training": float(np.mean([line["success"] for line in metrics])) if metrics else None,
            "iterations_to_80_percent": next(
                (result["iteration"] for result in self.evaluations if result["success"] >= 0.8), None
            ),
            "seconds": seconds,
            "tasks": self.tasks,
            "evaluations": self.evaluations,
        }
