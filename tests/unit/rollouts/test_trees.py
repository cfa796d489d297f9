"""Episodes that branch: what is shared, what is learned once, and where nothing branches, independent episodes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, assign, estimate
from hgpo_gym.advantages.process import Chain
from hgpo_gym.advantages.statistics import discounted_returns, mean_over_copies
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper, Memory
from hgpo_gym.policies import RandomPolicy, Sampling
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.rollout import merge, take_episodes
from hgpo_gym.rollouts.rounds import collect_rounds
from hgpo_gym.rollouts.samplers import make_sampler
from hgpo_gym.rollouts.selection import select_steps
from hgpo_gym.rollouts.teams.base import Solo
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from hgpo_gym.rollouts.trees import _Path, _weights, collect_tree
from tests.support.envs import dice
from tests.support.small_models import make_policy

SHAPE = {"trees": 2, "nodes": 2, "rounds": 2, "leaves": 4}


def maze(num_tasks=2, group_size=8, **options):
    options = {"sections": 1, "max_episode_steps": 8, "split": "all", **options}
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, **options)
    return ContextWrapper(vector, "bare", window=2, history_length=2)


def plant(env, policy=None, groups=2, **options):
    return collect_tree(
        env,
        policy or RandomPolicy(),
        Sampling(),
        task_ids=env.unwrapped.task_ids[:groups],
        seeds=[(2, 5, 0, group) for group in range(groups)],
        invalid_action_penalty=0.5,
        **{**SHAPE, **options},
    )


def columns(batch):
    return dict(batch._columns())


@pytest.mark.parametrize("make", [dice, maze])
@pytest.mark.parametrize("policy", [RandomPolicy, make_policy])
def test_without_rounds_a_tree_is_independent_episodes_byte_for_byte(make, policy):
    env = make(2, 4)
    tree = plant(env, policy(), trees=4, rounds=0, leaves=1)
    alone = collect(
        make(2, 4),
        policy(),
        Sampling(),
        task_ids=env.unwrapped.task_ids[:2],
        seeds=[(2, 5, 0, group) for group in range(2)],
        invalid_action_penalty=0.5,
    )
    for name, values in columns(alone.batch).items():
        assert columns(tree.batch)[name].tobytes() == values.tobytes()
        assert columns(tree.batch)[name].dtype == values.dtype
    assert columns(tree.batch).keys() - columns(alone.batch).keys() == {"tree", "branch", "response"}
    assert (tree.steps, tree.episodes) == (alone.steps, alone.episodes)
    assert (tree.steps_left_out, tree.episodes_left_out, tree.chains) == (0, 0, None)
    for one, other in zip(tree.tokens, alone.tokens, strict=True):
        assert (one is None) == (other is None)
        assert one is None or one.token_ids.tobytes() == other.token_ids.tobytes()


@pytest.fixture(scope="module")
def grown():
    return plant(dice())


def paths_of(rollout):
    """The rows of each episode, in order."""
    batch = rollout.batch
    return [batch.in_order[batch.trajectory[batch.in_order] == trajectory] for trajectory in range(16)]


def test_episodes_of_a_tree_share_what_came_before_their_branch_and_no_more(grown):
    response, tree = grown.batch.extras["response"], grown.batch.extras["tree"]
    paths = paths_of(grown)
    assert len(grown.episodes) == 2 * 2 * 4
    shared = 0
    for one in range(16):
        assert set(tree[paths[one]]) == {one // 4 % 2}
        for other in range(one):
            same = [a == b for a, b in zip(response[paths[one]], response[paths[other]], strict=True)]
            assert same == sorted(same, reverse=True)  # once apart, apart for good
            shared += sum(same)
            if one // 4 != other // 4:
                assert not any(same)
            for row, duplicate, copy in zip(paths[one], paths[other], same, strict=True):
                if copy:
                    assert grown.steps[row] == grown.steps[duplicate]
                    np.testing.assert_array_equal(grown.batch.context_keys[row], grown.batch.context_keys[duplicate])
    assert shared > 0


def test_what_a_branch_sees_on_its_way_is_what_was_seen_first(grown):
    """Chance is the first member's up to the branch and another's after it."""
    seen = {}
    for rows in paths_of(grown):
        for row, following in pairwise(rows):
            key = (grown.batch.group[row], grown.batch.extras["response"][row])
            seen.setdefault(key, []).append((following, grown.steps[following].observation))
    shared = [texts for texts in seen.values() if len(texts) > 1]
    assert shared
    response = grown.batch.extras["response"]
    went_on = [len({text for _, text in texts}) for texts in shared if len({response[row] for row, _ in texts}) == 1]
    assert set(went_on) <= {1}
    returns = np.array([episode.episode_return for episode in grown.episodes])
    assert len(set(returns)) > 3


@pytest.mark.parametrize("key", ["observation", "observation+action"])
def test_replayed_prompts_and_keys_are_those_of_the_first_visit(key):
    """Every prompt and key of a leaf, from playing its actions with a new memory."""
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, 8, sections=1, max_episode_steps=8, split="all")
    env = ContextWrapper(vector, "bare", window=1, history_length=2, key=key)
    rollout = plant(env, make_policy())
    single = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, sections=1, max_episode_steps=8, split="all")
    again = ContextWrapper(single, "bare", window=1, history_length=2, key=key)
    policy = make_policy()
    for index, rows in enumerate(paths_of(rollout)):
        prompts, infos = again.reset(options={"task_ids": [rollout.episodes[index].task_id], "group_seeds": [0]})
        for row in rows:
            np.testing.assert_array_equal(rollout.tokens[row].prompt_ids, policy.encode_prompts(prompts)[0])
            np.testing.assert_array_equal(rollout.batch.context_keys[row], infos["context_keys"][0])
            prompts, rewards, _, _, infos = again.step([rollout.steps[row].action])
            assert rollout.batch.reward[row] == rewards[0]
        np.testing.assert_array_equal(rollout.batch.final_keys[rows[0]], infos["context_keys"][0])


def test_every_response_is_learned_from_once_with_the_mean_of_its_copies(grown):
    batch = grown.batch
    identity = list(zip(batch.group.tolist(), batch.extras["response"].tolist(), strict=True))
    learned = [response for response, trained in zip(identity, batch.trained, strict=True) if trained]
    assert len(learned) == len(set(learned)) == len(set(identity)) == batch.trained.sum() < len(batch)
    rows = select_steps(batch, np.ones(len(batch)), make_sampler(Choice("in_order"), ["a"], 0), 0, 0.0)
    np.testing.assert_array_equal(rows, batch.trained)
    advantages = estimate("grpo", batch)
    shared = mean_over_copies(batch, advantages)
    for response in set(identity):
        copies = [row for row, other in enumerate(identity) if other == response]
        np.testing.assert_allclose(shared[copies], advantages[copies].mean())
    signs = np.zeros(len(batch))
    for response in set(identity):
        copies = [row for row, other in enumerate(identity) if other == response]
        signs[copies] = np.resize([0.1, -0.3, 0.2], len(copies))
        thrice = [row for row in copies if len(copies) == 3]
        assert not mean_over_copies(batch, np.where(np.isin(np.arange(len(batch)), thrice), signs, 1.0))[thrice].any()
    plain = replace(batch, extras={}, trained=None)
    assert mean_over_copies(plain, advantages) is advantages


def test_steps_that_no_leaf_holds_count_as_played(grown):
    everything = plant(dice(), leaves=5)
    batch = everything.batch
    assert (everything.steps_left_out, everything.episodes_left_out) == (0, 0)
    assert everything.played_steps == batch.trained.sum() == grown.played_steps
    assert everything.played_episodes == grown.played_episodes == 2 * 2 * 5
    assert grown.episodes_left_out == 4
    assert grown.steps_left_out == everything.played_steps - grown.batch.trained.sum() > 0
    assert grown.chains == everything.chains
    alone = collect(
        dice(2, 2), RandomPolicy(), Sampling(), task_ids=["one", "two"], seeds=[(2, 5, 0, 0), (2, 5, 0, 1)],
    )  # fmt: skip
    assert grown.chains == alone.episodes


@pytest.mark.parametrize("variant", [{"workers": 2}, {"num_tasks": 1, "group_size": 3}])
def test_a_tree_depends_on_its_seeds_alone(grown, variant):
    """In worker processes, or with fewer sub-environments than paths, which then take turns."""
    env = dice(**variant)
    other = plant(env)
    for name, values in columns(grown.batch).items():
        np.testing.assert_array_equal(columns(other.batch)[name], values)
    assert other.episodes == grown.episodes
    env.close()


def test_groups_collected_apart_are_those_collected_together(grown):
    env = dice()
    parts = [
        collect_tree(
            env, RandomPolicy(), Sampling(), task_ids=[task], seeds=[(2, 5, 0, group)], invalid_action_penalty=0.5,
            **SHAPE,
        )
        for group, task in enumerate(["one", "two"])
    ]  # fmt: skip
    nothing = plant(env, groups=0)
    merged = merge([parts[0], nothing, parts[1]])
    for name, values in columns(grown.batch).items():
        if name not in ("response", "branch"):  # numbered within the group
            np.testing.assert_array_equal(columns(merged.batch)[name], values)
    advantages = estimate("gigpo", grown.batch)
    np.testing.assert_allclose(mean_over_copies(merged.batch, advantages), mean_over_copies(grown.batch, advantages))
    assert merged.chains == grown.chains
    assert merged.steps_left_out == grown.steps_left_out


def once_by_hand(batch, values, keys):
    """For every row: the value of its step (the mean of its copies), and those of all distinct steps of its set."""
    copies: dict[tuple, list[int]] = {}
    for row in range(len(batch)):
        copies.setdefault((batch.group[row], batch.extras["response"][row]), []).append(row)
    steps = [(rows, np.mean(values[rows])) for rows in copies.values()]
    sets: dict[tuple, list[float]] = {}
    for rows, value in steps:
        sets.setdefault((batch.group[rows[0]], keys[rows[0]]), []).append(value)
    return [
        (value, sets[batch.group[row], keys[row]]) for row, value in sorted((r, v) for rows, v in steps for r in rows)
    ]


@pytest.mark.parametrize("make", [dice, maze])
def test_step_groups_count_a_shared_step_once_with_the_mean_of_its_leaves(make):
    batch = plant(make()).batch
    assert batch.shared is not None
    returns = discounted_returns(batch, 0.95)
    expected, weights = np.zeros(len(batch)), np.zeros(len(batch))
    for level in range(3):
        for row, (value, compared) in enumerate(once_by_hand(batch, returns, batch.context_keys[:, level])):
            if batch.context_keys[row, level] and np.ptp(compared) > 1e-9:
                expected[row] += (level + 1) * (value - np.mean(compared))
                weights[row] += level + 1
        if level == 0:
            gigpo = estimate("gigpo", batch, norm="mean_norm") - estimate("grpo", batch, norm="mean_norm")
            np.testing.assert_allclose(gigpo, expected, atol=1e-9)
    hgpo = estimate("hgpo", batch, norm="mean_norm")
    np.testing.assert_allclose(hgpo, expected / (weights + 1e-6), atol=1e-9)
    sizes = [
        len(compared)
        for row, (_, compared) in enumerate(once_by_hand(batch, returns, batch.context_keys[:, 0]))
        if batch.trained[row]
    ]
    expected_sizes = np.bincount(np.searchsorted([1, 2, 4, 8], sizes), minlength=5)
    assert batch.group_sizes()[0] == expected_sizes.tolist()
    assert sum(batch.group_sizes()[0]) == batch.trained.sum() < len(batch)


@pytest.mark.parametrize("name", ["gae", "reinforce_pp", "reinforce_pp_baseline", "empg"])
def test_whitening_and_centring_count_a_shared_step_once(grown, name):
    response = grown.batch.extras["response"]
    columns = {"value": grown.batch.step / 10.0, "entropy": np.random.default_rng(0).random(len(response))[response]}
    batch = replace(grown.batch, extras={**grown.batch.extras, **columns})
    assert batch.shared is not None
    values = mean_over_copies(batch, assign(name, batch).values + (batch.penalty if name == "gae" else 0))
    assert np.mean(values[batch.distinct]) == pytest.approx(0, abs=1e-9)
    assert abs(np.mean(values)) > 1e-3  # the copies' weight
    if name != "empg":  # which only centres
        assert np.var(values[batch.distinct], ddof=1) == pytest.approx(1, abs=1e-6)


def test_a_shared_step_is_learned_from_once_whichever_of_its_episodes_are_kept(grown):
    saved = np.arange(len(grown.episodes)) % 8 >= 5  # none of the first ones, whose copies are trained
    some = take_episodes(grown, saved).batch
    steps = {(group, response) for group, response in zip(some.group, some.extras["response"], strict=True)}
    assert some.trained.sum() == len(steps)
    assert len(grown.batch.take(saved[grown.batch.trajectory]).trained.nonzero()[0]) < len(steps)


def test_the_chain_of_a_task_counts_a_shared_step_once():
    """Two leaves share the step that leads from `start` to `fork`; a third episode goes from `start` to its loss."""
    batch = StepBatch.from_records(
        group=[0] * 5,
        trajectory=[0, 0, 1, 1, 2],
        step=[0, 1, 0, 1, 0],
        observation=["start", "fork", "start", "fork", "start"],
        reward=[0, 1.0, 0, 1.0, 0],
        action=["on", "left", "on", "right", "stay"],
        success=[True, True, True, True, False],
        final_observation=["end"] * 5,
        history_length=0,
        response=[0, 1, 0, 2, 3],
    )
    assert batch.visits(batch.key_groups(0)).tolist() == [2, 2, 2, 2, 2]
    chain = Chain.of(batch, 0)
    assert chain.values(1.0)[chain.state].tolist() == [0.5, 1.0, 0.5, 1.0, 0.5]
    apart = replace(batch, extras={})
    assert Chain.of(apart, 0).values(1.0)[chain.state[0]] == pytest.approx(2 / 3)
    graft = estimate("graft", batch, gamma=1.0)
    assert graft[0] == graft[2] == -graft[4] > 0


def test_siblings_continue_one_moment(grown):
    branch, response = grown.batch.extras["branch"], grown.batch.extras["response"]
    paths = paths_of(grown)
    found = 0
    for one in range(16):
        for other in range(one):
            if one // 8 == other // 8 and branch[paths[one][0]] == branch[paths[other][0]] != 0:
                found += 1
                assert response[paths[one][0]] == response[paths[other][0]]
    assert found > 0
    assert (branch == 0).any()


def test_a_team_goes_on_from_the_plan_that_it_had():
    team = PlannerActor(every=3, plans=("red", "blue"))
    rollout = plant(maze(), make_policy(), team=team, leaves=3)
    batch = rollout.batch
    turns, agents = batch.extras["turn"], batch.extras["agent"]
    for trajectory in range(12):
        rows = batch.in_order[batch.trajectory[batch.in_order] == trajectory]
        length = rollout.episodes[trajectory].steps
        expected = [(turn, agent) for turn in range(length) for agent in ((0, 1) if turn % 3 == 0 else (1,))]
        assert list(zip(turns[rows].tolist(), agents[rows].tolist(), strict=True)) == expected
    assert batch.trained.sum() < len(batch)


def player(keys, sampled_entropy):
    """A real player that was led through these contexts."""
    shown = {"observation": "", "admissible_actions": (), "task": "", "context": Memory().observe("")}
    info = {"context_keys": np.array(keys[0]), **shown}
    made = Player((0,), "", info, Solo())
    made.keys_of_turn = [np.array(of_turn) for of_turn in keys]
    made.sampled_entropy = lambda turn: sampled_entropy[turn]
    return made


def test_branches_are_where_the_policy_was_surprised_or_alone():
    one = _Path(0, 0, 0, player=player([[1, 0], [2, 8], [3, 7]], [0.0, 2.0, 1.0]))
    other = _Path(0, 1, 1, player=player([[1, 0], [2, 9], [3, 7]], [0.5, 0.0, 0.0]))
    moments = [(path, turn) for path in (one, other) for turn in range(3)]
    assert _weights(moments, "uniform", 1).tolist() == [1.0] * 6
    assert _weights(moments, "entropy", 1).tolist() == [0.0, 2.0, 1.0, 0.5, 0.0, 0.0]
    assert _weights(moments, "lone", 1).tolist() == [0, 1, 0, 0, 1, 0]
    assert _weights(moments, "lone", 0).tolist() == [0.0] * 6


@pytest.mark.parametrize("branch_at", ["entropy", "lone"])
def test_other_ways_to_choose_branch_elsewhere(branch_at):
    uniform, other = (plant(maze(), make_policy(), branch_at=way) for way in ("uniform", branch_at))
    assert other.chains == uniform.chains
    assert not np.array_equal(other.batch.trained, uniform.batch.trained)


def test_entropy_needs_a_policy_that_tells_of_its_tokens():
    with pytest.raises(ValueError, match="branch_at=entropy: this policy reports no tokens"):
        plant(dice(), branch_at="entropy")


def test_the_sampler_collects_trees_and_round_0_counts_chains():
    env = maze(3)
    sampler = make_sampler(Choice("tree", SHAPE), env.unwrapped.task_ids, 1)

    def play(tasks, seeds):
        return sampler.collector.collect(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds)

    found = collect_rounds(
        play, sampler, iteration=0, num_tasks=3, outcomes=(), assign=lambda rollout: estimate("grpo", rollout.batch)
    )
    assert found.rounds == 1
    assert len(found.rollout.episodes) == 3 * 8
    assert len(found.first_round) == 3 * 2
    assert found.episodes == 3 * 2 * 5
    plain = make_sampler(Choice("in_order"), env.unwrapped.task_ids, 1)
    alone = maze(3, 2)

    def play_alone(tasks, seeds):
        return plain.collector.collect(alone, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds)

    same = collect_rounds(play_alone, plain, iteration=0, num_tasks=3, outcomes=(), assign=lambda rollout: None)
    assert found.first_round == same.rollout.episodes
    with pytest.raises(
        ValueError, match=r"rollout.group_size=2: the groups of sampler=tree .* Set rollout.group_size=8"
    ):
        sampler.collector.collect(alone, RandomPolicy(), Sampling(), task_ids=[], seeds=[])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaves": 6}, r"leaves=6: a tree has 1 \+ nodes \* rounds = 5 ends"),
        ({"rounds": -1}, "rounds=-1: must be at least 0"),
        ({"branch_at": "entropie"}, r"branch_at 'entropie'. Did you mean 'entropy'\?"),
        ({"branch_at": "lone", "level": 3}, "level=3: the context keys have levels 0 to 2"),
    ],
)
def test_wrong_trees_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plant(dice(), **options)
