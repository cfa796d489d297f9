"""verl: environments, estimators and objectives of this package inside verl 0.9.1.

`agent_loop` plays episodes, `dataset` has their tasks, `trainer` computes advantages and metrics of episodes, `losses`
has the objectives. verl finds all four by entry points. `run_settings` translates the settings of a run, and `launch`
starts one. This module itself needs no verl.
"""

from hgpo_gym.adapters.verl.steps import (
    FIELDS,
    OPTIONAL_FIELDS,
    batch_of_rows,
    describe_steps,
    row_steps,
    with_response_ends,
)

__all__ = ["FIELDS", "OPTIONAL_FIELDS", "batch_of_rows", "describe_steps", "row_steps", "with_response_ends"]
