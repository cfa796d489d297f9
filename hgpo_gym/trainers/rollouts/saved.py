"""Rollouts that a run keeps, so that one can look at what an iteration saw: small files of gzipped JSON."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.files import write_whole
from hgpo_gym.trainers.rollouts.collect import Episode, Rollout

_PATTERN = "iteration_*.json.gz"


@dataclass(frozen=True)
class KeptRollout:
    """What credit assignment saw in one iteration, in numbers and in words.

    Attributes:
        batch: a row a step; `trajectory` indexes `episodes`.
        episodes: how each one went.
        tasks: the instruction of each episode.
        observations, actions: the text of each row.
    """

    batch: StepBatch
    episodes: tuple[Episode, ...]
    tasks: tuple[str, ...]
    observations: tuple[str, ...]
    actions: tuple[str, ...]


def keep(rollout: Rollout, iteration: int, folder: Path) -> None:
    """Write a rollout into `folder`; every text and every context key is written once."""
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    batch = rollout.batch
    distinct_keys, keys = np.unique(batch.context_keys, return_inverse=True)
    first_rows = {int(trajectory): row for row, trajectory in reversed(list(enumerate(batch.trajectory)))}
    content = {
        "episodes": [asdict(episode) for episode in rollout.episodes],
        "task": [number(rollout.steps[first_rows[index]].task) for index in range(len(rollout.episodes))],
        "group": batch.group.tolist(),
        "trajectory": batch.trajectory.tolist(),
        "step": batch.step.tolist(),
        "reward": batch.reward.tolist(),
        "penalty": batch.penalty.tolist(),
        "context_keys": keys.reshape(batch.context_keys.shape).tolist(),
        "observation": [number(step.observation) for step in rollout.steps],
        "action": [number(step.action) for step in rollout.steps],
        "keys": distinct_keys.tolist(),
        "texts": list(numbers),
    }
    folder.mkdir(exist_ok=True)
    write_whole(_path(folder, iteration), gzip.compress(json.dumps(content).encode(), compresslevel=5, mtime=0))


def load(folder: Path, iteration: int) -> KeptRollout:
    """The rollout of an iteration.

    Raises:
        FileNotFoundError: it was not kept; the message says which were.
    """
    path = _path(folder, iteration)
    if not path.exists():
        kept = kept_iterations(folder)
        there = f"kept are {_in_words(kept)}" if kept else "none is"
        raise FileNotFoundError(
            f"The rollout of iteration {iteration} is not in {folder}: {there}. A run keeps those of every "
            "checkpoint.rollouts_every iterations while it trains (0: none)."
        )
    content = json.loads(gzip.decompress(path.read_bytes()))
    texts = content["texts"]
    return KeptRollout(
        batch=StepBatch(
            group=np.array(content["group"], dtype=np.int64),
            trajectory=np.array(content["trajectory"], dtype=np.int64),
            step=np.array(content["step"], dtype=np.int64),
            reward=np.array(content["reward"], dtype=np.float64),
            context_keys=np.array(content["keys"], dtype=np.int64)[content["context_keys"]],
            penalty=np.array(content["penalty"], dtype=np.float64),
        ),
        episodes=tuple(Episode(**episode) for episode in content["episodes"]),
        tasks=tuple(texts[number] for number in content["task"]),
        observations=tuple(texts[number] for number in content["observation"]),
        actions=tuple(texts[number] for number in content["action"]),
    )


def kept_iterations(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("iteration_").partition(".")[0]) for path in folder.glob(_PATTERN))


def forget_after(folder: Path, iteration: int) -> None:
    """Remove the rollouts of later iterations: they are about to be made again."""
    for later in kept_iterations(folder):
        if later > iteration:
            _path(folder, later).unlink()


def _path(folder: Path, iteration: int) -> Path:
    return folder / _PATTERN.replace("*", f"{iteration:04d}")


def _in_words(numbers: Sequence[int]) -> str:
    """Whole numbers in order, runs of them as a range: 1 to 4, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
