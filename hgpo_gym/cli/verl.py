"""`hgpo-gym verl`: train with verl."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hgpo_gym.adapters.verl.launch import as_yaml, launch
from hgpo_gym.adapters.verl.run_settings import Scale, check_given_keys, verl_settings
from hgpo_gym.cli.errors import mistakes_explained
from hgpo_gym.section import parse_section
from hgpo_gym.trainers.settings import RunSettings


def verl(config: dict[str, Any], arguments: Namespace) -> None:
    """Train with verl, or print its settings."""
    with mistakes_explained("train"):
        run, scale = _settings(config, arguments.overrides)
        print(f"Trained in {launch(run, scale, arguments.passed_on)}.")


def show_settings(config: dict[str, Any], arguments: Namespace) -> str:
    """Return verl's settings that differ from its defaults, and those after `--`.

    Raises:
        ValueError: a setting that verl has no counterpart for.
    """
    run, scale = _settings(config, arguments.overrides)
    own = "".join(f"# {override}\n" for override in arguments.passed_on)
    return as_yaml(verl_settings(run, scale)) + (f"# On top, as given:\n{own}" if own else "")


def _settings(config: dict[str, Any], overrides: Sequence[str]) -> tuple[RunSettings, Scale]:
    check_given_keys([override.partition("=")[0].lstrip("+~") for override in overrides])
    scale = parse_section(Scale, {name: config[name] for name in Scale.model_fields})
    return RunSettings.parse(config), scale
