"""A run that diverges keeps the mini-batch that made it so."""

import json

import numpy as np
import pytest

from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.update.diverged import NonFiniteError
from tests.support.small_runs import TINY, train

DIVERGING = ["trainer.learning_rate=1e20", "trainer.warmup_steps=0", "trainer.kl_coef=0.01"]


def test_a_run_that_diverges_keeps_the_mini_batch_that_made_it_so(tmp_path):
    """By a learning rate at which the second mini-batch meets weights of 1e20."""
    with pytest.raises(NonFiniteError, match=r"The loss is nan in epoch 1, mini-batch 2\..* are in (.*)\.$") as raised:
        train(tmp_path, *DIVERGING, base=["model=tiny", *TINY])
    folder = tmp_path / "diverged" / "iteration_0001"
    assert str(raised.value).endswith(f"are in {folder}.")
    assert read_metrics(tmp_path) == []
    report = json.loads((folder / "mini_batch.json").read_text())
    assert report["reason"] == "The loss is nan in epoch 1, mini-batch 2."
    assert np.isnan(report["gradient_norms"]["model.layers.0.self_attn.q_proj.weight"])
    arrays, rows = np.load(folder / "mini_batch.npz"), report["rows"]
    assert 0 < len(rows) <= 16
    choices = sum(row["choices"] for row in rows)
    for column in ("logprobs", "behaviour", "advantages", "reference"):
        assert arrays[column].shape == (choices,)
    assert np.isnan(arrays["logprobs"]).any()
    assert np.isfinite(arrays["behaviour"]).all()
    for ids in ("prompt_ids", "token_ids"):
        assert arrays[ids].shape == (sum(row[ids] for row in rows),)
