"""Load run directories and form comparisons: runs that differ only in the algorithm and the seed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.analysis.report.intervals import at_shared_seeds, first_reaching
from hgpo_gym.runs.directory import (
    AGGREGATION,
    COMPARED_GROUPS,
    MAY_DIFFER,
    NOT_SET,
    NUMBERS_UNCHANGED,
    finished_iterations,
    flatten,
    read_config,
    read_launches,
    read_metrics,
    read_summary,
)
from hgpo_gym.runs.records import EvaluationRecord
from hgpo_gym.runs.run_files import read_json

PARTS = ("rollout", "advantage", "update")
"""The parts of an iteration whose seconds are measured."""
DECIMALS = 13
"""Decimals of a mean of shares: rounding errors are smaller, differences between runs are larger."""

SYMBOLS = {"history_length": "K", "length_weight_alpha": "alpha", "step_advantage_weight": "w", "trace_decay": "lambda"}
"""Options whose labels use the symbol from the papers."""


_NOTHING = object()
_COMPARED = tuple(f"{group}." for group in COMPARED_GROUPS)
USUAL = {
    "learner": "policy_gradient",
    "memory": "window",
    "objective": "ppo_clip",
    "sampler": "in_order",
    "shaping": "none",
    "team": "solo",
}
"""Default choices, which labels leave out."""
COSTS = {"steps": "environment steps", "episodes": "episodes", "tokens": "generated tokens"}
"""Metrics of what an iteration generated, whether it was learned from or not, in words."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes:
        path: its directory.
        settings: its configuration with flat keys.
        metrics: a dictionary for each iteration, see metrics.jsonl.
        evaluations: the summaries of its evaluations while training, in order; the last is the final one.
        later_evaluations: those of `hgpo-gym eval` in evaluation_*.json, for example of other splits.
        seconds: the seconds of training and evaluation, by part.
        launches: the command and versions of each start.
        tasks: the training and evaluation tasks, see `hgpo_gym.trainers.environments.Tasks`.
    """

    path: Path
    settings: dict[str, Any]
    metrics: tuple[dict[str, Any], ...]
    evaluations: tuple[dict[str, Any], ...]
    later_evaluations: tuple[dict[str, Any], ...]
    seconds: dict[str, float]
    launches: tuple[dict[str, Any], ...]
    tasks: dict[str, Any]

    @property
    def algorithm(self) -> str:
        return self.settings["algo.name"]

    @property
    def options(self) -> dict[str, Any]:
        """The compared options, except for the algorithm's name.

        Keys are `gamma` for an option of the algorithm, `objective` for the choice of another group, and
        `gspo:clip_low` for an option of that choice.
        """
        options = {}
        for key, value in self.settings.items():
            group, _, option = key.partition(".")
            if group == "algo" or key in AGGREGATION:
                options[option] = value
            elif group in COMPARED_GROUPS:
                options[group if option == "name" else f"{self.settings[f'{group}.name']}:{option}"] = value
        return options

    @property
    def compared(self) -> dict[str, Any]:
        """The settings in which runs of a comparison may differ, except for those that do not change numbers.

        Groups with their default choice are left out.
        """
        groups = [
            group
            for group in COMPARED_GROUPS
            if self.settings.get(f"{group}.name", USUAL.get(group)) != USUAL.get(group)
        ]
        return {
            key: value for key, value in self.settings.items() if key.startswith(tuple(f"{name}." for name in groups))
        }

    @property
    def by_another_library(self) -> bool:
        """True if another learner than this package's policy gradient trained it: a baseline for the others."""
        return self.settings["learner.name"] != "policy_gradient"

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    @property
    def final(self) -> dict[str, Any]:
        return self.evaluations[-1]

    @property
    def final_success(self) -> float:
        return self.final["success"]

    @property
    def final_parts(self) -> dict[tuple[str, str], float]:
        """The success by split and task type; `all` is the whole split.

        The values are of the final weights, unless the split's name says otherwise. The run's own evaluation takes
        precedence.
        """
        parts: dict[tuple[str, str], float] = {}
        for evaluation in (self.final, *self.later_evaluations):
            types, split = evaluation["success_by_task_type"], self._split_name(evaluation)
            if (split, "all") in parts:
                continue
            parts[split, "all"] = evaluation["success"]
            if len(types) > 1:
                parts |= {(split, name): success for name, success in types.items()}
        return parts

    def _split_name(self, evaluation: Mapping[str, Any]) -> str:
        """Return the split, with what differs from the run's final policy and settings: `test (memory.window=2)`."""
        changed = {key: value for key, (_, value) in evaluation.get("changed", {}).items()}
        if "env.id" in changed:  # whose options are not those of the run's
            changed = {key: value for key, value in changed.items() if not key.startswith("env") or value != NOT_SET}
            changed.pop("env_name", None)
        notes = [f"policy={policy}"] if (policy := evaluation.get("policy", "model")) != "model" else []
        if (iteration := evaluation.get("iteration", self.final["iteration"])) != self.final["iteration"]:
            notes.append(f"iteration={iteration}")
        notes += [
            f"{key}={value}"
            for key, value in changed.items()
            if not key.startswith(("evaluation.split", *NUMBERS_UNCHANGED))
        ]
        return f"{evaluation['split']} ({', '.join(notes)})" if notes else evaluation["split"]

    @property
    def success_while_training(self) -> float:
        """The mean success over all iterations: the sooner a run learns, the higher it is.

        Noise affects it little. Runs with equal numbers of successes have equal means, whatever their order.
        """
        return round(float(self.curve("success").mean()), DECIMALS)

    def curve(self, metric: str) -> np.ndarray:
        """Return a metric, float64[iterations]; NaN for iterations without it."""
        return np.array([line.get(metric, np.nan) for line in self.metrics], dtype=np.float64)

    def has(self, metric: str) -> bool:
        """Return True if every iteration has this metric; other learners log fewer."""
        return all(metric in line for line in self.metrics)

    def cost_after(self, cost: str) -> dict[int, float]:
        """Return the total of a cost in training, one of `COSTS`, after each iteration."""
        return self._until_after(self.curve(cost))

    @cached_property
    def seconds_after(self) -> dict[int, float]:
        """The total seconds of training after each iteration: rollout, advantage and update, not evaluation."""
        return self._until_after(np.sum([self.curve(f"seconds_{part}") for part in PARTS], axis=0))

    def success_at(self, iteration: int) -> float:
        """Return the success of the evaluation after an iteration."""
        return next(evaluation["success"] for evaluation in self.evaluations if evaluation["iteration"] == iteration)

    def success_within(self, cost: str, budget: float) -> float:
        """Return the success at a given cost, interpolated linearly between evaluations."""
        cost_after = self.cost_after(cost)
        costs = [cost_after[evaluation["iteration"]] for evaluation in self.evaluations]
        return float(np.interp(budget, costs, [evaluation["success"] for evaluation in self.evaluations]))

    def until_threshold(self, threshold: float, iterations: Sequence[int]) -> tuple[float, float, float]:
        """Return iterations, environment steps and seconds of training before the first evaluation with this success.

        Only evaluations after `iterations` count, so that runs with different evaluations can be compared.
        """
        success = [self.success_at(iteration) for iteration in iterations]
        steps_after, seconds_after = self.cost_after("steps"), self.seconds_after
        positions = (
            iterations,
            [steps_after[iteration] for iteration in iterations],
            [seconds_after[iteration] for iteration in iterations],
        )
        iteration, steps, seconds = (first_reaching(success, position, threshold) for position in positions)
        return iteration, steps, seconds

    def _until_after(self, values: np.ndarray) -> dict[int, float]:
        iterations = (line["iteration"] for line in self.metrics)
        return {0: 0.0} | dict(zip(iterations, np.cumsum(values).tolist(), strict=True))


@dataclass(frozen=True)
class Comparison:
    """Runs that differ in the algorithm and its options, and in the training seed.

    Attributes:
        title: the environment and the evaluated split, and the settings in which other comparisons differ.
        settings: the settings that all runs share.
        runs: the runs of each label, by seed. A label is the algorithm's name with its distinguishing options.
    """

    title: str
    settings: dict[str, Any]
    runs: dict[str, tuple[FinishedRun, ...]]

    def scores(self, label: str, score: Callable[[FinishedRun], float]) -> np.ndarray:
        """Return a number for each run, float64[runs]."""
        return np.array([score(run) for run in self.runs[label]])

    def by_seed(self, label: str, score: Callable[[FinishedRun], float]) -> dict[int, float]:
        """Return a number for each run, by its seed."""
        return {run.seed: score(run) for run in self.runs[label]}

    def at_shared_seeds(self, labels: Collection[str]) -> "Comparison":
        """Return the comparison with these labels only, and with the seeds that all of them have.

        Otherwise a label without runs of a hard comparison would look too good over several comparisons.
        """
        seeds = set.intersection(*({run.seed for run in self.runs[label]} for label in labels))
        runs = {label: tuple(run for run in self.runs[label] if run.seed in seeds) for label in labels}
        return replace(self, runs=runs)

    def differences(self, label: str, other: str, score: Callable[[FinishedRun], float]) -> np.ndarray:
        """Return the number of `label` less that of `other` for every seed that both have, float64[seeds].

        A seed has the same tasks in the same order, whatever the algorithm.
        """
        return at_shared_seeds(self.by_seed(label, score), self.by_seed(other, score))

    @property
    def costs(self) -> list[str]:
        """The costs in `COSTS` that all runs have recorded."""
        return [cost for cost in COSTS if all(run.has(cost) for run in self.all_runs)]

    @property
    def has_curves(self) -> bool:
        """True if every run has two iterations: a curve of one says no more than the tables."""
        return all(len(run.metrics) > 1 for run in self.all_runs)

    @property
    def distinguishing_settings(self) -> dict[str, dict[str, Any]]:
        """The settings of each label that differ between labels and do not follow from the algorithm's name.

        Options of an algorithm are compared only between labels of that algorithm.
        """
        settings = {
            label: {
                key: value
                for key, value in runs[0].settings.items()
                if key in AGGREGATION or (key.startswith(_COMPARED) and key != "algo.name")
            }
            for label, runs in self.runs.items()
        }
        names = {label: runs[0].algorithm for label, runs in self.runs.items()}

        def rivals(label: str, key: str) -> list[dict[str, Any]]:
            return [
                label_settings
                for other, label_settings in settings.items()
                if not key.startswith("algo.") or names[other] == names[label]
            ]

        return {
            label: {key: value for key, value in label_settings.items() if _differing_in(key, rivals(label, key))}
            for label, label_settings in settings.items()
        }

    def recording(self, metric: str) -> "Comparison":
        """Return the comparison with only the labels whose runs all have the metric."""
        return self._only(lambda runs: all(run.has(metric) for run in runs))

    def recording_any(self, metric: str) -> "Comparison":
        """Return the comparison with only the labels that have the metric in some iteration of some run."""
        return self._only(lambda runs: any(metric in line for run in runs for line in run.metrics))

    @property
    def of_estimators(self) -> "Comparison":
        """The comparison without the baselines."""
        return self._only(lambda runs: not runs[0].by_another_library)

    def _only(self, chosen: Callable[[tuple[FinishedRun, ...]], bool]) -> "Comparison":
        return replace(self, runs={label: runs for label, runs in self.runs.items() if chosen(runs)})

    @property
    def baselines(self) -> list[str]:
        """The labels of the algorithms that other libraries have trained, with other networks."""
        return [label for label in self.runs if label not in self.of_estimators.runs]

    @property
    def split(self) -> str:
        """The split that is evaluated while training."""
        return self.all_runs[0].final["split"]

    @property
    def all_runs(self) -> list[FinishedRun]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def has_several_runs(self) -> bool:
        """Return True if a label has more than one run."""
        return any(len(runs) > 1 for runs in self.runs.values())

    @property
    def evaluated_iterations(self) -> list[int]:
        """The iterations after which every run has an evaluation."""
        return sorted(
            set.intersection(*({evaluation["iteration"] for evaluation in run.evaluations} for run in self.all_runs))
        )


def load_runs(directories: Sequence[Path]) -> tuple[list[FinishedRun], list[Path]]:
    """Return the finished runs in directories, and the paths of unfinished ones.

    A directory is a run, or a folder of runs at any depth.

    Raises:
        FileNotFoundError: a directory holds no finished run.
        DamagedError: a file of a run is damaged.
    """
    finished: dict[Path, FinishedRun] = {}
    unfinished: list[Path] = []
    for directory in directories:
        run_paths = sorted(path.parent for path in directory.rglob("config.yaml"))
        finished_paths = [path for path in run_paths if finished_iterations(path)]
        if not finished_paths:
            raise FileNotFoundError(
                f"No finished run in {directory}: expected summary.json, with the iterations of config.yaml, in it or "
                "in a folder below. hgpo-gym train and compare write it when a run ends; resume=auto continues a "
                "run that did not."
            )
        finished |= {path.resolve(): _load(path) for path in finished_paths}
        unfinished += [path for path in run_paths if path not in finished_paths]
    return list(finished.values()), list(dict.fromkeys(unfinished))


def comparisons(runs: Sequence[FinishedRun]) -> list[Comparison]:
    """Return the runs in comparisons. Runs of a comparison differ only in the algorithm, its options and the seed.

    They also have the same tasks: of a list of splits a run takes the first that exists.

    Raises:
        ValueError: two directories hold the same run.
    """
    by_settings: dict[str, list[FinishedRun]] = {}
    for run in runs:
        by_settings.setdefault(repr((sorted(_common(run).items()), run.final["split"], run.tasks)), []).append(run)
    groups = list(by_settings.values())
    titles = _titles(groups)
    return [Comparison(title, _common(group[0]), _by_label(group)) for title, group in zip(titles, groups, strict=True)]


def label_of(run: FinishedRun, options: Iterable[str]) -> str:
    """Return the algorithm's name, with the given ones of the run's options."""
    return " ".join([run.algorithm, *(f"{SYMBOLS.get(key, key)}={run.options[key]}" for key in options)])


def _load(path: Path) -> FinishedRun:
    """Return a finished run. Raises DamagedError, which names the file, if a file is not valid."""
    metrics, summary = read_metrics(path), read_summary(path)
    later = [read_json(file, EvaluationRecord) for file in sorted(path.glob("evaluation_*.json"))]
    return FinishedRun(
        path=path,
        settings=flatten(read_config(path)),
        metrics=tuple(metrics),
        evaluations=tuple(summary["evaluations"]),
        later_evaluations=tuple(later),
        seconds=summary["seconds"],
        launches=tuple(read_launches(path)),
        tasks=summary["tasks"],
    )


def _common(run: FinishedRun) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if not key.startswith(MAY_DIFFER)}


def _titles(groups: list[list[FinishedRun]]) -> list[str]:
    """Return environment and split of each group, with the settings that differ if several groups share them."""
    names = [f"{group[0].settings['env_name']}, split {group[0].final['split']}" for group in groups]
    common = [_common(group[0]) | {"tasks": _training_tasks(group)} for group in groups]
    titles = []
    for name, settings in zip(names, common, strict=True):
        same_name = [candidate for other_name, candidate in zip(names, common, strict=True) if other_name == name]
        titles.append(", ".join([name, *(f"{key}={settings.get(key)}" for key in _differing(same_name))]))
    return titles


def _training_tasks(runs: Sequence[FinishedRun]) -> str:
    """Return the training split and its size, `train (3,553)`."""
    training = runs[0].tasks["training"]
    return f"{training['split']} ({training['tasks']:,})"


def _by_label(runs: list[FinishedRun]) -> dict[str, tuple[FinishedRun, ...]]:
    labelled: dict[str, list[FinishedRun]] = {}
    for name in sorted({run.algorithm for run in runs}, key=_estimator_order):
        algorithm_runs = [run for run in runs if run.algorithm == name]
        distinguishing_options = _distinguishing(run.options for run in algorithm_runs)
        for run in algorithm_runs:
            options = (
                key
                for key in distinguishing_options
                if key in run.options and run.options[key] != USUAL.get(key, _NOTHING)
            )
            labelled.setdefault(label_of(run, options), []).append(run)
    for label, group in labelled.items():
        # A copied directory would count as a second seed and narrow the intervals.
        seeds: dict[int, FinishedRun] = {}
        for run in group:
            if (first := seeds.setdefault(run.seed, run)) is not run:
                raise ValueError(
                    f"{first.path} and {run.path} hold the same run ({label}, seed {run.seed}, equal settings): "
                    "it would count twice. Leave one of them out."
                )
    return {label: tuple(sorted(group, key=lambda run: run.seed)) for label, group in labelled.items()}


def _estimator_order(name: str) -> tuple[int, str]:
    registered = list(ESTIMATORS)
    return (registered.index(name) if name in registered else len(registered), name)


def _differing(settings: Iterable[dict[str, Any]]) -> list[str]:
    """Return the keys whose values are not equal in all settings."""
    entries = list(settings)
    keys = dict.fromkeys(key for entry in entries for key in entry)
    return [key for key in keys if any(entry.get(key) != entries[0].get(key) for entry in entries)]


def _differing_in(key: str, settings: Sequence[dict[str, Any]]) -> bool:
    # A value may be a list or a mapping, which is not hashable; its repr is.
    return len({repr(entry.get(key)) for entry in settings}) > 1


def _distinguishing(options: Iterable[dict[str, Any]]) -> list[str]:
    """Return the options that distinguish runs of one algorithm.

    Options of another group's choice count only if they differ among runs with that choice.
    """
    entries = list(options)
    return [
        key
        for key in _differing(entries)
        if ":" not in key or len({repr(entry[key]) for entry in entries if key in entry}) > 1
    ]
