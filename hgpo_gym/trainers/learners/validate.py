"""Check a run's settings before anything is written. Estimator and shaping are tried on toy batches."""

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS, Advantages, StepBatch, assign, needed_with, with_bases
from hgpo_gym.advantages.columns import STATE_COUNTS, missing_column, needed_by
from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.plans import PLAN_COLUMNS
from hgpo_gym.rollouts.recording import ENTROPY, REWARD_VECTOR
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout, StepText
from hgpo_gym.rollouts.samplers import Sampler, make_sampler
from hgpo_gym.rollouts.shaping import SHAPERS, shape
from hgpo_gym.rollouts.teams import TEAMS, roles_with_adapters
from hgpo_gym.trainers.columns import needed_columns, recorded_columns
from hgpo_gym.trainers.settings import RunSettings

STEPS = range(8)
"""The rows of the toy batch."""
RECORDED = ("agent", "turn", "truncated")
"""Extra columns of every rollout."""
PREDICTED = ("value", "value_low", "value_high")
"""Columns that a critic predicts if the estimator returns targets for them."""


def check_sampler(run: RunSettings) -> None:
    """Raise ValueError if the sampler refuses its options or the run's groups."""
    _sampler(run).collector.check(run.rollout.group_size, run.memory.history_length)


def check_values(run: RunSettings) -> None:
    """Raise ValueError if restarts would sample values of the wrong returns, or too few values."""
    if "value" not in _sampler(run).collector.records:
        return
    described = f"sampler={run.sampler.name}"
    if run.shaping.name != "none":
        raise ValueError(
            f"shaping={run.shaping.name}: {described} samples values of the environment's rewards, not of shaped ones. "
            "Choose shaping=none."
        )
    discount = run.sampler.options.get("gamma")
    for setting, estimator in _estimators(run):
        gamma = estimator.options.get("gamma")
        if "value" in needed_by(ESTIMATORS[estimator.name]) and None not in (gamma, discount) and gamma != discount:
            raise ValueError(
                f"{setting}.gamma={gamma}, sampler.gamma={discount}: the returns of restarts and the estimator "
                f"{estimator.name} need one discount. Leave sampler.gamma alone, which follows algo.gamma and "
                "algo.base_options.gamma, or set both alike."
            )


def check_critic(run: RunSettings, columns: Collection[str]) -> None:
    """Raise ValueError if these columns need a critic and the model has no state for it."""
    if columns and not run.model.has_states:
        raise ValueError(
            f"model={run.resolved['model']['kind']} gives a critic no state to read, and algo={run.algo.name} needs "
            f"one for {', '.join(columns)}. Choose a language model or a table."
        )


def check_overlap(run: RunSettings, columns: Collection[str]) -> None:
    """Raise ValueError if rollouts are to overlap with updates and cannot. `columns` are those that a critic
    predicts."""
    if not run.rollout.overlap:
        return
    if (level := run.engine.options.get("sleep_level")) is not None and level > 0:
        raise ValueError(
            f"engine.sleep_level={level}: an engine that plays the next rollout during an update cannot sleep then. "
            "Set engine.sleep_level=0, or rollout.overlap=false."
        )
    resamples = _sampler(run).filter.overrides("informative")
    measured = needed_with(*run.algo).keys() & {ENTROPY, *STATE_COUNTS}
    if resamples and (columns or measured):
        needed = "critic" if columns else "policy"
        raise ValueError(
            f"sampler={run.sampler.name}: it replaces groups by their advantages, and those of algo={run.algo.name} "
            f"need the {needed} as the update leaves it. Set rollout.overlap=false, or another sampler."
        )


def check_roles(run: RunSettings) -> None:
    """Raise ValueError if the estimator is to use the statistics of a role that the team does not have."""
    roles = TEAMS.bind(run.team)().roles
    for setting, estimator in _estimators(run):
        role_index = estimator.options.get("statistics_of")
        if role_index is not None and not 0 <= role_index < len(roles):
            named = ", ".join(f"{number} ({role})" if role else str(number) for number, role in enumerate(roles))
            raise ValueError(
                f"{setting}.statistics_of={role_index}: team={run.team.name} has the roles {named}. "
                "Choose one, or null."
            )


def check_keys(run: RunSettings) -> None:
    """Raise ValueError if observations are to be merged, and keys of several roles depend on messages too."""
    if run.memory.similarity is None:
        return
    compacts = run.memory.make().template(run.prompt).notes == "apart"
    if compacts or run.team.name != "solo":
        several = f"memory={run.memory.name} with its role memory" if compacts else f"team={run.team.name}"
        raise ValueError(
            f"memory.similarity={run.memory.similarity} merges what an agent by itself observes, and keys of {several} "
            "depend on messages too. Choose memory.similarity=null."
        )


def check_plans(run: RunSettings) -> None:
    """Raise ValueError if responses are to have plans and cannot."""
    if run.prompt.subgoals is None:
        return
    if run.team.name != "solo":
        raise ValueError(f"team={run.team.name}: prompt.subgoals are for an agent by itself. Choose team=solo.")
    if not run.model.writes_text:
        raise ValueError(
            f"model={run.resolved['model']['kind']} writes no text for the plans of prompt.subgoals. Choose a language "
            "model."
        )
    if not run.prompt.subgoals and run.engine.options.get("constrain") == "admissible":
        raise ValueError(
            "prompt.subgoals=[]: with engine.constrain=admissible there is nothing to choose among. Set "
            "prompt.subgoals=[...], or engine.constrain=none."
        )


def check_notes(run: RunSettings) -> None:
    """Raise ValueError if responses are to have notes and cannot."""
    if not run.memory.make().writes_notes:
        return
    if not run.model.writes_text:
        raise ValueError(
            f"memory={run.memory.name}: model={run.resolved['model']['kind']} writes no notes. Choose a language model."
        )
    prompt = run.memory.make().template(run.prompt)
    if prompt.notes == "apart" and roles_with_adapters(run.team):
        raise ValueError(f"team.weights=adapter: the role memory of memory={run.memory.name} has none. Set shared.")
    if run.engine.options.get("constrain") == "admissible":
        raise ValueError(
            f"memory={run.memory.name}: notes are free text, and engine.constrain=admissible allows none. Set "
            "engine.constrain=none."
        )


def validate_estimator(run: RunSettings) -> Advantages:
    """Assign credit to a toy batch and return the result. Its targets are the columns that a critic must predict,
    because the run does not record them.

    Raises:
        ValueError: the estimator or an option is unknown, a value is invalid, or the run does not record a column.
    """
    ESTIMATORS.check_options(*run.algo)
    needed = needed_with(*run.algo)
    recorded = _recorded(run)
    predicted = tuple(name for name in PREDICTED if name not in recorded)
    extras: dict[str, Any] = {name: [0] * len(STEPS) for name in (*recorded, *predicted)}
    if "response" in recorded:
        extras["response"] = list(STEPS)  # copies of a step would have one state and one action
    if "value" in recorded and run.sampler.options.get("share", 1.0) < 1.0:
        extras["value"] = [None if step % 2 else 0.0 for step in STEPS]  # only first steps always have a value
    batch = _toy_batch(run, extras)
    # A toy batch may divide by zero where a real one does not.
    with np.errstate(all="ignore"):
        credit = assign(run.algo.name, batch, **run.algo.options)
    for column in needed:
        if column in predicted and column not in credit.targets:
            raise ValueError(missing_column(column, needed[column]))
    return credit._replace(targets={name: credit.targets[name] for name in predicted if name in credit.targets})


def try_shaping(run: RunSettings) -> None:
    """Shape the rewards of a toy batch whose responses have one token. Only shaping of this package is tried: other
    shaping may need content that a toy batch lacks.

    Raises:
        ValueError: the shaping or an option is unknown, a value is invalid, or the run does not record a column.
    """
    SHAPERS.check_options(*run.shaping)
    shaping = SHAPERS[run.shaping.name]
    batch = _toy_batch(run, {name: [0] * len(STEPS) for name in _recorded(run)})
    for column in needed_by(shaping):
        batch.column(column, run.shaping.name, "Shaping")
    if not shaping.__module__.startswith(f"{__name__.partition('.')[0]}."):
        return
    record = TokenRecord(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.float32))
    rollout = Rollout(
        batch=batch,
        tokens=(record,) * len(STEPS),
        steps=tuple(StepText("a task", f"place {step % 2}", ("go",), "go", None, "", "go") for step in STEPS),
        episodes=(EpisodeOutcome("a task", "", False, 1.0, 2, 2),) * 4,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape(run.shaping, rollout)


def _sampler(run: RunSettings) -> Sampler:
    """Return the run's sampler, without tasks. Raises ValueError if it refuses its options."""
    return make_sampler(run.sampler, (), run.seed)


def _estimators(run: RunSettings) -> list[tuple[str, Choice]]:
    """Return the estimator and its base estimators with all options, each with the setting that holds them."""
    return [("algo" + ".base_options" * depth, estimator) for depth, estimator in enumerate(with_bases(*run.algo))]


def _recorded(run: RunSettings) -> tuple[str, ...]:
    """Return the columns of the run's rollouts, apart from those of every batch."""
    plan_columns = PLAN_COLUMNS if run.prompt.subgoals is not None else ()
    needed = needed_columns(run.algo, run.shaping)
    reward_columns = (REWARD_VECTOR,) if REWARD_VECTOR in needed else ()
    return (
        *RECORDED,
        *_sampler(run).collector.records,
        *recorded_columns(run.algo, run.shaping, run.rollout.record),
        *plan_columns,
        *reward_columns,
        *needed.keys() & set(STATE_COUNTS),
    )


def _toy_batch(run: RunSettings, extras: dict[str, Any]) -> StepBatch:
    """Return a batch of two groups of two episodes of two steps."""
    if REWARD_VECTOR in extras:
        extras = {**extras, REWARD_VECTOR: [[0.0] * len(run.credit.rewards)] * len(STEPS)}
    return StepBatch.from_records(
        group=[step // 4 for step in STEPS],
        trajectory=[step // 2 for step in STEPS],
        step=[step % 2 for step in STEPS],
        observation=[f"place {step % 2}" for step in STEPS],
        reward=[float(step in (1, 5)) for step in STEPS],
        history_length=run.memory.history_length,
        action=[f"go {step // 2 % 2}" for step in STEPS],
        success=[step // 2 % 2 == 0 for step in STEPS],
        final_observation=["the end"] * len(STEPS),
        **extras,
    )
