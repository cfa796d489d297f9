"""Checkpoints: the learner's files (a language model as a plain Hugging Face folder) and the state of the run.

A checkpoint appears whole or not at all. Its manifest shows later damage.
"""

import json
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hgpo_gym.digests import find_damage, set_aside, write_manifest
from hgpo_gym.files import NotWrittenError, make_whole
from hgpo_gym.runs.history import History
from hgpo_gym.runs.records import StateRecord, SummaryRecord
from hgpo_gym.runs.run_files import read_json
from hgpo_gym.suggest import unknown_name

_STATE = "state.json"
_MADE_BY = "checkpoint"


class InvalidCheckpointError(ValueError):
    """A checkpoint is not what was written; the message names the file and what is wrong with it."""


class MisplacedCheckpointError(ValueError):
    """An intact checkpoint stands under the number of another one, or in another run."""


class CheckpointNotSavedError(OSError):
    """The disk did not take a checkpoint; the older ones are as they were."""


class Saving(NamedTuple):
    """A checkpoint to be written.

    Attributes:
        write: puts the model into the folder's `model`, and beside it all that `begin` needs to go on.
        nbytes: about how many bytes that takes.
    """

    write: Callable[[Path], None]
    nbytes: int


class Checkpoints:
    """The checkpoints of one run: `iteration_0000` (the weights it began with), the newest `keep` and the best.

    Attributes:
        history: the rows that iterations add, to be saved with the next checkpoint.
        run: identifies the run; every checkpoint of it has this text.
    """

    def __init__(self, folder: Path, keep: int = 1):
        self.folder, self.keep, self.history = folder, keep, History(folder.with_name("history.jsonl"))
        self.run = secrets.token_hex(8)

    def save(
        self,
        iteration: int,
        saving: Saving,
        state: dict[str, Any],
        best: int | None = None,
    ) -> Path:
        """Save the state after `iteration` iterations; it appears whole or not at all. Then older ones are removed.

        Args:
            iteration: its number.
            saving: writes the learner's part.
            state: anything else, as JSON.
            best: an iteration whose checkpoint is kept, however old.

        Raises:
            CheckpointNotSavedError: the disk is full; says how much is needed and free.
        """

        def fill(folder: Path) -> None:
            saving.write(folder)
            content = {**state, "run": self.run, "iteration": iteration, "history": self.history.save()}
            (folder / _STATE).write_text(json.dumps(content))
            write_manifest(folder, _MADE_BY)

        target = self._path(iteration)
        try:
            if not target.exists():  # as it does where a run is interrupted just after saving
                make_whole(target, fill)
        except NotWrittenError as error:
            raise CheckpointNotSavedError(
                f"No checkpoint after iteration {iteration}: {error} It takes about {saving.nbytes / 1e6:.1f} MB. "
                "Older checkpoints are as they were. Free some space there."
            ) from error
        for old in set(self._iterations()) - {0, best, *self._iterations()[-self.keep :]}:
            # Renamed first, so that a kill leaves no half of it under its name.
            path = self._path(old)
            _delete(path.rename(path.with_name(f".{path.name}-removed")))
        return target

    @property
    def first(self) -> Path:
        """The checkpoint that the run begins with."""
        return self._path(0)

    def newest(self) -> Path | None:
        """Return the newest checkpoint, unchecked."""
        iteration = self.newest_iteration
        return None if iteration is None else self._path(iteration)

    @property
    def newest_iteration(self) -> int | None:
        """The iteration of the newest checkpoint."""
        return max(self._iterations(), default=None)

    def resume(self, say: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest valid checkpoint and its state, and restore the history; None if there is no checkpoint.

        See `latest_valid`; a checkpoint without its history is not valid here.
        """

        def check_history(checkpoint: Path) -> None:
            saved = read_state(checkpoint).get("history")  # runs of earlier versions can be evaluated, not resumed
            if saved is None or not self.history.restore(saved):
                raise InvalidCheckpointError(f"{checkpoint} is damaged: {self.history.path} is not what was written.")

        newest = self.latest_valid(say, check_history)
        if newest is None:
            return None
        state = read_state(newest)
        self.run = state.get("run", self.run)
        return newest, state

    def latest_valid(
        self, say: Callable[[str], None], check_more: Callable[[Path], None] = lambda _checkpoint: None
    ) -> Path | None:
        """Return the newest checkpoint without damage, None if there is no checkpoint.

        `say` gets a line for each damaged checkpoint that is skipped.

        Raises:
            InvalidCheckpointError: all of them are damaged.
            MisplacedCheckpointError: one is of another iteration or run. It is for the user to say which is right.
        """
        reasons = []
        for iteration in reversed(self._iterations()):
            try:
                checkpoint = self.valid(iteration)
                check_more(checkpoint)
                return checkpoint
            except InvalidCheckpointError as error:
                reasons.append(str(error))
                say(f"{error} It is left out.")
        if reasons:
            raise InvalidCheckpointError(
                f"No checkpoint in {self.folder} is intact. Restore one, or remove the folder to begin again.\n"
                + "\n".join(f"  {reason}" for reason in reasons)
            )
        return None

    def valid(self, iteration: int) -> Path:
        """Return the checkpoint of an iteration.

        Raises:
            FileNotFoundError: it was not kept; the message lists the kept ones.
            InvalidCheckpointError: it is damaged.
            MisplacedCheckpointError: it is of another iteration or run.
        """
        path = self._path(iteration)
        if not path.exists():
            saved = ", ".join(map(str, self._iterations())) or "none"
            raise FileNotFoundError(f"No checkpoint of iteration {iteration} in {self.folder}: kept are {saved}.")
        check(path)
        self._check_place(path, iteration)
        return path

    def _check_place(self, path: Path, iteration: int) -> None:
        state, reason = read_state(path), ""
        first = read_state(self.first) if (self.first / _STATE).exists() else state
        if state["iteration"] != iteration:
            reason = f"is the checkpoint of iteration {state['iteration']}"
        elif state.get("run") != first.get("run"):
            reason = f"is of another run than {self.first}"
        if reason:
            raise MisplacedCheckpointError(f"{path} {reason}: move it where it belongs. Nothing was changed.")

    def choose(self, iteration: int | str, say: Callable[[str], None]) -> Path:
        """Return the checkpoint of an iteration, `newest`, or `best` by the run's evaluations.

        Raises:
            ValueError: another word.
            FileNotFoundError: there is none, or not that one.
            InvalidCheckpointError: it is damaged.
        """
        if isinstance(iteration, int):
            return self.valid(iteration)
        if iteration not in ("newest", "best"):
            raise ValueError(unknown_name("iteration", iteration, ["newest", "best", "0", "1"]))
        newest = self.latest_valid(say)
        if newest is None:
            raise FileNotFoundError(f"{self.folder.parent} has no checkpoint: expected {self.folder}/iteration_*.")
        if iteration == "best":
            return self.valid(best_evaluation(self._evaluations(newest))["iteration"])
        return newest

    def _evaluations(self, newest: Path) -> list[dict[str, Any]]:
        """Return the run's evaluations until the newest checkpoint: those in its state and in summary.json.

        summary.json has more if the run ended sooner than was planned when the checkpoint was saved.
        """
        state, summary = read_state(newest), self.folder.parent / "summary.json"
        later = read_json(summary, SummaryRecord)["evaluations"] if summary.exists() else []
        by_iteration = {evaluation["iteration"]: evaluation for evaluation in [*later, *state.get("evaluations", [])]}
        return [by_iteration[number] for number in sorted(by_iteration) if number <= state["iteration"]]

    def prune(self, iteration: int, say: Callable[[str], None]) -> None:
        """Prepare for a run that resumes after `iteration`: remove the remains of a killed save, and rename later
        checkpoints, which are damaged."""
        for path in self.folder.glob(".iteration_*"):
            _delete(path)
        for path in [self._path(later) for later in self._iterations() if later > iteration]:
            say(f"{path} is now {set_aside(path)}: delete it when you have seen what happened to it.")

    def _path(self, iteration: int) -> Path:
        return self.folder / f"iteration_{iteration:04d}"

    def _iterations(self) -> list[int]:
        iterations = (path.name.removeprefix("iteration_") for path in self.folder.glob("iteration_*"))
        return sorted(int(number) for number in iterations if re.fullmatch(r"\d{4}|[1-9]\d{4,8}", number))


def _delete(path: Path) -> None:
    """Remove a folder, or a link without what it leads to."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)


def check(checkpoint: Path) -> None:
    """Check every file of a checkpoint against its manifest; a second for 1 to 2 GB.

    Raises:
        InvalidCheckpointError: names the first file that is not what was written.
    """
    if damage := find_damage(checkpoint, _MADE_BY):
        raise InvalidCheckpointError(f"{checkpoint} is damaged: {damage}.")


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the `state` that `save` was given, and `iteration`."""
    return read_json(checkpoint / _STATE, StateRecord)


def best_evaluation(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the evaluation with the highest success, the earliest of several."""
    return max(summaries, key=lambda summary: summary["success"])
