"""Former names of settings, choices and metrics. Older runs are read with today's names."""

from collections.abc import Mapping
from typing import Any

_RENAMED = {
    "rollout.replays": "rollout.max_retries",
    "prompt.answer": "prompt.response",
    "prompt.answer_reading": "prompt.response_reading",
    "algo.own_share": "algo.td_weight",
}
_CRITIC = ("learning_rate", "epochs", "mini_batch_size", "hidden_size", "clip", "max_grad_norm")
_MOVED = {
    "rollout.rewards": "algo.rewards",
    "trainer.clip_low": "objective.clip_low",
    "trainer.clip_high": "objective.clip_high",
    "trainer.importance_correction": "correction",
    "trainer.importance_cap": "correction.cap",
    **{f"critic.{name}": f"algo.critic.{name}" for name in _CRITIC},
}
_ADDED = {
    "trainer.mini_batch_episodes": 8,  # not read: runs without it have mini_batch_size
    "trainer.rows": "step",
    "memory.name": "window",
}
"""Settings that older runs lack, with what these runs did."""
SETTINGS = {**_RENAMED, **_MOVED}
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

_WITH_CRITIC, _WITH_REWARDS = ("gae", "hiper_hae"), ("dvao", "gdpo")
_CORRECTION_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "token_mask": {"low": 0.0, "high": 3.0, "weigh": True},
    "sequence_mask": {"low": 0.0, "high": 3.0, "statistic": "sum", "weigh": True},
    "sequence_k3": {"statistic": "mean"},
}
"""The options of a run that named none."""


def with_new_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Give the settings of an older run today's names and places, in place, and return them."""
    sections = {name: section for name, section in config.items() if isinstance(section, dict)}
    for old, new in _RENAMED.items():
        section, _, key = old.partition(".")
        if key in sections.get(section, {}):
            sections[section][new.partition(".")[2]] = sections[section].pop(key)
    rollout, trainer, algo, model = (sections.get(name, {}) for name in ("rollout", "trainer", "algo", "model"))
    if model.get("kind") in CHOICES["model"]:
        model["kind"] = CHOICES["model"][model["kind"]]
    for key, value in _ADDED.items():
        section, _, name = key.partition(".")
        if sections.get(section):
            sections[section].setdefault(name, value)
    if "importance_correction" in trainer:
        config["correction"] = _correction(trainer)
        # Every run had a constant, used or not.
        if not _divides_by_constant(sections) or trainer.get("loss_constant") == rollout.get("max_new_tokens"):
            trainer["loss_constant"] = None
    for name in ("clip_low", "clip_high"):  # the file has those of the objective too
        trainer.pop(name, None)
    rewards, critic = rollout.pop("rewards", None), config.pop("critic", None)
    if rewards is not None and algo.get("name") in _WITH_REWARDS:
        algo["rewards"] = rewards
    if isinstance(critic, dict) and algo.get("name") in _WITH_CRITIC:
        default = 0.1 if model.get("kind") == "tabular" else 3e-3
        algo["critic"] = critic | ({"learning_rate": None} if critic.get("learning_rate") == default else {})
    return config


def _correction(trainer: dict[str, Any]) -> dict[str, Any]:
    """Take the importance correction out of the trainer's settings."""
    name, cap, options = (trainer.pop(f"importance_{key}", None) for key in ("correction", "cap", "options"))
    capped = {"cap": cap} if name in ("token", "sequence") else {}
    return {"name": name, **capped, **_CORRECTION_DEFAULTS.get(name, {}), **(options or {})}


def _divides_by_constant(sections: Mapping[str, Mapping[str, Any]]) -> bool:
    aggregation = sections.get("trainer", {}).get("loss_aggregation")
    return aggregation == "sequence_sum" or (
        aggregation is None and sections.get("objective", {}).get("name") == "hispo"
    )


def with_new_fields(record: Any) -> Any:
    """Return a record of a transcript or the columns of a rollout with today's names."""
    return {FIELDS.get(name, name): value for name, value in record.items()} if isinstance(record, dict) else record


def with_new_metrics(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics.jsonl with today's names."""
    return {METRICS.get(name, name): value for name, value in line.items()}
