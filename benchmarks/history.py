"""What the levels of the context keys compare, in the rollouts that a run has kept.

    hgpo-gym train env=alfworld "env.split=[valid_train+generated,generated]" env.milestones=true \\
        "rollout.record=[milestone]" model=features algo=hgpo rollout.num_tasks=16 rollout.group_size=8 \\
        trainer.iterations=40 evaluation.every=0 checkpoint.rollouts_every=4 run_dir=runs/history
    python -m benchmarks.history runs/history

A line a level k, over all kept iterations. A set is the steps of a task group with an equal key at that level.

- compared: of all steps, those whose set has returns that differ, so that HGPO counts the level.
- in twos: of these, those whose set has two steps. Divided by its deviation it gives +1 and -1, however little differs.
- other milestones: of the pairs within sets that are compared, those that have reached other numbers of the task's
  milestones (ALFWorld: taken, heated, put down, ...), which a key should tell apart. Empty where none were recorded.
- steps: of all, those whose set holds a step of another episode.
- error: over these, the mean square of how far the mean return of the other episodes' steps in the set lies from the
  step's own return, relative to the same at level 0, over the same steps. The noise of a step's own return is in both:
  below 1 the level's baseline is the better one, above 1 the worse. With a 95 % interval by resampling task groups.
- averaged: the same of the mean over the levels up to this one, weighed (k + 1)^alpha as by HGPO.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from docs_site.markdown import table
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import discounted_returns, joint_labels, values_differ
from hgpo_gym.analysis.report.intervals import bootstrap
from hgpo_gym.rollouts.saved import kept_iterations, load

COUNTS = (
    *("all", "compared", "in_twos", "pairs", "pairs_apart", "known"),
    *("squares", "squares_averaged", "squares_of_level_0"),
)
SHARES = (("compared", "all"), ("in_twos", "compared"), ("pairs_apart", "pairs"), ("known", "all"))


def counts(batch: StepBatch, gamma: float, alpha: float = 1.0) -> np.ndarray:
    """float64[K + 1, len(COUNTS)]: sums over the steps of a batch, level by level.

    `pairs_apart` is NaN where milestones were not recorded.

    Args:
        gamma: discount of the step returns.
        alpha: HGPO's `length_weight_alpha`.
    """
    returns, means, rows = discounted_returns(batch, gamma), [], []
    for level in range(batch.history_length + 1):
        sets = _sets(batch, level)
        differ, size = values_differ(returns, sets), np.bincount(sets)[sets]
        apart = float((size - _visits_at_equal_milestones(batch, sets))[differ].sum())
        means.append(mean_of_other_episodes(batch, returns, sets))
        known = ~np.isnan(means[level])
        averaged = np.average(means, axis=0, weights=np.arange(1, level + 2) ** alpha)
        baselines = (means[level], averaged, means[0])
        squares = [float(((baseline - returns)[known] ** 2).sum()) for baseline in baselines]
        pairs, in_twos = float((size - 1)[differ].sum()), (differ & (size == 2)).sum()
        rows.append([len(batch), differ.sum(), in_twos, pairs, apart, known.sum(), *squares])
    return np.array(rows, dtype=float)


def _sets(batch: StepBatch, level: int) -> np.ndarray:
    """int64[N]: the set of each row; one that has no key at this level is alone in its own."""
    sets = batch.key_groups(level)
    return np.where(sets >= 0, sets, len(batch) + np.arange(len(batch)))


def mean_of_other_episodes(batch: StepBatch, returns: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """float64[N]: the mean return of the steps of each row's set that are of other episodes; NaN without any."""
    own = joint_labels(sets, batch.trajectory)
    others = np.bincount(sets)[sets] - np.bincount(own)[own]
    total = np.bincount(sets, weights=returns)[sets] - np.bincount(own, weights=returns)[own]
    return np.divide(total, others, out=np.full(len(batch), np.nan), where=others > 0)


def _visits_at_equal_milestones(batch: StepBatch, sets: np.ndarray) -> np.ndarray:
    """[N]: how many steps of the row's set, itself included, had reached as many milestones."""
    if "milestone" not in batch.extras:
        return np.full(len(batch), np.nan)
    equal = joint_labels(sets, milestones_before(batch))
    return np.bincount(equal)[equal]


def milestones_before(batch: StepBatch) -> np.ndarray:
    """int64[N]: how many milestones the episode had reached before each step."""
    rows = batch.in_order
    reached = batch.extras["milestone"][rows].astype(np.int64)
    before = np.cumsum(reached) - reached
    starts = np.flatnonzero(batch.step[rows] == 0)
    found = np.empty(len(batch), dtype=np.int64)
    found[rows] = before - np.repeat(before[starts], np.diff([*starts, len(batch)]))
    return found


def lines(groups: Sequence[np.ndarray]) -> str:
    """The table of the `counts` of task groups."""
    stacked = np.stack(groups, axis=-1)
    rows = []
    for level, own in enumerate(stacked):
        total = dict(zip(COUNTS, own.sum(axis=-1), strict=True))
        shares = [_percent(total[part], total[whole]) for part, whole in SHARES]
        errors = [_ratio(own[[kind, -1]]) if level else "" for kind in (-3, -2)]
        rows.append([str(level), *shares, *errors])
    return table(["level", "compared", "in twos", "other milestones", "steps", "error", "averaged"], rows)


def _ratio(sums: np.ndarray) -> str:
    found = bootstrap([sums], lambda sums: sums[0].sum(axis=-1) / sums[1].sum(axis=-1))
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.value:.2f}{interval}"


def _percent(part: float, whole: float) -> str:
    return "" if np.isnan(part) or not whole else f"{100 * part / whole:.0f} %"


def task_groups(run: Path) -> Iterator[StepBatch]:
    """The steps of each task group of each iteration that a run has kept."""
    for iteration in kept_iterations(run / "rollouts"):
        batch = load(run / "rollouts", iteration).batch
        for group in range(batch.group_labels.max() + 1):
            yield batch.take(np.flatnonzero(batch.group_labels == group))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--alpha", type=float, default=1.0, help="length_weight_alpha")
    parsed = parser.parse_args()
    groups = (group for run in parsed.runs for group in task_groups(run))
    print(lines([counts(group, parsed.gamma, parsed.alpha) for group in groups]), end="")


if __name__ == "__main__":
    main()
