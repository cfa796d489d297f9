"""memory=conversation: what a policy is asked, in episodes, teams, branches and imitation."""

from itertools import pairwise

import numpy as np
import pytest

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper, PromptTemplate, make_memory
from hgpo_gym.policies import ExpertPolicy, RandomPolicy, Sampling
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts import transcripts
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.metrics import response_metrics
from hgpo_gym.rollouts.teams import make_team
from hgpo_gym.rollouts.trees import collect_tree
from hgpo_gym.trainers.update.conversations import continues
from tests.support.small_models import make_policy


def maze(memory="conversation", group_size=2, **options):
    options = {"sections": 1, "max_episode_steps": 6, "split": "all", **options}
    return ContextWrapper(TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, group_size, **options), "bare", memory=memory)


def played(env, policy, team="solo", **options):
    tasks = env.unwrapped.task_ids[:2]
    return collect(
        env, policy, Sampling(), task_ids=tasks, seeds=[(1, n) for n in range(2)], team=make_team(Choice(team, options))
    )


def episodes(rollout, role=0):
    """Rows of each episode and role, in order."""
    batch = rollout.batch
    agent = batch.extras.get("agent", np.zeros(len(batch)))
    return [
        [row for row in batch.in_order if batch.trajectory[row] == episode and agent[row] == role]
        for episode in range(len(rollout.episodes))
    ]


@pytest.fixture(scope="module")
def policy():
    return make_policy()


def test_an_episode_is_one_conversation_whose_first_message_has_the_task(policy):
    rollout = played(maze(), policy)
    assert max(map(len, episodes(rollout))) > 2
    for rows in episodes(rollout):
        records = [rollout.tokens[row] for row in rows]
        assert all(continues(later, record) for record, later in pairwise(records))
        text = policy._decode(records[-1].prompt_ids.tolist())
        assert text.startswith(rollout.steps[rows[0]].prompt)
        assert [rollout.steps[row].task in rollout.steps[row].prompt for row in rows] == [True] + [False] * (
            len(rows) - 1
        )
    assert response_metrics(rollout)["prompt_cached_share"] > 0.3
    assert response_metrics(played(maze("window"), policy))["prompt_cached_share"] == 0


def test_keys_are_those_of_other_forms(policy):
    """Of the same actions: they are drawn by the same seeds, among the same choices."""
    conversation, window = (played(maze(memory), RandomPolicy()) for memory in ("conversation", "window"))
    np.testing.assert_array_equal(conversation.batch.context_keys, window.batch.context_keys)


def test_each_role_of_a_team_has_its_own_conversation(policy):
    rollout = played(maze(), policy, "planner_actor", plans=["red", "blue"], every=2)
    seen = 0
    for role in (0, 1):
        for rows in episodes(rollout, role):
            records = [rollout.tokens[row] for row in rows]
            assert all(continues(later, record) for record, later in pairwise(records))
            assert rollout.steps[rows[0]].task in rollout.steps[rows[0]].prompt
            seen += len(rows)
    assert seen == len(rollout.batch)


def test_branches_go_on_with_the_conversation_that_they_share(policy):
    env = maze(group_size=8)
    rollout = collect_tree(
        env,
        policy,
        Sampling(),
        task_ids=env.unwrapped.task_ids[:2],
        seeds=[(2, group) for group in range(2)],
        invalid_action_penalty=0.0,
        trees=2,
        nodes=2,
        rounds=1,
        leaves=3,
    )
    for rows in episodes(rollout):
        records = [rollout.tokens[row] for row in rows]
        assert all(continues(later, record) for record, later in pairwise(records))


def test_imitation_reads_the_conversation_that_the_policy_would_be_asked_in(policy):
    env = maze(expert=True)
    rollout = played(env, ExpertPolicy(0.0))
    (first, *_) = transcripts.from_rollout(rollout)
    steps = list(first.requests(make_memory("conversation"), PromptTemplate.named("bare")))
    records = policy.records(*zip(*steps, strict=True))
    assert len(records) > 2
    assert all(continues(later, record) for record, later in pairwise(records))
    asked = steps[-1][0].messages
    assert [message["content"] for message in asked[1::2]] == [response for _, response in steps[:-1]]
