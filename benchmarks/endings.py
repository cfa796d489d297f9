"""How episodes end: by themselves or at the step limit, from the evaluations that runs have kept.

    hgpo-gym league league=headline "only=[webshop_warm]" seeds=2 "algos=[hgpo,graphgpo]" out=runs/warm
    python -m benchmarks.endings runs/warm

A line an environment, algorithm and evaluation, over all its seeds; of each evaluation a run keeps the first
`checkpoint.transcripts` episodes.

- ended: of the episodes, those that ended before the step limit or were won: in WebShop those that bought. One that
  ends in failure at its very last step counts as cut off.
- of these won: success where an episode ended.
- won: of all.
- steps: of an episode, the mean.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.league_runs import read
from docs_site.markdown import table
from hgpo_gym.analysis.report.load import RunRecord
from hgpo_gym.rollouts.conversations import read as read_conversations
from hgpo_gym.runs.directory import RunDirectory


def played(run: RunRecord) -> dict[int, np.ndarray]:
    """By iteration of an evaluation: float64[episodes kept, 2], whether an episode was won, and its steps."""
    paths = {one["iteration"]: RunDirectory(run.path).evaluation_path(one["iteration"]) for one in run.evaluations}
    return {
        iteration: np.array([(episode.won, len(episode.exchanges)) for episode in read_conversations(path)], float)
        for iteration, path in paths.items()
        if path.exists()
    }


def rows(runs: Sequence[RunRecord]) -> list[list[str]]:
    """A row an evaluation, over the runs of an algorithm."""
    by_iteration = defaultdict(list)
    for run in runs:
        for iteration, episodes in played(run).items():
            by_iteration[iteration].append(episodes)
    told = []
    for iteration, found in sorted(by_iteration.items()):
        won, steps = np.concatenate(found).T
        ended = (won > 0) | (steps < runs[0].settings["env.max_episode_steps"])
        shares = (ended.mean(), won[ended].mean() if ended.any() else None, won.mean())
        in_percent = ("" if share is None else f"{100 * share:.1f}" for share in shares)
        told.append([str(iteration), f"{len(won):,}", *in_percent, f"{steps.mean():.1f}"])
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="of a league or comparison")
    parsed = parser.parse_args(arguments)
    told = [
        [comparison.settings["env_name"], f"`{label}`", *row]
        for comparison in read(parsed.folders)
        for label, runs in comparison.runs.items()
        for row in rows(runs)
    ]
    if not told:
        parser.error("No run has kept episodes of an evaluation: train with checkpoint.transcripts above 0.")
    head = ["environment", "algorithm", "after iteration", "episodes", "ended, %", "of these won, %", "won, %", "steps"]
    print(table(head, told))


if __name__ == "__main__":
    main()
