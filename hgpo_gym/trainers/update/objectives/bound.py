"""Bind a chosen objective to its options."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hgpo_gym.policies.base import TokenReading, TokenRecord, column_of
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.objectives import OBJECTIVES, Prepared, Surrogate, Tokens, preferred_aggregation
from hgpo_gym.trainers.update.objectives.marks import Preparation
from hgpo_gym.trainers.update.samples import TrainingSample


class Objective(NamedTuple):
    """An objective bound to its options, and its properties.

    Attributes:
        surrogate: the objective.
        aggregation: the aggregation that it prefers.
        needs_old: True if its ratio starts from the trainer before the update; it then accepts no correction.
        prepare: its pre-pass over all rows; None if it has none.
        reads: the columns that the pre-pass reads in addition to log-probabilities.
    """

    surrogate: Callable[[Tokens], Surrogate]
    aggregation: str
    needs_old: bool
    prepare: Callable[[Sequence[TrainingSample], np.random.Generator], Prepared] | None
    reads: tuple[str | TokenReading, ...]


def bind_objective(choice: Choice, extras: Collection[str] | None = None) -> Objective:
    """Return the chosen objective, bound to its options. It is tried on three tokens, so that an invalid option or
    an invalid loss raises before anything runs.

    Args:
        choice: its name and options.
        extras: the names of the estimator's extra columns; None if they are not known.

    Raises:
        ValueError: the objective or an option is unknown, an option is missing or has an invalid value, the estimator
            does not return an input, or the result is not one loss and one boolean per token.
    """
    name, options = choice.name, dict(choice.options)
    OBJECTIVES.check_options(name, options)
    function = OBJECTIVES[name]
    aggregation, needs_old = preferred_aggregation(name), getattr(function, "needs_old", False)
    preparation: Preparation | None = getattr(function, "preparation", None)
    if preparation is None:
        objective = Objective(partial(function, **options), aggregation, needs_old, None, ())
    else:
        objective_options, prepare_options = preparation.split(options)
        prepare = partial(_prepared, name, preparation.function, prepare_options)
        objective = Objective(
            partial(function, **objective_options), aggregation, needs_old, prepare, preparation.reads
        )
    _try(name, objective, extras)
    return objective


def _prepared(
    name: str, function: Callable[..., Any], options: Mapping[str, Any], rows: Sequence[TrainingSample], generator: Any
) -> Prepared:
    """Return the result of an objective's pre-pass. A plain list of columns is wrapped.

    Raises:
        ValueError: the result is not one dictionary of columns per row.
    """
    result = function(rows, generator, **options)
    prepared = result if isinstance(result, Prepared) else Prepared(result)
    columns = prepared.columns
    if not (isinstance(columns, list) and len(columns) == len(rows) and all(isinstance(row, dict) for row in columns)):
        raise ValueError(
            f"Objective {name!r}: its pre-pass has to give a list with a dictionary of columns for each of "
            f"{len(rows)} rows, or Prepared(columns, metrics) with metrics beside it; it gives {result!r:.200}."
        )
    return prepared


def _try(name: str, objective: Objective, names: Collection[str] | None) -> None:
    """Evaluate the objective on a response of two tokens and one of one token."""
    responses = [np.ones(length, dtype=np.float32) for length in (2, 1)]
    rows = [
        TrainingSample(
            TokenRecord(np.zeros(1, dtype=np.int64), np.zeros(len(ones), dtype=np.int64), -ones),
            ones,
            -ones,
            trajectory=index,
            group=0,
            old_logprobs=-ones,
            before=dict.fromkeys(map(column_of, objective.reads), ones),
        )
        for index, ones in enumerate(responses)
    ]
    prepared = objective.prepare(rows, np.random.default_rng(0)) if objective.prepare else Prepared([{}, {}])
    token_ones, sequence_index = torch.ones(3), torch.tensor([0, 0, 1])
    extras = {
        column: torch.from_numpy(np.concatenate([columns[column] for columns in prepared.columns]))
        for column in prepared.columns[0]
    }
    # Unknown estimator: any column it might read exists, with ones.
    extras = _OnesBeside(extras) if names is None else dict.fromkeys(names, token_ones) | extras
    logprobs, entropy = (-token_ones).requires_grad_(), token_ones.clone().requires_grad_()
    surrogate = objective.surrogate(
        Tokens(
            logprobs,
            entropy,
            -token_ones,
            -token_ones,
            token_ones,
            sequence_index,
            sequence_index,
            torch.zeros_like(sequence_index),
            extras,
        )
    )
    _check(name, surrogate, len(token_ones))


def _check(name: str, surrogate: Any, tokens: int) -> None:
    """Raise ValueError if an objective returns a wrong type or shape. A wrong shape would be broadcast and train
    without an error."""
    problem = ""
    if not isinstance(surrogate, tuple) or len(surrogate) != 2:
        problem = f"it gives {type(surrogate).__name__}"
    else:
        loss, clipped = surrogate
        for field, value in (("loss", loss), ("clipped", clipped)):
            if not isinstance(value, torch.Tensor) or value.shape != (tokens,):
                shape = f"the shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
                problem = problem or f"of {tokens} tokens its {field} has {shape}"
        if not problem and not loss.requires_grad:
            problem = "its loss has no gradient in the tokens' logprobs"
        if not problem and clipped.dtype != torch.bool:
            problem = f"its clipped has {clipped.dtype}"
    if problem:
        raise ValueError(
            f"Objective {name!r} has to give Surrogate(loss, clipped), a differentiable number and a truth value a "
            f"token; {problem}."
        )


class _OnesBeside(dict[str, torch.Tensor]):
    """Columns that return ones for any name that an estimator would have to provide."""

    def __missing__(self, name: str) -> torch.Tensor:
        return torch.ones(3)
