"""AskExpert: what asking says and what it leaves alone, around environments of every kind."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from hgpo_gym.envs import TextEnv, Turn, check_text_env, register
from hgpo_gym.envs.ask_expert import AskExpertEnv
from hgpo_gym.envs.registration import make
from hgpo_gym.rollouts import saved
from tests.support import small_runs

ID = "hgpo_gym/AskExpert-v0"
MAZE = "hgpo_gym/SignpostMaze-v0"
SHOP = {"of": "hgpo_gym/WebShop-v0", "split": "generated_test"}
CORRIDOR = "You are in a bare corridor."
HALL = "You are in a round hall with many doors."


class Guided(TextEnv):
    """Left or right; no splits, no snapshots, an expert that does not always know."""

    task_ids = ("left", "right", "nobody knows")

    def __init__(self, *, expert: bool = False, render_mode: str | None = None):
        super().__init__(render_mode=render_mode)
        self.expert = expert

    def begin_episode(self, task_id):
        return self._turn("Choose.", task="Choose.")

    def take_action(self, action):
        if action not in ("left", "right", "look"):
            return self._turn("What?", action_valid=False)
        if action == "look":
            return self._turn("Choose.", extras={"tag": 3, "tag_reward": 0.5, "turn_reward": 1.0})
        won = action == self.task_id
        return Turn("Over.", reward=float(won), terminated=True, won=won)

    def _turn(self, text, *, extras=None, **fields):
        advice = "" if self.task_id == "nobody knows" else self.task_id
        extras = {"tag": 0, **(extras or {}), **({"expert_action": advice} if self.expert else {})}
        return Turn(text, admissible_actions=("left", "right", "look"), extras=extras, **fields)


register("hgpo_gym_tests/Guided-v0", Guided, max_episode_steps=5, description="for tests")


def advised(observation, action):
    return f"{observation}\nThe expert would do: {action}"


def play(env, actions, **reset):
    """Return the observation of each turn."""
    return [env.reset(**reset)[0], *(env.step(action)[0] for action in actions)]


def test_asking_says_what_the_expert_would_do_and_changes_nothing():
    env = AskExpertEnv(split="test")
    _, info = env.reset(options={"task_id": "green-red-blue"})
    assert info["admissible_actions"] == ("walk on", "ask")
    env.step("walk on")
    *_, before = env.step("walk on")
    for _ in range(3):  # answers do not pile up
        observation, reward, terminated, truncated, info = env.step("ask")
        assert observation == advised(HALL, "open green door")
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info == before | {"milestone": False, "tag": 0, "tag_reward": 0.0, "turn_reward": 0.0}
        assert info["action_valid"] is True
    observation, *_, info = env.step("open green door")
    assert observation == "You stand at a signpost. It says: take the red door."
    assert "expert_action" not in info


def test_the_message_of_a_refused_action_is_not_repeated():
    env = AskExpertEnv(split="test")
    env.reset(options={"task_id": "green-red-blue"})
    env.step("walk on")
    observation, *_, info = env.step("fly")
    assert (observation, info["action_valid"]) == ("That is not possible here. " + CORRIDOR, False)
    assert env.step("ask")[0] == advised(CORRIDOR, "walk on")
    assert env.step(" ask")[-1]["action_valid"] is False


def test_a_question_is_a_step():
    env = make(ID, max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step("ask")[3] for _ in range(3)] == [False, False, True]
    inner = env.unwrapped._inner
    assert inner.spec.max_episode_steps in (None, -1)
    assert not isinstance(inner, TimeLimit)
    long = make(ID, max_episode_steps=100)  # the maze's default is 24
    long.reset(seed=0)
    assert not any(long.step("ask")[3] for _ in range(60))


def test_questions_leave_chance_alone():
    """With slips too, what is seen between questions is what the maze itself says at the same seed."""
    actions = ["walk on", "walk on", "go back", "walk on", "open red door"] * 6
    asked = [word for action in actions for word in ("ask", action)]
    options = {"slip": 0.5, "plates": True}
    for seed in range(5):
        alone = play(make(MAZE, max_episode_steps=200, **options).unwrapped, actions, seed=seed)
        env = AskExpertEnv(of_options=options)
        seen = play(env, asked, seed=seed)
        assert seen[::2] == alone
        assert seen == play(env, asked, seed=seed)


def test_the_expert_wins_and_never_asks():
    env = make(ID, expert=True, split="test")
    for task_id in env.unwrapped.task_ids:
        _, info = env.reset(options={"task_id": task_id})
        ended, length = False, 0
        while not ended:
            asked = env.step("ask")[-1]["expert_action"]
            assert asked == info["expert_action"] != "ask"
            _, reward, ended, _, info = env.step(asked)
            length += 1
        assert (info["won"], reward, length, info["admissible_actions"]) == (True, 10.0, 9, ())


def test_a_snapshot_holds_what_the_expert_would_say():
    env, other = (AskExpertEnv(of="hgpo_gym/SecretWord-v0") for _ in range(2))
    env.reset(seed=0, options={"task_id": "bade"})
    env.step("kike")
    env.step("no word")
    moment = env.snapshot()
    branch = ["ask", "lala", "ask", "bade"]
    first = [env.step(action)[0] for action in branch]
    assert first[0].startswith("k absent, i absent, k absent, e correct\nThe expert would do: ")
    for brought_back in (env, other):
        observation, info = brought_back.restore(moment)
        assert observation.startswith("'no word' is not a word here")
        assert (info["task_id"], info["admissible_actions"]) == ("bade", ())
        assert [brought_back.step(action)[0] for action in branch] == first


def test_in_free_text_nothing_is_listed_and_a_question_is_no_guess():
    env = AskExpertEnv(of="hgpo_gym/SecretWord-v0", of_options={"guesses": 2}, action="help me")
    _, info = env.reset(seed=0, options={"task_id": "bade"})
    assert info["admissible_actions"] == ()
    for _ in range(5):
        observation, _, terminated, _, info = env.step("help me")
        assert observation.startswith("No guess yet.\nThe expert would do: ")
        assert (terminated, info["action_valid"], info["admissible_actions"]) == (False, True, ())
    assert env.step("ask")[-1]["action_valid"] is False
    guess = observation.rpartition(": ")[2]
    assert env.step(guess)[-1]["action_valid"] is True


def test_a_guess_that_is_drawn_again_is_what_the_expert_says():
    env = AskExpertEnv(of="hgpo_gym/SecretWord-v0", expert=True)
    env.reset(seed=0, options={"task_id": "bade"})
    drawn = set()
    for seed in range(10):
        env.np_random = np.random.default_rng(seed)
        guess = env.redraw_expert()
        observation, *_, info = env.step("ask")
        assert observation == advised("No guess yet.", guess)
        assert info["expert_action"] == guess
        drawn.add(guess)
    assert len(drawn) > 5
    assert AskExpertEnv().redraw_expert() is None


def test_where_actions_are_described_so_is_asking(monkeypatch, webshop_cache):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(webshop_cache))
    env = AskExpertEnv(**SHOP, of_options={"describe_actions": True})
    check_text_env(env)
    env.reset(seed=0)
    *_, info = env.step("search[makeup remover wipes]")
    described = dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))
    assert list(described.items())[-1] == ("ask", "the expert says what it would do")
    assert described["click[next >]"] == ""
    observation, *_, info = env.step("ask")
    assert "\nThe expert would do: click[" in observation
    assert tuple(described) == info["admissible_actions"]
    assert env.split == "generated_test"
    assert env.reset(options={"goal_index": 3})[1]["task_type"] == env.task_type(env.task_id)
    with pytest.raises(ValueError, match=r"Unknown reset option 'goal_indx'. Did you mean 'goal_index'\?"):
        env.reset(options={"goal_indx": 3})


def test_extras_of_an_action_are_not_repeated_for_a_question():
    env = AskExpertEnv(of="hgpo_gym/Sokoban-v0", of_options={"levels": 20, "milestones": True}, expert=True)
    _, info = env.reset(seed=0)
    while not info["milestone"]:
        *_, info = env.step(info["expert_action"])
    assert env.step("ask")[-1]["milestone"] is False
    guided = AskExpertEnv(of="hgpo_gym_tests/Guided-v0")
    guided.reset(options={"task_id": "left"})
    guided.step("look")
    info = guided.step("ask")[-1]
    assert (info["tag"], info["tag_reward"], info["turn_reward"]) == (0, 0.0, 0.0)
    guided.reset(options={"task_id": "left"})  # which says nothing of an action yet
    info = guided.step("ask")[-1]
    assert (info["milestone"], info["tag"], info["tag_reward"], info["turn_reward"]) == (False, 0, 0.0, 0.0)


def test_an_expert_that_does_not_know_says_so_and_what_the_inner_cannot_do_is_not_done_here():
    env = AskExpertEnv(of="hgpo_gym_tests/Guided-v0")
    env.reset(options={"task_id": "nobody knows"})
    assert env.step("ask")[0] == "Choose.\nThe expert does not know what to do."
    assert not env.can_snapshot
    with pytest.raises(NotImplementedError, match=r"Guided cannot be restored: it has no save_state and load_state\."):
        env.snapshot()
    with pytest.raises(ValueError, match=r"hgpo_gym_tests/Guided-v0 has no splits: set evaluation\.split=null"):
        AskExpertEnv(of="hgpo_gym_tests/Guided-v0", split="test")


@pytest.mark.parametrize(
    "options",
    [
        {"of_options": {"slip": 0.3}, "expert": True},
        {"of": "hgpo_gym/SecretWord-v0", "split": "all"},
        {"of": "hgpo_gym/ALFWorld-v0", "of_options": {"split": "generated_test"}},
        {"of": "hgpo_gym_tests/Guided-v0"},
        {"of": ID, "action": "ask twice"},
    ],
)
def test_the_contract_is_kept_around_others(options):
    check_text_env(AskExpertEnv(**options))


def test_a_name_that_the_inner_environment_has_is_refused_where_it_shows():
    with pytest.raises(ValueError, match=rf"action='walk on' is an action of {MAZE} itself, in task '.*': call asking"):
        AskExpertEnv(action="walk on").reset(seed=0)
    env = AskExpertEnv(action="open red door")
    play(env, ["walk on"], seed=0)
    with pytest.raises(ValueError, match=r"something else, action=\.\.\. \(in commands env\.action=\.\.\.\)\."):
        env.step("walk on")


def test_what_is_recorded_of_another_inner_environment_is_not_used():
    options = [{}, {"of_options": {"plates": True}}, {"split": "test"}, {"of": "hgpo_gym/SecretWord-v0"}]
    keys = {AskExpertEnv(**some).texts_key for some in options}
    assert len(keys) == len(options)
    assert AskExpertEnv().texts_key in keys
    a_game = AskExpertEnv(of="hgpo_gym_tests/Guided-v0")
    before = a_game.texts_key
    a_game._inner.texts_key = "another version"
    assert a_game.texts_key != before


def test_a_run_pays_for_its_questions_and_goes_on(tmp_path):
    run = ["env=ask_expert", "env.of_options={sections: 1}", "env.max_episode_steps=12", "shaping=cost"]
    run += ["model=tabular", "shaping.costs={ask:0.3}", "rollout.num_tasks=2", "rollout.group_size=4"]
    run += ["evaluation.every=0", "evaluation.decoding_seeds=1", "checkpoint.every=1"]
    small_runs.train(tmp_path / "run", "trainer.iterations=1", base=run)
    small_runs.train(tmp_path / "run", "trainer.iterations=2", "resume=auto", base=run)
    small_runs.train(tmp_path / "whole", "trainer.iterations=2", base=run)
    assert small_runs.training_numbers(tmp_path / "run") == small_runs.training_numbers(tmp_path / "whole")
    for iteration in (1, 2):
        kept = saved.load(tmp_path / "run" / "rollouts", iteration)
        asked = np.array([action == "ask" for action in kept.actions])
        assert asked.any()
        np.testing.assert_array_equal(kept.batch.reward[asked], -0.3)
        np.testing.assert_array_equal(kept.environment_reward[asked], 0.0)
        np.testing.assert_array_equal(kept.batch.reward[~asked], kept.environment_reward[~asked])


def test_gymnasium_makes_it_with_a_mapping_of_options():
    env = gymnasium.make(ID, of_options={"sections": 1}, split="test")
    assert env.unwrapped.task_ids == ("red",)
