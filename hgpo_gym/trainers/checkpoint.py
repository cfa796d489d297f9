"""Checkpoints: the policy (a language model as a plain Hugging Face folder), the optimiser, how far it all had come."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from hgpo_gym.cache import make_whole
from hgpo_gym.trainers.policies.base import TrainablePolicy

_STATE = "state.json"
_UPDATE_STATE = "update.pt"


class Checkpoints:
    """The checkpoints of one run: `iteration_0000` (the weights it began with) and the newest `keep` others."""

    def __init__(self, folder: Path, keep: int):
        self.folder, self.keep = folder, keep

    def save(
        self,
        iteration: int,
        policy: TrainablePolicy,
        update_state: dict[str, Any],
        state: dict[str, Any],
        weights: dict[str, torch.Tensor] | None = None,
    ) -> Path:
        """Save the state after `iteration` iterations; it appears whole or not at all.

        Args:
            iteration, policy: what they are.
            update_state: the optimiser's, tensors included.
            state: anything else, as JSON.
            weights: of the policy, where its model holds only a part of them.
        """

        def fill(folder: Path) -> None:
            policy.save(folder / "model", weights)
            torch.save(update_state, folder / _UPDATE_STATE)
            (folder / _STATE).write_text(json.dumps({**state, "iteration": iteration}))

        target = make_whole(self._path(iteration), fill)
        for old in self._iterations()[1 : -self.keep]:
            shutil.rmtree(self._path(old))
        return target

    def discard_unfinished(self) -> None:
        """Remove what a process that was killed while saving has left."""
        for path in self.folder.glob(".iteration_*"):
            shutil.rmtree(path)

    def newest(self) -> Path | None:
        """The checkpoint to go on from."""
        iterations = self._iterations()
        return self._path(iterations[-1]) if iterations else None

    def after(self, iteration: int) -> Path:
        """The checkpoint after that many iterations. Raises FileNotFoundError if it was not kept."""
        if iteration not in (kept := self._iterations()):
            raise FileNotFoundError(f"No checkpoint of iteration {iteration} in {self.folder}; there are {kept}.")
        return self._path(iteration)

    @property
    def initial_model(self) -> Path:
        """The folder of the weights that the run began with."""
        return self._path(0) / "model"

    def _path(self, iteration: int) -> Path:
        return self.folder / f"iteration_{iteration:04d}"

    def _iterations(self) -> list[int]:
        return sorted(int(path.name.removeprefix("iteration_")) for path in self.folder.glob("iteration_*"))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What `save` was given as `state`, and `iteration`."""
    return json.loads((checkpoint / _STATE).read_text())


def load_update_state(checkpoint: Path, *, mapped: bool = False) -> dict[str, Any]:
    """What `save` was given as `update_state`. `mapped` leaves tensors in the file until they are used, and then in
    memory that processes share."""
    return torch.load(checkpoint / _UPDATE_STATE, weights_only=True, mmap=mapped)
