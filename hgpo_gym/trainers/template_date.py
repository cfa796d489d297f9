"""The day that a run's chat template shows, kept in its config.yaml: its prompts have the same tokens ever after."""

import datetime
from pathlib import Path

from hgpo_gym.runs.directory import read_config
from hgpo_gym.trainers.models.language_model import LanguageModel
from hgpo_gym.trainers.settings import RunSettings

DATE_LINE = "The chat template shows the date: for this run it is always {} (engine.template_date)."


def date_of(run: RunSettings) -> str | None:
    """The day for these settings; None where prompts do not depend on it.

    `engine.template_date`, or what a run that is there already has, or today, where the chat template of the model that
    is named asks for the day.

    Raises:
        ValueError, OSError: the tokenizer cannot be loaded, see `load_model`; a config.yaml is damaged.
    """
    options = run.engine.options
    if options.get("template_date") is not None or "template_date" not in options:
        return options.get("template_date")
    if (run.run_dir / "config.yaml").exists():
        return kept_date(run.run_dir)
    if not isinstance(run.model, LanguageModel) or not run.model.shows_date(options["chat_template_kwargs"]):
        return None
    return datetime.date.today().isoformat()


def kept_date(run_dir: Path) -> str | None:
    """The day that a run has, None where there is no run or it has none."""
    if not (run_dir / "config.yaml").exists():
        return None
    return (read_config(run_dir).get("engine") or {}).get("template_date")


def with_date(run: RunSettings, date: str | None) -> RunSettings:
    """The settings with this day, unless it is None."""
    return run if date is None else run.changed(engine={**run.resolved["engine"], "template_date": date})
