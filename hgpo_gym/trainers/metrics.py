"""The numbers of an iteration: how its episodes went, and the line that a person sees."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgpo_gym.trainers.rollouts.rollout import EpisodeOutcome

PARTS = ("rollout", "advantage", "update")
"""What the seconds of an iteration go to."""
LEGEND = f"seconds are of {' + '.join(PARTS)}"


def episode_metrics(episodes: Sequence[EpisodeOutcome]) -> dict[str, float]:
    """How the episodes of an iteration went, on average."""
    steps = sum(episode.steps for episode in episodes)
    return {
        "success": float(np.mean([episode.won for episode in episodes])),
        "episode_return": float(np.mean([episode.episode_return for episode in episodes])),
        "episode_length": steps / len(episodes),
        "valid_action_rate": sum(episode.valid_steps for episode in episodes) / steps,
    }


def describe_iteration(metrics: dict[str, Any], iterations: int) -> str:
    """One line for a person: what an iteration's rollout and update gave, and where its seconds went."""
    words = [
        f"{metrics['iteration']:4d}/{iterations}",
        f"success {metrics['success']:6.1%}",
        f"return {metrics['episode_return']:5.2f}",
        f"length {metrics['episode_length']:4.1f}",
        f"valid {metrics['valid_action_rate']:4.0%}",
        f"KL {_number(metrics.get('kl_reference', metrics.get('kl_behaviour')), 4)}",
        f"entropy {_number(metrics.get('entropy'), 3)}",
        "seconds " + "+".join(f"{metrics[f'seconds_{part}']:.1f}" for part in PARTS),
    ]
    if "evaluation_success" in metrics:
        words.append(f"evaluation {metrics['evaluation_success']:.1%}")
    return "  ".join(words)


def _number(value: float | None, digits: int) -> str:
    """A dash where there is none: an update that had nothing to learn from has no KL and no entropy."""
    return f"{'-':>{digits + 2}}" if value is None else f"{value:.{digits}f}"
