"""A chosen objective, ready to be called."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hgpo_gym.registry import Choice
from hgpo_gym.trainers.policies.base import TokenRecord
from hgpo_gym.trainers.update.objectives import OBJECTIVES, Prepared, Surrogate, Tokens, preferred_aggregation
from hgpo_gym.trainers.update.objectives.marks import Preparation
from hgpo_gym.trainers.update.rows import Row


class Objective(NamedTuple):
    """An objective with its options filled in, and what it says of itself.

    Attributes:
        surrogate: the objective.
        aggregation: what it prefers.
        needs_old: its `start` is the trainer before the update, and it takes no correction.
        prepare: its pre-pass over all rows; None where it has none.
        reads: what the pre-pass reads beside log-probabilities.
    """

    surrogate: Callable[[Tokens], Surrogate]
    aggregation: str
    needs_old: bool
    prepare: Callable[[Sequence[Row], np.random.Generator], Prepared] | None
    reads: tuple[str, ...]


def bind_objective(choice: Choice, extras: Collection[str] | None = None) -> Objective:
    """The objective that was chosen, tried on an answer of one token, so that a value that it refuses shows before
    anything runs.

    Args:
        choice: its name and options.
        extras: the names of what the estimator returns beside the advantages; None where that is not known.

    Raises:
        ValueError: an unknown objective or option, a missing option, a value that it refuses, or an estimator that does
            not return what it reads.
    """
    name, options = choice.name, dict(choice.options)
    OBJECTIVES.check_options(name, options)
    function = OBJECTIVES[name]
    aggregation, needs_old = preferred_aggregation(name), getattr(function, "needs_old", False)
    preparation: Preparation | None = getattr(function, "preparation", None)
    if preparation is None:
        objective = Objective(partial(function, **options), aggregation, needs_old, None, ())
    else:
        own, theirs = preparation.split(options)
        prepare = partial(_prepared, name, preparation.function, theirs)
        objective = Objective(partial(function, **own), aggregation, needs_old, prepare, preparation.reads)
    _try(objective, extras)
    return objective


def _prepared(
    name: str, function: Callable[..., Any], options: Mapping[str, Any], rows: Sequence[Row], generator: Any
) -> Prepared:
    """What the pre-pass of an objective gives, a list of columns by itself wrapped.

    Raises:
        ValueError: it is no dictionary of columns a row.
    """
    given = function(rows, generator, **options)
    prepared = given if isinstance(given, Prepared) else Prepared(given)
    columns = prepared.columns
    if not (isinstance(columns, list) and len(columns) == len(rows) and all(isinstance(row, dict) for row in columns)):
        raise ValueError(
            f"Objective {name!r}: its pre-pass has to give a list with a dictionary of columns for each of "
            f"{len(rows)} rows, or Prepared(columns, metrics) with metrics beside it; it gives {given!r:.200}."
        )
    return prepared


def _try(objective: Objective, names: Collection[str] | None) -> None:
    one = np.ones(1, dtype=np.float32)
    record = TokenRecord(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), -one)
    before = dict.fromkeys(objective.reads, one)
    row = Row(record, one, -one, trajectory=0, group=0, old=-one, before=before)
    prepared = objective.prepare([row], np.random.default_rng(0)) if objective.prepare else Prepared([{}])
    number, index = torch.from_numpy(one), torch.zeros(1, dtype=torch.int64)
    extras = {column: torch.from_numpy(values) for column, values in prepared.columns[0].items()}
    extras = _OnesBeside(extras) if names is None else dict.fromkeys(names, number) | extras
    objective.surrogate(Tokens(-number, number, -number, -number, number, index, index, index, extras))


class _OnesBeside(dict[str, torch.Tensor]):
    """Columns, and ones for whatever an estimator would have to bring."""

    def __missing__(self, name: str) -> torch.Tensor:
        return torch.ones(1)
