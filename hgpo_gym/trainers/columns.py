"""The columns that a run records in its rollouts, and the settings that ask for them."""

from hgpo_gym.advantages import ESTIMATORS, needed_by, needed_with
from hgpo_gym.rollouts.recording import ENTROPY, OF_A_STEP
from hgpo_gym.rollouts.shaping import SHAPERS
from hgpo_gym.trainers.settings import RunSettings


def recorded_columns(run: RunSettings) -> dict[str, str]:
    """What is recorded, and the setting that asks for it: the run itself, its estimator, where it has one and not a
    learner of its own, or its shaping, of what can be recorded."""
    asked = dict.fromkeys(run.rollout.record, "rollout.record")
    needed = {name: by for name, by in needed_columns(run).items() if name in (*OF_A_STEP, ENTROPY)}
    return needed | asked


def needed_columns(run: RunSettings) -> dict[str, str]:
    """What estimator and shaping need, and the setting that asks for it."""
    of_estimator = needed_with(*run.algo) if run.algo.name in ESTIMATORS else ()
    return {
        **dict.fromkeys(needed_by(SHAPERS.find(run.shaping.name)), f"shaping={run.shaping.name}"),
        **dict.fromkeys(of_estimator, f"algo={run.algo.name}"),
    }
