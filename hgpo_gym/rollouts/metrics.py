"""The numbers of an iteration: how its episodes went, and the line that a person sees."""

import resource
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes that the system counts a process' memory in."""
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
        "first_round_episodes": len(episodes),
    }


def answer_metrics(rollout: Rollout) -> dict[str, float]:
    """How long the prompts and answers of a rollout are, of policies that say which tokens they are, and what share of
    either was cut. An answer that several episodes share counts once."""
    distinct = rollout.batch.distinct_rows
    records = [record for record in (rollout.tokens[row] for row in distinct) if record is not None]
    metrics = {"truncated_fraction": float(np.mean([rollout.steps[row].cut_off for row in distinct]))}
    if records:
        prompts = [len(record.prompt_ids) for record in records]
        answers = [len(record.token_ids) for record in records]
        metrics |= {"prompt_tokens": float(np.mean(prompts)), "prompt_tokens_max": max(prompts)}
        metrics |= {"answer_tokens": float(np.mean(answers)), "answer_tokens_max": max(answers)}
        metrics["prompt_cut_share"] = float(np.mean([record.prompt_cut for record in records]))
    return metrics


def memory_gib() -> float:
    """The most that this process has held so far, of its GPU; without one, of main memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT / 2**30


def credit_metrics(batch: StepBatch, advantages: np.ndarray) -> dict[str, float]:
    """What credit assignment made of the steps: mean and spread of their advantages float64[N], the share of steps that
    have none, and the share of task groups in which no step has one. A step that several episodes share counts once."""
    speaking = np.unique(batch.group_labels[advantages != 0])
    of_steps = advantages[batch.distinct]
    return {
        "advantage_mean": float(of_steps.mean()),
        "advantage_std": float(of_steps.std()),
        "advantage_zero_share": float((of_steps == 0).mean()),
        "zero_variance_groups": 1 - len(speaking) / (1 + int(batch.group_labels.max())),
    }


def describe_iteration(metrics: dict[str, Any], iterations: int) -> str:
    """One line for a person: what an iteration's rollout and update gave, and where its seconds went."""
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
    """A dash where there is none: an update that had nothing to learn from has no KL and no entropy."""
    if value is None:
        return f"{'-':>{digits + 2}}"
    return f"{value:.{digits}f}" if value < 1e4 else f"{value:.2g}"
