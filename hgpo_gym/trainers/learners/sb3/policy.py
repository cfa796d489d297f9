"""A Stable-Baselines3 model as a policy that generates responses and can be saved and loaded."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch.distributions import Categorical

from hgpo_gym.envs.features import TextFeatures
from hgpo_gym.policies.base import Request, Response, Sampling, check_has_choices
from hgpo_gym.policies.sampling import draw, uniform_numbers
from hgpo_gym.registry import Choice
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.learners.sb3.episodes import EpisodesVecEnv, read
from hgpo_gym.trainers.learners.sb3.networks import MaskedDQN, ScoringActorCritic, ScoringDQNPolicy

_MODEL, _REPLAY = "sb3.zip", "replay_buffer.pkl"


class Algorithm(NamedTuple):
    """The algorithm's class, its policy class, and arguments that are set here and not by `algo.*`."""

    make: Any
    policy: Any
    set_here: tuple[str, ...]


_SET_BY_RUN = ("policy", "env", "policy_kwargs", "seed", "verbose", "tensorboard_log", "_init_setup_model")
ALGORITHMS = {
    "sb3_ppo": Algorithm(PPO, ScoringActorCritic, (*_SET_BY_RUN, "n_steps")),
    "sb3_dqn": Algorithm(MaskedDQN, ScoringDQNPolicy, (*_SET_BY_RUN, "exploration_fraction")),
}


class Sb3Policy:
    """Choose among the admissible responses. PPO samples by its probabilities at the sampling temperature. DQN takes
    the action of highest value."""

    def __init__(self, algorithm: BaseAlgorithm, episodes: EpisodesVecEnv):
        self.algorithm, self.episodes = algorithm, episodes
        algorithm.set_logger(Logger(folder=None, output_formats=[]))

    @classmethod
    def initial(cls, algo: Choice, num_envs: int, step_limit: int, seed: int) -> "Sb3Policy":
        """Return a new network; the seed decides its weights.

        Args:
            algo: the algorithm and its options.
            num_envs: episodes side by side.
            step_limit: of an episode, all of which PPO plays in an iteration.

        Raises:
            ValueError: the algorithm does not have an option, or refuses a value.
        """
        kind, options, network = _parts(algo)
        parameters = [name for name in inspect.signature(kind.make.__init__).parameters if name not in kind.set_here][
            1:
        ]
        for name in options:
            if name not in parameters:
                raise ValueError(unknown_name(f"option of {algo.name}", name, parameters))
        if algo.name == "sb3_ppo":
            options["n_steps"] = step_limit
        episodes = _episodes(algo.options, num_envs)
        algorithm = kind.make(kind.policy, episodes, policy_kwargs=network, seed=seed, **options)
        return cls(algorithm, episodes)

    @classmethod
    def load(cls, algo: Choice, num_envs: int, folder: Path) -> "Sb3Policy":
        """Load the model that was saved in `folder`. Raises FileNotFoundError if there is none."""
        if not (folder / _MODEL).exists():
            raise FileNotFoundError(f"No model of Stable-Baselines3 in {folder}: expected {_MODEL}.")
        kind, options, _ = _parts(algo)
        episodes = _episodes(algo.options, num_envs)
        algorithm = kind.make.load(folder / _MODEL, env=episodes, device=options["device"])
        if isinstance(algorithm, OffPolicyAlgorithm):
            algorithm.load_replay_buffer(folder / _REPLAY)
        return cls(algorithm, episodes)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response per request, in order. Each depends on its request's seed.

        Raises:
            CannotRespondError: a request has no admissible responses.
        """
        for request in requests:
            check_listed(request.allowed_responses)
        features = [read(self.episodes.features, request.prompt, request.allowed_responses) for request in requests]
        scores = self._scores(torch.from_numpy(np.stack(features)).to(self.algorithm.device)).cpu()
        greedy = isinstance(self.algorithm, OffPolicyAlgorithm)
        uniforms = uniform_numbers([request.seed for request in requests], 1)[:, 0]
        chosen, _ = draw(scores, Sampling(temperature=0) if greedy else sampling, uniforms)
        return [
            Response(request.allowed_responses[index]) for request, index in zip(requests, chosen.tolist(), strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Save the model with its optimiser, and DQN's replay buffer, by Stable-Baselines3's functions."""
        folder.mkdir(parents=True)
        self.algorithm.save(folder / _MODEL)
        if isinstance(self.algorithm, OffPolicyAlgorithm):
            self.algorithm.save_replay_buffer(folder / _REPLAY)

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        policy = self.algorithm.policy
        policy.set_training_mode(False)
        if isinstance(policy, ScoringDQNPolicy):
            return policy.q_net(features)
        assert isinstance(policy, ScoringActorCritic)
        distribution = policy.get_distribution(features).distribution
        assert isinstance(distribution, Categorical)
        return distribution.logits


def check_listed(responses: Sequence[str]) -> None:
    """Raise CannotRespondError if there is no admissible response."""
    check_has_choices(responses, "", "baseline of Stable-Baselines3", "choose an algo that trains a language model")


def _parts(algo: Choice) -> tuple[Algorithm, dict[str, Any], dict[str, Any]]:
    """Return the algorithm, its options by Stable-Baselines3's names, and the options of the network."""
    if algo.name not in ALGORITHMS:
        raise ValueError(unknown_name("algorithm of learner=sb3", algo.name, ALGORITHMS))
    kind, options = ALGORITHMS[algo.name], dict(algo.options)
    network = {"text_features": TextFeatures(**options.pop("features")), "hidden_size": options.pop("hidden_size")}
    for name in ("reward_scale", "exploration_iterations"):
        options.pop(name, None)
    return kind, options, network


def _episodes(options: Mapping[str, Any], num_envs: int) -> EpisodesVecEnv:
    return EpisodesVecEnv(num_envs, TextFeatures(**options["features"]), options["reward_scale"])
