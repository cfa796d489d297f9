"""The environments that the server offers, and the options that a client may set. The operator lists both.

Clients can ask for nothing else. An environment's options may name files, fill the memory or start slow work. So the
operator allows each value, and no list of harmless options has to be maintained.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import yaml

from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.envs.registration import make
from hgpo_gym.server.problems import ProblemDetails, shown
from hgpo_gym.suggest import unknown_name

LOG = logging.getLogger(__name__)
_SCALARS = (str, int, float, bool, type(None))
NO_LIMIT = 0
"""The step limit that stands for no limit."""


@dataclass(frozen=True)
class EnvironmentOffer:
    """One environment on offer.

    Attributes:
        id: the registered id.
        fixed: options that the server sets; clients neither change nor see them.
        choices: options that a client may set, each with its allowed values; the first is the default.
    """

    id: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the options for a client that sets none."""
        return {**self.fixed, **{name: values[0] for name, values in self.choices.items()}}

    def options(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options, with a client's choices in place of the defaults.

        Raises:
            ProblemDetails: an option or a value is not among the choices.
        """
        options = self.defaults
        for name, value in chosen.items():
            values = self.choices.get(name)
            if values is None:
                raise ProblemDetails(
                    422,
                    "unknown-option",
                    f"The option {shown(name)} of {self.id} cannot be set by a client of this server.",
                    f"Clients may set: {', '.join(self.choices) or 'none'}. The operator adds options to --env.",
                    name=f"options.{name[:100]}",
                    value=value,
                )
            # Compare types too: True == 1 in Python.
            allowed = [known for known in values if type(known) is type(value) and known == value]
            if not allowed:
                raise ProblemDetails(
                    422,
                    "unknown-option",
                    f"{shown(value)} is none of the values of {self.id}'s option {name}.",
                    f"Choose one of {', '.join(map(repr, values))}. The operator adds values to --env.",
                    name=f"options.{name}",
                    value=value,
                )
            options[name] = allowed[0]
        return options

    def make(self, chosen: Mapping[str, Any], step_limit: int | None = None) -> gymnasium.Env[str, str]:
        """Make the environment.

        Args:
            chosen: the client's options.
            step_limit: None for the environment's default, `NO_LIMIT` for no limit.
        """
        options = self.options(chosen)
        if step_limit is not None:
            options["max_episode_steps"] = -1 if step_limit == NO_LIMIT else step_limit
        return make(self.id, **options)

    def try_all(self) -> None:
        """Make the environment with the defaults, and once with each other value that a client may choose.

        So mistakes show when the server starts, and data that is built on first use is ready.
        """
        self.make({}).close()
        for name, values in self.choices.items():
            for value in values[1:]:
                self.make({name: value}).close()


def parse_offer(words: Sequence[str]) -> EnvironmentOffer:
    """Parse an offer from the words of `--env ID option=value option=[value,value]`. Values are YAML.

    Raises:
        ValueError: the id is not registered, or the words cannot be parsed.
    """
    id, *settings = words
    if id not in ENVIRONMENTS:
        raise ValueError(unknown_name("environment", id, sorted(ENVIRONMENTS)))
    fixed, choices = {}, {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        value = _parse_value(text) if name and separator else None
        if isinstance(value, list) and value and all(map(_is_value, value)):
            choices[name] = tuple(value)
        elif separator and isinstance(value, _SCALARS):
            fixed[name] = value
        else:
            raise ValueError(
                f"--env {id}: cannot read {setting!r}. Write option=value, or option=[a,b] for clients to choose."
            )
    return EnvironmentOffer(id, fixed, choices)


def _parse_value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return {}  # a mapping is no valid value, so the caller refuses it


def _is_value(value: Any) -> bool:
    return isinstance(value, _SCALARS) or (
        isinstance(value, list) and all(isinstance(part, _SCALARS) for part in value)
    )


def make_offers(environments: Sequence[Sequence[str]]) -> dict[str, EnvironmentOffer]:
    """Return the offers of a server by id, after trying each one.

    Args:
        environments: the words of each `--env`. If empty, every registered environment that its defaults can make.

    Raises:
        ValueError: an environment is given twice.
        ValueError, OSError, ImportError: an environment cannot be made with its options.
    """
    offers: dict[str, EnvironmentOffer] = {}
    for offer in map(parse_offer, environments):
        if offer.id in offers:
            raise ValueError(
                f"--env {offer.id} is given twice: give it once, with option=[a,b] where clients are to choose, like "
                "split=[train,test]."
            )
        offers[offer.id] = offer
    for offer in offers.values():
        offer.try_all()
    return offers or {id: EnvironmentOffer(id) for id in ENVIRONMENTS if _can_be_made(id)}


def _can_be_made(id: str) -> bool:
    try:
        EnvironmentOffer(id).try_all()
    except (ValueError, OSError, ImportError) as error:
        LOG.warning("%s is not offered: %s", id, error)
        return False
    return True
