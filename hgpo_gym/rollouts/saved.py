"""Rollouts that a run keeps, so that one can look at what an iteration saw: small files of gzipped JSON."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.files import write_whole
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.rollouts.conversations import Conversation, conversations, read, write
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout
from hgpo_gym.runs.run_files import damage_named, read_gzipped_json

_PATTERN = "iteration_*.json.gz"
_TEXTS = TypeAdapter(list[str])
_EPISODES = TypeAdapter(tuple[EpisodeOutcome, ...])


@dataclass(frozen=True)
class KeptRollout:
    """What credit assignment saw in one iteration, in numbers and in words.

    Attributes:
        batch: a row a step; `trajectory` indexes `episodes`. Reward and penalty are those that credit assignment saw.
        episodes: how each one went.
        tasks: the instruction of each episode.
        observations, actions: the text of each row.
        environment_reward, environment_penalty: float64[N], what they were before shaping; None where the same.
        conversations: what was said in the first episodes, word for word, as far as that was kept.
    """

    batch: StepBatch
    episodes: tuple[EpisodeOutcome, ...]
    tasks: tuple[str, ...]
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    environment_reward: np.ndarray | None = None
    environment_penalty: np.ndarray | None = None
    conversations: tuple[Conversation, ...] = ()


def keep(
    rollout: Rollout,
    iteration: int,
    folder: Path,
    shaped: StepBatch | None = None,
    transcripts: int | None = 0,
) -> None:
    """Write a rollout into `folder`; every text and every context key is written once.

    Args:
        shaped: the rollout's batch as credit assignment saw it, with other rewards and penalties perhaps.
        transcripts: of how many episodes prompts and raw answers are kept too, in a file beside it; None is all.
    """
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    batch = shaped or rollout.batch
    finals = batch.context_keys[:0] if batch.final_keys is None else batch.final_keys[batch.first_rows]
    distinct_keys, keys = np.unique(np.concatenate([batch.context_keys, finals]), return_inverse=True)
    keys = keys.reshape(-1, batch.history_length + 1)
    content = {
        "episodes": [asdict(episode) for episode in rollout.episodes],
        "task": [number(rollout.steps[row].task) for row in batch.first_rows],
        "group": batch.group.tolist(),
        "trajectory": batch.trajectory.tolist(),
        "step": batch.step.tolist(),
        "reward": batch.reward.tolist(),
        "penalty": batch.penalty.tolist(),
        "context_keys": keys[: len(batch)].tolist(),
        "final_keys": None if batch.final_keys is None else keys[len(batch) :].tolist(),
        "trained": None if batch.trained is None else batch.trained.tolist(),
        "extras": {name: values.tolist() for name, values in batch.extras.items()},
        "observation": [number(step.observation) for step in rollout.steps],
        "action": [number(step.action) for step in rollout.steps],
        "keys": distinct_keys.tolist(),
        "texts": list(numbers),
    }
    for name in ("reward", "penalty"):
        if not np.array_equal(before := getattr(rollout.batch, name), getattr(batch, name)):
            content[f"environment_{name}"] = before.tolist()
    folder.mkdir(exist_ok=True)
    write_whole(_path(folder, iteration), gzip.compress(json.dumps(content).encode(), compresslevel=5, mtime=0))
    if transcripts != 0:
        write(conversations(rollout, transcripts), _said(folder, iteration))


def load(folder: Path, iteration: int) -> KeptRollout:
    """The rollout of an iteration.

    Raises:
        FileNotFoundError: it was not kept; the message says which were.
        DamagedError: it is not what was written.
    """
    path = _path(folder, iteration)
    if not path.exists():
        kept = kept_iterations(folder)
        there = f"kept are {_in_words(kept)}" if kept else "none is"
        raise FileNotFoundError(
            f"The rollout of iteration {iteration} is not in {folder}: {there}. A run keeps those of every "
            "checkpoint.rollouts_every iterations while it trains (0: none)."
        )
    content = read_gzipped_json(path)
    with damage_named(path):
        rollout = _kept_rollout(content)
    said = _said(folder, iteration)
    return replace(rollout, conversations=tuple(read(said))) if said.exists() else rollout


def _kept_rollout(content: dict[str, Any]) -> KeptRollout:
    """What `keep` made of a rollout. Raises whatever it stumbles over where it is something else."""
    texts = _TEXTS.validate_python(content["texts"])
    episodes = _EPISODES.validate_python(content["episodes"])
    trajectory = np.array(content["trajectory"], dtype=np.int64)
    # Other parts count by these numbers: no larger ones than there are things to be counted.
    for name, most in (("group", len(trajectory)), ("step", len(trajectory)), ("trajectory", len(episodes))):
        numbers = np.array(content[name], dtype=np.int64)
        if numbers.min(initial=0) < 0 or numbers.max(initial=0) >= max(most, 1):
            raise ValueError(f"{name} has numbers outside 0 to {most - 1}")
    keys, trained = np.array(content["keys"], dtype=np.int64), content.get("trained")
    # Rollouts of earlier versions have no final keys, no extras and no shaping.
    finals = content.get("final_keys")
    hashes = np.array([hash_text(text) for text in texts], dtype=np.uint64).view(np.int64)
    batch = StepBatch(
        group=np.array(content["group"], dtype=np.int64),
        trajectory=trajectory,
        step=np.array(content["step"], dtype=np.int64),
        reward=np.array(content["reward"], dtype=np.float64),
        context_keys=keys[content["context_keys"]],
        penalty=np.array(content["penalty"], dtype=np.float64),
        action=hashes[content["action"]],
        success=np.array([episode.won for episode in episodes], dtype=np.bool_)[trajectory],
        final_keys=None if finals is None else keys[np.array(finals)[trajectory]],
        extras={name: np.array(values) for name, values in content.get("extras", {}).items()},
        trained=None if trained is None else np.array(trained, dtype=np.bool_),
    )
    if not len(batch) == len(content["observation"]) == len(content["action"]):
        raise ValueError("not every step has an observation and an action")
    if not len(episodes) == len(content["task"]) == len(batch.first_rows):
        raise ValueError("not every episode has a task and steps")
    reward, penalty = (
        None if values is None else np.array(values, dtype=np.float64)
        for values in (content.get("environment_reward"), content.get("environment_penalty"))
    )
    return KeptRollout(
        batch=batch,
        episodes=episodes,
        tasks=tuple(texts[number] for number in content["task"]),
        observations=tuple(texts[number] for number in content["observation"]),
        actions=tuple(texts[number] for number in content["action"]),
        environment_reward=reward,
        environment_penalty=penalty,
    )


def kept_iterations(folder: Path) -> list[int]:
    numbers = (path.name.removeprefix("iteration_").partition(".")[0] for path in folder.glob(_PATTERN))
    return sorted(int(number) for number in numbers if re.fullmatch(r"\d{4}|[1-9]\d{4,8}", number))


def forget_after(folder: Path, iteration: int) -> None:
    """Remove the rollouts of later iterations: they are about to be made again."""
    for later in kept_iterations(folder):
        if later > iteration:
            _path(folder, later).unlink()
            _said(folder, later).unlink(missing_ok=True)


def _path(folder: Path, iteration: int) -> Path:
    return folder / _PATTERN.replace("*", f"{iteration:04d}")


def _said(folder: Path, iteration: int) -> Path:
    """Beside it: what was said, word for word."""
    return folder / f"transcripts_{iteration:04d}.jsonl.gz"


def _in_words(numbers: Sequence[int]) -> str:
    """Whole numbers in order, runs of them as a range: 1 to 4, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
