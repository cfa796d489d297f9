"""Real runs that take a second: a table learns a short maze."""

from typing import Any

from hgpo_gym.config.compose import load_run
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.run import Run
from hgpo_gym.trainers.run_directory import read_metrics

SETTINGS = [
    "model=tabular",
    "env.sections=2",
    "env.max_episode_steps=10",
    "rollout.num_tasks=2",
    "rollout.group_size=4",
    "trainer.iterations=4",
    "trainer.mini_batch_size=32",
    "evaluation.every=2",
    "evaluation.decoding_seeds=2",
    "checkpoint.every=100",
]


def train(run_dir, *overrides, settings=SETTINGS, progress=None):
    """Train to the end in `run_dir`, with these settings and then the overrides. Returns the summary."""
    with Run(load_run([*settings, f"run_dir={run_dir}", *overrides]), progress or Progress()) as run:
        return run.train()


def numbers(run_dir):
    """The metrics of a run, a dictionary an iteration, without what was timed."""
    return [without_seconds(line) for line in read_metrics(run_dir)]


def without_seconds(value: Any) -> Any:
    """The same, without what was timed."""
    if isinstance(value, dict):
        return {name: without_seconds(part) for name, part in value.items() if not name.startswith("seconds")}
    return [without_seconds(part) for part in value] if isinstance(value, list) else value
