"""A mini-batch whose loss, gradient or next weights are not finite: an error that holds it, and its files."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hgpo_gym.files import write_whole
from hgpo_gym.trainers.update.samples import TrainingSample


@dataclass(frozen=True)
class DivergedMiniBatch:
    """One process's part of a mini-batch, with what the weights made of it.

    Attributes:
        rows: the responses.
        logprobs: float32[T], of all tokens of the rows that had a choice.
        gradient_norms: by the name of the weight, of the whole mini-batch, before clipping.
    """

    rows: Sequence[TrainingSample]
    logprobs: np.ndarray
    gradient_norms: Mapping[str, float]

    def write(self, folder: Path, name: str, reason: str) -> None:
        """Write `name.npz`, arrays of all tokens, and `name.json`: reason, rows and gradient norms.

        Of `name.npz`, `prompt_ids` and `token_ids` are the rows' one after another, with the lengths in `name.json`.
        `logprobs`, `behaviour`, `old_logprobs`, `reference` and `advantages` have an entry for each token that had a
        choice; those that the settings do not ask for are missing. Raises NotWrittenError.
        """
        arrays = {"logprobs": self.logprobs}
        if self.rows:
            arrays |= {ids: np.concatenate([getattr(row.tokens, ids) for row in self.rows]) for ids in _IDS}
            arrays |= {
                column: np.concatenate([getattr(row, column) for row in self.rows])
                for column in ("advantages", "behaviour", "old_logprobs", "reference")
                if getattr(self.rows[0], column) is not None
            }
        rows = [
            {
                "trajectory": row.trajectory,
                "group": row.group,
                **{ids: len(getattr(row.tokens, ids)) for ids in _IDS},
                "choices": len(row.behaviour),
            }
            for row in self.rows
        ]
        content = {"reason": reason, "gradient_norms": dict(self.gradient_norms), "rows": rows}
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.npz", packed.getvalue())
        write_whole(folder / f"{name}.json", json.dumps(content, indent=1) + "\n")


_IDS = ("prompt_ids", "token_ids")


class NonFiniteError(RuntimeError):
    """A loss, gradient or weight is infinite or not a number. No optimiser step used such a gradient.

    Args:
        mini_batch: the mini-batch that made it so, if it is known.
    """

    def __init__(self, message: str, mini_batch: DivergedMiniBatch | None = None):
        super().__init__(message)
        self.mini_batch = mini_batch
