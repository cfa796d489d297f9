"""Teams: a response is a row; who speaks, what is rewarded, which messages keys and prompts see."""

import json

import numpy as np
import pytest

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.memory.keys import link_text
from hgpo_gym.policies import RandomPolicy, Response, Sampling
from hgpo_gym.policies.base import CannotRespondError
from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.rollout import last_of_turn
from hgpo_gym.rollouts.teams import TEAMS, Message, Solo, Team, make_team, register_team
from hgpo_gym.rollouts.teams.actor_checker import ActorChecker
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from tests.support.small_models import make_policy

PLANS = ("red", "blue", "green")


def maze(num_tasks=2, group_size=3, **options):
    options = {"sections": 1, "max_episode_steps": 6, "split": "all", **options}
    return ContextWrapper(TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, **options), "bare", window=0)


class Noting(RandomPolicy):
    """Remembers what it was asked, by seed."""

    def __init__(self):
        self.asked = {}

    def generate(self, requests, sampling):
        self.asked |= {request.seed: request for request in requests}
        return super().generate(requests, sampling)


class ByRole:
    """Each role says what a function of its name makes of the request."""

    def __init__(self, **say):
        self.say = say

    def generate(self, requests, sampling):
        return [Response(self.say[request.role](request)) for request in requests]


def play(team, policy, env=None, penalty=0.5):
    env = env or maze()
    groups = env.unwrapped.num_tasks
    seeds = [(7, group) for group in range(groups)]
    return collect(
        env, policy, Sampling(), task_ids=env.unwrapped.task_ids[:groups], seeds=seeds, invalid_action_penalty=penalty,
        team=team,
    )  # fmt: skip


@pytest.mark.parametrize("make", [RandomPolicy, make_policy, lambda: TabularPolicy(LogitTable(64), 1)])
def test_a_team_of_one_is_no_team_byte_for_byte(make):
    alone, team = play(None, make()), play(Solo("actor"), make())
    columns = [dict(rollout.batch._columns()) for rollout in (alone, team)]
    assert columns[0].keys() == columns[1].keys()
    for name, values in columns[0].items():
        assert values.tobytes() == columns[1][name].tobytes()
        assert values.dtype == columns[1][name].dtype
    assert (alone.steps, alone.episodes) == (team.steps, team.episodes)
    for one, other in zip(alone.tokens, team.tokens, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            for name in ("prompt_ids", "token_ids", "logprobs"):
                assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


def test_a_planner_speaks_every_few_steps_and_the_actor_reads_its_plan():
    policy = Noting()
    rollout = play(PlannerActor(every=2, plans=PLANS), policy)
    batch = rollout.batch
    for trajectory in range(6):
        rows = batch.in_order[batch.trajectory[batch.in_order] == trajectory]
        agents, turns = batch.extras["agent"][rows], batch.extras["turn"][rows]
        length = rollout.episodes[trajectory].steps
        expected = [(turn, agent) for turn in range(length) for agent in ((0, 1) if turn % 2 == 0 else (1,))]
        assert list(zip(turns.tolist(), agents.tolist(), strict=True)) == expected
        np.testing.assert_array_equal(batch.step[rows], np.arange(len(rows)))
        plan = ""
        for step, row in enumerate(rows):
            request = policy.asked[(7, trajectory // 3, trajectory % 3, step)]
            response = rollout.steps[row].action
            if batch.extras["agent"][row] == 0:
                assert request.allowed_responses == PLANS
                assert request.role == "planner"
                assert request.prompt.startswith("You plan for the actor.")
                plan = response
            else:
                assert request.prompt.startswith(f'The output of "planner": {plan}\nFind the way')
                assert request.role == "actor"
                assert response in rollout.steps[row].admissible_actions
    acting = batch.extras["agent"] == 1
    np.testing.assert_array_equal(last_of_turn(batch), acting)
    assert not batch.reward[~acting].any()
    assert batch.reward[acting].sum() == sum(episode.episode_return for episode in rollout.episodes) > 0


def test_keys_of_actors_are_states_and_keys_of_others_hold_their_messages():
    rollout = play(PlannerActor(every=2, plans=PLANS), RandomPolicy())
    alone = play(None, RandomPolicy())
    by_observation = {
        (text.observation): keys[0] for text, keys in zip(alone.steps, alone.batch.context_keys, strict=True)
    }
    for text, keys, agent in zip(rollout.steps, rollout.batch.context_keys, rollout.batch.extras["agent"], strict=True):
        key = np.array([by_observation[text.observation]])
        expected = key if agent else link_text(key, json.dumps(["planner"]))
        assert keys[0] == expected[0]
    assert (rollout.batch.context_keys[rollout.batch.step == 0, 1:] == 0).all()  # no history is still no history


def test_an_episode_ends_in_the_keys_that_the_next_response_would_have():
    short, long = (
        play(PlannerActor(every=3, plans=PLANS), RandomPolicy(), maze(max_episode_steps=limit)).batch
        for limit in (6, 7)
    )
    met = 0
    for trajectory in np.unique(short.trajectory):
        row = np.flatnonzero(short.trajectory == trajectory)[0]
        following = (long.trajectory == trajectory) & (long.extras["turn"] == 6) & (long.extras["agent"] == 0)
        for keys in long.context_keys[following]:
            np.testing.assert_array_equal(short.final_keys[row], keys)
            met += 1
    assert met


def test_a_policy_without_text_reads_the_plan_from_keys():
    policy = Noting()
    play(PlannerActor(every=6, plans=PLANS), policy, maze(1, 8))
    asked = {
        (request.prompt.split("\n", 1)[0], request.context_keys[0])
        for seed, request in policy.asked.items()
        if seed[-1] == 1
    }
    assert len(asked) == len({plan for plan, _ in asked}) == len({key for _, key in asked}) > 1


def test_a_table_responds_for_every_role():
    rollout = play(PlannerActor(every=6, plans=PLANS), TabularPolicy(LogitTable(512), 0))
    assert all(record is not None for record in rollout.tokens)
    assert len(rollout.tokens) == len(rollout.batch)


def test_a_checker_lets_an_action_pass_or_sends_it_back():
    """Proposal, hint, new proposal; or proposal, yes: the reward is the last response's, the penalty the action's."""
    tries = {"actor": lambda request: "walk on" if "no: try" in request.prompt else "dance"}
    back = play(ActorChecker(), ByRole(**tries, checker=lambda request: "no: try walking"), maze(1, 1))
    assert [text.action for text in back.steps[:3]] == ["dance", "no: try walking", "walk on"]
    assert back.batch.extras["agent"][:3].tolist() == [0, 1, 0]
    assert back.batch.penalty[:3].tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_array_equal(last_of_turn(back.batch), back.batch.step % 3 == 2)
    passed = play(ActorChecker(), ByRole(**tries, checker=lambda request: "hm, fine"), maze(1, 1))
    assert [text.action for text in passed.steps[:2]] == ["dance", "hm, fine"]
    assert passed.batch.penalty.tolist() == [0.5, 0.0] * 6
    assert passed.episodes[0].valid_steps == 0
    assert passed.episodes[0].steps == 6
    unchecked = play(ActorChecker(loops=1), ByRole(**tries), maze(1, 1))
    assert unchecked.batch.extras["agent"].tolist() == [0] * 6


def test_a_proposal_that_was_sent_back_is_no_invalid_action():
    """Neither for the penalty nor for the valid steps, whatever its form; it was not played."""
    says = iter(["dance", "<think>So.</think><action>{}</action>"] * 6)
    actor = lambda request: next(says).format(request.choices[0])  # noqa: E731
    env = ContextWrapper(
        TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, 1, sections=1, max_episode_steps=6, split="all"), "instruct"
    )
    back = play(ActorChecker(), ByRole(actor=actor, checker=lambda request: "no"), env)
    (episode,) = back.episodes
    assert episode.valid_steps == episode.steps > 0
    assert back.batch.penalty.tolist() == [0.0] * len(back.steps)


def test_a_checkers_keys_do_not_tell_its_verdict():
    says = iter(["no: wait", "yes"] * 9)
    verdicts = ByRole(actor=lambda request: "walk on", checker=lambda request: next(says))
    rollout = play(ActorChecker(loops=2), verdicts, maze(1, 2))
    checks = (rollout.batch.extras["agent"] == 1) & (rollout.batch.extras["turn"] == 0)
    assert {rollout.steps[row].action for row in np.flatnonzero(checks)} == {"no: wait", "yes"}
    assert len(set(rollout.batch.context_keys[checks, 0])) == 1


@pytest.mark.parametrize(
    ("verdict", "passes"),
    [("yes", True), ("Yes.", True), ("", True), ("nothing", True), ("no", False), (" No, go back", False)],
)
def test_only_a_clear_no_sends_an_action_back(verdict, passes):
    messages = [Message("actor", "walk on"), Message("checker", verdict)]
    assert ActorChecker(loops=3).next(messages, {}) == (None if passes else "actor")


def test_listed_verdicts_and_free_speech():
    assert ActorChecker(hints=["go on", "go back"]).allowed_responses("checker", ("walk on",), ()) == (
        "yes",
        "no: go on",
        "no: go back",
    )
    assert PlannerActor().allowed_responses("planner", ("walk on",), ()) == ()
    env, policy = maze(1, 1), make_policy()
    with pytest.raises(ValueError, match=r"the role 'planner' lists none: set engine.constrain=none"):
        play(PlannerActor(), policy, env)
    free = make_policy(constrain="none")
    rollout = collect(
        maze(1, 1), free, Sampling(max_new_tokens=4), task_ids=env.unwrapped.task_ids[:1], seeds=[(0,)],
        team=PlannerActor(),
    )  # fmt: skip
    assert rollout.batch.extras["agent"][:2].tolist() == [0, 1]


class Silent(Team):
    roles = ("adviser", "actor")

    def next(self, messages, info):
        return None if messages else "adviser"

    def prompt(self, role, prompt, messages):
        return prompt


def test_a_role_that_lists_nothing_is_named_where_a_policy_chooses():
    with pytest.raises(CannotRespondError, match=r"the role 'planner' lists none: give it some, as team.plans"):
        play(PlannerActor(), TabularPolicy(LogitTable(100), 0))


def test_wrong_teams_are_refused():
    with pytest.raises(ValueError, match="the acting role 'actor' has not responded"):
        play(Silent(), ByRole(adviser=lambda request: "hm"))
    with pytest.raises(ValueError, match=r"team 'planner_acter'. Did you mean 'planner_actor'\?"):
        make_team(Choice("planner_acter"))
    with pytest.raises(ValueError, match=r"option of planner_actor 'evry'. Did you mean 'every'\?"):
        make_team(Choice("planner_actor", {"evry": 3}))
    with pytest.raises(ValueError, match="every=0: a plan has to last 1 step"):
        make_team(Choice("planner_actor", {"every": 0}))
    with pytest.raises(ValueError, match="taken by"):
        register_team("solo", Silent)
    assert make_team(None) is None
    assert {"actor_checker", "planner_actor"} <= set(TEAMS)
