"""Batches with every column that an estimator may need: neutral ones for given steps, and random ones."""

from collections import defaultdict
from typing import Any

import numpy as np

from hgpo_gym.advantages import StepBatch


def with_neutral_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Records with all other columns, saying nothing: one action a place, one role, values that are the returns."""
    count = len(columns["step"])
    later: dict[Any, float] = defaultdict(float)
    value = [0.0] * count
    for row in sorted(range(count), key=lambda row: -columns["step"][row]):
        later[columns["trajectory"][row]] += columns["reward"][row]
        value[row] = later[columns["trajectory"][row]]
    neutral = {
        "action": [f"leave {observation}" for observation in columns["observation"]],
        "final_observation": [None] * count,
        "truncated": [False] * count,
        "milestone": [False] * count,
        "agent": [0] * count,
        "value": value,
        "value_low": value,
        "value_high": value,
        "boundary": [False] * count,
        "switch_tokens": [1] * count,
        "plan_tokens": [2] * count,
        "response_tokens": [4] * count,
        "reward_vector": np.array([[later[name], 1.0] for name in columns["trajectory"]]).reshape(count, 2),
        "tag": [0] * count,
        "tag_reward": [0.0] * count,
        "turn_reward": [0.0] * count,
        "entropy": [0.5] * count,
        "branch": [0] * count,
        "tree": [0] * count,
        "plan": [0] * count,
        "opening": [False] * count,
        "execution": [True] * count,
        "state_total": [4] * count,
        "state_wins": [1] * count,
        "next_total": [2] * count,
        "next_wins": [1] * count,
        "episodes_seen": [9] * count,
    }
    return neutral | columns


def random_records(seed: int) -> dict[str, Any]:
    """Groups of one to six episodes, of one to nine steps, over few places: with loops, groups that all fail or all
    succeed, invalid actions, graded or dense rewards, episodes of one step, groups of one episode, interleaved rows."""
    generator = np.random.default_rng((7, seed))
    places = [f"place no{number}" for number in range(generator.integers(2, 9))]
    rewards = ("outcome", "graded", "dense")[seed % 3]
    rows: list[dict[str, Any]] = []
    for group in range(generator.integers(1, 6)):
        chance = generator.choice([0.0, 0.5, 1.0], p=[0.25, 0.5, 0.25])
        for episode in range(generator.choice([1, 2, 4, 6])):
            won = bool(generator.random() < chance)
            length = int(generator.integers(1, 10))
            of_the_episode = {
                "group": f"task {group}",
                "trajectory": f"task {group}, episode {episode}",
                "success": won,
                "truncated": not won,
                "final_observation": "done" if won else str(generator.choice(places)),
                "reward_vector": [float(won), float(generator.choice([0.25, 0.5])), 1.0],
                "branch": int(generator.integers(3)),
                "tree": int(generator.integers(2)),
                "plan": episode % 2,
                "execution": episode % 3 == 2,
            }
            for step in range(length):
                outcome = 10.0 * won if step == length - 1 else 0.0
                grade = generator.choice([0.0, 0.25, 1.0]) if step == length - 1 else 0.0
                row = {
                    "step": step,
                    "opening": step == 0,
                    "observation": str(generator.choice(places)),
                    "action": f"action {generator.integers(3)}",
                    "reward": {"outcome": outcome, "graded": grade, "dense": round(generator.normal(), 2)}[rewards],
                    "penalty": 0.1 * (generator.random() < 0.2),
                    "milestone": bool(generator.random() < 0.3),
                    "agent": int(generator.integers(3)),
                    "value": round(generator.normal(5, 3), 3),
                    "value_low": round(generator.normal(5, 3), 3),
                    "value_high": round(generator.normal(5, 3), 3),
                    "boundary": bool(generator.random() < 0.3),
                    "switch_tokens": 1,
                    "plan_tokens": 1 + step % 3,
                    "response_tokens": 5,
                    "tag": [None, "planning", "explore"][generator.integers(3)],
                    "tag_reward": float(generator.choice([0.0, 0.5])),
                    "turn_reward": round(generator.normal(), 3),
                    "entropy": round(generator.random(), 3),
                    "episodes_seen": 40,
                    **dict(
                        zip(("state_wins", "state_total"), sorted(generator.integers(30, size=2).tolist()), strict=True)
                    ),
                    **dict(
                        zip(("next_wins", "next_total"), sorted(generator.integers(30, size=2).tolist()), strict=True)
                    ),
                }
                rows.append(of_the_episode | row)
    if seed % 2:
        rows = [rows[place] for place in generator.permutation(len(rows))]
    return {name: [row[name] for row in rows] for name in rows[0]}


def random_batch(seed: int) -> StepBatch:
    return StepBatch.from_records(history_length=2, **random_records(seed))
