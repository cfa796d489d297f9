"""The date that a run's chat template shows. It is saved in config.yaml, so the prompts of a run keep the same
tokens."""

import datetime
from pathlib import Path

from hgpo_gym.registry import Choice
from hgpo_gym.runs.directory import read_config
from hgpo_gym.trainers.model_kinds import Model
from hgpo_gym.trainers.models.language_model import LanguageModel

DATE_LINE = "The chat template shows the date: for this run it is always {} (engine.template_date)."


def date_of(engine: Choice, run_dir: Path, model: Model) -> str | None:
    """Return the date for these settings, or None if the prompts do not depend on it.

    This is `engine.template_date`, else the date of an existing run. Else it is today, if the chat template of the
    named model asks for the date.

    Raises:
        ValueError, OSError: the tokenizer cannot be loaded, see `load_model`, or config.yaml is damaged.
    """
    options = engine.options
    if options.get("template_date") is not None or "template_date" not in options:
        return options.get("template_date")
    if (run_dir / "config.yaml").exists():
        return saved_date(run_dir)
    if not isinstance(model, LanguageModel) or not model.shows_date(options["chat_template_kwargs"]):
        return None
    return datetime.date.today().isoformat()


def saved_date(run_dir: Path) -> str | None:
    """Return the date of a saved run, or None if there is no run or no date."""
    if not (run_dir / "config.yaml").exists():
        return None
    return (read_config(run_dir).get("engine") or {}).get("template_date")
