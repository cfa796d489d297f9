"""Metrics of an iteration, and the progress line that shows them."""

import resource
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.memory.notes import NOTES_COLUMN
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes per unit of `ru_maxrss`: macOS counts bytes, Linux kibibytes."""
PARTS = ("rollout", "advantage", "update")
"""The timed parts of an iteration."""
LEGEND = f"seconds are of {' + '.join(PARTS)}"


def episode_metrics(episodes: Sequence[EpisodeOutcome]) -> dict[str, float]:
    """Return the average results of an iteration's episodes."""
    steps = sum(episode.steps for episode in episodes)
    return {
        "success": float(np.mean([episode.won for episode in episodes])),
        "episode_return": float(np.mean([episode.episode_return for episode in episodes])),
        "episode_length": steps / len(episodes),
        "valid_action_rate": sum(episode.valid_steps for episode in episodes) / steps,
        "first_round_episodes": len(episodes),
    }


def response_metrics(rollout: Rollout) -> dict[str, float]:
    """Return lengths of prompts, responses and notes, and the share of each that was cut.

    Lengths need a policy that reports its tokens. A response that several episodes share counts once.
    """
    distinct = rollout.batch.distinct_rows
    records = [record for record in (rollout.tokens[row] for row in distinct) if record is not None]
    metrics = {"truncated_fraction": float(np.mean([rollout.steps[row].truncated for row in distinct]))}
    if records:
        prompts = [len(record.prompt_ids) for record in records]
        responses = [len(record.token_ids) for record in records]
        metrics |= {"prompt_tokens": float(np.mean(prompts)), "prompt_tokens_max": max(prompts)}
        metrics |= {"response_tokens": float(np.mean(responses)), "response_tokens_max": max(responses)}
        metrics["prompt_cached_share"] = sum(record.prompt_cached for record in records) / sum(prompts)
        metrics["prompt_tokens_episode"] = sum(prompts) / len(rollout.episodes)
        metrics["response_tokens_episode"] = sum(responses) / len(rollout.episodes)
        metrics["prompt_cut_share"] = float(np.mean([record.prompt_cut for record in records]))
    if NOTES_COLUMN in rollout.batch.extras:
        lengths = rollout.batch.extras[NOTES_COLUMN][distinct]
        metrics |= {"notes_length": float(np.mean(lengths)), "notes_length_max": int(np.max(lengths))}
    return metrics


def memory_gib() -> float:
    """Return the peak memory of this process in GiB: GPU memory, or main memory without a GPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT / 2**30


def credit_metrics(batch: StepBatch, advantages: np.ndarray) -> dict[str, float]:
    """Return statistics of the advantages float64[N].

    They are mean, standard deviation, the share of steps with advantage 0, and the share of zero-variance groups (no
    step has an advantage). A step that several episodes share counts once.
    """
    # A group has a signal if at least one of its steps has an advantage other than 0.
    informative = np.unique(batch.group_labels[advantages != 0])
    of_steps = advantages[batch.distinct]
    return {
        "advantage_mean": float(of_steps.mean()),
        "advantage_std": float(of_steps.std()),
        "advantage_zero_share": float((of_steps == 0).mean()),
        "zero_variance_groups": 1 - len(informative) / (1 + int(batch.group_labels.max())),
    }


def describe_iteration(metrics: dict[str, Any], iterations: int) -> str:
    """Return the progress line of an iteration: results of its rollout and update, and its seconds."""
    words = [
        f"{metrics['iteration']:4d}/{iterations}",
        f"success {metrics['success']:6.1%}",
        f"return {metrics['episode_return']:5.2f}",
        f"length {metrics['episode_length']:4.1f}",
        f"valid {metrics['valid_action_rate']:4.0%}",
        f"KL {_number(metrics.get('kl_behaviour'), 4)}",
        *([f"KL to reference {_number(metrics['kl_reference'], 4)}"] if "kl_reference" in metrics else []),
        f"entropy {_number(metrics.get('entropy'), 3)}",
        "seconds " + "+".join(f"{metrics[f'seconds_{part}']:.1f}" for part in PARTS),
        *([f"played in {metrics['seconds_played']:.1f}"] if "seconds_played" in metrics else []),
    ]
    if "evaluation_success" in metrics:
        words.append(f"evaluation {metrics['evaluation_success']:.1%}")
    return "  ".join(words)


def _number(value: float | None, digits: int) -> str:
    """Format a number; None is a dash. An update without anything to learn from has no KL and no entropy."""
    if value is None:
        return f"{'-':>{digits + 2}}"
    return f"{value:.{digits}f}" if value < 1e4 else f"{value:.2g}"
