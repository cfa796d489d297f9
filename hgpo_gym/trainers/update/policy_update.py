"""One policy update: the optimiser steps of an iteration, on the exact tokens that were generated."""

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
from hgpo_gym.trainers.update.conversations import by_conversation, joined
from hgpo_gym.trainers.update.corrections import NO_CORRECTION
from hgpo_gym.trainers.update.distribute import distribute
from hgpo_gym.trainers.update.diverged import DivergedMiniBatch, NonFiniteError
from hgpo_gym.trainers.update.loss import Loss
from hgpo_gym.trainers.update.measured import mean_entropies, with_old, with_reference
from hgpo_gym.trainers.update.metrics import UpdateMetrics, merge
from hgpo_gym.trainers.update.optimizer import load_state_by_name, make_optimizer, state_by_name, warm_up
from hgpo_gym.trainers.update.samples import TrainingSample, make_samples, per_token
from hgpo_gym.trainers.update.settings import TrainerSettings
from hgpo_gym.trainers.update.weights import Weights

PPO_CLIP = Choice("ppo_clip")


class PolicyUpdate:
    """Update a policy from token records and their advantages, by AdamW with a linear warm-up.

    Args:
        policy: the policy that generated the records.
        reference: the reference policy of the KL loss; needed if `kl_coef` is above 0.
        settings: see `configs/trainer/default.yaml`.
        temperature: the temperature that the records were sampled with.
        processes: the processes that update together. All have the same records; each takes a part of every
            mini-batch.
        objective: its name and options.
        correction: its name and options.

    Raises:
        ValueError: the objective or correction is invalid, a KL loss has no reference, or the model does not support
            gradient checkpointing.
        ModuleNotFoundError: the optimiser's package is missing.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        reference: LikelihoodModel | None,
        settings: TrainerSettings,
        temperature: float,
        processes: Processes = ALONE,
        objective: Choice = PPO_CLIP,
        correction: Choice = NO_CORRECTION,
    ):
        if settings.kl_coef > 0 and reference is None:
            raise ValueError(f"trainer.kl_coef={settings.kl_coef} needs a reference policy.")
        self.loss = Loss(settings, objective, correction=correction)
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
        """Run `update_epochs` epochs over the records, in mini-batches shuffled by `seed`, see `_mini_batches`.

        Responses without a choice (a single admissible action) have probability 1 and are left out. Responses with
        an advantage of 0 have no loss, unless `zero_advantage=keep` or there is a KL loss. With `mask` they have a
        place in a mini-batch and count in its means. A mini-batch in which no response has a loss makes a step with a
        gradient of 0, so that methods make equally many steps. With `drop` such responses have no place, and a
        mini-batch without any makes no step.

        Returns metrics. Means over the tokens that are left: loss, KL to the behaviour and reference policies,
        entropy, clipping. Also the mismatch of engine and trainer, the number of optimiser steps (one per
        mini-batch), their mean gradient norm, and the last learning rate. If nothing is left, it returns the last
        three alone.

        Args:
            tokens: a record for each step.
            batch: the steps; `batch.trained` selects those that are trained on.
            advantages: float64[N], one per step, or an estimator's `Advantages`.
            seed: (stream, seed, iteration); the objective's pre-pass draws from a separate stream.

        Raises:
            NonFiniteError: a number is not finite; the message names the mini-batch, or the weights after the last
                step.
        """
        metrics = UpdateMetrics()
        samples = make_samples(tokens, batch, advantages)
        loss_rows, prepared = self._prepared([row for row in samples if self._in_loss(row)], seed)
        if (local_samples := self.processes.share(loss_rows)) and self.loss.recomputes:
            cpu = torch.device("cpu")
            metrics.add_mismatch(
                per_token([row.old_logprobs for row in local_samples], cpu),
                per_token([row.behaviour for row in local_samples], cpu),
            )
        rows = loss_rows
        if self.settings.zero_advantage == "mask":
            remaining = iter(loss_rows)
            rows = [next(remaining) if self._in_loss(row) else row for row in samples]
        generator, count = np.random.default_rng(seed), self._count(len(rows), batch)
        # The rank is part of the seed, so that processes draw different dropout masks.
        torch.manual_seed(int(np.random.SeedSequence((*seed, self.processes.rank)).generate_state(1)[0]))  # for dropout
        latest: list[TrainingSample] = []
        for epoch in range(self.settings.update_epochs):
            for number, mini_batch in enumerate(_mini_batches(self._units(rows), count, generator), 1):
                if self._step(mini_batch, metrics, f"epoch {epoch + 1}, mini-batch {number}"):
                    latest = mini_batch
        if latest:
            self._check_weights(latest)
        self.optimizer.zero_grad(set_to_none=True)  # else gradients would occupy memory during the next rollout
        self.policy.updated()
        return {**merge(self.processes.gather([metrics])).result(), **prepared}

    def entropies(self, tokens: Sequence[TokenRecord]) -> np.ndarray:
        """Return float64[N], nats: for each record, the mean entropy of its choices by the current weights. All
        processes take part."""
        return mean_entropies(tokens, self.weights, self.settings, self.temperature, self.processes)

    def _count(self, rows: int, batch: StepBatch) -> int:
        """Return the number of mini-batches of an epoch: by the number of episodes, equal for compared methods,
        unless `mini_batch_size` is set."""
        if self.settings.mini_batch_size is not None:
            return -(-rows // self.settings.mini_batch_size)
        return -(-(batch.trajectory_labels.max(initial=-1) + 1) // self.settings.mini_batch_episodes)

    def _units(self, rows: list[TrainingSample]) -> list[list[TrainingSample]]:
        """Return the rows that stay together in a mini-batch: single ones, or those of an episode."""
        if self.settings.rows == "step":
            return [[row] for row in rows]
        of_episode: dict[int, list[TrainingSample]] = {}
        for row in rows:
            of_episode.setdefault(row.trajectory, []).append(row)
        return list(of_episode.values())

    def _sequences(self, rows: list[TrainingSample]) -> list[list[TrainingSample]]:
        """Return the rows that are computed in one sequence."""
        return by_conversation(rows) if self.settings.rows == "episode" else [[row] for row in rows]

    def _in_loss(self, row: TrainingSample) -> bool:
        """Return True if the row contributes to the loss."""
        return self.settings.zero_advantage == "keep" or self.settings.kl_coef > 0 or not row.zero_advantage

    def _prepared(
        self, rows: list[TrainingSample], seed: tuple[int, ...]
    ) -> tuple[list[TrainingSample], dict[str, float]]:
        """Return the rows with all quantities computed before the weights change, and the pre-pass's metrics."""
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
        """Return the weights of the reference's model. A reference without its own model reads the policy's weights
        without the adapter."""
        separate = reference.model is not self.policy.model
        return distribute(reference, self.processes) if separate else self.weights.read_by(reference)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` needs to resume with the same numbers, in any number of processes.
        All processes take part."""
        optimizer = state_by_name(self.optimizer, self.policy.model)
        return {"optimizer": optimizer, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore optimiser and schedule from a saved state."""
        load_state_by_name(self.optimizer, self.policy.model, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def _step(self, rows: list[TrainingSample], metrics: UpdateMetrics, location: str) -> bool:
        """Make one optimiser step on the rows of a mini-batch that are in the loss. Return False if none is."""
        mini_batch = [row for row in rows if self._in_loss(row)]
        norm = self._finite_gradients(rows, metrics, location) if mini_batch else self._zero_gradients()
        # The objective may have masked every token.
        if self.settings.zero_advantage == "drop" and not any(row.loss_mask.any() for row in mini_batch):
            return False
        rate = self.schedule.get_last_lr()[0]
        self.optimizer.step()
        self.schedule.step()
        metrics.add_step(norm, float(rate))
        return bool(mini_batch)

    def _finite_gradients(self, rows: list[TrainingSample], metrics: UpdateMetrics, location: str) -> float:
        """Leave the clipped gradients of a mini-batch in the weights, and return their norm before clipping."""
        loss = self._gradients(rows, metrics)
        if not torch.isfinite(loss):
            raise self._diverged(rows, f"The loss is {loss.item()} in {location}.")
        norm = self.weights.clip_gradients(self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise self._diverged(rows, f"The gradient norm is {norm.item()} in {location}.")
        return norm.item()

    def _zero_gradients(self) -> float:
        """Leave a gradient of 0 in all weights that have been updated before, so that momentum moves them as it does
        in any other step. Return the norm, 0."""
        self.optimizer.zero_grad(set_to_none=True)
        for weight in self.optimizer.state:
            weight.grad = torch.zeros_like(weight)
        return 0.0

    def _gradients(self, rows: list[TrainingSample], metrics: UpdateMetrics) -> torch.Tensor:
        """Leave the gradients of a mini-batch in the weights, and return its loss, float32[]."""
        totals, mini_batch = self.loss.totals(rows), [row for row in rows if self._in_loss(row)]
        unchanged = not metrics.gradient_norms  # the weights still equal those that generated the records
        self.policy.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        *parts, last = self._parts(mini_batch)
        with self.weights.accumulating():
            losses = [self._backward(part, mini_batch, totals, metrics, unchanged=unchanged) for part in parts]
        # Outside of `accumulating`: this pass synchronises the gradients of all parts.
        losses.append(self._backward(last, mini_batch, totals, metrics, unchanged=unchanged))
        return self.processes.sum(torch.stack(losses).sum())

    def _parts(self, mini_batch: list[TrainingSample]) -> list[list[TrainingSample]]:
        """Return this process's part of a mini-batch in micro-batches; one that is empty keeps step with others."""
        sequences = self._sequences(mini_batch)
        lengths = [len(sequence[-1].tokens) for sequence in sequences]
        shards = shard_batches(lengths, self.settings.max_batch_tokens, self.processes.count)
        # One adapter per micro-batch: with gradient checkpointing, the backward pass recomputes by the active adapter.
        return [
            [row for sequence in group for row in sequence]
            for part in shards[self.processes.rank]
            for group in by_adapter([sequences[index] for index in part], lambda rows: rows[0].tokens.adapter)
        ]

    def _diverged(self, rows: list[TrainingSample], reason: str) -> NonFiniteError:
        """Return the error for a mini-batch, with what the present weights make of it. All processes take part."""
        self._gradients(rows, UpdateMetrics())  # anew, since clipping by a norm that is not finite has replaced them
        parts = [part for part in self._parts([row for row in rows if self._in_loss(row)]) if part]
        with torch.no_grad(), self.weights.gathered():
            logprobs = [self._likelihood(part).logprobs.float().cpu().numpy() for part in parts]
        mini_batch = DivergedMiniBatch(
            [row for part in parts for row in part],
            np.concatenate(logprobs) if logprobs else np.zeros(0, np.float32),
            self.weights.gradient_norms(),
        )
        return NonFiniteError(reason, mini_batch)

    def _check_weights(self, latest: list[TrainingSample]) -> None:
        """Raise NonFiniteError if a step with a finite gradient, on the latest mini-batch, has produced weights that
        are not finite."""
        if self.processes.sum(self.weights.not_finite()) > 0:
            raise self._diverged(latest, "After the last step weights are infinite or not numbers.")

    def _backward(
        self,
        rows: list[TrainingSample],
        mini_batch: list[TrainingSample],
        totals: Totals,
        metrics: UpdateMetrics,
        *,
        unchanged: bool,
    ) -> torch.Tensor:
        """Add the gradient of the rows' part of the mini-batch's loss, and return that part, float32[]. Without
        rows, a pass that adds 0 keeps step with processes that have rows."""
        if rows:
            loss = self._loss(rows, totals, metrics, unchanged=unchanged)
        else:
            loss = 0.0 * self._likelihood([min(mini_batch, key=lambda row: len(row.tokens))]).logprobs.sum()
        (loss * self.processes.count).backward()  # DDP and FSDP2 average gradients; this makes it a sum
        return loss.detach()

    def _likelihood(self, rows: list[TrainingSample]) -> Likelihood:
        records = [joined([row.tokens for row in sequence]) for sequence in self._sequences(rows)]
        with computing_in(self.settings.precision, self.policy.model):
            result = self.weights.likelihood(records, temperature=self.temperature)
        # The rows of a sequence follow one another, see `_parts`: tokens are in the order of the rows.
        responses = np.repeat(np.arange(len(rows)), [len(row.behaviour) for row in rows])
        return result._replace(sequence_index=torch.from_numpy(responses).to(result.logprobs.device))

    def _loss(
        self, rows: list[TrainingSample], totals: Totals, metrics: UpdateMetrics, *, unchanged: bool
    ) -> torch.Tensor:
        result = self._likelihood(rows)
        if unchanged and not self.loss.recomputes:
            behaviour = per_token([row.behaviour for row in rows], result.logprobs.device)
            metrics.add_mismatch(result.logprobs, behaviour)
        return self.loss(rows, result, totals, metrics)


def _mini_batches(
    units: Sequence[list[TrainingSample]], count: int, generator: np.random.Generator
) -> list[list[TrainingSample]]:
    """Divide shuffled units, which are rows or episodes, into `count` mini-batches whose numbers of units differ by at
    most one.

    Units with an advantage are spread evenly, and so are those without. Each mini-batch therefore makes a step if there
    are `count` units with an advantage, and a row weighs the same in every mini-batch.
    """
    order = generator.permutation(len(units))
    zero = np.array([all(row.zero_advantage for row in units[index]) for index in order], dtype=np.bool_)
    dealt = np.concatenate([order[~zero], order[zero]]).tolist()
    return [[row for index in dealt[first::count] for row in units[index]] for first in range(count)]
