"""Decorators that declare properties of an objective."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from hgpo_gym.policies.base import TokenReading

Function = TypeVar("Function", bound=Callable[..., Any])


class Prepared(NamedTuple):
    """The result of a pre-pass.

    Attributes:
        columns: for each row, arrays by name, with one number per choice.
        metrics: numbers for the iteration's metrics.
    """

    columns: "list[dict[str, np.ndarray]]"
    metrics: Mapping[str, float] = {}


class Preparation(NamedTuple):
    """The pre-pass of an objective, see `prepared_by`."""

    function: Callable[..., Prepared]
    reads: "tuple[str | TokenReading, ...]"
    objective_options: frozenset[str]
    prepare_options: frozenset[str]

    def split(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options of the objective, and those of the pre-pass."""
        objective = {name: value for name, value in options.items() if name in self.objective_options}
        return objective, {name: value for name, value in options.items() if name in self.prepare_options}


def prefers(aggregation: str) -> Callable[[Function], Function]:
    """Mark an objective with the aggregation of its paper, for `trainer.loss_aggregation=null`. The default is
    `token_mean`."""

    def mark(objective: Function) -> Function:
        vars(objective)["aggregation"] = aggregation
        return objective

    return mark


def needs_old(objective: Function) -> Function:
    """Mark an objective that weighs the trainer before the update against the engine. Its `old_logprobs` are then
    the trainer's. A correction is refused, because it would count the difference twice."""
    vars(objective)["needs_old"] = True
    return objective


def prepared_by(
    prepare: Callable[..., Prepared], reads: "Sequence[str | TokenReading]" = ()
) -> Callable[[Function], Function]:
    """Mark an objective that needs statistics over several responses. `prepare` runs once before the update, over
    all rows that will be trained on, and equally in every process.

    Rows are shuffled and split into arbitrary micro-batches, so only a pre-pass can compute statistics across
    responses.

    Args:
        prepare: `(rows, generator, *, options) -> Prepared`, or a list of columns alone; the columns reach
            `Tokens.extras`. Rows have `advantages`, `behaviour`, `old_logprobs` and, under `before`, the columns that
            `reads` names. All are float32[C], by the weights before the update. A column `loss_mask` of 0 and 1
            removes tokens from all means. Its options become options of the objective; a shared name goes to both.
        reads: columns of `before`: `entropy`, or functions that compute a column of their name, see `TokenReading`.

    Raises:
        ValueError: objective and pre-pass share an option with different defaults.
    """

    def mark(objective: Function) -> Function:
        tokens, *objective_parameters = inspect.signature(objective).parameters.values()
        prepare_parameters = list(inspect.signature(prepare).parameters.values())[2:]
        options = {option.name: option for option in objective_parameters}
        for option in prepare_parameters:
            if options.setdefault(option.name, option).default != option.default:
                raise ValueError(f"The option {option.name} of objective and pre-pass has two different defaults.")
        ordered = sorted(options.values(), key=lambda option: option.default is not Parameter.empty)
        vars(objective)["__signature__"] = inspect.Signature(
            [tokens, *(option.replace(kind=Parameter.KEYWORD_ONLY) for option in ordered)]
        )
        names = (
            frozenset(option.name for option in parameters) for parameters in (objective_parameters, prepare_parameters)
        )
        vars(objective)["preparation"] = Preparation(prepare, tuple(reads), *names)
        return objective

    return mark
