"""Probes: episodes of a policy in an environment whose rules are known, with the true advantage of every step."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from hgpo_gym.advantages.batch import StepBatch

VERSION = 1
GAMMA = 0.95
"""The discount of the true advantages."""
GROUP_SIZES = (4, 8, 16)
HISTORY_LENGTH = 4
"""The past observations in the context keys."""
SUPPLIED = ("action", "success", "final_keys", "texts", "truncated")
"""The columns of a batch that estimators may need."""
DIGEST = "690462cb210ba902a510cf61885df44762edd42a39f8ec524a11c5d5d8a4b96d"
"""SHA-256 of the probes of seed 0, the public ones."""
COLUMNS = (
    *("task", "episode", "step", "observation", "action", "reward", "success", "truncated", "final_observation"),
    *("history", "advantage", "standard_error"),
)
_FIELDS = (
    *("trajectory", "step", "reward", "context_keys", "penalty", "action", "success", "final_keys", "extras", "texts"),
)


@dataclass(frozen=True)
class Probe:
    """The steps of one environment at one stage, N rows in the order of task, episode and step.

    Attributes:
        environment, stage: see `hgpo_gym.creditbench.making`.
        columns: arrays [N] by name. Texts are numbers of `texts`. `advantage` is Q - V of the step's history and
            action, discounted by `GAMMA`; `standard_error` is its own, 0 where it is exact; `history` is equal for
            steps with equal history and action.
        texts: observations and actions.
    """

    environment: str
    stage: str
    columns: dict[str, np.ndarray]
    texts: Sequence[str] = field(repr=False)

    @property
    def name(self) -> str:
        """The environment and the stage, as result files name them."""
        return f"{self.environment}/{self.stage}"

    def batch(self, group_size: int) -> StepBatch:
        """Return the steps in task groups of this size, 4, 8 or 16, with actions, ends and texts."""
        group = self._batch.trajectory // group_size
        return StepBatch(
            group=group,
            **{name: getattr(self._batch, name) for name in _FIELDS},
        )

    @cached_property
    def _batch(self) -> StepBatch:
        columns, texts = self.columns, self.texts
        return StepBatch.from_records(
            group=columns["episode"].tolist(),
            trajectory=columns["episode"].tolist(),
            step=columns["step"].tolist(),
            observation=[texts[number] for number in columns["observation"].tolist()],
            action=[texts[number] for number in columns["action"].tolist()],
            reward=columns["reward"].tolist(),
            success=columns["success"].astype(np.bool_).tolist(),
            final_observation=[texts[number] for number in columns["final_observation"].tolist()],
            truncated=columns["truncated"].astype(np.bool_).tolist(),
            history_length=HISTORY_LENGTH,
        )


def digest(found: Sequence[Probe]) -> str:
    """Return SHA-256 over names, texts and columns, in hexadecimal digits."""
    total = hashlib.sha256()
    for probe in found:
        total.update(json.dumps([probe.name, list(probe.texts)]).encode())
        for name in COLUMNS:
            values = probe.columns[name]
            total.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return total.hexdigest()


def write(made: Sequence[Probe], path: Path) -> None:
    """Write probes as a compressed NumPy file."""
    arrays: dict[str, np.ndarray] = {}
    for probe in made:
        arrays |= {f"{probe.name}/{name}": values for name, values in probe.columns.items()}
    texts = json.dumps({probe.name: list(probe.texts) for probe in made})
    np.savez_compressed(
        path,
        texts=np.frombuffer(texts.encode(), dtype=np.uint8),
        **arrays,  # type: ignore[arg-type]
    )


def read(path: Path) -> list[Probe]:
    """Return the probes of a file that `write` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        texts = json.loads(arrays["texts"].tobytes())
        found = []
        for name in texts:
            environment, _, stage = name.partition("/")
            columns = {column: arrays[f"{name}/{column}"] for column in COLUMNS}
            found.append(Probe(environment, stage, columns, texts[name]))
        return found
