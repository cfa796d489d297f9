"""Metrics of episodes: verl's own count rows, of which a long episode has more."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def episode_metrics(fields: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics of a batch's episodes, each episode once; empty if the rows do not describe theirs.

    Args:
        fields: for each row that is no padding, the `extra_fields` of the agent loop `hgpo_gym`.
    """
    episodes: dict[str, Mapping[str, Any]] = {
        row["steps"][0]["trajectory"]: row["episode"] for row in fields if "episode" in row and row.get("steps")
    }
    if not episodes:
        return {}
    metrics = _of("episode", list(episodes.values()))
    by_source: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    returns: dict[str, list[float]] = defaultdict(list)
    for name, episode in episodes.items():
        by_source[episode["source"]].append(episode)
        returns[name.rpartition("_")[0]].append(episode["episode_return"])
    if len(by_source) > 1:
        for source, of_source in by_source.items():
            metrics |= _of(f"episode/{source}", of_source)
    return {
        **metrics,
        "episode/groups_without_variance": float(np.mean([max(group) == min(group) for group in returns.values()])),
        "episode/prompt_cut_share": float(np.mean([bool(row.get("prompt_cut")) for row in fields])),
    }


def outcomes_of(infos: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the outcomes of a validation's episodes, by decoding seed, then task.

    Args:
        infos: the fields of the episodes' `reward_extra_info`, by name, as verl collects them.
    """
    columns = {name: values for name, values in infos.items() if name not in ("reward", "acc")}
    outcomes = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(outcomes, key=lambda outcome: (outcome["decoding_seed"], outcome["task_number"]))


def validation_metrics(
    outcomes: Sequence[Mapping[str, Any]], expected: Mapping[str, int], max_failed: float
) -> dict[str, float]:
    """Return the metrics of a validation, by source and task type.

    Args:
        outcomes: of its episodes.
        expected: how many episodes each source has.
        max_failed: the largest share of them that may fail. A failed one counts as not won.

    Raises:
        RuntimeError: more failed; the message has an error.
    """
    metrics: dict[str, float] = {}
    for source, count in expected.items():
        episodes = [outcome for outcome in outcomes if outcome["source"] == source]
        errors = [episode["error"] for episode in episodes if episode["failed"]]
        lost = count - len(episodes) + len(errors)
        if lost > max_failed * count:
            last = errors[-1] if errors else "the log of verl's agent loop workers has the errors."
            raise RuntimeError(
                f"The validation of {source} lost {lost} of {count} episodes, more than "
                f"data.hgpo_gym.max_failed={max_failed} of them: {last}"
            )
        metrics |= _of(f"val/{source}", episodes, count) | {f"val/{source}/failed": float(lost)}
        for kind in sorted({episode["task_type"] for episode in episodes if not episode["failed"]}):
            won = [float(episode["won"]) for episode in episodes if episode["task_type"] == kind]
            metrics[f"val/{source}/success_by_task_type/{kind}"] = float(np.mean(won))
    return metrics


def _of(prefix: str, episodes: Sequence[Mapping[str, Any]], count: int | None = None) -> dict[str, float]:
    """Return the means over episodes; `count` of them if some are missing, which count as not won."""
    steps = sum(episode["steps"] for episode in episodes)
    number = len(episodes)
    return {
        f"{prefix}/success": sum(bool(episode["won"]) for episode in episodes) / (count or number),
        f"{prefix}/return": sum(episode["episode_return"] for episode in episodes) / max(1, number),
        f"{prefix}/length": steps / max(1, number),
        f"{prefix}/valid_action_rate": sum(episode["valid_steps"] for episode in episodes) / max(1, steps),
    }
