"""Former names of settings, choices and metrics. Older runs are read with today's names."""

from collections.abc import Mapping
from typing import Any

SETTINGS = {
    "rollout.replays": "rollout.max_retries",
    "prompt.answer": "prompt.response",
    "prompt.answer_reading": "prompt.response_reading",
}
"""Old key -> new key."""
CHOICES = {"model": {"scorer": "features"}}
"""By group: old choice -> new choice."""
METRICS = {
    "silent_group_share": "zero_variance_groups",
    "cut_off_share": "truncated_fraction",
    "evaluation_fall": "evaluation_drop",
    "answer_tokens": "response_tokens",
    "answer_tokens_max": "response_tokens_max",
}
"""Old name -> new name."""
FIELDS = {"answer": "response", "cut_off": "truncated", "answer_tokens": "response_tokens"}
"""Old -> new name of the fields of transcripts and the columns of rollouts."""


def with_new_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Rename the settings of an older run, in place, and return them."""
    for old, new in SETTINGS.items():
        section, _, key = old.partition(".")
        values = config.get(section)
        if isinstance(values, dict) and key in values:
            values[new.partition(".")[2]] = values.pop(key)
    model = config.get("model")
    if isinstance(model, dict) and model.get("kind") in CHOICES["model"]:
        model["kind"] = CHOICES["model"][model["kind"]]
    return config


def with_new_fields(record: Any) -> Any:
    """Return a record of a transcript or the columns of a rollout with today's names."""
    return {FIELDS.get(name, name): value for name, value in record.items()} if isinstance(record, dict) else record


def with_new_metrics(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics.jsonl with today's names."""
    return {METRICS.get(name, name): value for name, value in line.items()}
