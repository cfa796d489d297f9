"""Prompts and raw responses of episodes, as JSON lines for people and scripts."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, TypeAdapter

from hgpo_gym.files import write_whole
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.runs.renamed import with_new_fields
from hgpo_gym.runs.run_files import damage_named, read_gzip


class Exchange(NamedTuple):
    """A prompt and its response.

    Attributes:
        prompt, response: the exact texts.
        action: the action parsed from the response; empty where none was found.
        truncated: the response reached the maximum length.
        reward: of the step after it.
    """

    prompt: str
    response: str
    action: str
    truncated: bool
    reward: float


@dataclass(frozen=True)
class RecordedEpisode:
    """An episode: its task, whether it was won, and all prompts and responses."""

    task_id: str
    task: str
    won: bool
    exchanges: tuple[Annotated[Exchange, BeforeValidator(with_new_fields)], ...]


_CONVERSATION = TypeAdapter(RecordedEpisode)


def conversations(rollout: Rollout, limit: int | None = None) -> list[RecordedEpisode]:
    """Return the first `limit` episodes of a rollout, in order; None returns all."""
    count = len(rollout.episodes) if limit is None else min(limit, len(rollout.episodes))
    rows: list[list[int]] = [[] for _ in range(count)]
    for row in rollout.batch.in_order.tolist():
        if (episode := int(rollout.batch.trajectory[row])) < count:
            rows[episode].append(row)
    return [
        RecordedEpisode(
            episode.task_id,
            rollout.steps[row_indices[0]].task,
            episode.won,
            tuple(_exchange(rollout, row) for row in row_indices),
        )
        for episode, row_indices in zip(rollout.episodes, rows, strict=False)
    ]


def _exchange(rollout: Rollout, row: int) -> Exchange:
    step = rollout.steps[row]
    return Exchange(step.prompt, step.response, step.action, step.truncated, float(rollout.batch.reward[row]))


def write(episodes: Sequence[RecordedEpisode], path: Path) -> None:
    """Write one line of JSON per episode, gzipped if the file name ends with .gz."""
    lines = [
        {**asdict(conversation), "exchanges": [exchange._asdict() for exchange in conversation.exchanges]}
        for conversation in episodes
    ]
    # A response may hold lone surrogates, which UTF-8 cannot encode.
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(errors="backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    # mtime=0: equal content gives equal bytes.
    write_whole(path, gzip.compress(text, compresslevel=5, mtime=0) if path.suffix == ".gz" else text)


def read(path: Path) -> list[RecordedEpisode]:
    """Read a gzipped file of `write`. Raises FileNotFoundError, DamagedError."""
    content = read_gzip(path)
    with damage_named(path):
        return [_CONVERSATION.validate_json(line) for line in content.splitlines()]
