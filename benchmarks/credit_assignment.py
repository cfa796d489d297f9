"""Time of credit assignment on a published-size batch: 128 episodes x 50 steps, K = 2.

    python -m benchmarks.credit_assignment

Prints the time of context keys (from plain lists) and of each estimator, returns included, beside a plain loop over
groups in the same run: for 16 task groups of 8 episodes in 20 places, then for one task of 128 episodes, in 20 places
and in so many that most are seen a few times. Ratios carry over between machines, milliseconds do not.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.advantages.batch import StepBatch

EPISODES, STEPS, HISTORY_LENGTH, GAMMA = 128, 50, 2, 0.95
REPEATS = 21
LIMIT = 20.0
"""Milliseconds that no estimator may take for a batch."""
SPEEDUP = 51.0
"""How many times as fast as the plain loop `hgpo` was when this was last written; it had been 35."""
OF_ONE_TASK: dict[str, tuple[str, dict[str, Any]]] = {
    "hgpo": ("hgpo", {}),
    "crbc": ("crbc", {}),
    "crbc, beta 1": ("crbc", {"beta": 1.0}),
    "crbc, 5 backups": ("crbc", {"depth": 5}),
    "graft": ("graft", {}),
    **{
        name: (name, {})
        for name in ("nested_bellman", "graphgpo", "graphhca", "pgpo", "proxmo", "g2po", "gagpo", "rtmc", "salt")
    },
}
"""By label, the estimator and options that are timed on one task group."""


def make_records(groups: int, places: int, *, neighbours: bool = False) -> dict[str, Any]:
    """Walks over as many places a group; half of the episodes end with reward 10. Observations of 150 characters.

    Args:
        groups: task groups that the episodes are in.
        places: where an episode can be; it goes to any of them, or, with `neighbours`, to the next on either side.
    """
    generator = np.random.default_rng(0)
    count = EPISODES * STEPS
    reward = np.zeros((EPISODES, STEPS))
    reward[generator.random(EPISODES) < 0.5, -1] = 10.0
    visited = generator.integers(places, size=(EPISODES, STEPS))
    if neighbours:
        visited = (visited[:, :1] + np.cumsum(generator.choice([-1, 1], size=(EPISODES, STEPS)), axis=1)) % places
    return {
        "group": np.repeat(np.arange(groups), count // groups).tolist(),
        "trajectory": np.repeat(np.arange(EPISODES), STEPS).tolist(),
        "step": np.tile(np.arange(STEPS), EPISODES).tolist(),
        "observation": [f"You arrive at shelf {place}. " + "On it, you see a book. " * 5 for place in visited.ravel()],
        "reward": reward.ravel().tolist(),
        "action": [f"go {choice}" for choice in generator.integers(4, size=count)],
        "final_observation": ["You are done."] * count,
        "penalty": (0.1 * (generator.random(count) < 0.05)).tolist(),
    }


def other_columns() -> dict[str, Any]:
    """Further columns that estimators need, for as many steps."""
    generator = np.random.default_rng(1)
    count = EPISODES * STEPS
    of_the_episode = np.repeat(np.arange(EPISODES), STEPS)
    return {
        "agent": generator.integers(3, size=count),
        "boundary": generator.random(count) < 0.2,
        "branch": of_the_episode % 2,
        "entropy": generator.random(count),
        "execution": of_the_episode % 8 >= 4,
        "opening": np.tile(np.arange(STEPS) == 0, EPISODES),
        "plan": of_the_episode % 4,
        "milestone": generator.random(count) < 0.1,
        "reward_vector": generator.random((EPISODES, 3))[of_the_episode],
        "state_total": np.full(count, 9),
        "state_wins": generator.integers(9, size=count),
        "next_total": np.full(count, 9),
        "next_wins": generator.integers(9, size=count),
        "episodes_seen": np.full(count, 20),
        "tag": generator.integers(5, size=count),
        "tag_reward": generator.random(count),
        "tree": of_the_episode % 4,
        "truncated": of_the_episode % 3 == 0,
        "turn_reward": generator.random(count),
        "value": generator.random(count),
        "value_high": generator.random(count),
        "switch_tokens": np.full(count, 8),
        "plan_tokens": np.full(count, 16),
        "response_tokens": np.full(count, 24),
        "value_low": generator.random(count),
    }


def hgpo_by_loops(records: dict[str, Any]) -> np.ndarray:
    """HGPO as a reader would write it down first: dictionaries of windows of text, one step at a time."""
    count = len(records["step"])
    returns = np.zeros(count)
    for row in reversed(range(count)):
        goes_on = row + 1 < count and records["trajectory"][row + 1] == records["trajectory"][row]
        returns[row] = records["reward"][row] + (GAMMA * returns[row + 1] if goes_on else 0.0)
    returns -= records["penalty"]
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
    """The median over repeats, of the processor: those of the clock depend on who else uses the machine."""
    function()
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return 1000 * float(np.median(times))


def make_batch(records: dict[str, Any]) -> StepBatch:
    return StepBatch.from_records(**records, **other_columns(), history_length=HISTORY_LENGTH)


def time_of(estimator: str, batch: StepBatch, **options: Any) -> float:
    """Milliseconds, on fresh batches: one keeps the labels of its groups."""
    rows = np.arange(len(batch))
    batches = iter([batch.take(rows) for _ in range(REPEATS + 1)])
    return milliseconds(lambda: estimate(estimator, next(batches), **options))


def main() -> None:
    records = make_records(groups=16, places=20)
    np.testing.assert_allclose(estimate("hgpo", make_batch(records), gamma=GAMMA), hgpo_by_loops(records), atol=1e-8)
    alone = {name: values for name, values in records.items() if name not in ("action", "final_observation")}
    keys = milliseconds(lambda: StepBatch.from_records(**alone, history_length=HISTORY_LENGTH))
    more = milliseconds(lambda: StepBatch.from_records(**records, history_length=HISTORY_LENGTH))
    loops = milliseconds(lambda: hgpo_by_loops(records))
    print(f"{len(records['step'])} steps, K = {HISTORY_LENGTH}; medians of {REPEATS}\n")
    print("16 tasks x 8 episodes, 20 places")
    print(f"plain loop over groups (hgpo)  {loops:8.2f} ms")
    print(f"context keys                   {keys:8.2f} ms")
    print(f"with actions and ends          {more:8.2f} ms")
    batch, slow = make_batch(records), []
    for name in ESTIMATORS:
        taken = time_of(name, batch)
        slow += [name] if taken > LIMIT else []
        print(f"{name:<31}{taken:8.2f} ms   1/{loops / taken:.0f} of the loop")
    print(f"\nhgpo is {loops / time_of('hgpo', batch):.0f} times as fast as the plain loop; it was {SPEEDUP:.0f}")
    print("\n1 task x 128 episodes, milliseconds")
    walks = {
        "20 places": make_batch(make_records(groups=1, places=20)),
        "300": make_batch(make_records(groups=1, places=300)),
        "3000": make_batch(make_records(groups=1, places=3000)),
        "ring of 1000": make_batch(make_records(groups=1, places=1000, neighbours=True)),
    }
    print(f"{'':<16}" + "".join(f"{places:>14}" for places in walks))
    for label, (name, options) in OF_ONE_TASK.items():
        times = [time_of(name, batch, **options) for batch in walks.values()]
        slow += [label] if max(times) > LIMIT else []
        print(f"{label:<16}" + "".join(f"{taken:14.2f}" for taken in times))
    print(f"\nOver {LIMIT:.0f} ms: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
