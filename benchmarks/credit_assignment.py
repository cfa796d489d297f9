"""Time of credit assignment on a published-size batch: 16 groups of 8 episodes x 50 steps, K = 2.

    python -m benchmarks.credit_assignment

Prints the time of context keys (from plain lists) and of each estimator, returns included, beside a plain loop over
groups in the same run. Ratios carry over between machines, milliseconds do not.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.advantages.batch import StepBatch

GROUPS, EPISODES, STEPS, HISTORY_LENGTH, GAMMA = 16, 8, 50, 2, 0.95
REPEATS = 21


def make_records() -> dict[str, Any]:
    """Random walks over 20 places a group; half of the episodes end with reward 10. Observations of 150 characters."""
    generator = np.random.default_rng(0)
    episodes = GROUPS * EPISODES
    reward = np.zeros((episodes, STEPS))
    reward[generator.random(episodes) < 0.5, -1] = 10.0
    places = generator.integers(20, size=episodes * STEPS)
    return {
        "group": np.repeat(np.arange(GROUPS), EPISODES * STEPS).tolist(),
        "trajectory": np.repeat(np.arange(episodes), STEPS).tolist(),
        "step": np.tile(np.arange(STEPS), episodes).tolist(),
        "observation": [f"You arrive at shelf {place}. " + "On it, you see a book. " * 5 for place in places],
        "reward": reward.ravel().tolist(),
    }


def hgpo_by_loops(records: dict[str, Any]) -> np.ndarray:
    """HGPO as a reader would write it down first: dictionaries of windows of text, one step at a time."""
    count = len(records["step"])
    returns = np.zeros(count)
    for row in reversed(range(count)):
        goes_on = row + 1 < count and records["trajectory"][row + 1] == records["trajectory"][row]
        returns[row] = records["reward"][row] + (GAMMA * returns[row + 1] if goes_on else 0.0)
    total, weights = np.zeros(count), np.zeros(count)
    for level in range(HISTORY_LENGTH + 1):
        sets = defaultdict(list)
        for row in range(count):
            if records["step"][row] >= level:
                sets[records["group"][row], tuple(records["observation"][row - level : row + 1])].append(row)
        for rows in sets.values():
            values = returns[rows]
            if len(rows) > 1 and values.min() != values.max():
                total[rows] += (level + 1) * (values - values.mean()) / (values.std() + 1e-6)
                weights[rows] += level + 1
    return total / (weights + 1e-6)


def milliseconds(function: Callable[[], object]) -> float:
    """The median over repeats."""
    function()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return 1000 * float(np.median(times))


def main() -> None:
    records = make_records()

    def build() -> StepBatch:
        return StepBatch.from_records(**records, history_length=HISTORY_LENGTH)

    np.testing.assert_allclose(estimate("hgpo", build(), gamma=GAMMA), hgpo_by_loops(records), atol=1e-8)
    keys = milliseconds(build)
    loops = milliseconds(lambda: hgpo_by_loops(records))
    print(f"{len(records['step'])} steps, K = {HISTORY_LENGTH}; medians of {REPEATS}")
    print(f"plain loop over groups (hgpo)  {loops:8.2f} ms")
    print(f"context keys                   {keys:8.2f} ms")
    for name in ESTIMATORS:
        batches = iter([build() for _ in range(REPEATS + 1)])  # fresh ones: a batch keeps the labels of its groups
        taken = milliseconds(lambda name=name, batches=batches: estimate(name, next(batches)))  # type: ignore[misc]
        print(
            f"{name:<31}{taken:8.2f} ms   1/{loops / taken:.0f} of the loop, with keys 1/{loops / (taken + keys):.0f}"
        )


if __name__ == "__main__":
    main()
