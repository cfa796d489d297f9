"""The columns that a run records in its rollouts, and the settings that ask for them."""

from hgpo_gym.advantages import ESTIMATORS, needed_by, needed_with
from hgpo_gym.rollouts.recording import ENTROPY, OF_A_STEP
from hgpo_gym.rollouts.shaping import SHAPERS
from hgpo_gym.trainers.settings import RunSettings


def recorded_columns(run: RunSettings) -> dict[str, str]:
    """Return the columns that the run records, each with the setting that asks for it. The run itself, its estimator
    and its shaping can ask. Columns that cannot be recorded are left out. A learner without an estimator asks for
    nothing."""
    requested = dict.fromkeys(run.rollout.record, "rollout.record")
    needed = {name: by for name, by in needed_columns(run).items() if name in (*OF_A_STEP, ENTROPY)}
    return needed | requested


def needed_columns(run: RunSettings) -> dict[str, str]:
    """Return the columns that estimator and shaping need, each with the setting that asks for it."""
    estimator_columns = needed_with(*run.algo) if run.algo.name in ESTIMATORS else ()
    return {
        **dict.fromkeys(needed_by(SHAPERS.find(run.shaping.name)), f"shaping={run.shaping.name}"),
        **dict.fromkeys(estimator_columns, f"algo={run.algo.name}"),
    }
