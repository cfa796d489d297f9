"""One policy update: the optimiser steps of an iteration, on the very tokens that were generated."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hgpo_gym.advantages import Advantages, StepBatch
from hgpo_gym.policies.base import Likelihood, LikelihoodModel, TokenRecord, TrainablePolicy
from hgpo_gym.policies.batching import by_adapter, shard_batches
from hgpo_gym.policies.likelihood import computing_in
from hgpo_gym.processes import ALONE, Processes
from hgpo_gym.randomness import RandomStream
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.aggregation import Totals
from hgpo_gym.trainers.update.distribute import distribute
from hgpo_gym.trainers.update.loss import Loss
from hgpo_gym.trainers.update.measured import mean_entropies, with_old, with_reference
from hgpo_gym.trainers.update.metrics import UpdateMetrics, merge
from hgpo_gym.trainers.update.optimizer import load_state_by_name, make_optimizer, state_by_name, warm_up
from hgpo_gym.trainers.update.samples import TrainingSample, make_samples, per_token
from hgpo_gym.trainers.update.settings import TrainerSettings
from hgpo_gym.trainers.update.weights import Weights


class NonFiniteError(RuntimeError):
    """A loss, a gradient or a weight is infinite or not a number. No optimiser was stepped with such a gradient."""


class PolicyUpdate:
    """Updates a policy from token records and their advantages, by AdamW with a linear warm-up.

    Args:
        policy: the one that generated the records.
        reference: the policy that the KL loss holds the policy to; needed where `kl_coef` is above 0.
        settings: see `configs/trainer/default.yaml`.
        temperature: the one that the records were drawn with.
        processes: that make every update together, from the same records, each a part of every mini-batch.
        objective: its name and options; None is PPO's clip with the bounds of the settings.

    Raises:
        ValueError: an objective or correction that cannot be, a KL loss without a reference, gradient checkpointing of
            a model that has none.
        ModuleNotFoundError: an optimiser whose package is missing.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        reference: LikelihoodModel | None,
        settings: TrainerSettings,
        temperature: float,
        processes: Processes = ALONE,
        objective: Choice | None = None,
    ):
        if settings.kl_coef > 0 and reference is None:
            raise ValueError(f"trainer.kl_coef={settings.kl_coef} needs a reference policy.")
        clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
        self.loss = Loss(settings, objective or Choice("ppo_clip", clip))
        self.policy, self.settings, self.temperature, self.processes = policy, settings, temperature, processes
        if settings.gradient_checkpointing:
            from hgpo_gym.policies.huggingface import checkpoint_activations

            checkpoint_activations(policy.model)
        self.weights = distribute(policy, processes)
        self.reference = None if reference is None else self._weights_of(reference)
        self.optimizer = make_optimizer(policy.model, settings)
        self.schedule = warm_up(self.optimizer, settings.warmup_steps)

    def __call__(
        self,
        tokens: Sequence[TokenRecord],
        batch: StepBatch,
        advantages: Advantages | np.ndarray,
        seed: tuple[int, ...],
    ) -> dict[str, float]:
        """Go `update_epochs` times over the records in mini-batches shuffled by `seed`.

        Answers without a choice (a single admissible action) have probability 1 and are left out; so are those whose
        advantage is 0, unless `zero_advantage=keep` or there is a KL loss. With `mask` they are dealt to mini-batches
        first and count in their means. Where none is left, nothing changes.

        Returns metrics: means over the tokens of what is left, of loss, KL to the behaviour and reference policies,
        entropy and clipping; the mismatch of engine and trainer; the number of optimiser steps, one a mini-batch; the
        gradient norm's mean over them; the learning rate of the last. Where nothing is left, the number and the norm
        alone, which are 0.

        Args:
            tokens: a record for each step.
            batch: the steps; those that it says are not trained are left out.
            advantages: of the steps, float64[N], or an estimator's `Advantages`.
            seed: (stream, seed, iteration); the objective's pre-pass draws from a stream of its own.

        Raises:
            NonFiniteError: names the mini-batch, or says that the steps have left no weights to go on with.
        """
        metrics = UpdateMetrics()
        samples = make_samples(tokens, batch, advantages)
        learned, prepared = self._prepared([row for row in samples if self._in_loss(row)], seed)
        if (local_samples := self.processes.share(learned)) and self.loss.recomputes:
            cpu = torch.device("cpu")
            metrics.add_mismatch(
                per_token([row.old_logprobs for row in local_samples], cpu),
                per_token([row.behaviour for row in local_samples], cpu),
            )
        rows = learned
        if self.settings.zero_advantage == "mask":
            remaining = iter(learned)
            rows = [next(remaining) if self._in_loss(row) else row for row in samples]
        generator, size = np.random.default_rng(seed), self.settings.mini_batch_size
        torch.manual_seed(int(np.random.SeedSequence((*seed, self.processes.rank)).generate_state(1)[0]))  # for dropout
        for epoch in range(self.settings.update_epochs):
            order = generator.permutation(len(rows))
            for start in range(0, len(rows), size):
                where = f"epoch {epoch + 1}, mini-batch {start // size + 1}"
                self._step([rows[index] for index in order[start : start + size]], metrics, where)
        if metrics.gradient_norms:
            self._check_weights()
        self.optimizer.zero_grad(set_to_none=True)  # or gradients would keep their place through the next rollout
        self.policy.updated()
        return {**merge(self.processes.gather([metrics])).result(), **prepared}

    def entropies(self, tokens: Sequence[TokenRecord]) -> np.ndarray:
        """float64[N], nats: of each record, the mean entropy of its choices by the weights as they are. All processes
        take part."""
        return mean_entropies(tokens, self.weights, self.settings, self.temperature, self.processes)

    def _in_loss(self, row: TrainingSample) -> bool:
        """Whether the loss has anything of it."""
        return self.settings.zero_advantage == "keep" or self.settings.kl_coef > 0 or not row.zero_advantage

    def _prepared(
        self, rows: list[TrainingSample], seed: tuple[int, ...]
    ) -> tuple[list[TrainingSample], dict[str, float]]:
        """With all that is computed before the weights change, and the pre-pass's metrics."""
        objective, common = self.loss.objective, (self.settings, self.temperature, self.processes)
        if self.loss.recomputes:
            rows = with_old(rows, self.weights, objective.reads, *common)
        if self.reference is not None:
            rows = with_reference(rows, self.reference, *common)
        if objective.prepare is None or not rows:
            return rows, {}
        columns, metrics = objective.prepare(rows, np.random.default_rng((RandomStream.OBJECTIVE, *seed[1:])))
        rows = [
            replace(row, extras={**row.extras, **new_columns}) for row, new_columns in zip(rows, columns, strict=True)
        ]
        return rows, dict(metrics)

    def _weights_of(self, reference: LikelihoodModel) -> Weights:
        """Of its own model, or of the policy's, where it reads that without the adapter."""
        separate = reference.model is not self.policy.model
        return distribute(reference, self.processes) if separate else self.weights.read_by(reference)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on with the same numbers, in however many processes. All take part."""
        optimizer = state_by_name(self.optimizer, self.policy.model)
        return {"optimizer": optimizer, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put optimiser and schedule in a saved state."""
        load_state_by_name(self.optimizer, self.policy.model, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def _step(self, rows: list[TrainingSample], metrics: UpdateMetrics, where: str) -> None:
        """One optimiser step on what a mini-batch has in the loss; none where that is nothing."""
        totals, mini_batch = self.loss.totals(rows), [row for row in rows if self._in_loss(row)]
        if not mini_batch:
            return  # a step would not do: Adam's momentum goes on, and small gradients take full steps
        unchanged = not metrics.gradient_norms  # the weights are still those that the records were drawn from
        self.policy.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        lengths = [len(row.tokens) for row in mini_batch]
        shards = shard_batches(lengths, self.settings.max_batch_tokens, self.processes.count)
        # With gradient checkpointing a backward pass computes again, by the adapter that is in use then.
        *parts, last = [
            rows
            for part in shards[self.processes.rank]
            for rows in by_adapter([mini_batch[index] for index in part], lambda row: row.tokens.adapter)
        ]
        with self.weights.accumulating():
            losses = [self._backward(part, mini_batch, totals, metrics, unchanged=unchanged) for part in parts]
        losses.append(self._backward(last, mini_batch, totals, metrics, unchanged=unchanged))
        loss = self.processes.sum(torch.stack(losses).sum())
        if not torch.isfinite(loss):
            raise NonFiniteError(f"The loss is {loss.item()} in {where}.")
        norm = self.weights.clip_gradients(self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise NonFiniteError(f"The gradient norm is {norm.item()} in {where}.")
        if not any(row.loss_mask.any() for row in mini_batch):
            return  # the objective has dropped every token
        rate = self.schedule.get_last_lr()[0]
        self.optimizer.step()
        self.schedule.step()
        metrics.add_step(norm.item(), float(rate))

    def _check_weights(self) -> None:
        """Raise NonFiniteError where a step with a finite gradient has left weights that are none."""
        if self.processes.sum(self.weights.not_finite()) > 0:
            raise NonFiniteError("After the last step weights are infinite or not numbers.")

    def _backward(
        self,
        rows: list[TrainingSample],
        mini_batch: list[TrainingSample],
        totals: Totals,
        metrics: UpdateMetrics,
        *,
        unchanged: bool,
    ) -> torch.Tensor:
        """Add the gradient of the rows' part of the mini-batch's loss, and return that part, float32[]. Without rows, a
        pass that adds 0 keeps step with the processes that have some."""
        if rows:
            loss = self._loss(rows, totals, metrics, unchanged=unchanged)
        else:
            loss = 0.0 * self._likelihood([min(mini_batch, key=lambda row: len(row.tokens))]).logprobs.sum()
        (loss * self.processes.count).backward()  # the mean over processes is taken where the sum is wanted
        return loss.detach()

    def _likelihood(self, rows: list[TrainingSample]) -> Likelihood:
        with computing_in(self.settings.precision, self.policy.model):
            return self.weights.likelihood([row.tokens for row in rows], temperature=self.temperature)

    def _loss(
        self, rows: list[TrainingSample], totals: Totals, metrics: UpdateMetrics, *, unchanged: bool
    ) -> torch.Tensor:
        result = self._likelihood(rows)
        if unchanged and not self.loss.recomputes:
            behaviour = per_token([row.behaviour for row in rows], result.logprobs.device)
            metrics.add_mismatch(result.logprobs, behaviour)
        return self.loss(rows, result, totals, metrics)
