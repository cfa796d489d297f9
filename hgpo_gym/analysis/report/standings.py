"""Several comparisons together: the ranks of algorithms over all of them, their significance, and the cost."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np

from hgpo_gym.analysis.report.blocks import Column, Items, Section, Table, Value, write
from hgpo_gym.analysis.report.contests import SCORES, SIGNIFICANCE, ahead, is_significant
from hgpo_gym.analysis.report.intervals import (
    Estimate,
    at_shared_seeds,
    bootstrap,
    corrected_p_values,
    improvement,
    interquartile_mean,
    mean,
    permutation_p_value,
    probability_of_improvement,
    runs_needed,
    seeds_needed,
    sign_flip_p_value,
    typical,
    typical_of_strata,
)
from hgpo_gym.analysis.report.load import DECIMALS, PARTS, Comparison, FinishedRun
from hgpo_gym.analysis.report.summary import OPTIMIZER_STEPS, mean_total

Label = TypeVar("Label")
MOST_SEEDS = 10_000
"""The largest number of needed seeds that is printed."""


def success(comparisons: Sequence[Comparison], shared_labels: Sequence[str]) -> Section:
    """Return the success of every algorithm in every comparison, and over all comparisons for algorithms in each."""
    rows: list[tuple[Value, ...]] = [
        (comparison.title, label, len(runs), *(typical(comparison.scores(label, score)) for score in SCORES.values()))
        for comparison in comparisons
        for label, runs in comparison.runs.items()
    ]
    shared = [comparison.at_shared_seeds(shared_labels) for comparison in comparisons] if shared_labels else []
    without_shared_seeds = [comparison.title for comparison in shared if not comparison.all_runs]
    if not without_shared_seeds:
        for label in shared_labels:
            strata = [[comparison.scores(label, score) for comparison in shared] for score in SCORES.values()]
            seeds = sum(map(len, strata[0]))
            rows.append((f"all {len(comparisons)} together", label, seeds, *map(typical_of_strata, strata)))
    columns = (
        Column("comparison"),
        Column("algorithm"),
        Column("training seeds", "whole"),
        Column("final success", "share"),
        Column("training success", "share"),
    )
    caption = (
        "Interquartile means; all together: over the runs of every comparison at the seeds that all algorithms have "
        "there, resampled within each."
    )
    if without_shared_seeds:
        caption += (
            f" They are missing, because no seed was run with all algorithms in {', '.join(without_shared_seeds)}."
        )
    return Section("Success", [Table("overview", caption, columns, tuple(rows))], headline=True)


def ranks(comparisons: Sequence[Comparison], shared_labels: Sequence[str]) -> Section:
    """Return the mean rank of each algorithm that is in all comparisons."""
    if len(shared_labels) < 2:
        return Section("Ranks", [])
    by_score = {
        name: mean_ranks([[comparison.scores(label, score) for label in shared_labels] for comparison in comparisons])
        for name, score in SCORES.items()
    }
    order = sorted(range(len(shared_labels)), key=lambda row: by_score["training"].value[row])
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (shared_labels[row], *(_entry(estimate, row) for estimate in by_score.values())) for row in order
    )
    columns = (Column("algorithm"), *(Column(f"mean rank {name}", "rank") for name in by_score))
    caption = (
        "The rank of the interquartile mean in a comparison (1 is the best, ties share a rank), averaged over the "
        "comparisons. In brackets the best and the worst possible rank: after all significantly better ones, before "
        "all significantly worse ones (p < 0.05 by a permutation test, corrected for the pairs of the comparison)."
    )
    return Section("Ranks", [Table("ranks", caption, columns, rows)], headline=True)


def pairs(comparisons: Sequence[Comparison], shared_labels: Sequence[str]) -> Section:
    """Return the mean over the comparisons of the probability that a run of one algorithm beats a run of the other."""
    rows: list[tuple[Value, ...]] = [
        (
            f"{later} over {earlier}",
            *(_mean_improvement(comparisons, later, earlier, score) for score in SCORES.values()),
        )
        for earlier, later in combinations(shared_labels, 2)
    ]
    columns = (Column("pair"), *(Column(f"probability {name}", "probability") for name in SCORES))
    caption = "Probability of improvement, the mean over the comparisons."
    return Section("Each against each", [Table("overview_improvement", caption, columns, tuple(rows))] if rows else [])


def verdicts(comparison: Comparison) -> Section:
    """Return whether the best algorithm of a comparison beats each of the others, a sentence each."""
    title = f"Conclusions: {comparison.title}"
    if len(comparison.runs) < 2:
        return Section(title, [])
    sentences = [
        f"{name[0].upper()}{name[1:]}, {sentence}"
        for name, score in SCORES.items()
        for sentence in best_against_each({label: comparison.by_seed(label, score) for label in comparison.runs})
    ]
    return Section(title, [Items(tuple(sentences))], headline=True)


def cost(comparisons: Sequence[Comparison]) -> Section:
    """Return the cost of a run of each algorithm."""
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            comparison.title,
            label,
            *(mean_total(runs, metric) for metric in ("steps", "tokens", OPTIMIZER_STEPS)),
            *(mean([run.seconds[part] for run in runs]) for part in PARTS),
        )
        for comparison in comparisons
        for label, runs in comparison.runs.items()
    )
    columns = (
        Column("comparison"),
        Column("algorithm"),
        Column("environment steps", "whole"),
        Column("generated tokens", "whole"),
        Column("optimiser steps", "whole"),
        *(Column(part, "seconds") for part in PARTS),
    )
    caption = "A run, the mean over training seeds. Runs at the same time on one machine slow each other down."
    return Section("Cost", [Table("overview_cost", caption, columns, rows)])


def mean_ranks(scores: Sequence[Sequence[np.ndarray]]) -> Estimate:
    """Return the mean over the comparisons of the rank of each algorithm's interquartile mean, float64[algorithms].

    The interval holds the ranks that the runs leave open in each comparison, see `pair_p_values`. It begins after all
    algorithms that are significantly better, and ends before all that are significantly worse. It includes the rank
    itself, since an algorithm that mostly loses may have the higher interquartile mean. Resampled runs would be biased:
    ranks of close algorithms would move to the middle.

    Args:
        scores: for each comparison, for each algorithm, a number for each run.

    Raises:
        ValueError: comparisons of different numbers of algorithms.
    """
    if len({len(samples) for samples in scores}) > 1:
        raise ValueError(
            f"mean_ranks: comparisons of {[len(samples) for samples in scores]} algorithms have no common rank."
        )
    rank_table = _ranks(np.array([[interquartile_mean(sample) for sample in samples] for samples in scores]))
    value = rank_table.mean(axis=0)
    runs = min(len(sample) for samples in scores for sample in samples)
    if runs < 2:
        return Estimate(value, None, None, runs)
    better = np.array([_surely_better(samples) for samples in scores])
    # better[c, i, j]: j beats i. The sum over j counts the better ones of i, the sum over i the worse ones of j.
    low = np.minimum(rank_table, 1 + better.sum(axis=2))
    high = np.maximum(rank_table, better.shape[-1] - better.sum(axis=1))
    return Estimate(value, low.mean(axis=0), high.mean(axis=0), runs)


def pair_p_values(scores: Mapping[Label, np.ndarray]) -> dict[tuple[Label, Label], float]:
    """Return the corrected p value of `permutation_p_value` for every two algorithms, in either order.

    Args:
        scores: for each algorithm, a number for each run; algorithms with one run are left out.
    """
    pairs = combinations([label for label, run_scores in scores.items() if len(run_scores) > 1], 2)
    return _in_either_order({pair: permutation_p_value(*(scores[label] for label in pair)) for pair in pairs})


def best_against_each(scores: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Return whether the algorithm with the highest interquartile mean beats each of the others, a sentence each.

    p is corrected for all pairs, because the best one was selected among them. If ranks of runs are not significant,
    differences at the same seed decide.

    Args:
        scores: for each algorithm, a number for each seed.
    """
    runs = {label: np.array(list(by_seed.values())) for label, by_seed in scores.items()}
    best = max(runs, key=lambda label: float(interquartile_mean(runs[label])))
    p_values = pair_p_values(runs)
    differences = {pair: at_shared_seeds(*(scores[label] for label in pair)) for pair in combinations(scores, 2)}
    paired_p_values = _in_either_order(
        {pair: sign_flip_p_value(by_seed) for pair, by_seed in differences.items() if len(by_seed) > 1}
    )

    def sentence(label: str) -> str:
        pair = best, label
        if pair not in p_values:
            return f"{best} and {label} are not comparable with one seed."
        seeds = min(len(runs[best]), len(runs[label]))
        estimate = improvement(runs[best], runs[label])
        if is_significant(estimate, p_values[pair]):
            return _beats(pair, runs, estimate, seeds)
        numbers = f"{seeds} seeds, probability {write(estimate, 'probability')}"
        undecided = f"{best} and {label} do not differ significantly ({numbers})"
        pairs = len(p_values) // 2
        if pair not in paired_p_values:
            needed = runs_needed(float(estimate.value), pairs)
        else:
            paired = at_shared_seeds(*(scores[name] for name in pair))
            if is_significant(difference := mean(paired), paired_p_values[pair], alike=0):
                return f"{undecided}; at the same seed {ahead(*pair, difference)}."
            needed = seeds_needed(paired, pairs)
        if needed is None:
            return f"{undecided}."
        needed_text = f"about {max(needed, seeds + 1):,}" if needed <= MOST_SEEDS else f"more than {MOST_SEEDS:,}"
        return f"{undecided}; a difference of this size needs {needed_text} seeds."

    return [sentence(label) for label in scores if label != best]


def _in_either_order(p_values: Mapping[tuple[Label, Label], float]) -> dict[tuple[Label, Label], float]:
    """Return the p values corrected for the number of pairs, for each pair in either order."""
    corrected = dict(zip(p_values, corrected_p_values(list(p_values.values())).tolist(), strict=True))
    return corrected | {(second, first): p for (first, second), p in corrected.items()}


def _surely_better(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return a matrix, bool[algorithms, algorithms]: True where the second is significantly better than the first."""
    better = np.zeros((len(scores), len(scores)), dtype=np.bool_)
    for (first, second), p in pair_p_values(dict(enumerate(scores))).items():
        better[first, second] = p < SIGNIFICANCE and probability_of_improvement(scores[first], scores[second]) < 0.5
    return better


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the ranks of the labels, [comparisons, labels, ...]: 1 is the highest; equal labels share a mean rank."""
    scores = np.round(scores, DECIMALS - 1)  # interquartile means of equal runs differ in later decimals
    higher = scores[:, None] > scores[:, :, None]
    equal = scores[:, None] == scores[:, :, None]
    return 1 + higher.sum(axis=2) + (equal.sum(axis=2) - 1) / 2


def _entry(estimate: Estimate, row: int) -> Estimate:
    """Return one number of an array, with its interval."""
    low, high = (None if end is None else end[row] for end in (estimate.low, estimate.high))
    return Estimate(estimate.value[row], low, high, estimate.runs)


def _beats(pair: tuple[str, str], runs: Mapping[str, np.ndarray], estimate: Estimate, seeds: int) -> str:
    """Return a sentence on two that differ significantly; the first has the higher interquartile mean."""
    best, challenger = pair
    if estimate.value > 0.5:
        return f"{best} beats {challenger} with probability {write(estimate, 'probability')}, at {seeds} seeds."
    probability = write(improvement(runs[challenger], runs[best]), "probability")
    return (
        f"{challenger} beats {best} with probability {probability}, at {seeds} seeds, though {best} has the higher "
        "interquartile mean."
    )


def _mean_improvement(
    comparisons: Sequence[Comparison], later: str, earlier: str, score: Callable[[FinishedRun], float]
) -> Estimate:
    scores = [comparison.scores(label, score) for comparison in comparisons for label in (later, earlier)]

    def statistic(*samples: np.ndarray) -> np.ndarray:
        pairs = zip(samples[::2], samples[1::2], strict=True)
        return np.mean([probability_of_improvement(first, second) for first, second in pairs], axis=0)

    return bootstrap(scores, statistic)
