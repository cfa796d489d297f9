"""One policy update: PPO's clipped objective on the very tokens that were generated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hgpo_gym.trainers.likelihood import computing_in
from hgpo_gym.trainers.losses import Totals, aggregate, clipped_surrogate, importance_weights, kl_k3
from hgpo_gym.trainers.optimizer import make_optimizer, trained_parameters, warm_up
from hgpo_gym.trainers.policies.base import Scorer, TokenRecord, TrainablePolicy
from hgpo_gym.trainers.policies.batching import length_sorted_batches
from hgpo_gym.trainers.policies.models import checkpoint_activations
from hgpo_gym.trainers.settings import TrainerSettings
from hgpo_gym.trainers.update_metrics import UpdateMetrics
from hgpo_gym.trainers.update_rows import Row, make_rows, per_token


class NonFiniteError(RuntimeError):
    """A loss or gradient is infinite or not a number; the optimiser was not stepped."""


class PolicyUpdate:
    """Updates a policy from token records and their advantages, by AdamW with a linear warm-up.

    Args:
        policy: the one that generated the records.
        reference: the policy that the KL loss holds the policy to; needed where `kl_coef` is above 0.
        settings: see `configs/trainer/default.yaml`.
        temperature: the one that the records were drawn with.

    Raises:
        ValueError: a KL loss without a reference, gradient checkpointing of a model that has none.
        ModuleNotFoundError: an optimiser whose package is missing.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        reference: Scorer | None,
        settings: TrainerSettings,
        temperature: float,
    ):
        if settings.kl_coef > 0 and reference is None:
            raise ValueError(f"trainer.kl_coef={settings.kl_coef} needs a reference policy.")
        self.policy, self.reference = policy, reference
        self.settings, self.temperature = settings, temperature
        if settings.gradient_checkpointing:
            checkpoint_activations(policy.model)
        self.optimizer = make_optimizer(policy.model, settings)
        self.schedule = warm_up(self.optimizer, settings.warmup_steps)

    def __call__(
        self, tokens: Sequence[TokenRecord], advantages: np.ndarray, seed: tuple[int, ...]
    ) -> dict[str, float]:
        """Go `update_epochs` times over the records in mini-batches shuffled by `seed`.

        Answers without a choice (a single admissible action) have probability 1 and are left out. Returns metrics:
        means over tokens of loss, KL to the behaviour and reference policies, entropy and clipping; the mismatch of
        engine and trainer; the gradient norm's mean over mini-batches.

        Raises:
            NonFiniteError: names the mini-batch.
        """
        rows = make_rows(self.policy, self.reference, tokens, advantages, self.settings, self.temperature)
        metrics = UpdateMetrics()
        if rows and self.settings.needs_old_logprobs:
            cpu = torch.device("cpu")
            metrics.add_mismatch(
                per_token([row.old for row in rows], cpu), per_token([row.behaviour for row in rows], cpu)
            )
        generator = np.random.default_rng(seed)
        for epoch in range(self.settings.update_epochs):
            order = generator.permutation(len(rows))
            for start in range(0, len(rows), self.settings.mini_batch_size):
                mini_batch = [rows[index] for index in order[start : start + self.settings.mini_batch_size]]
                where = f"epoch {epoch + 1}, mini-batch {start // self.settings.mini_batch_size + 1}"
                self._step(mini_batch, metrics, where, unchanged=epoch == start == 0)
        return metrics.result()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on with the same numbers."""
        return {"optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put optimiser and schedule in a saved state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def _step(self, mini_batch: list[Row], metrics: UpdateMetrics, where: str, *, unchanged: bool) -> None:
        """One optimiser step. `unchanged`: the weights are still those that the records were drawn from."""
        totals = Totals(sum(len(row.behaviour) for row in mini_batch), len(mini_batch))
        self.policy.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        lengths = [len(row.tokens) for row in mini_batch]
        for part in length_sorted_batches(lengths, self.settings.max_batch_tokens):
            loss = self._loss([mini_batch[index] for index in part], totals, metrics, unchanged=unchanged)
            if not torch.isfinite(loss):
                raise NonFiniteError(f"The loss is {loss.item()} in {where}.")
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained_parameters(self.policy.model), self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise NonFiniteError(f"The gradient norm is {norm.item()} in {where}.")
        self.optimizer.step()
        self.schedule.step()
        metrics.add_step(norm.item())

    def _loss(self, rows: list[Row], totals: Totals, metrics: UpdateMetrics, *, unchanged: bool) -> torch.Tensor:
        settings = self.settings
        with computing_in(settings.precision, self.policy.model):
            result = self.policy.likelihood([row.tokens for row in rows], temperature=self.temperature)
        device = result.logprobs.device
        advantages = torch.tensor([row.advantage for row in rows], device=device)[result.record]
        behaviour = per_token([row.behaviour for row in rows], device)
        if unchanged and not settings.needs_old_logprobs:
            metrics.add_mismatch(result.logprobs, behaviour)
        corrected = settings.importance_correction != "none"
        start = per_token([row.old for row in rows], device) if corrected else behaviour
        surrogate, clipped = clipped_surrogate(
            result.logprobs, start, advantages, settings.clip_low, settings.clip_high
        )
        tokens = {
            "kl_behaviour": kl_k3(result.logprobs, behaviour),
            "entropy": result.entropy,
            "clip_fraction": clipped.float(),
        }
        if corrected:
            weights = importance_weights(
                start, behaviour, result.record, settings.importance_cap, settings.importance_correction
            )
            surrogate = weights * surrogate
            tokens |= {"importance_weight": weights, "importance_capped": (weights >= settings.importance_cap).float()}
        loss = surrogate - settings.entropy_coef * result.entropy
        if self.reference is not None:
            tokens["kl_reference"] = kl_k3(result.logprobs, per_token([row.reference for row in rows], device))
            loss = loss + settings.kl_coef * tokens["kl_reference"]
        metrics.add_tokens({"loss": loss, **tokens})
        return aggregate(loss, result.record, totals, settings.loss_aggregation)
