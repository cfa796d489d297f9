"""Scores of a credit-assignment method on the probes."""

import csv
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS, estimate, needed_with
from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.advantages.statistics import joint_labels, mean_of_group
from hgpo_gym.creditbench.data import GROUP_SIZES, SUPPLIED, Probe
from hgpo_gym.creditbench.measure import Truth, measure
from hgpo_gym.creditbench.probes import probes

Method = Callable[[StepBatch], np.ndarray]
"""Returns the advantages float64[N] of a batch."""
RESAMPLES = 1000
MEASURES = ("signs", "rank", "bias2", "variance", "nonzero", "microseconds", "ceiling")
"""The scores beside the cosine, see `Result`."""
HEADER = ("probe", "group_size", "row", "advantage")
"""The columns of a file of advantages."""


@dataclass(frozen=True)
class Result:
    """The scores of a method on one probe with one group size.

    Attributes:
        probe, group_size: the environment and stage, and the episodes of a group.
        cosine: of advantages and truth over all steps, 1 at best. A common factor does not change it.
        signs: the share of right signs among steps whose truth has one; a 0 counts half.
        bias2, variance: after the best common factor, in units of the truth's mean square; NaN if that is not
            positive, or the truth is not exact.
        rank: Spearman's correlation inside task groups, the mean over groups whose truth differs.
        nonzero: the share of steps with an advantage other than 0.
        microseconds: of the processor, for a step.
        ceiling: the cosine that a second draw of the truth would have, 1 where the truth is exact.
        by_task: float64[tasks, 3], sums of advantage^2, advantage * truth and truth^2 minus its variance.
    """

    probe: str
    group_size: int
    cosine: float
    signs: float
    bias2: float
    variance: float
    rank: float
    nonzero: float
    microseconds: float
    ceiling: float
    by_task: np.ndarray


@dataclass(frozen=True)
class Score:
    """All results of a method.

    Attributes:
        name: of the method.
        results: one for each probe and group size.
    """

    name: str
    results: Sequence[Result]

    def by_environment(self, measure_name: str = "cosine") -> dict[str, float]:
        """Return for each environment the mean of a field of `Result` over its stages and group sizes."""
        values: dict[str, list[float]] = {}
        for result in self.results:
            values.setdefault(result.probe.partition("/")[0], []).append(getattr(result, measure_name))
        return {environment: float(np.mean(each)) for environment, each in values.items()}

    def mean(self, measure_name: str) -> float:
        """Return the mean of a field of `Result` over the environments that have it; NaN if none has."""
        values = [value for value in self.by_environment(measure_name).values() if not np.isnan(value)]
        return float(np.mean(values)) if values else float("nan")

    @property
    def value(self) -> float:
        """The headline: the mean cosine."""
        return self.mean("cosine")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `value`, a bootstrap over the tasks of each environment."""
        generator = np.random.default_rng(0)
        environments: dict[str, list[np.ndarray]] = {}
        for result in self.results:
            environments.setdefault(result.probe.partition("/")[0], []).append(result.by_task)
        means = np.zeros(RESAMPLES)
        for sums in environments.values():
            tasks = len(sums[0])
            drawn = generator.integers(tasks, size=(RESAMPLES, tasks))
            totals = np.stack(sums)[:, drawn].sum(axis=2)  # [results, resamples, 3]
            means += _cosine(totals[..., 0], totals[..., 1], totals[..., 2]).mean(axis=0) / len(environments)
        low, high = np.quantile(means, (0.025, 0.975))
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        parts = (f"{name} {self.mean(name):.3f}" for name in MEASURES)
        return f"{self.name}: {self.value:.3f} (95 % {low:.3f} to {high:.3f}); {', '.join(parts)}"


def score(method: Method, *, name: str, on: Sequence[Probe] | None = None) -> Score:
    """Score a function `(StepBatch) -> advantages float64[N]` on the public probes, or on others.

    Raises:
        ValueError: it returns a wrong number of advantages, or some that are no finite numbers.
    """
    return Score(name, list(_results(method, name, probes() if on is None else on)))


def score_estimators(names: Sequence[str], on: Sequence[Probe]) -> list[Score]:
    """Score registered estimators, the best first.

    Args:
        names: of estimators, each with those of its options that differ from the defaults: "gigpo norm=mean_norm".
        on: the probes.

    Raises:
        ValueError: an estimator or option that is unknown, or one that needs a column that probes do not have.
    """
    scores = [score(_estimator(name), name=name, on=on) for name in names]
    return sorted(scores, key=lambda each: -each.value)


def scorable() -> list[str]:
    """Return the names of the estimators that need no more columns than probes have."""
    return [name for name in ESTIMATORS if set(needed_with(name, {})) <= set(SUPPLIED)]


def _estimator(name: str) -> Method:
    """Return the function of an estimator with options: "gigpo norm=mean_norm"."""
    algorithm, *settings = name.split()
    ESTIMATORS.find(algorithm)
    options = {key: _value(text) for key, _, text in (setting.partition("=") for setting in settings)}
    if missing := set(needed_with(algorithm, options)) - set(SUPPLIED):
        raise ValueError(
            f"{name} needs the column {min(missing)!r}, and probes have {', '.join(SUPPLIED)}. Leave it out."
        )
    return partial(estimate, algorithm, **options)


def _value(text: str) -> Any:
    """Return the value of an option: JSON, or else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def score_file(path: str | Path, *, name: str | None = None, on: Sequence[Probe] | None = None) -> Score:
    """Score the advantages of a method from elsewhere.

    Args:
        path: a CSV, or one that gzip compressed (`.gz`), with the columns `probe`, `group_size`, `row`, `advantage`: a
            line for each known row of each probe, and each group size, in any order. Other rows may be there.
            `write_template` writes such a file.
        name: of the method; by default the file's. Its cost is not known.
        on: the probes; by default the public ones.

    Raises:
        ValueError: a wrong column, a value that is no finite number, a row that is missing, unknown or repeated.
    """
    on = probes() if on is None else on
    advantages = {(probe.name, size): np.full(_length(probe), np.nan) for probe in on for size in GROUP_SIZES}
    known = {probe.name: probe.known for probe in on}
    opened = gzip.open if Path(path).suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        if tuple(header := next(reader, [])) != HEADER:
            raise ValueError(f"{path}: its first line is {','.join(header)!r}, and should be {','.join(HEADER)!r}.")
        for line, cells in enumerate(reader, start=2):
            _take(advantages, cells, f"{path}, line {line}")
    for (probe, size), values in advantages.items():
        if (missing := known[probe][np.isnan(values[known[probe]])]).size:
            raise ValueError(
                f"{path}: {probe} with group_size {size} lacks {missing.size} of {len(known[probe])} rows, the first "
                f"is row {missing[0]}."
            )
    calls = map(np.nan_to_num, advantages.values())
    found = score(lambda _: next(calls), name=name or Path(path).name.partition(".")[0], on=on)
    return replace(found, results=[replace(result, microseconds=np.nan) for result in found.results])


def write_template(path: str | Path, method: Method, on: Sequence[Probe] | None = None) -> None:
    """Write the advantages of a function as a file for `score_file`."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for probe in probes() if on is None else on:
            for size in GROUP_SIZES:
                values = method(probe.batch(size))
                writer.writerows((probe.name, size, row, float(values[row])) for row in probe.known.tolist())


def _take(advantages: dict[tuple[str, int], np.ndarray], cells: Sequence[str], place: str) -> None:
    """Put the advantage of one line of a file into its place."""
    try:
        probe, size, row, value = cells[0], int(cells[1]), int(cells[2]), float(cells[3])
    except (IndexError, ValueError):
        raise ValueError(f"{place}: {','.join(cells)!r} is not {','.join(HEADER)}.") from None
    if (values := advantages.get((probe, size))) is None or not 0 <= row < len(values):
        raise ValueError(f"{place}: there is no row {row} of {probe} with group_size {size}.")
    if not np.isfinite(value):
        raise ValueError(f"{place}: the advantage is {value}, not a finite number.")
    if not np.isnan(values[row]):
        raise ValueError(f"{place}: row {row} of {probe} with group_size {size} stands there twice.")
    values[row] = value


def _results(method: Method, name: str, on: Sequence[Probe]) -> Iterator[Result]:
    for probe in on:
        for size in GROUP_SIZES:
            batch = probe.batch(size)
            began = time.process_time()
            returned = method(batch)
            seconds = time.process_time() - began
            yield _result(probe, size, batch, _checked(returned, name, probe, size), 1e6 * seconds / len(batch))


def _checked(returned: np.ndarray, name: str, probe: Probe, size: int) -> np.ndarray:
    values, place = np.asarray(returned, dtype=np.float64), f"{name} on {probe.name} with group_size {size}"
    if values.shape != (_length(probe),):
        raise ValueError(f"{place}: advantages of shape {values.shape}, expected ({_length(probe)},): one a step.")
    if (wrong := np.flatnonzero(~np.isfinite(values))).size:
        raise ValueError(f"{place}: the advantage of row {wrong[0]} is {values[wrong[0]]}, not a finite number.")
    return values


def _result(probe: Probe, size: int, batch: StepBatch, values: np.ndarray, microseconds: float) -> Result:
    known, columns = probe.known, {name: values[probe.known] for name, values in probe.columns.items()}
    estimated, true, group = values[known], columns["advantage"], batch.group[known]
    noise = columns["standard_error"].astype(np.float64) ** 2
    truth = Truth(
        advantage=true,
        variance=noise,
        noise=np.zeros(len(true)),
        history=columns["history"],
        group=group,
        drawn=group,
        step=batch.step[known],
    )
    # Squared bias needs histories that recur, and few of the steps with a sampled truth do.
    exact = not noise.any()
    errors = measure(estimated, truth, fit_scale=True)
    by_task = np.stack(
        [np.bincount(columns["task"], weights=each) for each in (estimated**2, estimated * true, true**2 - noise)],
        axis=1,
    )
    total = by_task.sum(axis=0)
    return Result(
        probe=probe.name,
        group_size=size,
        cosine=float(_cosine(total[0], total[1], total[2])),
        signs=errors.sign_agreement,
        bias2=errors.bias2 if exact else np.nan,
        variance=errors.variance if exact else np.nan,
        rank=_rank_correlation(estimated, true, labels(group)),
        nonzero=float(np.mean(values != 0)),
        microseconds=microseconds,
        ceiling=float(np.sqrt(total[2] / (total[2] + noise.sum()))),
        by_task=by_task,
    )


def _cosine(square: np.ndarray, product: np.ndarray, true_square: np.ndarray) -> np.ndarray:
    """Return the cosine from sums of squares and products; 0 if all advantages are 0."""
    # The mean square of a sampled truth less its noise may be below 0 in a resample.
    length = np.sqrt(square * np.maximum(true_square, 0.0))
    return np.where(length > 0, product / np.where(length > 0, length, 1.0), 0.0)


def _rank_correlation(values: np.ndarray, true: np.ndarray, groups: np.ndarray) -> float:
    """Return the mean over groups of Spearman's correlation, 0 where all values of a group are equal."""
    ranks = [_centred_ranks(each, groups) for each in (values, true)]
    products = [np.bincount(groups, weights=one * other) for one, other in (ranks, ranks[:1] * 2, ranks[1:] * 2)]
    differ = products[2] > 0
    length = np.sqrt(products[1] * products[2])[differ]
    return float(np.mean(np.where(length > 0, products[0][differ] / np.where(length > 0, length, 1.0), 0.0)))


def _centred_ranks(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return each value's rank in its group minus the group's mean rank, ties by their mean rank, float64[N]."""
    rank = np.empty(len(values))
    rank[np.lexsort((values, groups))] = np.arange(len(values))
    rank = mean_of_group(rank, joint_labels(groups, np.unique(values, return_inverse=True)[1]))
    return rank - mean_of_group(rank, groups)


def _length(probe: Probe) -> int:
    return len(probe.columns["advantage"])
