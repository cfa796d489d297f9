"""Episodes whose environment failed: the limit that a run allows, and files for people to read."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from hgpo_gym.rollouts.conversations import Exchange, RecordedEpisode
from hgpo_gym.rollouts.rollout import FailedEpisode
from hgpo_gym.runs.run_files import damage_named, read_gzip, write_gzip


class EpisodesFailedError(RuntimeError):
    """More episodes failed than the run allows.

    Attributes:
        failures: all of them.
    """

    def __init__(self, message: str, failures: Sequence[FailedEpisode]):
        super().__init__(message, failures)
        self.failures = tuple(failures)

    def __str__(self) -> str:
        return str(self.args[0])


def last_error(failures: Sequence[FailedEpisode]) -> str:
    """Return the error of the last attempt, as a sentence."""
    last = failures[-1]
    return f"The last error, in task {last.outcome.task_id!r}: {last.error.rstrip('.')}."


def check_failures(
    failures: Sequence[FailedEpisode], left_out: int, requested: int, max_share: float, what: str
) -> None:
    """Raise EpisodesFailedError if failures left out too much.

    Args:
        failures: the attempts that failed.
        left_out: how many items the failures cost.
        requested: how many items were requested.
        max_share: the largest share that may be left out; losing all items is never allowed.
        what: the items, in words.

    Raises:
        EpisodesFailedError: names the last error.
    """
    if not left_out or (left_out < requested and left_out <= max_share * requested):
        return
    lost_all = left_out == requested
    why = "nothing is left" if lost_all else f"rollout.max_failed={max_share:g} is the largest share that may be"
    remedy = (
        "or give it more time (rollout.worker_timeout)"
        if lost_all
        else "give it more time (rollout.worker_timeout), or raise rollout.max_failed"
    )
    raise EpisodesFailedError(
        f"environments failed in {len(failures)} attempts at an episode, so that {left_out} of {requested} {what} are "
        f"lost; {why}. {last_error(failures)} Fix the environment, {remedy}.",
        failures,
    )


@dataclass(frozen=True)
class SavedFailure:
    """A failed attempt at an episode, as it is stored.

    Attributes:
        attempt: from 1.
        failed: this was the last attempt.
        error: type and message.
        traceback: of the error.
        conversation: prompts and responses before the failure.
    """

    attempt: int
    failed: bool
    error: str
    traceback: str
    conversation: RecordedEpisode


_FAILURE = TypeAdapter(SavedFailure)
_NAME = re.compile(r"(training|evaluation)_(\d{4,9})\.jsonl\.gz")


def path_of(folder: Path, phase: str, iteration: int) -> Path:
    """Return the file of an iteration's `training`, or of the `evaluation` after it."""
    return folder / f"{phase}_{iteration:04d}.jsonl.gz"


def write(failures: Sequence[FailedEpisode], path: Path) -> None:
    """Write one line of JSON per failure, gzipped; no file without failures. Raises NotWrittenError."""
    if failures:
        write_gzip(path, "".join(json.dumps(_as_json(episode), ensure_ascii=False) + "\n" for episode in failures))


def _as_json(episode: FailedEpisode) -> dict[str, object]:
    exchanges = tuple(
        Exchange(text.prompt, text.response, text.action, text.truncated, reward)
        for text, reward in zip(episode.texts, episode.rewards, strict=True)
    )
    task = episode.texts[0].task if episode.texts else ""
    conversation = RecordedEpisode(episode.outcome.task_id, task, won=False, exchanges=exchanges)
    record = SavedFailure(episode.attempt, episode.failed, episode.error, episode.traceback, conversation)
    content = asdict(record)
    content["conversation"]["exchanges"] = [exchange._asdict() for exchange in exchanges]
    return content


def read(path: Path) -> list[SavedFailure]:
    """Read a file of `write`. Raises FileNotFoundError, DamagedError."""
    content = read_gzip(path)
    with damage_named(path):
        return [_FAILURE.validate_json(line) for line in content.splitlines()]


def saved_files(folder: Path) -> list[tuple[int, str, Path]]:
    """Return (iteration, phase, path) of the files in a folder, in order."""
    names = [(_NAME.fullmatch(path.name), path) for path in folder.glob("*.jsonl.gz")]
    # In one iteration, training comes before the evaluation.
    return sorted(
        ((int(name[2]), name[1], path) for name, path in names if name),
        key=lambda file: (file[0], file[1] != "training"),
    )


def forget_after(folder: Path, iteration: int) -> None:
    """Remove the files of later iterations: a resumed run writes them again."""
    for number, _, path in saved_files(folder):
        if number > iteration:
            path.unlink()
