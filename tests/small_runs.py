"""Real runs that take a second: a table learns a short maze."""

from hgpo_gym.trainers.baselines import make_trainer

from hgpo_gym.config.compose import load_config
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.run_directory import open_run

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


def train(run_dir, *overrides):
    """A finished run in `run_dir`."""
    config = load_config("config", [*SETTINGS, f"run_dir={run_dir}", *overrides])
    trainer = make_trainer(config, open_run(config), Progress())
    try:
        return trainer.train()
    finally:
        trainer.close()
