"""Episodes that begin in the middle of others: `TextVectorEnv.begin_at`, and the memory along the way."""

import os
import signal

import numpy as np
import pytest

from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, register
from hgpo_gym.envs.sub_envs import EpisodeStart, chance_of
from hgpo_gym.memory import ContextWrapper

DICE, MAZE = "hgpo_gym_tests/Dice-v0", "hgpo_gym/SignpostMaze-v0"


class Dice(TextEnv):
    """Every action is answered by a roll of the die; `stop` ends the episode."""

    task_ids = ("six", "ten")

    def begin_episode(self, task_id):
        self.rolls = [int(self.np_random.integers(100))]
        return self.rolled(task=f"Roll {task_id}.")

    def take_action(self, action):
        self.rolls.append(int(self.np_random.integers(100)))
        return self.rolled(terminated=action == "stop")

    def rolled(self, **fields):
        return Turn(" ".join(map(str, self.rolls)), admissible_actions=("roll", "stop"), **fields)


register(DICE, Dice, max_episode_steps=6, description="for tests")


def dice(workers=0, **options):
    env = TextVectorEnv(DICE, num_tasks=1, group_size=3, workers=workers, **options)
    env.reset(options={"task_ids": ["ten"], "group_seeds": [5]})
    return env


def rolls(observation):
    return [int(number) for number in observation.split()]


def by_hand(*parts):
    """The rolls of an episode: the first is the group's, then `count` of each (member, count)."""
    drawn = [int(np.random.default_rng(5).integers(100))]
    for member, count in parts:
        generator = np.random.default_rng([5, member, 1])
        drawn += [int(generator.integers(100)) for _ in range(count)]
    return drawn


def test_what_a_first_member_draws_is_not_what_the_reset_drew():
    """NumPy pads what a generator is seeded by with zeros: [5, 0] is 5."""
    alike = np.random.default_rng(5).random(4)
    np.testing.assert_array_equal(np.random.default_rng([5, 0]).random(4), alike)
    members = [chance_of(5, member).random(4).tolist() for member in range(3)]
    assert len({tuple(draws) for draws in (*members, alike.tolist())}) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_branch_shares_its_past_and_draws_separate_chance_afterwards(workers):
    env = dice(workers)
    for _ in range(3):
        observations, *_ = env.step(["roll"] * 3)
    assert rolls(observations[0]) == by_hand((0, 3))
    openings = env.begin_at({2: (env.starts[0], ["roll", "roll"], 7), 1: (env.starts[1], [], 8)})
    observation, info = openings[2].reset
    assert info["task_id"] == "ten"
    shared = [observation, *(step[0] for step in openings[2].steps)]
    assert [rolls(text) for text in shared] == [by_hand((0, count)) for count in range(3)]
    assert openings[1].steps == []
    observations, *_ = env.step(["roll"] * 3)
    assert rolls(observations[0]) == by_hand((0, 4))  # goes on as if nothing had happened beside it
    assert rolls(observations[1]) == by_hand((8, 1))
    assert rolls(observations[2]) == by_hand((0, 2), (7, 1))
    env.close()


def test_a_branch_of_a_branch_keeps_the_chances_of_the_way_that_it_shares():
    env = dice()
    env.begin_at({1: (env.starts[0], ["roll", "roll"], 7)})
    env.step(["roll"] * 3)
    first = env.starts[1]
    env.begin_at({0: (first, ["roll"] * 3, 9), 2: (first, ["roll"], 9)})
    observations, *_ = env.step(["roll"] * 3)
    assert rolls(observations[0]) == by_hand((0, 2), (7, 1), (9, 1))
    assert rolls(observations[2]) == by_hand((0, 1), (9, 1))  # it left the way before the first branch did


def test_a_killed_worker_comes_back_to_where_a_branch_had_come():
    env = dice(workers=1)
    env.begin_at({1: (env.starts[0], ["roll", "roll"], 7)})
    env.step(["roll"] * 3)
    os.kill(env._sub_envs.process_ids[0], signal.SIGKILL)
    observations, *_ = env.step(["roll"] * 3)
    assert rolls(observations[1]) == by_hand((0, 2), (7, 2))
    env.close()


def test_the_step_limit_counts_the_way_to_the_branch():
    env = dice()
    env.begin_at({1: (env.starts[0], ["roll"] * 4, 7)})
    _, _, _, truncations, _ = env.step(["roll"] * 3)
    assert truncations.tolist() == [False] * 3
    _, _, terminations, truncations, _ = env.step(["stop", "roll", "roll"])
    assert (terminations.tolist(), truncations.tolist()) == ([True, False, False], [False, True, False])
    assert env.active.tolist() == [False, False, True]
    env.begin_at({0: (env.starts[2], ["roll"], 3)})
    assert env.active.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("start", "actions", "message"),
    [
        (EpisodeStart("ten", 5, 0), ["roll", "stop", "roll"], r"'ten' ends at step 2 of a prefix of 3 actions"),
        (EpisodeStart("ten", 5, 0), ["roll"] * 6, r"ends at step 6 of a prefix of 6"),
        (EpisodeStart("tne", 5, 0), [], r"Unknown task_id 'tne'. Did you mean 'ten'\?"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_branches_that_cannot_be_are_refused(start, actions, message, workers):
    env = dice(workers)
    with pytest.raises(ValueError, match=message):
        env.begin_at({0: (start, actions, 1)})
    env.close()


def test_nothing_begins_while_others_step():
    env = dice()
    env.send({1: "roll"})
    with pytest.raises(ValueError, match=r"Sub-environments \[1\] are stepping: call receive\(\) before begin_at"):
        env.begin_at({0: (env.starts[0], [], 1)})
    with pytest.raises(ValueError, match=r"call receive\(\) before reset\(\) of some groups"):
        env.reset(options={"reset_mask": np.ones(env.num_envs, dtype=bool)})


@pytest.mark.parametrize("workers", [0, 2])
def test_prompts_and_keys_along_a_branch_are_those_of_the_first_visit(workers):
    vector = TextVectorEnv(MAZE, num_tasks=1, group_size=2, workers=workers, expert=True)
    env = ContextWrapper(vector, "bare", window=2, history_length=3, key="observation+action")
    prompts, infos = env.reset(options={"task_ids": ["red-red-blue"], "group_seeds": [1]})
    seen, actions = [(prompts[0], infos["context_keys"][0].tolist())], []
    for _ in range(5):
        actions.append(infos["expert_action"][0])
        prompts, *_, infos = env.step([actions[-1], "walk on"])
        seen.append((prompts[0], infos["context_keys"][0].tolist()))
    opening = env.begin_at({1: (vector.starts[0], actions[:3], 4)})[1]
    moments = [opening.reset, *((step[0], step[-1]) for step in opening.steps)]
    for action in actions[3:]:  # the memory goes on from there
        env.send({1: action})
        prompt, *_, info = env.receive()[1]
        moments.append((prompt, info))
    assert [(prompt, info["context_keys"].tolist()) for prompt, info in moments] == seen
    env.close()
