"""One policy update: PPO's clipped objective on the very tokens that were generated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hgpo_gym.trainers.likelihood import score
from hgpo_gym.trainers.losses import Totals, aggregate, clipped_surrogate, kl_k3
from hgpo_gym.trainers.policies.base import TokenRecord, TrainablePolicy
from hgpo_gym.trainers.policies.batching import length_sorted_batches
from hgpo_gym.trainers.settings import TrainerSettings


class NonFiniteError(RuntimeError):
    """A loss or gradient is infinite or not a number; the optimiser was not stepped."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A step that had a choice: its tokens, and an entry a choice for the behaviour and reference policies."""

    tokens: TokenRecord
    advantage: float
    behaviour: np.ndarray
    reference: np.ndarray | None


class PolicyUpdate:
    """Updates a policy from token records and their advantages, by AdamW with a linear warm-up.

    Args:
        policy: the one that generated the records.
        reference: the policy that the KL loss holds the policy to; needed where `kl_coef` is above 0.
        settings: see `configs/trainer/default.yaml`.
        temperature: the one that the records were drawn with.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        reference: TrainablePolicy | None,
        settings: TrainerSettings,
        temperature: float,
    ):
        if settings.kl_coef > 0 and reference is None:
            raise ValueError(f"trainer.kl_coef={settings.kl_coef} needs a reference policy.")
        self.policy, self.reference = policy, reference
        self.settings, self.temperature = settings, temperature
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / max(1, settings.warmup_steps))
        )

    def __call__(
        self, tokens: Sequence[TokenRecord], advantages: np.ndarray, seed: tuple[int, ...]
    ) -> dict[str, float]:
        """Go `update_epochs` times over the records in mini-batches shuffled by `seed`.

        Answers without a choice (a single admissible action) have probability 1 and are left out. Returns metrics:
        means over tokens of loss, KL to the behaviour and reference policies, entropy and clipping, and the gradient
        norm's mean over mini-batches.

        Raises:
            NonFiniteError: names the mini-batch.
        """
        rows = self._rows(tokens, advantages)
        metrics = _TokenMeans()
        generator = np.random.default_rng(seed)
        for epoch in range(self.settings.update_epochs):
            order = generator.permutation(len(rows))
            for start in range(0, len(rows), self.settings.mini_batch_size):
                mini_batch = [rows[index] for index in order[start : start + self.settings.mini_batch_size]]
                where = f"epoch {epoch + 1}, mini-batch {start // self.settings.mini_batch_size + 1}"
                self._step(mini_batch, metrics, where)
        self.policy.updated()
        return metrics.result()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on with the same numbers."""
        return {"optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put optimiser and schedule in a saved state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def _rows(self, tokens: Sequence[TokenRecord], advantages: np.ndarray) -> list[_Row]:
        choices = [record.choices for record in tokens]
        with_choice = [row for row, positions in enumerate(choices) if len(positions)]
        references: list[np.ndarray] | list[None] = [None] * len(with_choice)
        if self.reference is not None:
            records = [tokens[row] for row in with_choice]
            references = score(
                self.reference,
                records,
                temperature=self.temperature,
                max_batch_tokens=self.settings.max_batch_tokens,
            )
        return [
            _Row(tokens[row], float(advantages[row]), tokens[row].logprobs[choices[row]], reference)
            for row, reference in zip(with_choice, references, strict=True)
        ]

    def _step(self, mini_batch: list[_Row], metrics: "_TokenMeans", where: str) -> None:
        totals = Totals(sum(len(row.behaviour) for row in mini_batch), len(mini_batch))
        self.policy.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        lengths = [len(row.tokens) for row in mini_batch]
        for part in length_sorted_batches(lengths, self.settings.max_batch_tokens):
            loss = self._loss([mini_batch[index] for index in part], totals, metrics)
            if not torch.isfinite(loss):
                raise NonFiniteError(f"The loss is {loss.item()} in {where}.")
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise NonFiniteError(f"The gradient norm is {norm.item()} in {where}.")
        self.optimizer.step()
        self.schedule.step()
        metrics.add_step(norm.item())

    def _loss(self, rows: list[_Row], totals: Totals, metrics: "_TokenMeans") -> torch.Tensor:
        settings = self.settings
        result = self.policy.likelihood([row.tokens for row in rows], temperature=self.temperature)
        device = result.logprobs.device
        behaviour = torch.from_numpy(np.concatenate([row.behaviour for row in rows])).to(device)
        advantages = torch.tensor([row.advantage for row in rows], device=device)[result.record]
        surrogate, clipped = clipped_surrogate(
            result.logprobs, behaviour, advantages, settings.clip_low, settings.clip_high
        )
        loss = surrogate - settings.entropy_coef * result.entropy
        tokens = {
            "kl_behaviour": kl_k3(result.logprobs, behaviour),
            "entropy": result.entropy,
            "clip_fraction": clipped.float(),
        }
        if self.reference is not None:
            reference = torch.from_numpy(np.concatenate([row.reference for row in rows])).to(device)
            tokens["kl_reference"] = kl_k3(result.logprobs, reference)
            loss = loss + settings.kl_coef * tokens["kl_reference"]
        metrics.add_tokens({"loss": loss, **tokens})
        return aggregate(loss, result.record, totals, settings.loss_aggregation)


class _TokenMeans:
    """Sums over tokens and mini-batches, turned into means at the end."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._tokens = 0
        self._norms: list[float] = []

    def add_tokens(self, values: dict[str, torch.Tensor]) -> None:
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach().double().sum().item()
        self._tokens += len(values["loss"])

    def add_step(self, gradient_norm: float) -> None:
        self._norms.append(gradient_norm)

    def result(self) -> dict[str, float]:
        means = {name: value / self._tokens for name, value in self._sums.items()}
        return {**means, "gradient_norm": float(np.mean(self._norms)) if self._norms else 0.0}
