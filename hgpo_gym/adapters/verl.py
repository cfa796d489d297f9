"""verl: the estimators of this package in verl's registry, such as `algorithm.adv_estimator=hgpo`.

verl loads this module by an entry point, and the module registers the estimators. verl passes token rewards, masks and
uids of rows to an estimator, but not the steps of episodes. `with row_steps(...)` around verl's `compute_advantage`
supplies the steps; `trainer.v1.trainer_mode=steps_sync` does so in its trainer (see `hgpo_gym.adapters.verl_trainer`).
Written for verl 0.9.1.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import torch

from hgpo_gym.adapters.single_episode import EpisodeStep, on_tokens, turns_of_tokens
from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.extras import install_command
from hgpo_gym.policies.control_tokens import ControlTokens
from hgpo_gym.policies.response_ends import check_stops

try:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est
except ModuleNotFoundError as error:
    if error.name != "verl":
        raise
    raise ModuleNotFoundError(f"hgpo_gym.adapters.verl needs verl: {install_command('verl')}") from error

FIELDS = ("trajectory", "step", "reward", "context_keys")
"""The required fields of each step of a row."""
OPTIONAL_FIELDS = ("penalty", "action", "success", "final_keys")
"""Optional fields, given for all steps or for none. `StepBatch` describes them, and `docs/methods/all_estimators.md`
lists the estimators that need them. Without `success`, an episode with a positive return is a success."""

_STEPS: ContextVar[Sequence[Sequence[Mapping[str, Any]]] | None] = ContextVar("steps", default=None)


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
def row_steps(rows: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[None]:
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


def register_estimators() -> list[str]:
    """Add all estimators of this package to verl's registry, and return their names there.

    A name that verl uses itself, such as grpo, becomes `hgpo_gym.grpo`. The import of this module calls this function;
    call it again after `register_estimator`.
    """
    names = []
    for name in ESTIMATORS:
        registered = ADV_ESTIMATOR_REGISTRY.get(name)
        is_verls = registered is not None and getattr(registered, "func", None) is not advantages_and_returns
        names.append(f"hgpo_gym.{name}" if is_verls else name)
        if names[-1] not in ADV_ESTIMATOR_REGISTRY:
            register_adv_est(names[-1])(partial(advantages_and_returns, name))
    return names


def advantages_and_returns(
    name: str,
    *,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray | None = None,
    config: Any = None,
    **_others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the advantages of estimator `name` on the tokens of each step, and a copy as the returns.

    verl calls this function; its own grpo returns the same pair. Rewards are those of the steps, because verl's token
    rewards spread only the final score over a session's rows. Rows with an empty mask, which verl uses as padding, are
    ignored.

    Args:
        token_level_rewards: float[rows, tokens]; only its device and dtype are used.
        response_mask: [rows, tokens], 1 for the model's tokens.
        index: the uid of each row, the name of its task group.
        config: verl's `algorithm`: gamma, norm_adv_by_std_in_grpo, and further options in `advantage_options`.

    Raises:
        ValueError: steps or uids are missing, a step lacks a field, a row has more steps than stretches of tokens, or
            the KL divergence is part of the reward.
    """
    rows = _STEPS.get()
    if rows is None:
        raise ValueError(
            f"adv_estimator={name} needs the steps of every row, which verl does not pass on: set "
            "trainer.v1.trainer_mode=steps_sync, or call compute_advantage inside `with row_steps(...)`."
        )
    if index is None:
        raise ValueError(f"adv_estimator={name} needs non_tensor_batch['uid'], which names each row's task group.")
    if config is not None and config.get("use_kl_in_reward"):
        raise ValueError(
            f"adv_estimator={name} takes the rewards of steps, so a KL divergence in the reward would be lost: set "
            "algorithm.use_kl_in_reward=False and actor_rollout_ref.actor.use_kl_loss=True."
        )
    mask = response_mask.detach().cpu().numpy() > 0
    if len(rows) != len(mask):
        raise ValueError(f"row_steps has {len(rows)} rows, the batch {len(mask)}.")
    nonempty_rows = [row for row in range(len(mask)) if mask[row].any()]
    batch = _batch(rows, index, nonempty_rows)
    values = estimate(name, batch, **_options(name, config))
    # One step a row everywhere, and an episode with several rows: then each row is the response of its step.
    one_step_per_row = len(batch) == len(nonempty_rows) > len(np.unique(batch.trajectory))
    advantages = np.zeros(mask.shape)
    first = 0
    for row in nonempty_rows:
        count = len(rows[row])
        turns = np.where(mask[row], 0, -1) if one_step_per_row else turns_of_tokens(mask[row])
        if count > turns.max() + 1:
            raise ValueError(f"Row {row} has {count} steps but {turns.max() + 1} stretches of tokens in response_mask.")
        advantages[row] = on_tokens(values[first : first + count], turns)
        first += count
    tensor = torch.as_tensor(advantages, dtype=token_level_rewards.dtype, device=token_level_rewards.device)
    return tensor, tensor.clone()


def _batch(rows: Sequence[Sequence[Mapping[str, Any]]], index: np.ndarray, real: Sequence[int]) -> StepBatch:
    for row in real:
        if not rows[row]:
            raise ValueError(f"Row {row} has no steps: an agent loop says them in extra_fields['steps'].")
    row_and_step = [(row, step) for row in real for step in rows[row]]
    optional = [name for name in OPTIONAL_FIELDS if any(name in step for _, step in row_and_step)]
    for row, step in row_and_step:
        for name in (*FIELDS, *optional):
            if name not in step:
                suffix = f", and {', '.join(optional)}, which others have" if optional else ""
                raise ValueError(
                    f"Row {row}: a step without {name!r}. Each needs {', '.join(FIELDS)}{suffix}; describe_steps makes "
                    "them from the steps of a SingleEpisode, Memory.observe(...).keys are the context keys."
                )
    groups = {uid: number for number, uid in enumerate(dict.fromkeys(index[row] for row, _ in row_and_step))}
    names = {name: number for number, name in enumerate(dict.fromkeys(step["trajectory"] for _, step in row_and_step))}
    columns: dict[str, Any] = {name: [step[name] for _, step in row_and_step] for name in (*FIELDS[1:], *optional)}
    return StepBatch(
        group=np.array([groups[index[row]] for row, _ in row_and_step], dtype=np.int64),
        trajectory=np.array([names[step["trajectory"]] for _, step in row_and_step], dtype=np.int64),
        **{"penalty": np.zeros(len(row_and_step))} | columns,
    )


def _options(name: str, config: Any) -> dict[str, Any]:
    """Return the estimator's options from verl's `algorithm`; without it, the estimator's defaults apply."""
    if config is None:
        return {}
    by_std = config.get("norm_adv_by_std_in_grpo", True)
    verl_options = {"gamma": config.get("gamma"), "norm": "mean_std_norm" if by_std else "mean_norm"}
    known = inspect.signature(ESTIMATORS[name]).parameters
    selected = {option: value for option, value in verl_options.items() if option in known and value is not None}
    return {**selected, **(config.get("advantage_options") or {})}


register_estimators()
