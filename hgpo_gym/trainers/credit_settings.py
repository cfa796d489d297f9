"""Settings that a run has for some estimators, beside their options: the critic, and the rewards to compare."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from hgpo_gym.advantages import ESTIMATORS, has_critic, needed_by
from hgpo_gym.registry import Choice, explained_arguments
from hgpo_gym.rollouts.recording import REWARD_VECTOR, REWARDS
from hgpo_gym.section import SettingsSection, one_of
from hgpo_gym.trainers.critic.settings import CriticSettings


class CreditSettings(SettingsSection):
    """The settings `algo.critic` and `algo.rewards`.

    Args:
        critic: settings of the critic that the estimator takes values from.
        rewards: what the estimator compares, in this order: `success`, 0 or 1; `return`, the environment's; `length`,
            the share of the step limit that a won episode has left; `validity`, the share of its actions that were
            valid.
    """

    critic: CriticSettings = CriticSettings()
    rewards: Annotated[list[Annotated[str, AfterValidator(one_of(REWARDS))]], Field(min_length=1)] = [  # noqa: RUF012
        "success",
        "length",
        "validity",
    ]


def credit_defaults(estimator: str) -> dict[str, Any]:
    """Return the settings beside the options of an estimator, with their defaults; empty for most."""
    entry = ESTIMATORS[estimator]
    names = [*(["critic"] if has_critic(entry) else []), *(["rewards"] if REWARD_VECTOR in needed_by(entry) else [])]
    return CreditSettings().model_dump(include=set(names))


def credit_meanings() -> dict[str, str]:
    """Return what these settings mean, by key."""
    of_critic = {f"critic.{name}": meaning for name, meaning in explained_arguments(CriticSettings).items()}
    return explained_arguments(CreditSettings) | of_critic


def separated(algo: Choice) -> tuple[Choice, dict[str, Any]]:
    """Return an estimator with its options alone, and the settings beside them, its own or those of its base."""
    if algo.name not in ESTIMATORS:
        return algo, {}
    options, settings = dict(algo.options), dict[str, Any]()
    base, base_options = options.get("base"), options.get("base_options")
    if isinstance(base, str) and isinstance(base_options, Mapping):
        inner, settings = separated(Choice(base, base_options))
        options["base_options"] = dict(inner.options)
    for name in credit_defaults(algo.name):
        if name in options:
            settings[name] = options.pop(name)
    return Choice(algo.name, options), settings
