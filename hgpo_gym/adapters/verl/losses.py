"""The objectives of this package as policy losses of verl, such as `policy_loss.loss_mode=hgpo_gym.gspo`.

Options are given with another class of settings:

    actor_rollout_ref.actor.policy_loss._target_=hgpo_gym.adapters.verl.losses.ObjectiveConfig
    +actor_rollout_ref.actor.policy_loss.options.clip_low=0.2

Written for verl 0.9.1.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.utils.torch_functional import masked_mean
from verl.workers.config import PolicyLossConfig

from hgpo_gym.adapters.verl.limits import COLUMN_OF, check_objective
from hgpo_gym.plugins import load_plugins
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.objectives import OBJECTIVES, Surrogate, Tokens
from hgpo_gym.trainers.update.objectives.bound import bind_objective

PREFIX = "hgpo_gym"


@dataclass
class ObjectiveConfig(PolicyLossConfig):
    """verl's `policy_loss` with an objective of this package.

    Attributes:
        objective: its name, for `loss_mode=hgpo_gym`; also one that a plugin registers.
        options: of the objective.
        plugins: files or modules that register objectives.
        rows: `step`, or `episode`, if each stretch of `response_mask` is a response.
    """

    objective: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    plugins: list[str] = field(default_factory=list)
    rows: str = "step"


def policy_loss(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
    *,
    name: str | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the loss of an objective, and metrics. verl calls it with a micro-batch of whole responses.

    Args:
        old_log_prob: [rows, tokens], as all others.
        log_prob: by the weights that are trained; differentiable.
        advantages: of each token.
        response_mask: 1 for the tokens that count.
        loss_agg_mode: one of verl's.
        config: verl's `actor`.
        rollout_is_weights: the weight of each token by verl's rollout correction; for an objective in
            `limits.COLUMN_OF`, its column.
        name: of the objective; None takes it from `config.policy_loss`.

    Raises:
        ValueError: an unknown objective or option, or one that needs what verl does not pass on.
    """
    name = name or config.policy_loss.get("objective", "")
    mask = response_mask.bool()
    if not mask.any():  # a micro-batch of padding alone
        return 0.0 * log_prob.sum(), {"actor/pg_clipfrac": 0.0, "actor/ppo_kl": 0.0}
    by_stretch = config.policy_loss.get("rows", "step") == "episode"
    tokens, column = _tokens(old_log_prob, log_prob, advantages, mask, by_stretch), COLUMN_OF.get(name)
    if column is not None:
        tokens = _with_column(tokens, name, column, rollout_is_weights, mask)
    surrogate, clipped = _objective(name, config)(tokens)
    if rollout_is_weights is not None and column is None:
        surrogate = surrogate * rollout_is_weights[mask]
    losses = torch.zeros_like(log_prob).masked_scatter(mask, surrogate.to(log_prob.dtype))
    loss = agg_loss(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    metrics = {
        "actor/pg_clipfrac": clipped.float().mean().item(),
        "actor/ppo_kl": masked_mean(old_log_prob - log_prob, response_mask).detach().item(),
    }
    return loss, metrics


def _objective(name: str, config: Any) -> Callable[[Tokens], Surrogate]:
    settings = config.policy_loss
    load_plugins(settings.get("plugins", None) or [])
    return _bound(name, json.dumps(dict(settings.get("options", None) or {})))


@lru_cache
def _bound(name: str, options: str) -> Callable[[Tokens], Surrogate]:
    check_objective(name)
    return bind_objective(Choice(name, json.loads(options)), extras=()).surrogate


def _tokens(
    old_log_prob: torch.Tensor, log_prob: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, by_stretch: bool
) -> Tokens:
    """Return the tokens of the rows that have any, one response after another."""
    rows = torch.arange(len(mask), device=mask.device)[:, None].expand_as(mask)[mask]
    trajectory = sequence_index = rows.unique(return_inverse=True)[1]  # rows of padding have no token
    if by_stretch:
        begins = mask & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1]
        sequence_index = begins.flatten().cumsum(0).view_as(mask)[mask] - 1
    return Tokens(
        logprobs=log_prob[mask],
        entropy=torch.zeros_like(log_prob[mask]),
        old_logprobs=old_log_prob[mask],
        behaviour=old_log_prob[mask],
        advantages=advantages[mask],
        sequence_index=sequence_index,
        trajectory=trajectory,
        group=torch.zeros_like(sequence_index),
        extras={},
    )


def _with_column(tokens: Tokens, name: str, column: str, values: torch.Tensor | None, mask: torch.Tensor) -> Tokens:
    if values is None:
        raise ValueError(
            f"objective={name} needs the column {column!r}, which the trainers of this package compute: set "
            "trainer.v1.trainer_mode=steps_sync."
        )
    if column == "behaviour":
        return tokens._replace(behaviour=values[mask])
    return tokens._replace(extras={column: values[mask]})


def register_objectives() -> list[str]:
    """Add all objectives of this package to verl's registry as `hgpo_gym.NAME`, and return their names there."""
    register_policy_loss(PREFIX)(policy_loss)
    names = [f"{PREFIX}.{name}" for name in OBJECTIVES]
    for name in OBJECTIVES:
        register_policy_loss(f"{PREFIX}.{name}")(partial(policy_loss, name=name))
    return names


register_objectives()
