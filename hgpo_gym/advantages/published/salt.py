"""Step-level advantage assignment by merging equal steps."""

from collections.abc import Mapping
from typing import Any

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.estimators import NO_OPTIONS, assign_base
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.statistics import joint_labels, mean_of_group, over_unique_steps


@needs("action")
def salt(
    batch: StepBatch,
    *,
    base: str = "grpo",
    base_options: Mapping[str, Any] = NO_OPTIONS,
    level: int = 0,
    time_aware: bool = False,
) -> Advantages:
    """SALT (EACL 2026 Findings, arXiv:2510.20022): equal transitions of a task group share their mean advantage.

        A(t) = mean(A_base over the steps with the same (s, a, s')),   occurrences counted

    Transitions that won and lost episodes share thus get little credit. Those of lost episodes alone keep their
    negative advantage. A last step merges by its final observation; if that is not recorded, it keeps its advantage.
    The paper's state is the last three pairs of action and observation; `memory.key=observation+action` with `level=3`
    is nearest. Family: steps with equal histories. Source: third party (GRAFT's appendix; a re-implementation).

    Where states do not recur it equals its base.

    Args:
        batch: the steps, with the column `action`; `final_keys` lets last steps merge.
        base: the estimator whose advantages are shared.
        base_options: options of the base, by name.
        level: states are equal contexts of this level, see `transitions`.
        time_aware: states hold the number of steps taken as well.

    Returns the values float64[N], and the base's other outputs. Raises ValueError on an unknown base, a base with token
    advantages, an error of the base, or a level without keys.
    """
    credit = assign_base(base, base_options, batch, of="salt")
    base_values = credit.values
    state, successor, _ = transitions(batch, level, time_aware)
    has_successor = successor >= 0
    action = batch.column("action", "salt")
    merged = base_values.copy()
    merged[has_successor] = over_unique_steps(
        batch, mean_of_group, base_values, joint_labels(state, action, successor)
    )[has_successor]
    return credit._replace(values=merged)
