"""The steps of a row: what an agent loop reports of them, and the batch that estimators read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from hgpo_gym.adapters.single_episode import EpisodeStep
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import COLUMNS
from hgpo_gym.policies.control_tokens import ControlTokens
from hgpo_gym.policies.response_ends import check_stops

FIELDS = ("trajectory", "step", "reward", "context_keys")
"""The required fields of each step of a row."""
_OWN_FIELDS = ("penalty", "action", "success", "final_keys")
_NOT_OF_STEPS = ("group", "trained", "texts")
OPTIONAL_FIELDS = (*_OWN_FIELDS, *(name for name in COLUMNS if name not in (*_NOT_OF_STEPS, *FIELDS, *_OWN_FIELDS)))
"""Optional fields, given for all steps or for none. `hgpo_gym.advantages.columns` describes them, and
`docs/methods/all_estimators.md` lists the estimators that need them. Without `success`, an episode with a positive
return is a success. A step may also have `texts`, pairs of a context key of level 0 and its text."""

RowSteps = Sequence[Sequence[Mapping[str, Any]]]
"""The steps of each row."""
_STEPS: ContextVar[RowSteps | None] = ContextVar("steps", default=None)


def describe_steps(trajectory: str, steps: Sequence[EpisodeStep], *, invalid_action_penalty: float = 0.0) -> list[dict]:
    """Return an episode's steps (`SingleEpisode.steps`) in the form of `row_steps` and `extra_fields["steps"]`.

    Give all of them to a row that is a whole conversation, or `[described[t]]` to a row that is one step.

    Args:
        trajectory: the name of the episode, unique in a batch.
        steps: of the episode, from the first.
        invalid_action_penalty: subtracted from the return of a step whose action was not valid.
    """
    return [
        {
            "trajectory": trajectory,
            "step": number,
            "reward": step.reward,
            "context_keys": [int(key) for key in step.context_keys],
            "penalty": 0.0 if step.valid else invalid_action_penalty,
            "action": step.action,
            "success": step.success,
            "final_keys": [int(key) for key in step.final_keys],
        }
        for number, step in enumerate(steps)
    ]


def with_response_ends(
    sampling_params: Mapping[str, Any],
    tokenizer: Any,
    *,
    stop: Sequence[str] = (),
    stop_token_ids: Sequence[int] = (),
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return sampling parameters of an agent loop whose responses end as those of `LanguageModelPolicy` do.

    verl's engines end responses by the model's generation config. With these parameters the tokenizer's end token, the
    chat template's token after a response, `stop_token_ids` and the texts of `stop` end a response too.

    Raises:
        ValueError: an empty stop text, or a stop token that does not exist.
    """
    check_stops(stop, stop_token_ids, len(tokenizer))
    end_of_turn = ControlTokens(tokenizer, chat_template_kwargs).end_of_turn
    tokens = {*(sampling_params.get("stop_token_ids") or ()), *stop_token_ids, tokenizer.eos_token_id, end_of_turn}
    return {
        **sampling_params,
        "stop": [*(sampling_params.get("stop") or ()), *stop],
        "stop_token_ids": sorted(tokens - {None}),
        "include_stop_str_in_output": True,
    }


@contextmanager
def row_steps(rows: RowSteps) -> Iterator[None]:
    """Supply the steps of each row to `compute_advantage`, which runs inside this context.

    Each step has the fields `FIELDS`, and those of `OPTIONAL_FIELDS` that are known. Rows have one of two forms:

    - A row is a whole conversation. Its n-th step is the n-th stretch of tokens with `response_mask` 1. Tokens after
      the last step get 0.
    - Every row has one step, and some episode has several rows. All tokens of a row get its step's advantage.
    """
    token = _STEPS.set(rows)
    try:
        yield
    finally:
        _STEPS.reset(token)


def given_steps() -> RowSteps | None:
    """Return the steps that the enclosing `row_steps` supplies; None outside of one."""
    return _STEPS.get()


def batch_of_rows(rows: RowSteps, uids: Sequence[str], selected: Sequence[int]) -> StepBatch:
    """Return the steps of the selected rows as a batch, in order.

    Args:
        rows: the steps of each row.
        uids: the name of each row's task group.
        selected: row numbers.

    Raises:
        ValueError: a row has no steps, or a step lacks a field that it needs or that other steps have.
    """
    for row in selected:
        if not rows[row]:
            raise ValueError(f"Row {row} has no steps: an agent loop puts them in extra_fields['steps'].")
    row_and_step = [(row, step) for row in selected for step in rows[row]]
    optional = [name for name in OPTIONAL_FIELDS if any(name in step for _, step in row_and_step)]
    for row, step in row_and_step:
        for name in (*FIELDS, *optional):
            if name not in step:
                suffix = f", and {', '.join(optional)}, which others have" if optional else ""
                raise ValueError(
                    f"Row {row}: a step without {name!r}. Each needs {', '.join(FIELDS)}{suffix}; describe_steps makes "
                    "them from the steps of a SingleEpisode, Memory.observe(...).keys are the context keys."
                )
    groups = {uid: number for number, uid in enumerate(dict.fromkeys(uids[row] for row, _ in row_and_step))}
    names = {name: number for number, name in enumerate(dict.fromkeys(step["trajectory"] for _, step in row_and_step))}
    columns: dict[str, Any] = {name: [step[name] for _, step in row_and_step] for name in (*FIELDS[1:], *optional)}
    texts = dict(pair for _, step in row_and_step for pair in step.get("texts", ()))
    extras = {name: np.asarray(columns.pop(name)) for name in optional if name not in _OWN_FIELDS}
    return StepBatch(
        group=np.array([groups[uids[row]] for row, _ in row_and_step], dtype=np.int64),
        trajectory=np.array([names[step["trajectory"]] for _, step in row_and_step], dtype=np.int64),
        **{"penalty": np.zeros(len(row_and_step))} | columns,
        extras=extras,
        texts=texts or None,
    )
