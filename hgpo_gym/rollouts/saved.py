"""Saved rollouts of a run, for inspection: small files of gzipped JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.memory.notes import NOTES_COLUMN
from hgpo_gym.rollouts.conversations import RecordedEpisode, conversations, read, write
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout
from hgpo_gym.runs.renamed import with_new_fields
from hgpo_gym.runs.run_files import damage_named, read_json, write_gzip

_PATTERN = "iteration_*.json.gz"
_TEXTS = TypeAdapter(list[str])
_EPISODES = TypeAdapter(tuple[EpisodeOutcome, ...])


@dataclass(frozen=True)
class SavedRollout:
    """A saved rollout: the numbers and texts that credit assignment saw in one iteration.

    Attributes:
        batch: one row per step; `trajectory` indexes `episodes`. Reward and penalty are those after shaping.
        episodes: the outcome of each.
        tasks: the instruction of each episode.
        observations, actions: the text of each row.
        notes: what the agent read of its own at each row; empty without notes.
        environment_reward, environment_penalty: float64[N], the values before shaping; None if shaping changed nothing.
        conversations: prompts and raw responses of the first episodes, where they were saved.
    """

    batch: StepBatch
    episodes: tuple[EpisodeOutcome, ...]
    tasks: tuple[str, ...]
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    environment_reward: np.ndarray | None = None
    environment_penalty: np.ndarray | None = None
    conversations: tuple[RecordedEpisode, ...] = ()
    notes: tuple[str, ...] = ()


def keep(
    rollout: Rollout,
    iteration: int,
    folder: Path,
    shaped: StepBatch | None = None,
    transcripts: int | None = 0,
) -> None:
    """Write a rollout into `folder`, each text and each context key once.

    Args:
        shaped: the rollout's batch after shaping, if rewards or penalties may have changed.
        transcripts: how many episodes keep their prompts and raw responses, in a second file; None keeps all.
    """
    text_ids: dict[str, int] = {}

    def text_id(text: str) -> int:
        return text_ids.setdefault(text, len(text_ids))

    batch = shaped or rollout.batch
    final_keys = batch.context_keys[:0] if batch.final_keys is None else batch.final_keys[batch.first_rows]
    # Each key is stored once; rows refer to it by its index.
    distinct_keys, keys = np.unique(np.concatenate([batch.context_keys, final_keys]), return_inverse=True)
    keys = keys.reshape(-1, batch.history_length + 1)
    texts = batch.texts or {}
    content = {
        "episodes": [asdict(episode) for episode in rollout.episodes],
        "task": [text_id(rollout.steps[row].task) for row in batch.first_rows],
        "group": batch.group.tolist(),
        "trajectory": batch.trajectory.tolist(),
        "step": batch.step.tolist(),
        "reward": batch.reward.tolist(),
        "penalty": batch.penalty.tolist(),
        "context_keys": keys[: len(batch)].tolist(),
        "final_keys": None if batch.final_keys is None else keys[len(batch) :].tolist(),
        "trained": None if batch.trained is None else batch.trained.tolist(),
        "extras": {name: values.tolist() for name, values in batch.extras.items()},
        "observation": [text_id(step.observation) for step in rollout.steps],
        "action": [text_id(step.action) for step in rollout.steps],
        "notes": [text_id(step.notes) for step in rollout.steps] if NOTES_COLUMN in batch.extras else [],
        "keys": distinct_keys.tolist(),
        "states": {number: text_id(texts[key]) for number, key in enumerate(distinct_keys.tolist()) if key in texts},
        "texts": list(text_ids),
    }
    for name in ("reward", "penalty"):
        if not np.array_equal(original := getattr(rollout.batch, name), getattr(batch, name)):
            content[f"environment_{name}"] = original.tolist()
    write_gzip(_path(folder, iteration), json.dumps(content))
    if transcripts != 0:
        write(conversations(rollout, transcripts), _transcripts_path(folder, iteration))


def load(folder: Path, iteration: int) -> SavedRollout:
    """Read the rollout of an iteration.

    Raises:
        FileNotFoundError: it was not saved; the message lists the saved ones.
        DamagedError: the file is damaged.
    """
    path = _path(folder, iteration)
    if not path.exists():
        saved = saved_iterations(folder)
        available = f"kept are {_in_words(saved)}" if saved else "none is"
        raise FileNotFoundError(
            f"The rollout of iteration {iteration} is not in {folder}: {available}. A run keeps those of every "
            "checkpoint.rollouts_every iterations while it trains (0: none)."
        )
    content = read_json(path)
    with damage_named(path):
        rollout = _saved_rollout(content)
    transcripts = _transcripts_path(folder, iteration)
    return replace(rollout, conversations=tuple(read(transcripts))) if transcripts.exists() else rollout


def _saved_rollout(content: dict[str, Any]) -> SavedRollout:
    """Build a rollout from the content that `keep` wrote. Wrong content raises errors of any type."""
    texts = _TEXTS.validate_python(content["texts"])
    episodes = _EPISODES.validate_python(content["episodes"])
    trajectory = np.array(content["trajectory"], dtype=np.int64)
    keys, trained, final_keys = np.array(content["keys"], dtype=np.int64), content["trained"], content["final_keys"]
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
        final_keys=None if final_keys is None else keys[np.array(final_keys)[trajectory]],
        extras={name: np.array(values) for name, values in with_new_fields(content["extras"]).items()},
        trained=None if trained is None else np.array(trained, dtype=np.bool_),
        texts={int(keys[int(number)]): texts[text] for number, text in content["states"].items()},
    )
    if not len(batch) == len(content["observation"]) == len(content["action"]):
        raise ValueError("not every step has an observation and an action")
    if len(content["notes"]) not in (0, len(batch)):
        raise ValueError("not every step has notes")
    if not len(episodes) == len(content["task"]) == len(batch.first_rows):
        raise ValueError("not every episode has a task and steps")
    reward, penalty = (
        None if values is None else np.array(values, dtype=np.float64)
        for values in (content.get("environment_reward"), content.get("environment_penalty"))
    )
    return SavedRollout(
        batch=batch,
        episodes=episodes,
        tasks=tuple(texts[number] for number in content["task"]),
        observations=tuple(texts[number] for number in content["observation"]),
        actions=tuple(texts[number] for number in content["action"]),
        environment_reward=reward,
        environment_penalty=penalty,
        notes=tuple(texts[number] for number in content["notes"]),
    )


def saved_iterations(folder: Path) -> list[int]:
    numbers = (path.name.removeprefix("iteration_").partition(".")[0] for path in folder.glob(_PATTERN))
    return sorted(int(number) for number in numbers if re.fullmatch(r"\d{4}|[1-9]\d{4,8}", number))


def forget_after(folder: Path, iteration: int) -> None:
    """Remove the rollouts of later iterations: a resumed run writes them again."""
    for later in saved_iterations(folder):
        if later > iteration:
            _path(folder, later).unlink()
            _transcripts_path(folder, later).unlink(missing_ok=True)


def _path(folder: Path, iteration: int) -> Path:
    return folder / _PATTERN.replace("*", f"{iteration:04d}")


def _transcripts_path(folder: Path, iteration: int) -> Path:
    """Return the path of the transcripts next to the rollout."""
    return folder / f"transcripts_{iteration:04d}.jsonl.gz"


def _in_words(numbers: Sequence[int]) -> str:
    """Format sorted integers, with consecutive ones as a range: 1 to 4, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
