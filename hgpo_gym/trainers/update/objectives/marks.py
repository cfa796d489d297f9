"""What an objective may say of itself beside its formula."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, NamedTuple, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


class Prepared(NamedTuple):
    """What a pre-pass gives.

    Attributes:
        columns: for each row, numbers by name, one for each of its choices.
        metrics: numbers for the iteration's metrics.
    """

    columns: "list[dict[str, np.ndarray]]"
    metrics: Mapping[str, float] = {}


class Preparation(NamedTuple):
    """The pre-pass of an objective, see `prepared_by`."""

    function: Callable[..., Prepared]
    reads: tuple[str, ...]
    objective_options: frozenset[str]
    own_options: frozenset[str]

    def split(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The options of the objective, and those of the pre-pass."""
        objective = {name: value for name, value in options.items() if name in self.objective_options}
        return objective, {name: value for name, value in options.items() if name in self.own_options}


def prefers(aggregation: str) -> Callable[[Function], Function]:
    """Mark an objective with the aggregation of its paper, for `trainer.loss_aggregation=null`; else `token_mean`."""

    def mark(objective: Function) -> Function:
        vars(objective)["aggregation"] = aggregation
        return objective

    return mark


def needs_old(objective: Function) -> Function:
    """Mark an objective that itself weighs the trainer before the update against the engine: `old_logprobs` are
    then the trainer's, and a correction beside it, which would count the difference twice, is refused."""
    vars(objective)["needs_old"] = True
    return objective


def prepared_by(prepare: Callable[..., Prepared], reads: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Mark an objective that needs numbers from more than an answer: `prepare` runs once before the update, over all
    rows that will be learned from, in every process alike.

    Rows are shuffled one by one and may be cut up anyhow, so this is the one place for statistics that cross answers.

    Args:
        prepare: `(rows, generator, *, options) -> Prepared`, or a list of its columns alone; they reach
            `Tokens.extras`. Rows have `advantages`, `behaviour`, `old_logprobs` and, under `before`, what `reads`
            names, all float32[C] by the weights before the update. A column `loss_mask` of 0 and 1 takes tokens out of
            all means. Its options are options of the objective; a name that both have goes to both.
        reads: of `entropy`, `norm_squared`, `sum_squared` and `sum_cubed`, see `Likelihood`.

    Raises:
        ValueError: both have an option with different defaults.
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
