"""What a policy was asked and what it said, word for word: episodes as JSON lines, for persons and scripts."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from hgpo_gym.files import write_whole
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.runs.run_files import damage_named, read_gzipped


class Exchange(NamedTuple):
    """A prompt and its answer.

    Attributes:
        prompt, answer: word for word.
        action: what was read in the answer; empty where no action was found.
        cut_off: the answer ended at the longest length and not by itself.
        reward: of the step after it.
    """

    prompt: str
    answer: str
    action: str
    cut_off: bool
    reward: float


@dataclass(frozen=True)
class Conversation:
    """An episode: its task, how it went, and all that was said."""

    task_id: str
    task: str
    won: bool
    exchanges: tuple[Exchange, ...]


_CONVERSATION = TypeAdapter(Conversation)


def conversations(rollout: Rollout, most: int | None = None) -> list[Conversation]:
    """The first episodes of a rollout, in order; None is all of them."""
    count = len(rollout.episodes) if most is None else min(most, len(rollout.episodes))
    rows: list[list[int]] = [[] for _ in range(count)]
    for row in rollout.batch.in_order.tolist():
        if (episode := int(rollout.batch.trajectory[row])) < count:
            rows[episode].append(row)
    return [
        Conversation(
            episode.task_id,
            rollout.steps[own[0]].task,
            episode.won,
            tuple(_exchange(rollout, row) for row in own),
        )
        for episode, own in zip(rollout.episodes, rows, strict=False)
    ]


def _exchange(rollout: Rollout, row: int) -> Exchange:
    step = rollout.steps[row]
    return Exchange(step.prompt, step.answer, step.action, step.cut_off, float(rollout.batch.reward[row]))


def write(told: Sequence[Conversation], path: Path) -> None:
    """A line of JSON an episode; gzipped where the name ends with .gz."""
    lines = [{**asdict(one), "exchanges": [exchange._asdict() for exchange in one.exchanges]} for one in told]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(errors="backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(text, compresslevel=5, mtime=0) if path.suffix == ".gz" else text)


def read(path: Path) -> list[Conversation]:
    """What `write` wrote, gzipped. Raises FileNotFoundError, DamagedError."""
    content = read_gzipped(path)
    with damage_named(path):
        return [_CONVERSATION.validate_json(line) for line in content.splitlines()]
