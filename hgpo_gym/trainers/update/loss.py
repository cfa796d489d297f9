"""The loss of a token and of a mini-batch.

    loss_t = weight_t * objective_t - entropy_coef * entropy_t + kl_coef * k3_t

Responses with an advantage of 0 get the entropy bonus only with `zero_advantage=keep`. `objectives/` has the
objectives and `corrections.py` the weights. `aggregation.py` reduces token losses to a number.
"""

from collections.abc import Collection, Sequence

import numpy as np
import torch

from hgpo_gym.policies.base import Likelihood
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.aggregation import Totals, aggregate
from hgpo_gym.trainers.update.corrections import CORRECTIONS, NO_CORRECTION
from hgpo_gym.trainers.update.metrics import UpdateMetrics
from hgpo_gym.trainers.update.objectives import Tokens, response_mean
from hgpo_gym.trainers.update.objectives.bound import bind_objective
from hgpo_gym.trainers.update.objectives.terms import kl_k3
from hgpo_gym.trainers.update.samples import TrainingSample, per_token
from hgpo_gym.trainers.update.settings import TrainerSettings


class Loss:
    """The loss that an update minimises.

    Args:
        settings: see `configs/trainer/default.yaml`.
        objective: its name and options.
        extras: the names of the estimator's extra columns; None if they are not known.
        correction: its name and options.

    Attributes:
        objective: the objective, bound to its options.
        recomputes: True if the trainer's log-probabilities of all tokens are needed before the update.

    Raises:
        ValueError: names the invalid objective, correction, option or value, or the missing extras.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        objective: Choice,
        extras: Collection[str] | None = None,
        correction: Choice = NO_CORRECTION,
    ):
        self.settings, self.objective = settings, bind_objective(objective, extras)
        self.aggregation = settings.loss_aggregation or self.objective.aggregation
        self.corrected = correction.name != "none"
        if self.corrected and self.objective.needs_old:
            raise ValueError(
                f"objective={objective.name} weighs trainer against engine itself: correction={correction.name} would "
                "do it twice; set it to none."
            )
        self._correction, cap = CORRECTIONS.bind(correction), CORRECTIONS.options(correction.name).get("cap")
        self._cap = cap and correction.options.get("cap", cap.default)
        # Call it once, so that it refuses wrong values now and not during training.
        self._correction(*torch.zeros(2, 1, device="cpu"), torch.zeros(1, dtype=torch.int64, device="cpu"))
        prepares = self.objective.prepare is not None
        self.recomputes = settings.recompute_logprobs or self.corrected or self.objective.needs_old or prepares

    @staticmethod
    def totals(mini_batch: Sequence[TrainingSample]) -> Totals:
        """Return the tokens and responses of a mini-batch."""
        return Totals(sum(int(row.loss_mask.sum()) for row in mini_batch), len(mini_batch))

    def tokens(self, rows: Sequence[TrainingSample], result: Likelihood) -> Tokens:
        """Return the objective's view of the rows, given their likelihood under the current weights."""
        device = result.logprobs.device
        behaviour = per_token([row.behaviour for row in rows], device)
        uses_old = self.corrected or self.objective.needs_old
        return Tokens(
            logprobs=result.logprobs,
            entropy=result.entropy,
            old_logprobs=per_token([row.old_logprobs for row in rows], device) if uses_old else behaviour,
            behaviour=behaviour,
            advantages=per_token([row.advantages for row in rows], device),
            sequence_index=result.sequence_index,
            trajectory=torch.tensor([row.trajectory for row in rows], device=device)[result.sequence_index],
            group=torch.tensor([row.group for row in rows], device=device)[result.sequence_index],
            extras={name: per_token([row.extras[name] for row in rows], device) for name in rows[0].extras},
        )

    def __call__(
        self, rows: Sequence[TrainingSample], result: Likelihood, totals: Totals, metrics: UpdateMetrics
    ) -> torch.Tensor:
        """Return the rows' part of the mini-batch's loss, float32[], and add its terms to the metrics."""
        settings, tokens = self.settings, self.tokens(rows, result)
        surrogate, clipped = self.objective.surrogate(tokens)
        token_metrics = {
            "kl_behaviour": kl_k3(tokens.behaviour, tokens.logprobs),
            "entropy": tokens.entropy,
            "clip_fraction": clipped.float(),
        }
        if self.corrected:
            weights = self._correction(tokens.old_logprobs, tokens.behaviour, tokens.sequence_index)
            # Only the surrogate is corrected; entropy and KL terms keep weight 1.
            surrogate = weights * surrogate
            token_metrics |= {"importance_weight": weights, "importance_dropped": (weights == 0).float()}
            if self._cap is not None:
                token_metrics["importance_capped"] = (weights >= self._cap).float()
        if settings.off_policy_limit is not None:
            dropped = off_policy(tokens, settings.off_policy_limit)
            # Fill instead of multiply: 0 times infinity is NaN.
            surrogate = surrogate.masked_fill(dropped, 0.0)
            token_metrics["off_policy_dropped"] = dropped.float()
        loss = surrogate - settings.entropy_coef * self._rewarded(rows, tokens.entropy)
        if rows[0].reference is not None:
            token_metrics["kl_reference"] = kl_k3(
                tokens.logprobs, per_token([row.reference for row in rows], tokens.logprobs.device)
            )
            loss = loss + settings.kl_coef * token_metrics["kl_reference"]
        metrics.add_tokens({"loss": loss, **token_metrics})
        loss_mask = tokens.extras.get("loss_mask")
        return aggregate(loss, tokens.sequence_index, totals, self.aggregation, loss_mask, settings.loss_constant)

    def _rewarded(self, rows: Sequence[TrainingSample], entropy: torch.Tensor) -> torch.Tensor:
        """Return the entropy float32[T] that receives a bonus, 0 for all other tokens."""
        if self.settings.zero_advantage == "keep":
            return entropy
        zero_advantage = np.repeat([row.zero_advantage for row in rows], [len(row.behaviour) for row in rows])
        return entropy.masked_fill(torch.from_numpy(zero_advantage).to(entropy.device), 0.0)


def off_policy(tokens: Tokens, limit: float) -> torch.Tensor:
    """Return bool[T]: tokens of negative advantage in responses that have become too unlikely. These are responses
    that the current weights find less likely than the engine did, by more than `limit` nats a token on average
    (DeepSeek-V3.2, arXiv:2512.02556, eq. 9)."""
    drift = response_mean((tokens.behaviour - tokens.logprobs).detach(), tokens.sequence_index)
    return (tokens.advantages < 0) & (drift > limit)
