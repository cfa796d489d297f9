"""Best plan: try several plans, then execute the one with the highest return."""

from collections.abc import Sequence
from typing import Any

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.samplers.base import Sampler
from hgpo_gym.rollouts.trials import check_episodes, collect_under_best_plan


class BestPlan(Sampler):
    """Play trial episodes with new plans, then executions of the best plan, see `hgpo_gym.rollouts.trials`.

    This project's design, after the idea of HiMAC (arXiv 2603.00977). The estimator `best_plan` compares plans with
    plans and executions with executions.

    Args:
        trials: episodes with a new plan.
        executions: episodes under the best plan; rollout.group_size is trials + executions.

    Raises:
        ValueError: trials or executions below 2.
    """

    records = ("plan", "opening", "execution", "response")

    def __init__(self, task_ids: Sequence[str], seed: int, *, trials: int = 4, executions: int = 4):
        super().__init__(task_ids, seed)
        check_episodes(trials, executions)
        self._trials, self._executions = trials, executions

    def check(self, group_size: int, history_length: int) -> None:  # noqa: ARG002 - of Sampler
        """Raise ValueError unless groups have trials + executions episodes."""
        if group_size != (size := self._trials + self._executions):
            raise ValueError(
                f"rollout.group_size={group_size}: the groups of {self.described} have trials + executions = "
                f"{size} episodes. Set rollout.group_size={size}, or other numbers."
            )

    def collect(
        self,
        env: ContextWrapper,
        policy: Policy,
        sampling: Sampling,
        *,
        task_ids: Sequence[str],
        seeds: Sequence[tuple[int, ...]],
        **options: Any,
    ) -> Rollout:
        """Collect as `collect_under_best_plan` does.

        Raises ValueError as `check` does, and for a team without plans.
        """
        vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
        self.check(vector.group_size, env.history_length)
        return collect_under_best_plan(
            env, policy, sampling, task_ids=task_ids, seeds=seeds, trials=self._trials, **options
        )
