"""Critic: predicts the value columns that an estimator asks for, and learns from the targets that it returns.

An iteration reads the policy's states once, before its weights change. Prediction and training both use these
states, so a critic costs one forward pass over the prompts. The critic has separate weights, and its gradient does
not reach the policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hgpo_gym.advantages import StepBatch
from hgpo_gym.advantages.statistics import mean_over_copies
from hgpo_gym.policies.states import StateReader
from hgpo_gym.processes import ALONE, Processes
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.trainers.critic.networks import ValueNetwork, make_network
from hgpo_gym.trainers.critic.settings import CriticSettings
from hgpo_gym.trainers.update.diverged import NonFiniteError
from hgpo_gym.trainers.update.settings import TrainerSettings

States = Mapping[str, np.ndarray]
"""For each value column, the inputs of its network, one entry per row."""
READ_AFTER = {"value_low": "plan_tokens"}
"""The column with the number of response tokens after which a value is read. Others are read after the prompt."""


class Critic:
    """One network per value column.

    Args:
        policy: gives the states.
        columns: the value columns, as the estimator's targets name them.
        settings: see `CriticSettings`.
        trainer: the trainer settings, with batch size and precision of the passes that read states.
        seed: the seed of the run.
        processes: the processes that train together. The main one trains the critic, and all hold a copy.

    Raises:
        ValueError: the policy has no states.
    """

    def __init__(
        self,
        policy: Any,
        columns: Sequence[str],
        settings: CriticSettings,
        trainer: TrainerSettings,
        seed: int,
        processes: Processes = ALONE,
    ):
        if not isinstance(policy, StateReader):
            raise ValueError(f"A critic needs a policy that gives its states, {type(policy).__name__} does not.")
        self.policy, self.columns, self.settings, self.processes = policy, tuple(columns), settings, processes
        self._passes: dict[str, Any] = {"max_batch_tokens": trainer.max_batch_tokens, "precision": trainer.precision}
        self._networks: dict[str, Any] = {}
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        for number, column in enumerate(self.columns):
            network = make_network(policy, settings, (RandomStream.CRITIC, seed, number))
            self._networks[column] = network
            rate = network.learning_rate if settings.learning_rate is None else settings.learning_rate
            self._optimizers[column] = torch.optim.Adam(network.parameters(), lr=rate)

    def states(self, rollout: Rollout) -> States:
        """Return the network inputs of each row. All processes take part, and each reads its share."""
        read_after = {column: READ_AFTER.get(column) for column in self.columns}
        states_after = {
            after: self._read(rollout, after) for after in dict.fromkeys(read_after.values())
        }  # in one order in all processes
        return {column: states_after[after] for column, after in read_after.items()}

    def valued(self, batch: StepBatch, states: States) -> StepBatch:
        """Return the batch with the critic's columns, float64[N] each."""
        values = {}
        for column, network in self._networks.items():
            network.eval()
            with torch.inference_mode():
                values[column] = network.values(states[column]).double().cpu().numpy()
        return replace(batch, extras={**batch.extras, **values})

    def learn(
        self, states: States, batch: StepBatch, targets: Mapping[str, np.ndarray], iteration_seed: tuple[int, ...]
    ) -> dict[str, float]:
        """Minimise the squared difference to the targets, over `epochs` passes in mini-batches. The seed (seed,
        iteration) shuffles the rows.

        Args:
            states: the network inputs of the rows.
            batch: the steps, with their predicted values.
            targets: float64[N] for each column; rows with NaN are left out. A step that several episodes share counts
                as one row, with the mean target of its copies.

        Returns for each column the mean loss and the explained variance of the values before training. The latter is
        1 - var(target - value) / var(target): at most 1, and 0 if all targets are equal.

        Raises:
            NonFiniteError: a loss is infinite or not a number.
        """

        def fit() -> tuple[dict[str, float], dict[str, dict[str, torch.Tensor]]]:
            metrics: dict[str, float] = {}
            distinct = batch.distinct_rows
            for column in self.columns:
                mean_targets = mean_over_copies(batch, targets[column])
                rows = distinct[~np.isnan(mean_targets[distinct])]
                value, target = batch.extras[column][rows], mean_targets[rows]
                metrics[f"{column}_explained_variance"] = explained_variance(value, target)
                seed = (RandomStream.CRITIC, *iteration_seed, self.columns.index(column))
                metrics[f"{column}_loss"] = self._fit(column, states[column][rows], value, target, seed)
            return metrics, {column: network.saved() for column, network in self._networks.items()}

        metrics, weights = self.processes.on_main(fit)
        if not self.processes.main:
            for column, network in self._networks.items():
                network.restore(weights[column])
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` needs to resume with the same numbers."""
        return {
            column: {"network": network.saved(), "optimizer": self._optimizers[column].state_dict()}
            for column, network in self._networks.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore networks and optimisers from a saved state."""
        for column, network in self._networks.items():
            network.restore(state[column]["network"])
            self._optimizers[column].load_state_dict(state[column]["optimizer"])

    def _read(self, rollout: Rollout, after: str | None) -> np.ndarray:
        prefix_lengths = rollout.batch.extras[after] if after else np.zeros(len(rollout.tokens), dtype=np.int64)
        local_rows = self.processes.share(range(len(rollout.tokens)))
        records: list[Any] = [rollout.tokens[row] for row in local_rows]
        states = self.policy.states(records, [int(prefix_lengths[row]) for row in local_rows], **self._passes)
        return np.concatenate(self.processes.gather([states]))

    def _fit(
        self, column: str, states: np.ndarray, value: np.ndarray, target: np.ndarray, seed: tuple[int, ...]
    ) -> float:
        """Train one network and return its mean loss."""
        network, optimizer = self._networks[column], self._optimizers[column]
        network.train()
        generator = np.random.default_rng(seed)
        size, losses = self.settings.mini_batch_size, []
        for _ in range(self.settings.epochs):
            order = generator.permutation(len(states))
            for start in range(0, len(states), size):
                rows = order[start : start + size]
                loss = self._loss(network, states[rows], value[rows], target[rows])
                if not torch.isfinite(loss):
                    raise NonFiniteError(f"The critic's loss of {column} is {loss.item()}.")
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(network.parameters(), self.settings.max_grad_norm)
                optimizer.step()
                losses.append(loss.item())
        return float(np.mean(losses)) if losses else 0.0

    def _loss(self, network: ValueNetwork, states: np.ndarray, before: np.ndarray, target: np.ndarray) -> torch.Tensor:
        """Return the mean squared error, float32[]. With `clip`, return the larger of it and the error of the
        clipped value. That value stays within `clip` of the old one (PPO, as in verl, without its factor of a half)."""
        value = network.values(states)
        target_values = torch.from_numpy(target).to(value)
        error = (value - target_values).square()
        if self.settings.clip is not None:
            old = torch.from_numpy(before).to(value)
            clipped_value = old + (value - old).clamp(-self.settings.clip, self.settings.clip)
            error = torch.maximum(error, (clipped_value - target_values).square())
        return error.mean()


def explained_variance(value: np.ndarray, target: np.ndarray) -> float:
    """Return 1 - var(target - value) / var(target), or 0 if all targets are equal."""
    spread = float(np.var(target)) if len(target) else 0.0
    return 1.0 - float(np.var(target - value)) / spread if spread > 0 else 0.0
