"""The results of a league or comparison: a CSV line for each run, and each algorithm against one of them.

    hgpo-gym league seeds=10 trainer.iterations=12 out=runs/league
    python -m benchmarks.league_runs runs/league --baseline hgpo --to league.csv

Differences are in points at the same seed, with 95 % t intervals. An asterisk says p < 0.05 (flipped signs, Holm).
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.analysis.report.contests import SCORES, SIGNIFICANCE, is_significant
from hgpo_gym.analysis.report.intervals import Estimate, corrected_p_values, mean, sign_flip_p_value
from hgpo_gym.analysis.report.load import USUAL, Comparison, FinishedRun, comparisons, label_of, load_runs
from hgpo_gym.config.choices import choice_settings
from hgpo_gym.runs.directory import AGGREGATION, flatten
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.registries import REGISTRIES

COLUMNS = (
    *("environment", "algorithm", "seed", "iterations", "steps", "optimizer_steps"),
    *("seconds", "before", "final", "while_training"),
)
NO_SEED = "no seed in common"


def write_lines(path: Path, lines: Iterable[Sequence[str]], comments: Sequence[str] = ()) -> None:
    """Write the runs to a file, below comments on what they have in common."""
    with path.open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {comment}\r\n" for comment in comments)
        csv.writer(file).writerows([COLUMNS, *lines])


def read(folders: Sequence[Path]) -> list[Comparison]:
    """The comparisons of the runs that have ended. Labels name every option that is not the default, and of objective,
    sampler and the like every choice that is not the usual one, so that they mean the same in other files.

    Raises:
        FileNotFoundError: a folder holds no finished run.
    """
    return [replace(comparison, runs=_by_full_label(comparison)) for comparison in comparisons(load_runs(folders)[0])]


def _by_full_label(comparison: Comparison) -> dict[str, tuple[FinishedRun, ...]]:
    """Runs that were made before an option came, and those that have its default, are one algorithm's."""
    by_label: dict[str, list[FinishedRun]] = defaultdict(list)
    for label, differing in comparison.distinguishing_settings.items():
        runs = comparison.runs[label]
        by_label[_in_full(label, runs[0], differing)] += runs
    return {label: tuple(sorted(runs, key=lambda run: run.seed)) for label, runs in by_label.items()}


def _in_full(label: str, run: FinishedRun, differing: Collection[str]) -> str:
    # The environment's file sets the memory: its options are named only where the comparison is one of memories.
    memory = {key: value for key, value in run.settings.items() if key.startswith("memory.") and key not in differing}
    defaults = _defaults(run) | {
        f"{run.settings['memory.name']}:{key.removeprefix('memory.')}": value for key, value in memory.items()
    }
    full = label_of(run, [key for key, value in run.options.items() if value != defaults.get(key, value)])
    if run.algorithm in ESTIMATORS:
        return full
    # Nobody knows the defaults of an estimator whose plugin is not loaded: what tells it apart here has to do.
    return " ".join(dict.fromkeys([*label.split(" "), *full.split(" ")]))


def _defaults(run: FinishedRun) -> dict[str, Any]:
    """Return the run's `options` of its choices, and the default choices."""
    chosen = {
        group: choice_settings(registry, name)
        for group, registry in REGISTRIES.items()
        if (name := run.settings[f"{group}.name"]) in registry
    }
    as_written = flatten(json.loads(json.dumps(chosen)))  # with lists for tuples, as config.yaml has them
    # Some follow another setting of the run: ${setting}.
    followed = {
        key: run.settings.get(value[2:-1], value) if str(value).startswith("${") else value
        for key, value in as_written.items()
    }
    aggregation = dict.fromkeys(AGGREGATION)
    return {**replace(run, settings={**followed, **aggregation}).options, **USUAL}


def balanced(comparison: Comparison) -> Comparison:
    """With the seeds alone that all algorithms have. Raises ValueError where there is none."""
    by_label = {label: {run.seed for run in runs} for label, runs in comparison.runs.items()}
    seeds = set.intersection(*by_label.values())
    if not seeds:
        listed = "; ".join(f"{label} {', '.join(map(str, sorted(of_it)))}" for label, of_it in by_label.items())
        raise ValueError(
            f"{comparison.title}: no seed in common among {listed}. Train what is missing, or give --all, which takes "
            "seeds that only some have."
        )
    runs = {label: tuple(run for run in runs if run.seed in seeds) for label, runs in comparison.runs.items()}
    return replace(comparison, runs=runs)


def records(comparison: Comparison) -> list[list[str]]:
    """Return a line for each run, by `COLUMNS`."""
    return [
        [
            str(cell)
            for cell in (
                comparison.settings["env_name"],
                label,
                run.seed,
                len(run.metrics),
                int(run.curve("steps").sum()),
                int(run.curve("optimizer_steps").sum()),
                round(sum(run.seconds.values()), 1),
                round(run.evaluations[0]["success"], 4),
                round(run.final_success, 4),
                round(run.success_while_training, 4),
            )
        ]
        for label, runs in comparison.runs.items()
        for run in runs
    ]


def lines(comparison: Comparison, baseline: str) -> list[str]:
    """A line an algorithm and kind of success, the best first."""
    ranked = [
        (label, name, score)
        for name, score in SCORES.items()
        for label in sorted(comparison.runs, key=lambda label: -comparison.scores(label, score).mean())
    ]
    differences = in_points([comparison.differences(label, baseline, score) for label, _, score in ranked])
    return [
        f"{label}, {name}: {in_percent(mean(comparison.scores(label, score)))}; "
        + (f"minus {baseline}: {beside}" if beside else f"{NO_SEED} with {baseline}")
        for (label, name, score), beside in zip(ranked, differences, strict=True)
    ]


def in_percent(estimate: Estimate) -> str:
    """The value, and its interval where there is one."""
    interval = "" if estimate.low is None else f" ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
    return f"{100 * estimate.value:.1f}{interval}"


def in_points(differences: Sequence[Sequence[float] | np.ndarray]) -> list[str]:
    """Return, for several comparisons, the mean difference at the same seed with its interval, and an asterisk if it is
    significant; nothing of one without seeds."""
    return [
        in_percent(mean(one)) + ("*" if sure else "") if len(one) else ""
        for one, sure in zip(differences, significant(differences), strict=True)
    ]


def significant(differences: Sequence[Sequence[float] | np.ndarray]) -> list[bool]:
    """Return, for several comparisons, True if they are significant: p below 0.05 by sign flips, corrected for how
    many could have that, and the t interval leaves out 0."""
    tested = [row for row, one in enumerate(differences) if 2 / 2 ** len(one) < SIGNIFICANCE]
    p_values = corrected_p_values([sign_flip_p_value(differences[row]) for row in tested])
    sure = {row for row, p in zip(tested, p_values, strict=True) if is_significant(mean(differences[row]), p, alike=0)}
    return [row in sure for row in range(len(differences))]


def _seeds(comparison: Comparison) -> str:
    counts = sorted(set(map(len, comparison.runs.values())))
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lines of every environment, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="of leagues or comparisons")
    parser.add_argument("--baseline", default="grpo", help="the algorithm that others are compared with")
    parser.add_argument("--all", action="store_true", help="also seeds that only some algorithms have")
    parser.add_argument("--to", type=Path, help="the CSV file to write")
    parsed = parser.parse_args(arguments)
    comparisons = read(parsed.folders)
    found = [one if parsed.all else balanced(one) for one in comparisons if parsed.baseline in one.runs]
    if not found:
        raise ValueError(
            unknown_name("algorithm", parsed.baseline, sorted({label for one in comparisons for label in one.runs}))
        )
    if parsed.to:
        write_lines(parsed.to, [line for one in found for line in records(one)])
    if without := [one.settings["env_name"] for one in comparisons if parsed.baseline not in one.runs]:
        print(f"Left out, without a finished run of {parsed.baseline}: {', '.join(without)}")
    for comparison in found:
        print(f"{comparison.settings['env_name']}, {_seeds(comparison)} seeds")
        print("\n".join(lines(comparison, parsed.baseline)))


if __name__ == "__main__":
    main()
