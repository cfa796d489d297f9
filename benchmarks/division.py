"""What dividing by a set's standard deviation makes of small differences, in the rollouts that a run has kept.

    hgpo-gym train env=alfworld "env.split=[valid_train+generated,generated]" model=features algo=hgpo \\
        rollout.num_tasks=16 rollout.group_size=8 trainer.iterations=25 evaluation.every=0 \\
        checkpoint.rollouts_every=5 run_dir=runs/division
    python -m benchmarks.division runs/division

A set is the steps of a task group that saw the same observation (level 0 of the context keys). Where all of a set's
episodes were won, its returns differ by the discount alone: by how soon. A line an iteration: the success of its
episodes, and the share of sum |A| that lies in such sets, by HGPO at level 0, undivided and divided.
"""

import argparse
from pathlib import Path

import numpy as np

from docs_site.markdown import table
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import success
from hgpo_gym.rollouts.saved import kept_iterations, load

NORMS = ("mean_norm", "mean_std_norm")


def share_among_won(batch: StepBatch, norm: str, gamma: float) -> float:
    """Of sum |A|, the part in sets whose episodes were all won.

    Args:
        batch: the steps of an iteration.
        norm: `mean_norm` or `mean_std_norm`.
        gamma: discount of the step returns.
    """
    sets, won = batch.key_groups(0), success(batch)
    all_won = np.bincount(sets, weights=won) == np.bincount(sets)
    size = np.abs(estimate("hgpo", batch, history_length=0, norm=norm, gamma=gamma))
    return float(size[all_won[sets]].sum() / size.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--gamma", type=float, default=0.95)
    parsed = parser.parse_args()
    rows = []
    for iteration in kept_iterations(parsed.run / "rollouts"):
        kept = load(parsed.run / "rollouts", iteration)
        won = float(np.mean([episode.won for episode in kept.episodes]))
        shares = [share_among_won(kept.batch, norm, parsed.gamma) for norm in NORMS]
        rows.append([str(iteration), *(f"{100 * share:.0f} %" for share in (won, *shares))])
    print(table(["iteration", "success", *NORMS], rows), end="")


if __name__ == "__main__":
    main()
