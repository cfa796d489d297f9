"""Trees: episodes that branch from other episodes."""

from hgpo_gym.rollouts.samplers.base import Collector, check_group_size
from hgpo_gym.rollouts.trees import check_level, check_shape, collect_tree


class Tree(Collector):
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
        *,
        trees: int = 2,
        nodes: int = 2,
        rounds: int = 1,
        leaves: int = 3,
        branch_at: str = "uniform",
        level: int | None = None,
    ):
        check_shape(trees, nodes, rounds, leaves, branch_at)
        super().__init__(
            collect_tree, trees=trees, nodes=nodes, rounds=rounds, leaves=leaves, branch_at=branch_at, level=level
        )

    def check(self, group_size: int, history_length: int) -> None:
        """Raise ValueError unless groups have trees * leaves episodes and the context keys have `level`."""
        size = self.options["trees"] * self.options["leaves"]
        check_group_size(group_size, size, "trees * leaves", self.described)
        check_level(self.options["level"], history_length)
