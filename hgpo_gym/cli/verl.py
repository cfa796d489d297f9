"""`hgpo-gym verl`: train with verl."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hgpo_gym.adapters.verl.launch import as_yaml, launch
from hgpo_gym.adapters.verl.run_settings import UNREAD, Scale, verl_settings
from hgpo_gym.cli.errors import mistakes_explained
from hgpo_gym.config.compose import parse_run
from hgpo_gym.section import check_read, parse_section


def verl(config: dict[str, Any], arguments: Namespace) -> None:
    """Train with verl, or print its settings."""
    with mistakes_explained("train"):
        scale = _scale(config, arguments.overrides)
        print(f"Trained in {launch(parse_run(config), scale, arguments.passed_on)}.")


def show_settings(config: dict[str, Any], arguments: Namespace) -> str:
    """Return verl's settings that differ from its defaults, and those after `--`.

    Raises:
        ValueError: a setting that verl has no counterpart for.
    """
    scale = _scale(config, arguments.overrides)
    passed_on = "".join(f"# {override}\n" for override in arguments.passed_on)
    settings = as_yaml(verl_settings(parse_run(config), scale))
    return settings + (f"# On top, as given:\n{passed_on}" if passed_on else "")


def _scale(config: dict[str, Any], overrides: Sequence[str]) -> Scale:
    check_read(overrides, UNREAD)
    return parse_section(Scale, {name: config[name] for name in Scale.model_fields})
