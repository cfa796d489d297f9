"""Models in the style of Qwen2.5 and of Llama 3 whose tags are special tokens learn the maze, constrained and free."""

import numpy as np
import pytest

from hgpo_gym.runs.directory import read_metrics
from tests.support.chat_models import STYLES, save_for_maze
from tests.support.small_runs import train

SETTINGS = [
    "model=tiny", "prompt=instruct", "env.sections=1", "env.max_episode_steps=8", "memory.window=1",
    "rollout.num_tasks=2", "rollout.group_size=16", "rollout.max_new_tokens=24", "trainer.iterations=4",
    "warmstart.source=random", "warmstart.episodes=40", "warmstart.epochs=8", "warmstart.learning_rate=5e-3",
    "trainer.learning_rate=1e-3", "trainer.warmup_steps=0", "trainer.mini_batch_size=64", "trainer.entropy_coef=0",
    "trainer.kl_coef=0", "trainer.invalid_action_penalty=1", "evaluation.every=100", "checkpoint.every=100",
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_responses_whose_tags_are_special_tokens_are_valid_and_learned_from(style, tmp_path, monkeypatch):
    """None was, constrained or free: decoding dropped the tags."""
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    save_for_maze(style, tmp_path / "model")
    for constrain, least in (("admissible", 1.0), ("none", 0.6)):
        settings = [f"model.path={tmp_path / 'model'}", f"engine.constrain={constrain}"]
        train(tmp_path / constrain, *settings, base=SETTINGS)
        metrics = read_metrics(tmp_path / constrain)
        assert min(line["valid_action_rate"] for line in metrics) >= least
        success = [line["success"] for line in metrics]
        assert np.mean(success[2:]) > success[0] + 0.1
