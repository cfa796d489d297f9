"""Results of seed 0 in tests/data/same_numbers.json: task orders and first episodes of each environment, first
actions and three iterations' metrics of each learner.

    python -m tests.support.same_numbers    # write the table anew, after a change that CHANGELOG.md names

Exact on any CPU are task orders, environments, and the first iteration's actions: weights are those of the seed there,
and a rounding error changes an action with a probability of about 1e-6. Metrics are compared to 1e-3: sums in another
order by another BLAS reach them through the updates.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from hgpo_gym.rollouts import saved
from hgpo_gym.rollouts.samplers import tasks_in_order
from hgpo_gym.runs.directory import read_metrics
from tests.support import small_runs
from tests.support.golden import DATA

FILE = DATA / "same_numbers.json"
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "SignpostMaze-v0": {"slip": 0.1}, "SecretWord-v0": {}, "Sokoban-v0": {}, "FrozenLake-v0": {}, "Taxi-v0": {},
    "AskExpert-v0": {}, "ALFWorld-v0": {"split": "generated_test"}, "WebShop-v0": {"split": "generated_test"},
}  # fmt: skip
"""The ids that need no data, with options; ALFWorld's and WebShop's generated tasks."""
SMALL = [
    *small_runs.SETTINGS, "env.sections=1", "trainer.iterations=3", "evaluation.every=0",
    "evaluation.tasks=1", "checkpoint.rollouts_every=1",
]  # fmt: skip
TINY = ["model=tiny", "tiny.hidden_size=16", "tiny.heads=2", "tiny.layers=1", "warmstart.source=none"]
RUNS = {
    "tabular": [*SMALL, "env.slip=0.1"],
    "tabular_trees": [*SMALL, "sampler=tree", "algo=tree_grpo", "rollout.group_size=6"],
    "features": [*SMALL, "model=features", "model.novelty=0", "model.relevance=0"],
    "cnn": ["env=sokoban", *(one for one in SMALL if not one.startswith("env.")), "model=cnn", "model.channels=4"],
    "tiny": [*SMALL, *TINY],
    "sb3_ppo": [*SMALL, "algo=sb3_ppo"],
    "sb3_dqn": [*SMALL, "algo=sb3_dqn", "algo.learning_starts=20"],
}
METRICS = ("success", "episode_return", "steps", "entropy", "grad_norm", "loss", "value_loss")


def environment(name: str) -> dict[str, Any]:
    """Two episodes of random admissible actions, and the order in which a run takes the tasks."""
    env: Any = gymnasium.make(f"hgpo_gym/{name}", disable_env_checker=True, **ENVIRONMENTS[name])
    generator = np.random.default_rng(0)
    actions, seen = [], []
    for episode in range(2):
        observation, info = env.reset(seed=episode)
        seen += [info["task_id"], observation]
        for _ in range(8):
            actions.append(str(generator.choice(info["admissible_actions"] or ["crane", "slate"])))
            observation, reward, terminated, truncated, info = env.step(actions[-1])
            seen += [observation, f"{reward:.6f}"]
            if terminated or truncated:
                break
    order = [tasks_in_order(env.unwrapped.task_ids, 0, iteration, 8) for iteration in (1, 2)]
    env.close()
    return {"actions": actions[:8], "episodes": digest(seen), "task_order": order[0][:2], "task_orders": digest(order)}


def run(name: str, folder: Path) -> dict[str, Any]:
    """Three iterations of a learner."""
    small_runs.train(folder, base=RUNS[name])
    metrics = [{key: row[key] for key in METRICS if key in row} for row in read_metrics(folder)]
    if not saved.saved_iterations(folder / "rollouts"):
        return {"metrics": metrics}
    first = saved.load(folder / "rollouts", 1)
    return {"actions": list(first.actions[:8]), "iteration": digest([first.tasks, first.actions]), "metrics": metrics}


def digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        table = {
            "environments": {name: environment(name) for name in ENVIRONMENTS},
            "runs": {name: run(name, Path(folder) / name) for name in RUNS},
        }
    FILE.write_text(json.dumps(table, indent=1) + "\n")
