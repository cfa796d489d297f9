"""Estimators of credit against independently computed values, and what each of them promises."""

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, estimate
from tests import golden

NOT_COLUMNS = ("name", "gamma", "discounted_return", "intermediate", "expected")


@pytest.mark.parametrize("case", golden.load("credit"), ids=lambda case: case["name"])
def test_golden_credit(case):
    columns = {name: values for name, values in case.items() if name not in NOT_COLUMNS}
    batch = StepBatch.from_records(history_length=3, **columns)
    for expected in case["expected"]:
        options = {name: value for name, value in expected.items() if name not in ("estimator", "advantage")}
        advantages = estimate(expected["estimator"], batch, **options)
        described = f"{expected['estimator']} {options}"
        np.testing.assert_allclose(advantages, expected["advantage"], rtol=0, atol=1e-8, err_msg=described)
