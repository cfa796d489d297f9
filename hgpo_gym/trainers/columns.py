"""The columns that a run records in its rollouts, and the settings that ask for them."""

from collections.abc import Iterable

from hgpo_gym.advantages import ESTIMATORS, needed_by, needed_with
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.recording import ENTROPY, OF_A_STEP
from hgpo_gym.rollouts.shaping import SHAPERS


def recorded_columns(algo: Choice, shaping: Choice, record: Iterable[str]) -> dict[str, str]:
    """Return the columns that a run records, each with the setting that asks for it: `rollout.record`, the estimator
    or the shaping. Columns that cannot be recorded are left out. A learner without an estimator asks for nothing."""
    requested = dict.fromkeys(record, "rollout.record")
    needed = {name: by for name, by in needed_columns(algo, shaping).items() if name in (*OF_A_STEP, ENTROPY)}
    return needed | requested


def needed_columns(algo: Choice, shaping: Choice) -> dict[str, str]:
    """Return the columns that estimator and shaping need, each with the setting that asks for it."""
    estimator_columns = needed_with(*algo) if algo.name in ESTIMATORS else ()
    return {
        **dict.fromkeys(needed_by(SHAPERS.find(shaping.name)), f"shaping={shaping.name}"),
        **dict.fromkeys(estimator_columns, f"algo={algo.name}"),
    }
