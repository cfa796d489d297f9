"""The estimators of this package in verl's registry, such as `algorithm.adv_estimator=hgpo`.

verl passes token rewards, masks and uids of rows to an estimator, but not the steps of episodes. `with row_steps(...)`
around verl's `compute_advantage` supplies the steps; the trainers in `trainer` do so. Written for verl 0.9.1.
"""

import inspect
from functools import partial
from typing import Any

import numpy as np
import torch

from hgpo_gym.adapters.single_episode import on_tokens, turns_of_tokens
from hgpo_gym.adapters.verl.steps import batch_of_rows, given_steps
from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.advantages.estimators import assign
from hgpo_gym.extras import install_command

try:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est
except ModuleNotFoundError as error:
    if error.name != "verl":
        raise
    raise ModuleNotFoundError(f"hgpo_gym.adapters.verl.advantages needs verl: {install_command('verl')}") from error


def register_estimators() -> list[str]:
    """Add all estimators of this package to verl's registry, and return their names there.

    Each has its name with the prefix `hgpo_gym.`, and without it unless verl uses that name itself, as it does grpo.
    The result has the shorter one. The import of this module calls this function; call it again after
    `register_estimator`.
    """
    names = []
    for name in ESTIMATORS:
        registered = ADV_ESTIMATOR_REGISTRY.get(name)
        is_verls = registered is not None and getattr(registered, "func", None) is not advantages_and_returns
        names.append(f"hgpo_gym.{name}" if is_verls else name)
        for alias in {names[-1], f"hgpo_gym.{name}"} - ADV_ESTIMATOR_REGISTRY.keys():
            register_adv_est(alias)(partial(advantages_and_returns, name))
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
    rows = given_steps()
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
    batch = batch_of_rows(rows, list(index), nonempty_rows)
    credit = assign(name, batch, **_options(name, config))
    # One step a row everywhere, and an episode with several rows: then each row is the response of its step.
    one_step_per_row = len(batch) == len(nonempty_rows) > len(np.unique(batch.trajectory))
    advantages = np.zeros(mask.shape)
    first = 0
    for row in nonempty_rows:
        count = len(rows[row])
        turns = np.where(mask[row], 0, -1) if one_step_per_row else turns_of_tokens(mask[row])
        if count > turns.max() + 1:
            raise ValueError(f"Row {row} has {count} steps but {turns.max() + 1} stretches of tokens in response_mask.")
        advantages[row] = on_tokens(credit.values[first : first + count], turns)
        for step in range(count):
            # An estimator may give advantages to the tokens of a response instead of one to all of them.
            if credit.tokens is not None and (of_tokens := credit.tokens[first + step]) is not None:
                advantages[row, turns == step] = of_tokens
        first += count
    tensor = torch.as_tensor(advantages, dtype=token_level_rewards.dtype, device=token_level_rewards.device)
    return tensor, tensor.clone()


def _options(name: str, config: Any) -> dict[str, Any]:
    """Return the estimator's options from verl's `algorithm`; without it, the estimator's defaults apply."""
    if config is None:
        return {}
    by_std = config.get("norm_adv_by_std_in_grpo", True)
    verl_options = {"gamma": config.get("gamma"), "norm": "mean_std_norm" if by_std else "mean_norm"}
    parameters = inspect.signature(ESTIMATORS[name]).parameters
    selected = {option: value for option, value in verl_options.items() if option in parameters and value is not None}
    return {**selected, **(config.get("advantage_options") or {})}


register_estimators()
