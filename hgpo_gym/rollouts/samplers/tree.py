"""Trees: episodes that branch from other episodes."""

from collections.abc import Sequence
from typing import Any

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.samplers.base import Sampler
from hgpo_gym.rollouts.trees import check_level, check_shape, collect_tree


class TreeSampler(Sampler):
    """Collect leaves of trees as the episodes of a group, so that its members visit the same states.

    This is Tree-GRPO's collector (arXiv 2509.21240; code: AMAP-ML/Tree-GRPO), see `hgpo_gym.rollouts.trees`. The
    estimator `tree_grpo` compares leaves within their tree. Other estimators treat leaves as ordinary episodes.

    Args:
        trees: of a group; each begins with an episode from the start.
        nodes: branch points of a tree in each round.
        rounds: of branching; 0 gives independent episodes.
        leaves: ends of a tree to learn from; rollout.group_size is trees * leaves.
        branch_at: `uniform` draws all turns alike. `entropy` weighs them by the sampled entropy of the response.
            `lone` draws turns whose context at `level` is unique in the group, if there are any.
        level: of `lone`; None is the deepest, memory.history_length.

    Raises:
        ValueError: more leaves than a tree has ends, a number below its minimum, or an unknown `branch_at`.
    """

    records = ("tree", "branch", "response")

    def __init__(
        self,
        task_ids: Sequence[str],
        seed: int,
        *,
        trees: int = 2,
        nodes: int = 2,
        rounds: int = 1,
        leaves: int = 3,
        branch_at: str = "uniform",
        level: int | None = None,
    ):
        super().__init__(task_ids, seed)
        check_shape(trees, nodes, rounds, leaves, branch_at)
        self._shape: dict[str, Any] = {"trees": trees, "nodes": nodes, "rounds": rounds, "leaves": leaves}
        self._shape |= {"branch_at": branch_at, "level": level}

    def check(self, group_size: int, history_length: int) -> None:
        """Raise ValueError unless groups have trees * leaves episodes and the context keys have `level`."""
        if group_size != (size := self._shape["trees"] * self._shape["leaves"]):
            raise ValueError(
                f"rollout.group_size={group_size}: the groups of {self.described} have trees * leaves = {size} "
                f"episodes. Set rollout.group_size={size}, or other numbers."
            )
        check_level(self._shape["level"], history_length)

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
        """Collect as `collect_tree` does. Raises ValueError as `check` does."""
        vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
        self.check(vector.group_size, env.history_length)
        return collect_tree(env, policy, sampling, task_ids=task_ids, seeds=seeds, **self._shape, **options)
