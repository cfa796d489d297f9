"""Probes: episodes of a policy in an environment whose rules are known, with the true advantage of every step."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch

VERSION = 1
GAMMA = 0.95
"""The discount of the true advantages."""
GROUP_SIZES = (4, 8, 16)
HISTORY_LENGTH = 4
"""The past observations in the context keys."""
DEFAULT_KEY = "observation"
SUPPLIED = ("action", "success", "final_keys", "texts", "truncated")
"""The columns of a batch that estimators may need."""
DIGESTS = {
    "maze_halls": "cccbc93594442db2107e3c19617160d8eb6f522e709b3da70459b7f71e19499f",
    "maze_chance": "5208aa455f147229bba726aa31b314eaddd441fba50a8e63607b2290811b7319",
    "maze_plates": "9f8fe0aa63581c004c21f3d6a42f1e50eaec8f820a653d270dcc0ebc3444d924",
    "alfworld": "2b271bf8acb9fdd1939fc659e960abb75a87d73f2f8928cd2990f611f99da02e",
    "webshop": "174ef9dcda8f300022939a1b73bacca2deac1852a9d94b3bbc8f423f6cca0ce1",
    "secret_word": "179e6a3195d7c17506f5ed12354621f75053ef4eea4d2307cbbe2f9edc1ab5d1",
    "sokoban": "f1edc840431a5eeaa9b5c2bc6ad0bad94046fae9dd6c4c1805ecabc02ee0c0d7",
    "textcraft": "6f33abc26fa747f171d9e82796ccc88a1092b516fd38cc9fe7d5c8984efc9432",
    "search": "96ccd4d409fb3b8a13817d731781749d60ec8ad03d4e80c09a94073fbed68b7a",
}
"""SHA-256 of the probes of seed 0, the public ones, by environment."""
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
            action, discounted by `GAMMA`, NaN where it is not known; `standard_error` is its own, 0 where it is exact;
            `history` is equal for steps with equal history and action.
        texts: observations and actions.
        key: the key function of the context keys, `observation` or `observation+action`.
    """

    environment: str
    stage: str
    columns: dict[str, np.ndarray]
    texts: Sequence[str] = field(repr=False)
    key: str = DEFAULT_KEY

    @property
    def name(self) -> str:
        """The environment and the stage, as result files name them."""
        return f"{self.environment}/{self.stage}"

    @cached_property
    def known(self) -> np.ndarray:
        """The rows whose true advantage is known, int64[M] in ascending order."""
        return np.flatnonzero(~np.isnan(self.columns["advantage"]))

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
            key=self.key,
        )


def digests(found: Sequence[Probe]) -> dict[str, str]:
    """Return SHA-256 over names, texts and columns for each environment, in hexadecimal digits."""
    totals: dict[str, Any] = {}
    for probe in found:
        total = totals.setdefault(probe.environment, hashlib.sha256())
        total.update(json.dumps([probe.name, list(probe.texts)]).encode())
        for name in COLUMNS:
            values = probe.columns[name]
            total.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return {environment: total.hexdigest() for environment, total in totals.items()}


def digest(by_environment: Mapping[str, str]) -> str:
    """Return one digest of all environments."""
    return hashlib.sha256("".join(by_environment.values()).encode()).hexdigest()


DIGEST = digest(DIGESTS)
"""The digest of the public probes."""


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
