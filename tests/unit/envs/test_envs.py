"""The contract of text environments, the built-in one, spaces and vectors."""

import inspect
import os
import re
import signal
import tracemalloc
from collections import defaultdict
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space, create_shared_memory, write_to_shared_memory

from hgpo_gym.envs import ENVIRONMENTS, TextEnv, TextVectorEnv, Turn, check_text_env, register
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.signpost_maze import Position, SignpostMazeEnv
from hgpo_gym.envs.spaces import UnicodeText

MAZE = "hgpo_gym/SignpostMaze-v0"


def test_an_environment_without_added_options_has_the_common_ones():
    with pytest.raises(TypeError, match=r"Unknown option of Echo 'word'. Valid: render_mode\."):
        Echo(word="cat")
    assert list(inspect.signature(Echo).parameters) == ["render_mode"]


def test_messages_about_options_show_python_values():
    """`env.data=` is how a command sets an option: nobody who has called gymnasium.make knows it."""
    folder = Path(inspect.getfile(TextEnv)).parent
    found = [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in folder.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"""["' (]env\.[a-z_]+=(?!=)|set env\.""", line)
    ]
    assert found == []


class Echo(TextEnv):
    """Say the word of the task; the one open-ended environment of the tests."""

    task_ids = ("cat", "dog")

    def begin_episode(self, task_id):
        return Turn(f"Say {task_id}.", task=f"Say {task_id}.")

    def take_action(self, action):
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "roll":
            return Turn(str(self.np_random.integers(10**9)))
        won = action == self.task_id
        return Turn("Done." if won else "Say it.", reward=float(won), terminated=won, won=won)


register("hgpo_gym_tests/Echo-v0", Echo, max_episode_steps=10, description="for tests")


@pytest.mark.parametrize(
    "options", [{"sections": 1, "colours": 2, "distance": 0}, {"split": "test", "expert": True}, {"slip": 0.5}]
)
def test_the_maze_keeps_the_contract_with_other_options(options):
    check_text_env(gymnasium.make(MAZE, **options))


def test_an_open_ended_environment_of_a_few_lines_keeps_the_contract():
    check_text_env(gymnasium.make("hgpo_gym_tests/Echo-v0"))


def test_a_snapshot_is_restored_in_another_environment():
    first, second = SignpostMazeEnv(expert=True), SignpostMazeEnv(expert=True)
    _, info = first.reset(seed=0)
    first.step(info["expert_action"])
    snapshot = first.snapshot()
    drawn = first.np_random.random()
    first.step("walk on")
    second.reset(seed=1)
    observation, info = second.restore(snapshot)
    assert (observation, info["task_id"]) == ("You are in a bare corridor.", first.task_id)
    assert second.np_random.random() == drawn
    while not info["won"]:
        *_, info = second.step(info["expert_action"])
    observation, info = second.restore(snapshot)  # an episode that has ended goes on from where it was
    assert observation == "You are in a bare corridor."
    assert second.step("walk on")[0] == "You are in a round hall with many doors."


def test_an_environment_that_cannot_be_restored_says_so():
    env = Echo()
    env.reset(seed=0)
    assert not env.can_snapshot
    with pytest.raises(NotImplementedError, match="Echo cannot be restored: it has no save_state and load_state"):
        env.snapshot()


def test_the_random_policy_runs_a_thousand_episodes_and_its_success_is_the_exact_one():
    """Success of uniformly random actions, by dynamic programming over places and steps left, and by playing."""
    env = gymnasium.make(MAZE, max_episode_steps=24, disable_env_checker=True)
    maze = env.unwrapped.dynamics("red-blue-green")
    value = defaultdict(float)
    for left in range(25):
        for section in range(4):
            for room in range(3):
                place = Position(section, room)
                if maze.is_garden(place):
                    value[place, left] = 1.0
                elif left:
                    actions = maze.admissible_actions(place)
                    value[place, left] = np.mean(
                        [value[maze.next_place(place, action), left - 1] for action in actions]
                    )
    generator = np.random.default_rng(0)
    won = 0
    for episode in range(1000):
        _, info = env.reset(seed=episode)
        ended = False
        while not ended:
            action = info["admissible_actions"][generator.integers(len(info["admissible_actions"]))]
            _, reward, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
        assert reward == (10.0 if info["won"] else 0.0)
        won += info["won"]
    exact = value[maze.start, 24]
    assert 0.05 < exact < 0.3
    assert abs(won / 1000 - exact) < 4 * np.sqrt(exact * (1 - exact) / 1000)


def test_a_slipping_maze_leads_where_its_rules_say_as_often_as_they_say():
    env = SignpostMazeEnv(slip=0.4)
    env.reset(seed=0, options={"task_id": "red-red-blue"})
    env.step("walk on")
    env.step("walk on")
    hall, counts = env.snapshot(), defaultdict(int)
    generator = np.random.default_rng(0)
    outcomes = env.dynamics("red-red-blue").outcomes(Position(0, 2), "open red door")
    # Of four admissible actions two lead back to the signpost, one to the corridor, and the right door on.
    assert outcomes == pytest.approx({Position(1, 0): 0.6 + 0.1, Position(0, 0): 0.2, Position(0, 1): 0.1})
    for _ in range(2000):
        env.restore(hall)
        env.np_random = generator
        *_, info = env.step("open red door")
        assert info["action_valid"]
        counts[env._place] += 1
    for place, probability in outcomes.items():
        assert abs(counts[place] / 2000 - probability) < 4 * np.sqrt(probability * (1 - probability) / 2000)
    sure = SignpostMazeEnv().dynamics("red-red-blue")
    assert sure.outcomes(Position(0, 2), "open red door") == {Position(1, 0): 1.0}
    with pytest.raises(ValueError, match="Unknown action 'jump'"):
        sure.outcomes(Position(0, 2), "jump")


def test_memory_matters_in_the_maze():
    """The same hall comes up after different signs, and the right door differs."""
    right_doors = defaultdict(set)
    env = SignpostMazeEnv(expert=True)
    for task_id in env.task_ids:
        observation, info = env.reset(options={"task_id": task_id})
        while not info["won"]:
            right_doors[observation].add(info["expert_action"])
            observation, *_, info = env.step(info["expert_action"])
    hall = next(observation for observation in right_doors if "hall" in observation)
    assert right_doors[hall] == {"open red door", "open blue door", "open green door"}


def test_the_splits_of_the_maze_are_fixed_and_apart():
    splits = {split: SignpostMazeEnv(split=split).task_ids for split in ("train", "test", "all")}
    assert [len(splits[split]) for split in ("train", "test", "all")] == [18, 9, 27]
    assert set(splits["train"]) | set(splits["test"]) == set(splits["all"])
    assert splits["test"][:2] == ("red-red-red", "red-blue-green")


def test_options_may_be_numpy_scalars():
    as_numpy = {
        "sections": np.int64(2), "slip": np.float32(0.5), "plates": np.bool_(True), "max_episode_steps": np.int64(9),
    }  # fmt: skip
    plain = {"sections": 2, "slip": 0.5, "plates": True, "max_episode_steps": 9}
    one, other = (make(MAZE, **options).reset(seed=0) for options in (as_numpy, plain))
    assert one == other
    with pytest.raises(ValueError, match=r"sections=True .*: expected a whole number"):
        make(MAZE, sections=np.bool_(True))
    register("hgpo_gym_tests/Nine-v0", Echo, max_episode_steps=np.int64(9), description="for tests")


def test_an_environment_without_splits_says_so():
    register("hgpo_gym_tests/Whole-v0", Echo, max_episode_steps=3, description="for tests")
    with pytest.raises(ValueError, match="Whole-v0 has no splits: set evaluation"):
        make("hgpo_gym_tests/Whole-v0", split="test")


def test_unknown_ids_unknown_tasks_and_used_names_are_refused():
    with pytest.raises(ValueError, match=r"Did you mean 'hgpo_gym/SignpostMaze-v0'\?"):
        make("hgpo_gym/SignpostMaz-v0")
    with pytest.raises(ValueError, match=r"Did you mean 'red-red-blue'\?"):
        SignpostMazeEnv().reset(options={"task_id": "red-red-bleu"})
    with pytest.raises(ValueError, match="is taken"):
        register(MAZE, SignpostMazeEnv, max_episode_steps=1, description="")


def test_an_environment_that_is_defined_again_replaces_the_one_before():
    id = "hgpo_gym_tests/Cell-v0"

    def cell(word, steps):
        class Cell(Echo):
            task_ids = (word,)

        register(id, Cell, max_episode_steps=steps, description="for tests")

    try:
        for word, steps in (("cat", 3), ("dog", 5)):
            cell(word, steps)
            env = make(id)
            assert (env.reset()[0], env.spec.max_episode_steps) == (f"Say {word}.", steps)
            assert ENVIRONMENTS[id].name == "cell"
        with pytest.raises(ValueError, match=f"The environment id '{id}' is taken"):
            register(id, Halved, max_episode_steps=3, description="for tests")
    finally:
        del ENVIRONMENTS[id], gymnasium.registry[id]


def test_a_class_that_others_can_import_is_stored_by_its_place():
    id = "hgpo_gym_tests/Stored-v0"
    register(id, Echo, max_episode_steps=3, description="for tests")
    try:
        spec = EnvSpec.from_json(make(id).spec.to_json())
        assert spec.entry_point == f"{__name__}:Echo"
        vector = gymnasium.make_vec(spec, 4, vectorization_mode="vector_entry_point", group_size=2)
        assert isinstance(vector, TextVectorEnv)
        assert (vector.num_tasks, vector.spec.max_episode_steps) == (2, 3)
    finally:
        del ENVIRONMENTS[id], gymnasium.registry[id]


class Shouting(Echo):
    """Says more than its space holds."""

    max_text_length = 12

    def take_action(self, action):
        return Turn(action * 5, terminated=True)


def test_a_text_longer_than_its_space_names_what_to_set():
    id = "hgpo_gym_tests/Shouting-v0"
    register(id, Shouting, max_episode_steps=3, description="for tests")
    message = (
        r"Shouting.take_action\('loud'\): Turn.observation has 20 characters, more than max_text_length=12: set that"
    )
    for env in (Shouting(), gymnasium.make_vec(id, 1, vectorization_mode="async")):
        env.reset(seed=0)
        with pytest.raises(ValueError, match=message):
            env.step("loud" if isinstance(env, Shouting) else ["loud"])
        env.close()
    space = UnicodeText(12)  # of a wrapper that adds to the text
    with pytest.raises(ValueError, match=r"13 characters is longer than UnicodeText\(0, 12\): set max_text_length"):
        write_to_shared_memory(space, 0, "louder louder", create_shared_memory(space))


class Halved(Echo):
    """Lists no task of a split that it does not know."""

    def __init__(self, *, split="train", render_mode=None):
        super().__init__(render_mode=render_mode)
        self.split, self.task_ids = split, {"train": ("cat",), "test": ("dog",)}.get(split, ())


register("hgpo_gym_tests/Halved-v0", Halved, max_episode_steps=10, description="for tests")


@pytest.mark.parametrize(
    ("how", "name"),
    [
        (make, "hgpo_gym_tests/Halved-v0"),
        (lambda id, **options: TextVectorEnv(id, num_tasks=2, **options), "hgpo_gym_tests/Halved-v0"),
        (lambda id, **options: TextVectorEnv(id, num_tasks=2, workers=1, **options), "hgpo_gym_tests/Halved-v0"),
        (lambda id, **options: gymnasium.make(id, **options).reset(), "hgpo_gym_tests/Halved-v0"),
        (lambda _, **options: Halved(**options).reset(), "Halved"),
    ],
)
def test_an_environment_without_tasks_is_refused(how, name):
    with pytest.raises(ValueError, match=f"{name} has no task in the split 'tran': set another split or other options"):
        how("hgpo_gym_tests/Halved-v0", split="tran")


class Given(Echo):
    """Has given tasks, and begins with a given turn."""

    def __init__(self, *, tasks=("cat",), turn=None, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.task_ids, self.turn = tasks, turn

    def begin_episode(self, task_id):
        return self.turn or super().begin_episode(task_id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": {"cat"}}, "task_ids is a set: give a tuple of texts in a fixed order"),
        ({"tasks": (name for name in ("cat", "dog"))}, "task_ids is a generator"),
        ({"tasks": "cat"}, "task_ids is a str"),
        ({"tasks": (1, 2)}, "task_ids begins with 1, which is no text"),
        ({"turn": Turn("Over.", task="Say.", terminated=True)}, "begin_episode.* is over before its first step"),
        (
            {
                "turn": Turn(
                    "Say.", task="Say.", admissible_actions=("a", "b"), extras={"action_descriptions": ("one",)}
                )
            },
            "1 action_descriptions for 2 admissible_actions",
        ),
    ],
)
def test_a_wrong_custom_environment_is_refused_with_the_reason(options, message):
    with pytest.raises(ValueError, match=message):
        Given(**options).reset(seed=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": "nameless"}, "id='nameless': write it as namespace/Name-v0"),
        ({"entry_point": 5}, "entry_point=5 of .*: give the class"),
        ({"max_episode_steps": 0}, "max_episode_steps=0 of .*: choose a whole number, 1 or more"),
        ({"max_episode_steps": "5"}, "max_episode_steps='5' of"),
        ({"description": None}, "description=None of .*: write a line for people"),
        ({"configs": "/no/such/folder"}, "configs=/no/such/folder of .* is no folder"),
    ],
)
def test_what_cannot_be_registered_is_named(given, message):
    right = {"id": "hgpo_gym_tests/Wrong-v0", "entry_point": Echo, "max_episode_steps": 3, "description": "for tests"}
    with pytest.raises(ValueError, match=message):
        register(**{**right, **given})
    assert "hgpo_gym_tests/Wrong-v0" not in gymnasium.registry


def test_an_environment_of_gymnasium_without_texts_is_refused():
    with pytest.raises(ValueError, match="CartPole-v1 is no text environment"):
        TextVectorEnv("CartPole-v1", num_tasks=1)


def test_a_step_after_the_end_or_of_another_type_is_refused():
    env = SignpostMazeEnv()
    env.reset()
    with pytest.raises(TypeError, match="An action is a string; got int 3"):
        env.step(3)


def test_nothing_can_be_done_before_the_first_reset_or_after_close():
    env, envs = SignpostMazeEnv(), TextVectorEnv(MAZE, num_tasks=2)
    for act in (lambda: env.step("walk on"), env.snapshot, lambda: envs.step(["walk on"] * 2)):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"There is no episode yet: call reset\(\) before s"):
            act()
    envs.reset()
    envs.close()
    for act in (envs.reset, lambda: envs.step(["walk on"] * 2)):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match=r"SignpostMaze-v0.* was closed"):
            act()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_action_that_is_no_string_is_refused_before_any_is_sent(workers):
    envs = TextVectorEnv(MAZE, num_tasks=2, workers=workers)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="An action is a string; sub-environment 1 was sent NoneType None"):
        envs.step(["walk on", None])
    observations, *_ = envs.step(["walk on"] * 2)
    assert observations == ("You are in a bare corridor.",) * 2
    envs.close()


def test_unicode_text_admits_any_string_and_samples_itself():
    space = UnicodeText(50, seed=0)
    for text in ("", "häß", "\ud800", "🦊" * 50):
        assert text in space
    assert "a" * 51 not in space
    assert 3 not in space
    assert space.sample() in space
    text = "héllo 🦊"
    assert gymnasium.spaces.unflatten(space, gymnasium.spaces.flatten(space, text)) == text


def test_groups_share_task_and_start_and_ended_environments_stay():
    env = gymnasium.make_vec(MAZE, 6, vectorization_mode="vector_entry_point", group_size=3, expert=True)
    assert isinstance(env, TextVectorEnv)
    observations, infos = env.reset(seed=1)
    assert len(set(infos["task_id"][:3])) == len(set(infos["task_id"][3:])) == 1
    assert infos["task_id"][0] != infos["task_id"][3]
    assert len(set(observations[:3])) == 1
    for _ in range(9):
        observations, rewards, terminations, _, infos = env.step([*infos["expert_action"][:5], "walk on"])
    assert terminations.tolist() == [True] * 5 + [False]
    assert rewards.tolist() == [10.0] * 5 + [0.0]
    after, rewards, terminations, _, _ = env.step(["nonsense"] * 6)
    assert after[:5] == observations[:5]
    assert rewards.tolist() == [0.0] * 6
    assert env.active.tolist() == [False] * 5 + [True]


class Scored(TextEnv):
    """An environment whose action sets its info."""

    task_ids = ("only",)

    def begin_episode(self, task_id):
        return Turn("Say a number.", task="Say a number.", extras=self.extras("0"))

    def take_action(self, action):
        return Turn("Say a number.", extras=self.extras(action))

    @staticmethod
    def extras(text):
        number = yaml.safe_load(text)
        return {"score": number, "parts": {"of": number}, "vector": np.array([number, 0])}


register("hgpo_gym_tests/Scored-v0", Scored, max_episode_steps=10, description="for tests")


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        (["0", "0.5", "1"], np.float64), (["0.5", "1", "0"], np.float64), (["true", "3", "0"], np.int64),
        (["true", "0", "0.5"], np.float64), (["1", "2", "0"], np.int64), (["true", "false", "true"], np.bool_),
    ],
)  # fmt: skip
def test_numbers_of_an_info_are_of_the_type_that_holds_those_of_all_rows(actions, kind):
    env = TextVectorEnv("hgpo_gym_tests/Scored-v0", num_tasks=1, group_size=3)
    env.reset(seed=0)
    infos = env.step(actions)[-1]
    numbers = [yaml.safe_load(text) for text in actions]
    assert infos["score"].dtype == infos["parts"]["of"].dtype == kind
    assert infos["score"].tolist() == infos["parts"]["of"].tolist() == infos["vector"][:, 0].tolist() == numbers
    assert infos["_score"].tolist() == infos["parts"]["_of"].tolist() == [True] * 3


def test_part_of_the_groups_can_be_reset():
    env = TextVectorEnv(MAZE, num_tasks=2, group_size=2)
    env.reset(seed=0)
    env.step(["walk on"] * 4)
    mask = np.array([False, False, True, True])
    observations, infos = env.reset(options={"reset_mask": mask, "task_ids": ["red-red-blue"]})
    assert observations[0] == "You are in a bare corridor."
    assert observations[2] == "You stand at a signpost. It says: take the red door."
    assert infos["task_id"][3] == "red-red-blue"
    with pytest.raises(ValueError, match=r"has the shape \(2,\): it is bool\[4\]"):
        env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ValueError, match="splits a group"):
        env.reset(options={"reset_mask": np.array([True, False, False, False])})
    with pytest.raises(ValueError, match="has 1 entries for 2 groups"):
        env.reset(options={"task_ids": ["red-red-blue"]})
    with pytest.raises(ValueError, match="Unknown reset option"):
        env.reset(options={"tasks": []})


def test_chance_after_the_start_differs_by_member():
    env = TextVectorEnv("hgpo_gym_tests/Echo-v0", num_tasks=1, group_size=3)
    env.reset(seed=0)
    rolls = env.step(["roll"] * 3)[0]
    assert len(set(rolls)) == 3
    env.reset(seed=0)
    assert env.step(["roll"] * 3)[0] == rolls


def test_names_for_env_come_from_the_id_and_are_never_given_twice():
    names = {"namespace/DarkMaze-v0": "dark_maze", "other/DarkMaze-v0": "other_dark_maze", "other/DarkMaze-v1": "v1"}
    try:
        for id, name in names.items():
            register(id, Echo, max_episode_steps=1, description="", name="v1" if name == "v1" else None)
            assert ENVIRONMENTS[id].name == name
        with pytest.raises(ValueError, match="name 'v1' is taken by other/DarkMaze-v1: choose another for a/B-v0"):
            register("a/B-v0", Echo, max_episode_steps=1, description="", name="v1")
        with pytest.raises(ValueError, match="configs=/no/such/folder of a/B-v0 is no folder"):
            register("a/B-v0", Echo, max_episode_steps=1, description="", configs=Path("/no/such/folder"))
    finally:
        for id in names:
            del ENVIRONMENTS[id], gymnasium.registry[id]


def test_a_row_of_many_has_a_space_of_a_few_bytes():
    tracemalloc.start()
    space = batch_space(UnicodeText(64), 1000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1000 * 2000
    space.seed(0)
    assert len(set(space.sample())) > 900  # each draws by itself
