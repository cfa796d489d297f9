"""Every advantage against independently computed values, and the promises of the estimators."""

import json
from pathlib import Path

import numpy as np
import pytest

from hgpo_gym.trainers.advantages import estimate
from hgpo_gym.trainers.batch import StepBatch

GOLDEN = Path(__file__).parents[2] / "shared" / "golden" / "advantages.json"
COLUMNS = ("group", "trajectory", "step", "observation", "reward")


@pytest.mark.skipif(not GOLDEN.exists(), reason=f"golden advantages not found at {GOLDEN}")
def test_golden_advantages():
    checked = 0
    for case in json.loads(GOLDEN.read_text()):
        records = {column: case[column] for column in COLUMNS}
        for expected in case["expected"]:
            options = {name: value for name, value in expected.items() if name not in ("estimator", "advantage")}
            history_length = options.get("history_length", 2)
            batch = StepBatch.from_records(**records, history_length=history_length)
            if expected["estimator"] != "grpo":
                options["gamma"] = case["gamma"]
            advantages = estimate(expected["estimator"], batch, **options)
            np.testing.assert_allclose(advantages, expected["advantage"], rtol=0, atol=1e-8, err_msg=str(options))
            checked += len(advantages)
    assert checked > 40_000
