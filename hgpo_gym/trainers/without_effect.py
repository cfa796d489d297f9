"""Find settings that a user sets and the run does not read. The user is warned, because such a change has no effect."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.rollouts.recording import REWARD_VECTOR
from hgpo_gym.trainers.columns import needed_columns
from hgpo_gym.trainers.learners.validate import validate_estimator
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.update.objectives import preferred_aggregation


class _Rule(NamedTuple):
    """Keys or sections that are not read under a condition, and the reason."""

    keys: tuple[str, ...]
    unread: Callable[[RunSettings], bool]
    why: Callable[[RunSettings], str]


def _sums(run: RunSettings) -> bool:
    """Return True if the loss is divided by a constant."""
    return (run.trainer.loss_aggregation or preferred_aggregation(run.objective.name)) == "sequence_sum"


def _imitates(run: RunSettings) -> bool:
    return run.warmstart.source != "none"


def _from_scratch(run: RunSettings) -> bool:
    return run.model.is_language_model and not run.resolved["model"].get("path")


def _by_sb3(run: RunSettings) -> bool:
    return run.learner.name == "sb3"


RULES = (
    _Rule(
        ("trainer.learning_rate", "trainer.mini_batch_size", "trainer.update_epochs", "objective", "critic"),
        _by_sb3,
        lambda run: f"algo={run.algo.name} has its own, algo.*",
    ),
    _Rule(
        ("critic",),
        lambda run: run.algo.name in ESTIMATORS and not validate_estimator(run).targets,
        lambda run: f"algo={run.algo.name} has no critic",
    ),
    _Rule(
        ("rollout.rewards",),
        lambda run: REWARD_VECTOR not in needed_columns(run.algo, run.shaping),
        lambda run: f"algo={run.algo.name} takes one reward, the environment's",
    ),
    _Rule(
        ("warmstart.epochs", "warmstart.learning_rate", "warmstart.batch_size", "warmstart.loss"),
        lambda run: not _imitates(run),
        lambda _: "warmstart.source=none imitates nothing",
    ),
    _Rule(
        ("warmstart.episodes",),  # a model made from scratch also builds its vocabulary from these episodes
        lambda run: not _imitates(run) and not _from_scratch(run),
        lambda _: "warmstart.source=none imitates nothing",
    ),
    _Rule(
        ("warmstart.random_actions",),
        lambda run: run.warmstart.source != "expert",
        lambda run: f"warmstart.source={run.warmstart.source} is no expert",
    ),
    _Rule(
        ("tiny.hidden_size", "tiny.layers", "tiny.heads", "tiny.vocabulary_size"),
        lambda run: not _from_scratch(run),
        lambda _: "no model is made from scratch by model=tiny",
    ),
    _Rule(
        ("rollout.max_new_tokens",),
        lambda run: not run.model.writes_text and not _sums(run),
        lambda run: f"model={run.resolved['model']['kind']} writes no text",
    ),
    _Rule(("trainer.loss_constant",), lambda run: not _sums(run), lambda _: "it is of loss_aggregation=sequence_sum"),
    _Rule(
        ("trainer.importance_cap",),
        lambda run: "cap" not in run.trainer.correction.options,
        lambda run: f"trainer.importance_correction={run.trainer.importance_correction} has none",
    ),
)


def without_effect(named: Iterable[str], run: RunSettings) -> dict[str, str]:
    """Return the named settings that the run does not read, each with the reason.

    Args:
        named: keys, as on a command line.
        run: settings that the learner has already checked.
    """
    unread = {}
    for key in named:
        for rule in RULES:
            if any(key == known or key.startswith(f"{known}.") for known in rule.keys) and rule.unread(run):
                unread[key] = rule.why(run)
                break
    return unread


def told(unread: Mapping[str, str]) -> list[str]:
    """Return one line per setting without effect."""
    return [f"{key} has no effect: {why}." for key, why in unread.items()]


def keys_of(overrides: Iterable[str]) -> list[str]:
    """Return the keys of command-line overrides."""
    return [override.partition("=")[0].lstrip("+~") for override in overrides]
