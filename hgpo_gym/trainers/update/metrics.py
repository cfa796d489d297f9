"""Metrics of one update, accumulated over micro-batches."""

from collections.abc import Sequence

import numpy as np
import torch

from hgpo_gym.trainers.update.objectives.terms import kl_k3


class UpdateMetrics:
    """Means over tokens, maxima, the number of optimiser steps, their mean gradient norm, and the last learning
    rate.

    Sums, counts and maxima are stored separately, so that the metrics of several processes can be merged.
    """

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.largest: dict[str, float] = {}
        self.gradient_norms: list[float] = []
        self.learning_rate: float | None = None

    def add_tokens(self, values: dict[str, torch.Tensor]) -> None:
        """Add values float[T], one entry per token."""
        for name, value in values.items():
            # Sum in float64: float32 loses digits over millions of tokens.
            self.sums[name] = self.sums.get(name, 0.0) + value.detach().double().sum().item()
            self.counts[name] = self.counts.get(name, 0) + len(value)

    def add_mismatch(self, trainer: torch.Tensor, engine: torch.Tensor) -> None:
        """Add the difference between the trainer's log-probabilities float32[T] and the engine's, for drawn tokens
        at equal weights. It adds |difference| in nats, and KL(engine | trainer) by k3."""
        difference = (trainer.detach() - engine).abs()
        self.add_tokens({"mismatch_mean": difference, "mismatch_kl": kl_k3(engine, trainer.detach())})
        if len(difference):
            self.largest["mismatch_max"] = max(self.largest.get("mismatch_max", 0.0), difference.max().item())

    def add_step(self, gradient_norm: float, learning_rate: float) -> None:
        """Add the gradient norm before clipping and the learning rate of an optimiser step."""
        self.gradient_norms.append(gradient_norm)
        self.learning_rate = learning_rate

    def result(self) -> dict[str, float]:
        """Return all metrics by name."""
        means = {name: value / self.counts[name] for name, value in self.sums.items()}
        norm = float(np.mean(self.gradient_norms)) if self.gradient_norms else 0.0
        rate = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return {**means, **self.largest, "optimizer_steps": len(self.gradient_norms), "gradient_norm": norm, **rate}


def merge(parts: Sequence[UpdateMetrics]) -> UpdateMetrics:
    """Merge the metrics of processes that made an update together, each from its part of the tokens."""
    whole = UpdateMetrics()
    for part in parts:
        for name, value in part.sums.items():
            whole.sums[name] = whole.sums.get(name, 0.0) + value
            whole.counts[name] = whole.counts.get(name, 0) + part.counts[name]
        for name, value in part.largest.items():
            whole.largest[name] = max(whole.largest.get(name, value), value)
    whole.gradient_norms = parts[0].gradient_norms  # a norm over all processes, so equal in each
    whole.learning_rate = parts[0].learning_rate
    return whole
