"""Games of textarena, as that package plays them."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from hgpo_gym.envs.registration import make

textarena = pytest.importorskip("textarena")

ID = "hgpo_gym/TextArena-v0"


def own_play(game, seed, actions):
    """Return the texts, states and rewards of textarena itself."""
    env = textarena.make(f"{game}-raw")
    env.reset(num_players=1, seed=seed)
    responses = []
    for action in actions:
        env.get_observation()
        done, _ = env.step(action)
        responses.append([text for _, text, _ in env.get_observation()[1]][1:])
        if done:
            return responses, env.close()[0][0]
    return responses, 0.0


def test_it_plays_as_textarena_does():
    guesses = ["[1 2 3 4]", "[2 1 4 3]", "[5 6 1 2]", "[6 5 3 1]"]
    env = make(ID)
    _, info = env.reset(options={"task_id": "Mastermind-v0 3"})
    assert info["task"].startswith("You are playing Mastermind.")
    responses, _ = own_play("Mastermind-v0", 3, guesses)
    for guess, expected in zip(guesses, responses, strict=True):
        assert env.step(guess)[0] == "\n".join(expected)


def test_the_solution_wins_and_the_reward_is_the_games():
    env = make(ID)
    env.reset(options={"task_id": "Mastermind-v0 4"})
    code = env.unwrapped._game.state.game_state["secret_code"]
    wrong = [code[1], code[0], *code[2:]]
    for guess, over in ((wrong, False), (code, True)):
        observation, reward, terminated, _, info = env.step(" ".join(map(str, guess)))  # brackets are added
        assert (reward, terminated, info["won"], info["action_valid"]) == (float(over), over, over, True)
    assert "cracked the code" in observation


def test_a_refused_move_changes_nothing_however_often():
    env = make(ID, game="TowerOfHanoi-v0")
    start, _ = env.reset(options={"task_id": "TowerOfHanoi-v0 0"})
    for _ in range(4):
        observation, reward, terminated, _, info = env.step("[B C]")
        assert "invalid move" in observation
        assert (reward, terminated, info["action_valid"]) == (0.0, False, False)
    observation, *_, info = env.step("A C")
    assert info["action_valid"]
    assert "C: [1]" in observation
    assert "C: []" in start


def test_a_refused_action_changes_nothing_though_the_game_has_done_a_part_of_it():
    env = make(ID, game="TowerOfHanoi-v0")
    env.reset(options={"task_id": "TowerOfHanoi-v0 0"})
    *_, info = env.step("[A C] [A C]")  # the second of them is impossible
    assert not info["action_valid"]
    observation, *_, info = env.step("A B")
    assert info["action_valid"]
    assert "B: [1]" in observation
    assert "C: []" in observation


def test_a_mine_loses():
    env = make(ID, game="Minesweeper-v0", split="all", max_episode_steps=100)
    env.reset(seed=0)
    lost = False
    for cell in range(64):
        observation, reward, terminated, _, info = env.step(f"[{cell // 8} {cell % 8}]")
        if "You hit a mine" in observation:
            assert terminated
            assert not info["won"]
            assert 0 <= reward < 1
            lost = True
            break
        assert not terminated or info["won"]
    assert lost


def test_splits_are_apart_and_no_task_begins_as_another():
    """Hidden codes included: there are 360, of which 400 seeds draw many twice."""
    tasks = {split: make(ID, split=split, tasks=400).unwrapped.task_ids for split in ("train", "test", "all")}
    assert sorted(tasks["train"] + tasks["test"]) == sorted(tasks["all"])
    env = make(ID, split="all", tasks=400)
    codes = []
    for task_id in tasks["all"]:
        env.reset(options={"task_id": task_id})
        codes.append(tuple(env.unwrapped._game.state.game_state["secret_code"]))
    assert len(set(codes)) == len(codes) < 300
    assert 0.25 < len(tasks["test"]) / len(codes) < 0.42


HOSTILE = (
    "9" * 5000, "[" * 100_000, "[", "", "[]", "[-1 -1]", "\x00", "\ud800", "[nan]", "[\u0663 \u0664]", "[A1 Z99]",
)  # fmt: skip


@pytest.mark.parametrize(
    "game", ["LightsOut-v0", "Countdown-v0", "GuessTheNumber-v0", "Slitherlink-v0", "Mastermind-v0"]
)
def test_any_string_is_survived_and_what_a_game_fails_at_changes_nothing(game):
    env = make(ID, game=game, tasks=3, split="all")
    for action in HOSTILE:
        env.reset(seed=0, options={"task_id": f"{game} 0"})
        observation, reward, terminated, truncated, info = env.step(action)
        assert isinstance(observation, str)
        if len(action) > 1000:
            assert (info["action_valid"], reward, terminated, truncated) == (False, 0.0, False, False)


def test_a_game_that_cannot_be_made_here_is_refused(monkeypatch):
    def failing(_id):
        raise LookupError("Resource words not found.")

    monkeypatch.setattr("hgpo_gym.envs.textarena_games.textarena.make", failing)
    with pytest.raises(ValueError, match=r"game=Hangman-v0 cannot be made here.*Resource words not found"):
        make(ID, game="Hangman-v0")


def test_threads_do_not_draw_each_others_chances():
    def play(number):
        env = make(ID, game="Mastermind-v0", tasks=30, split="all")
        task_id = env.unwrapped.task_ids[number]
        responses = [env.reset(seed=number, options={"task_id": task_id})[0]]
        responses += [env.step(guess)[0] for guess in ("[1 2 3 4]", "[2 1 4 3]", "[5 6 1 2]")]
        return responses

    alone = [play(number) for number in range(12)]
    before = random.getstate()
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(play, range(12))) == alone
    assert random.getstate() == before
