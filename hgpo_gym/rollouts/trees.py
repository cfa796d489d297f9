"""Trees: episodes that branch from others, so that several members of a group visit the same state.

Every branch has the responses before it in its trajectory. `StepBatch.trained` is true on only one copy of a shared
response. That copy is trained with the mean advantage of all copies (`mean_over_copies` of
`hgpo_gym.advantages.statistics`), so no token is trained twice.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hgpo_gym.envs.sub_envs import EpisodeStart
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import LeftOut, rollout_of, rows_in_order
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.playing import EpisodeSpec, PlayedEpisodes, failed_groups_of, group_seed, play
from hgpo_gym.rollouts.rollout import FailedEpisode, Rollout, response_tokens
from hgpo_gym.rollouts.teams.base import Solo, Team
from hgpo_gym.suggest import unknown_name

BRANCH_AT = ("uniform", "entropy", "lone")


@dataclass(eq=False)
class _Path:
    """One episode of a tree.

    Attributes:
        group: index of the task group.
        tree: index of the tree in the group.
        member: its number in the group, which seeds its chance and responses.
        origin: the path that it branches from, None for a chain.
        turn: the turn of the origin that it branches at.
        player: the episode, once played.
        start: of the sub-environment; of the task before it is played.
    """

    group: int
    tree: int
    member: int
    origin: "_Path | None" = None
    turn: int = 0
    player: Player | None = None
    start: EpisodeStart | None = None

    @property
    def finished(self) -> Player:
        assert self.player is not None
        return self.player

    @property
    def node(self) -> "tuple[_Path | None, int]":
        """Return its starting point as (path, turn); the start of the task is (None, 0)."""
        return (self.origin, self.turn) if self.turn else (None, 0)

    def spec(self, seeds: Sequence[tuple[int, ...]]) -> EpisodeSpec:
        """Return its starting point and seeds.

        Args:
            seeds: of the groups.
        """
        start = (self.origin or self).start
        assert start is not None
        seed = (*seeds[self.group], self.member)
        origin = None if self.origin is None else self.origin.finished
        return EpisodeSpec(self.group, start, self.member, seed, origin, self.turn)


class _Forest:
    """The trees of all groups.

    Args:
        play_part: plays episodes, by sub-environment.
        num_envs: how many episodes are played at a time.
        seeds: of the groups.

    Attributes:
        groups: the paths of each group without a failed episode.
        failed: the attempts whose environment failed.
        dropped: the players of the other groups.
    """

    def __init__(
        self,
        play_part: Callable[[dict[int, EpisodeSpec]], PlayedEpisodes],
        num_envs: int,
        seeds: Sequence[tuple[int, ...]],
    ):
        self._play_part, self._num_envs, self._seeds = play_part, num_envs, seeds
        self.groups: dict[int, list[_Path]] = {}
        self.failed: list[FailedEpisode] = []
        self.dropped: list[Player] = []

    def grow(self, new_paths: Iterable[_Path]) -> None:
        """Play new paths to their end and add them to their groups."""
        new = list(new_paths)
        # Any sub-environment can play any path: a path's seed does not depend on its row.
        for first in range(0, len(new), self._num_envs):
            batch = dict(enumerate(new[first : first + self._num_envs]))
            result = self._play_part({row: path.spec(self._seeds) for row, path in batch.items()})
            self.failed += result.failed
            for row, player in result.players.items():
                batch[row].player, batch[row].start = player, result.starts[row]
        for path in new:
            self.groups.setdefault(path.group, []).append(path)
        for group in sorted(failed_groups_of(self.failed) & self.groups.keys()):
            self.dropped += [path.player for path in self.groups.pop(group) if path.player]


def collect_tree(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    *,
    task_ids: Sequence[str],
    seeds: Sequence[tuple[int, ...]],
    trees: int,
    nodes: int,
    rounds: int,
    leaves: int,
    branch_at: str = "uniform",
    level: int | None = None,
    invalid_action_penalty: float = 0.0,
    team: Team | None = None,
    record: Sequence[str] = (),
    max_retries: int = 0,
) -> Rollout:
    """Collect groups of tree leaves by Tree-GRPO (arXiv 2509.21240; code: AMAP-ML/Tree-GRPO).

    1. Play `trees` chains of every task from its start.
    2. `rounds` times, draw `nodes` branch points of each tree with replacement, and play each to the end.
    3. Draw `leaves` of each tree's ends. A group has trees * leaves episodes.

    The published setting is trees=2, nodes=2, rounds=1, leaves=3. With rounds=0 the episodes are the independent ones
    of `collect`. The extras are those of `collect` and:

    - `tree`: the tree in the group;
    - `branch`: the snapshot in the group that the episode continues, 0 for the start;
    - `response`: equal for the copies of a response in the group.

    Paths use all sub-environments, whatever the size of their groups. Other arguments are those of `collect`.

    Args:
        seeds: for each group (stream, ...), the seed of everything random in its episodes. Branch points are drawn
            with the stream `TREE` in place of the first number.
        branch_at: `uniform` draws all turns alike. `entropy` weighs them by the sampled entropy of the response.
            `lone` draws turns whose context at `level` is unique in the group, if there are any.
        level: of `lone`; None is the deepest.

    Raises:
        ValueError: more leaves than ends, a number below its minimum, an unknown `branch_at`, or no such level.
    """
    check_shape(trees, nodes, rounds, leaves, branch_at)
    check_level(level, env.history_length)
    level = env.history_length if level is None else level
    play_part = partial(play, env, policy, sampling, team=team or Solo(), record=record, max_retries=max_retries)
    forest = _Forest(play_part, env.unwrapped.num_envs, seeds)
    starts = [(task_id, group_seed(seed)) for task_id, seed in zip(task_ids, seeds, strict=True)]
    forest.grow(
        _Path(group, tree, tree, start=EpisodeStart(*start, tree))
        for group, start in enumerate(starts)
        for tree in range(trees)
    )
    for round in range(rounds):
        forest.grow(
            path
            for group, paths in forest.groups.items()
            for path in _branches(paths, nodes, branch_at, level, _generator(seeds[group], round))
        )
    leaf_paths = [
        path
        for group, paths in forest.groups.items()
        for path in _draw_leaves(paths, trees, leaves, _generator(seeds[group], rounds))
    ]
    all_paths = [path for paths in forest.groups.values() for path in paths]
    extras, trained, left_out = _tree_columns(leaf_paths, all_paths)
    return rollout_of(
        [path.finished for path in leaf_paths],
        env,
        trees * leaves,
        invalid_action_penalty,
        record,
        extras=extras,
        trained=trained if rounds else None,
        chains=[path.finished.outcome for path in all_paths if path.origin is None] if rounds else None,
        left_out=left_out,
        failed=forest.failed,
        dropped=forest.dropped,
    )


def check_shape(trees: int, nodes: int, rounds: int, leaves: int, branch_at: str) -> None:
    """Check the numbers of `collect_tree`. Raises ValueError as it does."""
    for name, value, least in (("trees", trees, 1), ("nodes", nodes, 1), ("rounds", rounds, 0), ("leaves", leaves, 1)):
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}.")
    if leaves > 1 + nodes * rounds:
        raise ValueError(
            f"leaves={leaves}: a tree has 1 + nodes * rounds = {1 + nodes * rounds} ends. Set fewer leaves, or more "
            "nodes or rounds."
        )
    if branch_at not in BRANCH_AT:
        raise ValueError(unknown_name("branch_at", branch_at, BRANCH_AT))


def check_level(level: int | None, history_length: int) -> None:
    """Raise ValueError if context keys of this history length have no such level."""
    if level is not None and not 0 <= level <= history_length:
        raise ValueError(f"level={level}: the context keys have levels 0 to {history_length}.")


def _branches(
    paths: Sequence[_Path], nodes: int, branch_at: str, level: int, generator: np.random.Generator
) -> list[_Path]:
    """Draw the new paths of a group."""
    moments = [
        # A branch repeats its origin's turns up to its own: those are candidates of the origin already.
        (path, turn)
        for path in paths
        for turn in range(path.turn + (path.origin is not None), path.finished.turn)
    ]
    weights = _weights(moments, branch_at, level)
    new: list[_Path] = []
    for tree in range(1 + max(path.tree for path in paths)):
        in_tree = [index for index, (path, _) in enumerate(moments) if path.tree == tree]
        total = weights[in_tree].sum()
        # All weights 0, such as no unique context: draw uniformly.
        share = weights[in_tree] / total if total > 0 else None
        for index in generator.choice(in_tree, nodes, p=share):
            path, turn = moments[index]
            new.append(_Path(path.group, tree, len(paths) + len(new), path, turn))
    return new


def _weights(moments: Sequence[tuple[_Path, int]], branch_at: str, level: int) -> np.ndarray:
    """Return float64[moments]: unnormalised probabilities of the branch points."""
    if branch_at == "entropy":
        return np.array([path.finished.sampled_entropy(turn) for path, turn in moments])
    if branch_at == "lone":
        keys = np.array([path.finished.keys_of_turn[turn][level] for path, turn in moments])
        _, same, count = np.unique(keys, return_inverse=True, return_counts=True)
        return ((count[same] == 1) & (keys != 0)).astype(np.float64)
    return np.ones(len(moments))


def _draw_leaves(paths: Sequence[_Path], trees: int, leaves: int, generator: np.random.Generator) -> list[_Path]:
    drawn = []
    for tree in range(trees):
        tree_paths = [path for path in paths if path.tree == tree]
        drawn += [tree_paths[index] for index in np.sort(generator.choice(len(tree_paths), leaves, replace=False))]
    return drawn


def _tree_columns(drawn: Sequence[_Path], paths: Sequence[_Path]) -> tuple[dict[str, np.ndarray], np.ndarray, LeftOut]:
    """Return the columns of the drawn paths, which of their rows are trained, and the counts of all other paths."""
    rows = rows_in_order([path.finished for path in drawn])
    trajectory = np.array([index for _, index in rows], dtype=np.int64)
    response_ids: dict[int, int] = {}
    response = np.array([response_ids.setdefault(id(row), len(response_ids)) for row, _ in rows], dtype=np.int64)
    trained = np.zeros(len(rows), dtype=np.bool_)
    # Branches share row objects, so identity marks copies; the first copy is trained.
    trained[np.unique(response, return_index=True)[1]] = True
    branches: dict[tuple[_Path | None, int], int] = {(None, 0): 0}
    branch = np.array([branches.setdefault(path.node, len(branches)) for path in drawn], dtype=np.int64)
    extras = {
        "tree": np.array([path.tree for path in drawn], dtype=np.int64)[trajectory],
        "branch": branch[trajectory],
        "response": response,
    }
    all_rows = {id(row): row for path in paths for row in path.finished.rows}
    other_rows = [row for number, row in all_rows.items() if number not in response_ids]
    left_out = LeftOut(
        steps=sum(row.last_of_turn for row in other_rows),
        episodes=len(paths) - len(drawn),
        tokens=response_tokens(row.tokens for row in other_rows),
    )
    return extras, trained, left_out


def _generator(seed: tuple[int, ...], round: int) -> np.random.Generator:
    return np.random.default_rng((RandomStream.TREE, *seed[1:], round))
