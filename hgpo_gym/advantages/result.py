"""The result of an estimator."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np


class Advantages(NamedTuple):
    """Credit for every step of a batch.

    Attributes:
        values: float64[N], the advantage of each step.
        extras: further signals for the objective, by name, float64[N] each.
        tokens: for each row None, or float64[R], the advantages of its R response tokens in place of its value. None if
            no row has them.
        targets: targets of critics by column, float64[N] each, NaN on rows without a target. A run has a critic for
            each of these columns.
    """

    values: np.ndarray
    extras: Mapping[str, np.ndarray] = MappingProxyType({})
    tokens: Sequence[np.ndarray | None] | None = None
    targets: Mapping[str, np.ndarray] = MappingProxyType({})


def as_advantages(result: np.ndarray | Advantages, estimator: str, rows: int) -> Advantages:
    """Return the result as `Advantages`, and check it.

    Raises:
        ValueError: a signal is not finite, or has not one number per row.
    """
    advantages = result if isinstance(result, Advantages) else Advantages(np.asarray(result, dtype=np.float64))
    for name, values in {"advantages": advantages.values, **advantages.extras}.items():
        if values.shape != (rows,):
            raise ValueError(f"Estimator {estimator!r}: {name} of shape {values.shape}, expected ({rows},).")
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"Estimator {estimator!r}: {name} of row {row} is {values[row]}, not a finite number.")
    for name, values in advantages.targets.items():
        if values.shape != (rows,) or np.isinf(values).any():
            raise ValueError(f"Estimator {estimator!r}: the targets of {name} are no ({rows},) numbers or NaN.")
    if advantages.tokens is not None:
        if len(advantages.tokens) != rows:
            raise ValueError(f"Estimator {estimator!r}: tokens of {len(advantages.tokens)} rows, expected {rows}.")
        present = [tokens for tokens in advantages.tokens if tokens is not None]
        if any(tokens.ndim != 1 for tokens in present) or (present and not np.isfinite(np.concatenate(present)).all()):
            wrong = (
                tokens is not None and (tokens.ndim != 1 or not np.isfinite(tokens).all())
                for tokens in advantages.tokens
            )
            row = list(wrong).index(True)
            raise ValueError(f"Estimator {estimator!r}: tokens of row {row} are no list of finite numbers.")
    return advantages
