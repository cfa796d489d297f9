"""The model card of an exported model: the README.md that the Hugging Face hub shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hgpo_gym.runs.directory import flatten, read_summary

SETTINGS = (
    "env.id",
    "algo.name",
    "objective.name",
    "memory.name",
    "memory.window",
    "engine.constrain",
    "rollout.max_new_tokens",
    "trainer.learning_rate",
    "seed",
)
"""The settings that a reader needs to use the model or to compare it."""


def model_card(run: Path, config: Mapping[str, Any], iteration: int) -> str:
    """Return the card of the checkpoint after this iteration, as Markdown with the hub's metadata on top."""
    settings = flatten(config)
    base = settings.get("model.path")
    metadata: dict[str, Any] = {"library_name": "transformers", "tags": ["hgpo_gym", "reinforcement-learning", "agent"]}
    if base and not Path(base).exists():  # a folder of this machine means nothing on the hub
        metadata["base_model"] = base
    shown = {key: settings[key] for key in SETTINGS if key in settings}
    rows = [f"| `{key}` | {value} |" for key, value in shown.items()]
    return "\n".join(
        (
            f"---\n{yaml.safe_dump(metadata, sort_keys=True)}---",
            f"# {shown.get('algo.name', 'A policy')} on {shown.get('env.id', 'a text environment')}\n",
            f"Trained with hgpo_gym for {iteration} iterations{_success(run, iteration)}.\n",
            "| setting | value |",
            "| --- | --- |",
            *rows,
            "",
        )
    )


def _success(run: Path, iteration: int) -> str:
    """Return the success in the evaluation of this checkpoint, in words; empty if it was not evaluated."""
    if not (run / "summary.json").exists():
        return ""
    of_checkpoint = [row for row in read_summary(run).get("evaluations", []) if row["iteration"] == iteration]
    return "".join(f"; success {row['success']:.1%} on `{row['split']}`" for row in of_checkpoint)
