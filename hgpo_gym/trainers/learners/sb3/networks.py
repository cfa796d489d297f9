"""Networks that score each admissible action by its text. So the order of actions does not matter, and no missing
action is chosen. PPO and DQN use them at the points where Stable-Baselines3 lets policies be replaced."""

from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn

from hgpo_gym.envs.features import TextFeatures

ABSENT = -1e8
"""The logit or value of an index without an action. It is finite, which keeps entropies and losses finite."""


class ActionScorer(nn.Module):
    """Score each index of observations [N, length]. Two hidden layers read text and action together, with the same
    weights at every index."""

    def __init__(self, features: TextFeatures, hidden_size: int):
        super().__init__()
        self.features = features
        self.text = nn.Linear(features.size, hidden_size)
        self.action = nn.Linear(features.action_size, hidden_size, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 1))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return scores float32[N, actions], `ABSENT` where there is no action."""
        texts, present, actions = self.features.split(observations)
        rows = present.nonzero()[:, 0]
        hidden = self.text(texts)[rows] + self.action(actions[present])
        scores = self.score(hidden)[:, 0]
        return scores.new_full(present.shape, ABSENT).masked_scatter(present, scores)


class _ActorAndCritic(nn.Module):
    """The module that `ActorCriticPolicy` calls its mlp_extractor: the actor's scores, and the critic's last hidden
    layer."""

    def __init__(self, features: TextFeatures, hidden_size: int):
        super().__init__()
        self.features = features
        self.latent_dim_pi, self.latent_dim_vf = features.actions, hidden_size
        self.actor = ActionScorer(features, hidden_size)
        self.critic = nn.Sequential(
            nn.Linear(features.size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, hidden_size), nn.ReLU()
        )

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(observations), self.forward_critic(observations)

    def forward_actor(self, observations: torch.Tensor) -> torch.Tensor:
        return self.actor(observations)

    def forward_critic(self, observations: torch.Tensor) -> torch.Tensor:
        return self.critic(self.features.split(observations)[0])


class ScoringActorCritic(ActorCriticPolicy):
    """A policy for PPO whose logits are the scores."""

    def __init__(self, *args: Any, text_features: TextFeatures, hidden_size: int, **kwargs: Any):
        self.text_features, self.hidden_size = text_features, hidden_size
        super().__init__(*args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = _ActorAndCritic(self.text_features, self.hidden_size)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        # The scores are the logits. The optimiser is made again, without the replaced layer.
        self.action_net = nn.Identity()
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]


class ScoringDQNPolicy(DQNPolicy):
    """A policy for DQN whose values are the scores."""

    def __init__(self, *args: Any, text_features: TextFeatures, hidden_size: int, **kwargs: Any):
        self.text_features, self.hidden_size = text_features, hidden_size
        super().__init__(*args, **kwargs)

    def make_q_net(self) -> QNetwork:
        network = super().make_q_net()
        network.q_net = ActionScorer(self.text_features, self.hidden_size)  # type: ignore[assignment]
        return network


class MaskedDQN(DQN):
    """DQN that explores among the admissible actions, in each environment independently."""

    policy: ScoringDQNPolicy

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        actions, state = self.policy.predict(observation, state, episode_start, deterministic=True)
        if not deterministic:
            explore = np.random.random(len(actions)) < self.exploration_rate
            actions = np.where(explore, self._draw(observation), actions)
        return actions, state

    def _sample_action(
        self,
        learning_starts: int,
        _action_noise: Any = None,
        _n_envs: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.num_timesteps < learning_starts:
            actions = self._draw(self._last_obs)
        else:
            actions, _ = self.predict(self._last_obs)
        return actions, actions

    def _draw(self, observations: Any) -> np.ndarray:
        """Return an index with an action for each row, uniformly at random."""
        _, present, _ = self.policy.text_features.split(observations)
        return (np.random.random(present.shape) * present).argmax(axis=1)
