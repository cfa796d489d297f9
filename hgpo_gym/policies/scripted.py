"""Policies without a model: uniformly random admissible actions, and the environment's own expert."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.policies.base import CannotRespondError, Request, Response, Sampling


class RandomPolicy:
    """Draws an admissible action uniformly. If actions are open-ended, the response is empty."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:  # noqa: ARG002 - Policy
        return [Response(self._draw(request)) for request in requests]

    @staticmethod
    def _draw(request: Request) -> str:
        if not request.allowed_responses:
            return ""
        return request.allowed_responses[np.random.default_rng(request.seed).integers(len(request.allowed_responses))]


class ExpertPolicy:
    """Follows the environment's expert; the environment must be made with `expert=True`.

    Args:
        random_actions: the share of steps with a uniformly random admissible action instead.
    """

    def __init__(self, random_actions: float = 0.0):
        self._random_actions = random_actions

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:  # noqa: ARG002 - Policy
        return [Response(self._follow(request)) for request in requests]

    def _follow(self, request: Request) -> str:
        if request.expert_response is None:
            of_role = ""
            if request.role:
                of_role = f" Or the role {request.role!r} does not act, and has no expert: choose team=solo."
            raise CannotRespondError(
                f"The environment gives no expert_action: it has no expert, or env.expert is not true.{of_role}"
            )
        generator = np.random.default_rng(request.seed)
        if request.allowed_responses and generator.random() < self._random_actions:
            return request.allowed_responses[generator.integers(len(request.allowed_responses))]
        return request.expert_response
