"""The episode that the adapters share: what it says, and which steps it sees."""

from functools import partial

import gymnasium
import numpy as np
import pytest

from hgpo_gym.adapters.single_episode import OVER, SingleEpisode, on_tokens, step_batch, turns_of_tokens
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper, make_memory
from hgpo_gym.policies import RandomPolicy, Sampling
from hgpo_gym.rollouts.collect import collect

MAZE = {"sections": 1, "colours": 2, "split": "all", "max_episode_steps": 6}
WAY = ("walk on", "walk on", "open red door")


def play_episode(turns, **options):
    """An episode of the maze; each turn is the actions of one answer of the model."""
    episode = SingleEpisode("hgpo_gym/SignpostMaze-v0", **{**MAZE, **options})
    episode.begin("red")
    for number, actions in enumerate(turns):
        episode.turn = number
        for action in actions:
            episode.act(action)
    return episode


def keys_of(observations):
    memory, keys = make_memory(window=0, history_length=2), []
    for observation in observations:
        keys.append(memory.observe(observation).keys)
        memory.record("")
    return keys


def observations(actions):
    env = gymnasium.make("hgpo_gym/SignpostMaze-v0", **MAZE)
    return [
        env.reset(options={"task_id": "red"})[0],
        *(env.step(action)[0] for action in actions),
    ]


def test_it_says_what_is_seen_and_what_can_be_done():
    episode = SingleEpisode("hgpo_gym/SignpostMaze-v0", **MAZE)
    assert episode.begin("red") == (
        "Find the way through the castle to the garden.\n"
        "You stand at a signpost. It says: take the red door.\n"
        "Possible actions: walk on."
    )
    assert episode.act("fly") == (
        "That is not possible here. You stand at a signpost. It says: take the red door.\nPossible actions: walk on."
    )
    output = [episode.act(action) for action in WAY]
    assert output[-1] == f"You step out into the garden.\n{OVER} The task is solved."
    assert (episode.over, episode.won, episode.admissible_actions) == (True, True, ())
    assert episode.act("walk on") == OVER
    assert episode.total_reward() == 10


def test_the_step_limit_ends_it():
    episode = play_episode([["fly"]] * 6)
    assert (episode.over, episode.won) == (True, False)
    assert len(episode.steps(6)) == 6


def test_a_turn_is_a_step():
    steps = play_episode([[action] for action in WAY]).steps(3)
    assert [step.reward for step in steps] == [0, 0, 10]
    assert all(step.valid for step in steps)
    np.testing.assert_array_equal([step.context_keys for step in steps], keys_of(observations(WAY)[:3]))


def test_a_turn_with_several_actions_is_one_step_and_one_without_any_is_a_step_too():
    steps = play_episode([[], ["walk on", "walk on"], ["fly"], ["open red door"], ["walk on"]]).steps(5)
    assert [(step.reward, step.valid) for step in steps] == [(0, False), (0, True), (0, False), (10, True)]
    keys = keys_of(observations(["walk on", "walk on", "fly"]))
    np.testing.assert_array_equal([step.context_keys for step in steps], [keys[0], keys[0], keys[2], keys[3]])


def test_giving_up_is_a_step_but_a_response_after_the_end_is_none():
    assert [step.valid for step in play_episode([["walk on"], []]).steps(2)] == [True, False]
    assert len(play_episode([[action] for action in WAY]).steps(7)) == 3


def test_chance_after_the_start_differs_by_member():
    dice = SingleEpisode("hgpo_gym/SecretWord-v0")
    task = dice.env.unwrapped.task_ids[0]
    assert dice.begin(task, seed=1, chance=5) == dice.begin(task, seed=1, chance=6)
    drawn = []
    for chance in (5, 6, 5):
        dice.begin(task, seed=1, chance=chance)
        drawn.append(dice.env.unwrapped.np_random.integers(2**31))
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_batch_of_episodes():
    long, short = play_episode([["fly"], *([action] for action in WAY)]).steps(4), play_episode([["walk on"]]).steps(1)
    batch = step_batch(["a", "b"], [long, short], invalid_action_penalty=0.1)
    assert batch.group.tolist() == [0, 0, 0, 0, 1]
    assert batch.trajectory.tolist() == [0, 0, 0, 0, 1]
    assert batch.step.tolist() == [0, 1, 2, 3, 0]
    assert batch.reward.tolist() == [0, 0, 0, 10, 0]
    assert batch.penalty.tolist() == [0.1, 0, 0, 0, 0]
    assert batch.success.tolist() == [True, True, True, True, False]
    assert len(set(batch.action.tolist())) == 3  # fly, walk on (three times), open red door
    assert batch.action[1] == batch.action[2] == batch.action[4]
    ends = keys_of(observations(["fly", *WAY]))[-1], keys_of(observations(["walk on"]))[-1]
    np.testing.assert_array_equal(batch.final_keys, [ends[0]] * 4 + [ends[1]])


def test_a_turn_is_known_by_all_its_actions():
    once, twice, none = (play_episode([actions]).steps(1)[0] for actions in (["walk on"], ["walk on"] * 2, []))
    assert len({once.action, twice.action, none.action}) == 3


def test_an_adapted_batch_is_that_of_a_rollout():
    """The adapter repeats the actions of a random policy: all columns that both have are equal."""
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, 4, **MAZE)
    env = ContextWrapper(vector, "bare", window=2, history_length=2)
    rollout = collect(env, RandomPolicy(), Sampling(), task_ids=["red"], seeds=[(3, 0)])
    rows = rollout.batch.in_order
    expected, actions = rollout.batch.take(rows), [rollout.steps[row].action for row in rows]
    ways = [[[actions[row]] for row in np.flatnonzero(expected.trajectory == member)] for member in range(4)]
    batch = step_batch(["red"] * 4, [play_episode(way).steps(len(way)) for way in ways])
    for name in ("group", "trajectory", "step", "reward", "context_keys", "action", "success", "final_keys"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name), err_msg=name)
    assert 0 < expected.success.mean() < 1


@pytest.mark.parametrize(
    ("mask", "turns", "tokens"),
    [
        ([1, 1, 0, 0, 1, 0], [0, 0, -1, -1, 1, -1], [5, 5, 0, 0, 7, 0]),
        ([0, 1, 0, 1, 1, 0, 1], [-1, 0, -1, 1, 1, -1, 2], [0, 5, 0, 7, 7, 0, 0]),
        ([0, 0], [-1, -1], [0, 0]),
        ([], [], []),
    ],
)
def test_values_of_turns_on_tokens(mask, turns, tokens):
    assert turns_of_tokens(np.array(mask)).tolist() == turns
    assert on_tokens(np.array([5.0, 7.0]), np.array(turns, dtype=np.int64)).tolist() == tokens


def test_what_needs_a_group_or_a_second_response_is_refused():
    with pytest.raises(ValueError, match="similarity merges observations of a task group, and this is one episode"):
        SingleEpisode("hgpo_gym/SignpostMaze-v0", similarity=0.9)
    with pytest.raises(
        ValueError, match=r"every and at_tokens make notes responses of their own.*Choose memory='notes'"
    ):
        SingleEpisode("hgpo_gym/SignpostMaze-v0", memory=partial(make_memory, "notes", every=3))
