"""Best plan: try several plans, then execute the one with the highest return."""

from hgpo_gym.rollouts.samplers.base import Collector, check_group_size
from hgpo_gym.rollouts.trials import check_episodes, collect_under_best_plan


class BestPlan(Collector):
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

    def __init__(self, *, trials: int = 4, executions: int = 4):
        check_episodes(trials, executions)
        super().__init__(collect_under_best_plan, trials=trials)
        self._size = trials + executions

    def check(self, group_size: int, history_length: int) -> None:  # noqa: ARG002 - of Collector
        """Raise ValueError unless groups have trials + executions episodes."""
        check_group_size(group_size, self._size, "trials + executions", self.described)
