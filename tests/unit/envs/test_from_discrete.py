"""Environments with numbered actions, in words: FrozenLake, Taxi, and what cannot be put in words."""

import copy
import threading
from collections import deque

import gymnasium
import pytest
from gymnasium.utils import EzPickle

from hgpo_gym.envs import DiscreteTask, TextFromDiscrete, TextVectorEnv, check_text_env
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.toy_text import TAXI_ACTIONS, FrozenLakeText, TaxiText, describe_lake

LAKE = "hgpo_gym/FrozenLake-v0"


def lake(**changes):
    options = {
        "actions": ("left", "down", "right", "up"),
        "describe": describe_lake,
        "task": "Cross the ice.",
        "tasks": {"small": DiscreteTask({"desc": ["SF", "HG"], "is_slippery": False})},
    }
    return TextFromDiscrete("FrozenLake-v1", **{**options, **changes})


def test_the_lake_in_words():
    env = lake()
    observation, info = env.reset(seed=0)
    assert observation == (
        "You are in row 1, column 1 of 2 by 2: left the shore, down a hole, right ice, up the shore."
    )
    assert (info["task_id"], info["task"]) == ("small", "Cross the ice.")
    assert info["admissible_actions"] == ("left", "down", "right", "up")
    observation, *_, info = env.step("jump")
    assert observation.startswith("That is not possible here. You are in row 1, column 1")
    assert not info["action_valid"]
    assert env.step("right")[0].startswith("You are in row 1, column 2 of 2 by 2")
    observation, reward, terminated, _, info = env.step("down")
    assert (observation, reward, terminated, info["won"]) == ("You have reached the goal.", 1.0, True, True)
    assert info["admissible_actions"] == ()
    env.reset()
    observation, reward, terminated, _, info = env.step("down")
    assert (observation, reward, terminated, info["won"]) == ("You have fallen into a hole.", 0.0, True, False)


def test_every_map_of_the_lake_is_a_task():
    env = FrozenLakeText(split="all")
    for task_id in env.task_ids[:3]:
        env.reset(options={"task_id": task_id})
        rows = env._env.unwrapped.desc.astype(str)
        assert "/".join("".join(row) for row in rows) == task_id
    train, test = (FrozenLakeText(split=split).task_ids for split in ("train", "test"))
    assert set(train) | set(test) == set(env.task_ids)
    assert not set(train) & set(test)
    assert len(train) > len(test) > 20


def test_chance_on_slippery_ice_differs_by_member_and_seed():
    walks = []
    for _ in range(2):
        env = TextVectorEnv(LAKE, num_tasks=1, group_size=6, slippery=True)
        env.reset(seed=4)
        walks.append([env.step(["right"] * 6)[0] for _ in range(3)])
    assert walks[0] == walks[1]
    assert len(set(walks[0][2])) > 1


def shortest_way(taxi):
    """Names of actions from the taxi's present state to the end, by breadth-first search over its transitions."""
    came_from = {int(taxi.s): None}
    waiting = deque(came_from)
    while waiting:
        state = waiting.popleft()
        for number, [(_, after, reward, _)] in taxi.P[state].items():
            if reward == 20:
                names = [TAXI_ACTIONS[number]]
                while came_from[state] is not None:
                    state, number = came_from[state]
                    names.append(TAXI_ACTIONS[number])
                return names[::-1]
            if after not in came_from:
                came_from[after] = state, number
                waiting.append(after)
    raise AssertionError("no way")


def test_taxis_test_starts_are_not_seen_in_training():
    """The taxi moves within an episode; the passenger's start and goal do not change."""
    ways = [{id[id.index("The passenger") :] for id in TaxiText(split=split).task_ids} for split in ("train", "test")]
    assert [len(way) for way in ways] == [9, 3]
    assert not ways[0] & ways[1]


def test_a_taxi_that_takes_the_shortest_way_wins():
    env = TaxiText(split="test")
    for task_id in env.task_ids[::20]:
        observation, info = env.reset(options={"task_id": task_id})
        assert observation == task_id
        rewards = []
        for action in shortest_way(env._env.unwrapped):
            assert not info["won"]
            assert action in info["admissible_actions"]
            observation, reward, terminated, _, info = env.step(action)
            rewards.append(reward)
        assert rewards == [-1.0] * (len(rewards) - 1) + [20.0]
        assert terminated
        assert info["won"]


def test_masked_actions_are_not_admissible_and_change_nothing():
    env = TaxiText(split="all", starts=5)
    before, info = env.reset(seed=0)
    refused = set(TAXI_ACTIONS) - set(info["admissible_actions"])
    assert "drop off" in refused
    observation, reward, *_, info = env.step("drop off")
    assert (observation, reward, info["action_valid"]) == (f"That is not possible here. {before}", 0.0, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": ("left", "right")}, r"actions=\['left', 'right'\]: give 4 different names, one for each action"),
        ({"actions": ("a", "b", "c", "c")}, "give 4 different names"),
        ({"tasks": {}}, "tasks is empty"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        lake(**changes)


def test_actions_that_have_no_numbers_are_refused():
    with pytest.raises(ValueError, match=r"not Discrete: nothing to give names to"):
        TextFromDiscrete(
            lambda: gymnasium.make("Pendulum-v1", max_episode_steps=-1),
            actions=(),
            describe=str,
            task="Swing.",
            tasks={"up": DiscreteTask()},
        )
    with pytest.raises(ValueError, match=r"Unknown split 'tset'. Did you mean 'test'\?"):
        make(LAKE, split="tset")


def test_an_environment_with_an_added_step_limit_is_refused():
    def cliff():
        return gymnasium.wrappers.OrderEnforcing(gymnasium.make("CliffWalking-v1", max_episode_steps=5))

    with pytest.raises(ValueError, match=r"has its own step limit.*max_episode_steps=-1, and give the limit to reg"):
        TextFromDiscrete(
            cliff, actions="nesw", describe=lambda place, _env: str(place), task="Walk.", tasks={"a": DiscreteTask()}
        )


class Counted(gymnasium.Env):
    """Ends by a limit that no wrapper shows, and is won by the action 1 at the last step."""

    action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        last = self.steps == 3
        return self.steps, float(last and action), bool(last and action), last, {}


def test_an_environment_that_ends_itself_by_a_step_limit_is_refused_there():
    env = TextFromDiscrete(
        Counted, actions=("wait", "win"), describe=lambda seen, _env: str(seen), task="W.", tasks={"a": DiscreteTask()}
    )
    for action, ends in (("win", True), ("wait", False)):
        env.reset(seed=0)
        for _ in range(2):
            assert not env.step("wait")[2]
        if ends:  # by what was done, whatever the limit says
            _, reward, terminated, truncated, info = env.step(action)
            assert (reward, terminated, truncated, info["won"]) == (1.0, True, False, True)
    with pytest.raises(
        ValueError, match=r"has cut the episode off .* give the limit to register\(\.\.\.\), as max_epis"
    ):
        env.step("wait")


def test_an_environment_that_cannot_be_copied_says_so():
    class Locked(gymnasium.envs.toy_text.FrozenLakeEnv):
        def __init__(self, **options):
            super().__init__(**options)
            self.lock = threading.Lock()

    class Remade(gymnasium.envs.toy_text.FrozenLakeEnv, EzPickle):
        """Its copies are made anew: they are not where it stands."""

        def __init__(self, **options):
            super().__init__(**options)
            EzPickle.__init__(self, **options)

    for kind in (Locked, Remade):
        env = TextFromDiscrete(
            kind, actions="ldru", describe=describe_lake, task="Cross the ice.", tasks={"any": DiscreteTask()}
        )
        env.reset(seed=0)
        assert not env.can_snapshot
        with pytest.raises(NotImplementedError, match="cannot be copied, so there are no snapshots of it"):
            env.snapshot()
        with pytest.raises(TypeError, match="cannot be copied: make another one, and play the same actions"):
            copy.deepcopy(env)
        check_text_env(env)
