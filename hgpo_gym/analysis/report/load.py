"""From run directories to comparisons: runs that have every setting in common but the algorithm's own and the seed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.analysis.report.intervals import at_shared_seeds, first_reaching
from hgpo_gym.analysis.report.records import (
    EvaluationInReport,
    IterationInReport,
    LaunchInReport,
    SettingsInReport,
    SummaryInReport,
)
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
from hgpo_gym.runs.run_files import DamagedError, damage_named, read_json
from hgpo_gym.section import parse_section

PARTS = ("rollout", "advantage", "update")
"""What the seconds of an iteration went to."""
DECIMALS = 13
"""Of a mean of shares: the rounding of its sum is in those after them, what episodes can differ by before."""

SYMBOLS = {"history_length": "K", "length_weight_alpha": "alpha", "step_advantage_weight": "w", "trace_decay": "lambda"}
"""Options that labels call by the symbol that papers give them."""


_NOTHING = object()
_COMPARED = tuple(f"{group}." for group in COMPARED_GROUPS)
USUAL = {
    "learner": "policy_gradient",
    "objective": "ppo_clip",
    "sampler": "in_order",
    "shaping": "none",
    "team": "solo",
}
"""Choices that labels leave out, beside others that they name."""
COSTS = {"steps": "environment steps", "episodes": "episodes", "tokens": "generated tokens"}
"""Metrics of what an iteration has played, whether it learned from it or not, in words."""


@dataclass(frozen=True)
class RunRecord:
    """A finished run.

    Attributes:
        path: its directory.
        settings: its configuration, flat.
        metrics: a dictionary an iteration, see metrics.jsonl.
        evaluations: the summaries of its evaluations while training, in order; the last is the final one.
        later_evaluations: those of `hgpo-gym eval` beside them, as evaluation_*.json: other splits, for example.
        seconds: of training and evaluation, by part.
        launches: each start of it: command, versions.
        tasks: that it trained on and was evaluated on, see `hgpo_gym.trainers.environments.Tasks`; empty in older
            runs, which do not say.
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
        """What a comparison compares, but for the algorithm's name: its options as `gamma`, the names of what was
        chosen of other groups as `objective`, the options of those as `gspo:clip_low`."""
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
        """The settings in which runs of a comparison may differ, but for those that leave the numbers as they are; of
        groups with their usual choice nothing."""
        groups = [
            group
            for group in COMPARED_GROUPS
            if self.settings.get(f"{group}.name", USUAL.get(group)) != USUAL.get(group)
        ]
        return {
            key: value for key, value in self.settings.items() if key.startswith(tuple(f"{one}." for one in groups))
        }

    @property
    def by_another_library(self) -> bool:
        """Whether something else than this package's policy gradients trained it: a baseline for the others."""
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
        """Success by split and task type; `all` is the whole split. Of the final weights, where the split's name does
        not say that others played; what the run itself has evaluated stands."""
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
        """The split, and who played it, if not the final weights, and under which other settings than the run's, if
        any: `test (memory.window=2)`."""
        changed = {key: now for key, (_, now) in evaluation.get("changed", {}).items()}
        if "env.id" in changed:  # whose options are not those of the run's
            changed = {key: now for key, now in changed.items() if not key.startswith("env") or now != NOT_SET}
            changed.pop("env_name", None)
        told = [f"policy={policy}"] if (policy := evaluation.get("policy", "model")) != "model" else []
        if (iteration := evaluation.get("iteration", self.final["iteration"])) != self.final["iteration"]:
            told.append(f"iteration={iteration}")
        told += [
            f"{key}={now}"
            for key, now in changed.items()
            if not key.startswith(("evaluation.split", *NUMBERS_UNCHANGED))
        ]
        return f"{evaluation['split']} ({', '.join(told)})" if told else evaluation["split"]

    @property
    def success_while_training(self) -> float:
        """The mean over all iterations: higher the sooner a run learns, and little affected by noise. Runs that have
        won equally often have it equal, whatever the order."""
        return round(float(self.curve("success").mean()), DECIMALS)

    def curve(self, metric: str) -> np.ndarray:
        """float64[iterations]: a metric; not a number after iterations that do not have it."""
        with damage_named(self.path / "metrics.jsonl"):
            return np.array([line.get(metric, np.nan) for line in self.metrics], dtype=np.float64)

    def has(self, metric: str) -> bool:
        """Whether every iteration has this metric; older versions logged fewer."""
        return all(metric in line for line in self.metrics)

    def played_after(self, cost: str) -> dict[int, float]:
        """What was played in training until after an iteration: one of `COSTS`."""
        return self._until_after(self.curve(cost))

    @cached_property
    def steps_after(self) -> dict[int, float]:
        """Environment steps taken in training until after an iteration."""
        return self.played_after("steps")

    @cached_property
    def seconds_after(self) -> dict[int, float]:
        """Seconds of training (rollout, advantage, update; not evaluation) until after an iteration."""
        return self._until_after(np.sum([self.curve(f"seconds_{part}") for part in PARTS], axis=0))

    def success_at(self, iteration: int) -> float:
        """The success of the evaluation after an iteration."""
        return next(evaluation["success"] for evaluation in self.evaluations if evaluation["iteration"] == iteration)

    def success_within(self, cost: str, budget: float) -> float:
        """The success when as much as this was played, between evaluations in a straight line."""
        played = self.played_after(cost)
        at = [played[one["iteration"]] for one in self.evaluations]
        return float(np.interp(budget, at, [one["success"] for one in self.evaluations]))

    def until_threshold(self, threshold: float, iterations: Sequence[int]) -> tuple[float, float, float]:
        """Iterations, environment steps and seconds of training before the first evaluation with this success, among
        those after `iterations`: between runs, of those that all have."""
        success = [self.success_at(iteration) for iteration in iterations]
        positions = (
            iterations,
            [self.steps_after[iteration] for iteration in iterations],
            [self.seconds_after[iteration] for iteration in iterations],
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
        title: the environment and the evaluated split, and what sets it apart from the report's other comparisons.
        settings: what all runs have in common.
        runs: the runs of each label, by seed. A label is the algorithm's name, with the options that tell it apart.
    """

    title: str
    settings: dict[str, Any]
    runs: dict[str, tuple[RunRecord, ...]]

    def scores(self, label: str, score: Callable[[RunRecord], float]) -> np.ndarray:
        """float64[runs]: a number for each run."""
        return np.array([score(run) for run in self.runs[label]])

    def by_seed(self, label: str, score: Callable[[RunRecord], float]) -> dict[int, float]:
        """A number for each run, by its seed."""
        return {run.seed: score(run) for run in self.runs[label]}

    def at_shared_seeds(self, labels: Collection[str]) -> "Comparison":
        """The same with these labels alone, and the seeds that all of them have runs of: over several comparisons, one
        that lacks runs of a hard one would look better than it is."""
        seeds = set.intersection(*({run.seed for run in self.runs[label]} for label in labels))
        runs = {label: tuple(run for run in self.runs[label] if run.seed in seeds) for label in labels}
        return replace(self, runs=runs)

    def differences(self, label: str, other: str, score: Callable[[RunRecord], float]) -> np.ndarray:
        """float64[seeds]: how much larger the number is, for every seed that both have runs of.

        A seed has the same tasks in the same order, whatever the algorithm.
        """
        return at_shared_seeds(self.by_seed(label, score), self.by_seed(other, score))

    @property
    def costs(self) -> list[str]:
        """Those of `COSTS` that all runs have recorded."""
        return [cost for cost in COSTS if all(run.has(cost) for run in self.all_runs)]

    @property
    def own_settings(self) -> dict[str, dict[str, Any]]:
        """Of each label the settings that do not follow from the algorithm's name, as far as they are not the same for
        all; options of an algorithm where labels have it in common."""
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
                own for other, own in settings.items() if not key.startswith("algo.") or names[other] == names[label]
            ]

        return {
            label: {key: value for key, value in own.items() if _differing_in(key, rivals(label, key))}
            for label, own in settings.items()
        }

    def recording(self, metric: str) -> "Comparison":
        """The same with those labels alone whose runs all have the metric."""
        return replace(
            self, runs={label: runs for label, runs in self.runs.items() if all(run.has(metric) for run in runs)}
        )

    def recording_any(self, metric: str) -> "Comparison":
        """The same with those labels alone of which a run has the metric in some iteration."""
        having = {
            label: runs
            for label, runs in self.runs.items()
            if any(metric in line for run in runs for line in run.metrics)
        }
        return replace(self, runs=having)

    @property
    def of_estimators(self) -> "Comparison":
        """The same without the baselines."""
        own = {label: runs for label, runs in self.runs.items() if not runs[0].by_another_library}
        return replace(self, runs=own)

    @property
    def baselines(self) -> list[str]:
        """The labels of the algorithms that other libraries have trained, with networks of their own."""
        return [label for label in self.runs if label not in self.of_estimators.runs]

    @property
    def split(self) -> str:
        """The split that is evaluated while training."""
        return self.all_runs[0].final["split"]

    @property
    def all_runs(self) -> list[RunRecord]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def evaluated_iterations(self) -> list[int]:
        """The iterations after which every run has an evaluation."""
        return sorted(
            set.intersection(*({evaluation["iteration"] for evaluation in run.evaluations} for run in self.all_runs))
        )


def load_runs(directories: Sequence[Path]) -> tuple[list[RunRecord], list[Path]]:
    """The finished runs in directories, each a run or a folder of runs at any depth, and those that are not finished.

    Raises:
        FileNotFoundError: a directory holds no finished run.
        DamagedError: a file of a run is not what a run writes.
    """
    finished: dict[Path, RunRecord] = {}
    unfinished: list[Path] = []
    for directory in directories:
        found = sorted(path.parent for path in directory.rglob("config.yaml"))
        done = [path for path in found if finished_iterations(path)]
        if not done:
            raise FileNotFoundError(
                f"No finished run in {directory}: expected summary.json, with the iterations of config.yaml, in it or "
                "in a folder below. hgpo-gym train and compare write it when a run ends; resume=auto goes on with a "
                "run that did not."
            )
        finished |= {path.resolve(): _load(path) for path in done}
        unfinished += [path for path in found if path not in done]
    return list(finished.values()), list(dict.fromkeys(unfinished))


def comparisons(runs: Sequence[RunRecord]) -> list[Comparison]:
    """The runs, apart by every setting that is not the algorithm's own or the seed, and by the tasks that they had: of
    a list of splits a run takes the first that is there.

    Raises:
        ValueError: two directories hold the same run.
    """
    by_settings: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_settings.setdefault(repr((sorted(_common(run).items()), run.final["split"])), []).append(run)
    groups = [group for own in by_settings.values() for group in _by_tasks(own)]
    titles = _titles(groups)
    return [Comparison(title, _common(group[0]), _by_label(group)) for title, group in zip(titles, groups, strict=True)]


def label_of(run: RunRecord, options: Iterable[str]) -> str:
    """The algorithm's name, with these of the run's `options`."""
    return " ".join([run.algorithm, *(f"{SYMBOLS.get(key, key)}={run.options[key]}" for key in options)])


def _load(path: Path) -> RunRecord:
    """A finished run. Raises DamagedError, which names the file, where it is not what a run writes."""
    settings, metrics = flatten(read_config(path)), read_metrics(path)
    _check(path / "config.yaml", SettingsInReport, settings)
    for line in metrics:
        _check(path / "metrics.jsonl", IterationInReport, line)
    summary = read_summary(path)
    _check(path / "summary.json", SummaryInReport, summary)
    iterations = [line["iteration"] for line in metrics]
    if iterations != sorted(set(iterations)):
        raise DamagedError(path / "metrics.jsonl", "its iterations are not in order")
    if len({tuple(map(len, line.get("group_sizes", []))) for line in metrics}) > 1:
        raise DamagedError(path / "metrics.jsonl", "group_sizes has not the same levels in each line")
    if missing := {evaluation["iteration"] for evaluation in summary["evaluations"]} - {0, *iterations}:
        raise DamagedError(path / "summary.json", f"it evaluates iteration {min(missing)}, which has no metrics")
    later = {file: read_json(file) for file in sorted(path.glob("evaluation_*.json"))}
    for file, evaluation in later.items():
        _check(file, EvaluationInReport, evaluation)
    launches = read_launches(path)
    for launch in launches:
        _check(path / "launches.jsonl", LaunchInReport, launch)
    return RunRecord(
        path=path,
        settings=settings,
        metrics=tuple(metrics),
        evaluations=tuple(summary["evaluations"]),
        later_evaluations=tuple(later.values()),
        seconds=summary["seconds"],
        launches=tuple(launches),
        tasks=summary.get("tasks") or {},
    )


def _check(path: Path, kind: type[BaseModel], content: Any) -> None:
    with damage_named(path):
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        parse_section(kind, content)


def _by_tasks(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Apart by the tasks that they had; those that do not say stand with the first."""
    groups: dict[str, list[RunRecord]] = {}
    said = [repr(run.tasks) for run in runs if run.tasks]
    for run in runs:
        groups.setdefault(repr(run.tasks) if run.tasks else next(iter(said), ""), []).append(run)
    return list(groups.values())


def _common(run: RunRecord) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if not key.startswith(MAY_DIFFER)}


def _titles(groups: list[list[RunRecord]]) -> list[str]:
    """Environment and split; where several comparisons have them in common, also the settings that differ."""
    names = [f"{group[0].settings['env_name']}, split {group[0].final['split']}" for group in groups]
    common = [_common(group[0]) | {"tasks": _training_tasks(group)} for group in groups]
    titles = []
    for name, one in zip(names, common, strict=True):
        alike = [other for other_name, other in zip(names, common, strict=True) if other_name == name]
        titles.append(", ".join([name, *(f"{key}={one.get(key)}" for key in _differing(alike))]))
    return titles


def _training_tasks(runs: Sequence[RunRecord]) -> str:
    """`train (3,553)`; empty of older runs."""
    training = next((run.tasks["training"] for run in runs if run.tasks), None)
    return f"{training['split']} ({training['tasks']:,})" if training else ""


def _by_label(runs: list[RunRecord]) -> dict[str, tuple[RunRecord, ...]]:
    labelled: dict[str, list[RunRecord]] = {}
    for name in sorted({run.algorithm for run in runs}, key=_estimator_order):
        own = [run for run in runs if run.algorithm == name]
        telling = _telling(run.options for run in own)
        for run in own:
            options = (key for key in telling if key in run.options and run.options[key] != USUAL.get(key, _NOTHING))
            labelled.setdefault(label_of(run, options), []).append(run)
    for label, group in labelled.items():
        seeds: dict[int, RunRecord] = {}
        for run in group:
            if (twin := seeds.setdefault(run.seed, run)) is not run:
                raise ValueError(
                    f"{twin.path} and {run.path} hold the same run ({label}, seed {run.seed}, equal settings): "
                    "it would count twice. Leave one of them out."
                )
    return {label: tuple(sorted(group, key=lambda run: run.seed)) for label, group in labelled.items()}


def _estimator_order(name: str) -> tuple[int, str]:
    known = list(ESTIMATORS)
    return (known.index(name) if name in known else len(known), name)


def _differing(settings: Iterable[dict[str, Any]]) -> list[str]:
    """The keys whose values are not the same in all of them."""
    several = list(settings)
    keys = dict.fromkeys(key for one in several for key in one)
    return [key for key in keys if any(one.get(key) != several[0].get(key) for one in several)]


def _differing_in(key: str, settings: Sequence[dict[str, Any]]) -> bool:
    return len({repr(one.get(key)) for one in settings}) > 1


def _telling(options: Iterable[dict[str, Any]]) -> list[str]:
    """The options that tell runs of one algorithm apart. Those of another group's choice, where some have chosen
    something else, count only if they differ among those that have chosen it."""
    several = list(options)
    return [
        key
        for key in _differing(several)
        if ":" not in key or len({repr(one[key]) for one in several if key in one}) > 1
    ]
