"""Games of TextWorld: a real one, made by tw-make's generator, as .z8 and as .json."""

import shutil

import pytest

from hgpo_gym.envs.registration import make

pytest.importorskip("textworld")

from hgpo_gym.envs.splits import hashed, in_split
from hgpo_gym.envs.textworld_games import facts_around

ID = "hgpo_gym/TextWorld-v0"


def test_a_game_is_won_by_the_shortest_way(textworld_games):
    env = make(ID, games=textworld_games, expert=True)
    won = 0
    for task_id in env.unwrapped.task_ids:
        observation, info = env.reset(options={"task_id": task_id})
        assert observation.startswith("-= ")
        assert len(info["task"]) > 20
        rewards = []
        while not info["won"]:
            assert info["expert_action"] in info["admissible_actions"]
            observation, reward, terminated, _, info = env.step(info["expert_action"])
            assert "\n>" not in observation
            rewards.append(reward)
        assert terminated
        assert rewards == [0.0] * (len(rewards) - 1) + [10.0]
        won += 1
    assert won == 2


def test_the_logic_alone_tells_facts_and_takes_the_same_way(textworld_games, tmp_path):
    for file in textworld_games.glob("*.json"):
        shutil.copy(file, tmp_path)
    prose, logic = (make(ID, games=folder, expert=True) for folder in (textworld_games, tmp_path))
    assert prose.unwrapped.task_ids == logic.unwrapped.task_ids
    for task_id in logic.unwrapped.task_ids:
        infos = [env.reset(options={"task_id": task_id})[1] for env in (prose, logic)]
        assert infos[0] == infos[1]
        while not infos[0]["won"]:
            steps = [env.step(infos[0]["expert_action"]) for env in (prose, logic)]
            assert steps[0][1:] == steps[1][1:]
            infos = [step[-1] for step in steps]
            assert "at(you, " in steps[1][0]


def test_what_is_not_admissible_never_reaches_the_game(textworld_games):
    env = make(ID, games=textworld_games)
    before, info = env.reset(seed=0)
    observation, reward, terminated, _, after = env.step("restart")
    assert (observation, reward, terminated) == ("That is not possible here.", 0.0, False)
    assert not after["action_valid"]
    assert after["admissible_actions"] == info["admissible_actions"]
    assert env.step("look")[0].startswith(before.splitlines()[0])


def test_reward_may_be_the_points_of_the_game(textworld_games):
    env = make(ID, games=textworld_games, expert=True, reward="score")
    _, info = env.reset(seed=0)
    total = 0.0
    while not info["won"]:
        _, reward, _, _, info = env.step(info["expert_action"])
        total += reward
    assert total == 1.0


class Fact:
    def __init__(self, name, *arguments):
        self.name = name
        self.arguments = [type("Argument", (), {"name": n, "type": n if n in "PI" else "t"}) for n in arguments]


def test_closed_and_distant_objects_are_not_described():
    facts = [
        Fact("at", "P", "hall"), Fact("at", "box", "hall"), Fact("closed", "box"), Fact("in", "key", "box"),
        Fact("at", "table", "hall"), Fact("on", "note", "table"), Fact("at", "lamp", "cellar"), Fact("in", "coin", "I"),
        Fact("north_of", "cellar", "hall"),
    ]  # fmt: skip
    assert facts_around(facts) == (
        "at(box, hall); at(table, hall); at(you, hall); closed(box); in(coin, inventory); north_of(cellar, hall); "
        "on(note, table)"
    )


def test_mistakes_are_named(textworld_games, tmp_path):
    with pytest.raises(ValueError, match="hgpo_gym/TextWorld-v0 needs the option games"):
        make(ID)
    with pytest.raises(FileNotFoundError, match=r"TextWorld games not found in .*Make one by 'tw-make custom"):
        make(ID, games=tmp_path)
    (tmp_path / "alone.z8").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"alone.z8: expected files .z8, each with its .json"):
        make(ID, games=tmp_path / "alone.z8")
    with pytest.raises(ValueError, match="Did you mean 'score'"):
        make(ID, games=textworld_games, reward="scores")


def test_an_empty_split_is_named(textworld_games):
    one = next(textworld_games.glob("*.z8"))
    task = make(ID, games=one).unwrapped.task_ids[0]
    full, empty = ("train", "test") if in_split("train", hashed(task)) else ("test", "train")
    assert make(ID, games=one, split=full).unwrapped.task_ids == (task,)
    with pytest.raises(ValueError, match=f"The split '{empty}' is empty: there are 1 games. Set split=all"):
        make(ID, games=one, split=empty)


def test_a_folder_lists_games_alone_and_a_file_that_is_none_is_named(textworld_games, tmp_path):
    [first, second] = sorted(textworld_games.glob("*.json"))
    shutil.copy(first, tmp_path / "one.json")
    (tmp_path / "index.json").write_text('{"walkthroughs": {"one": ["go south"]}, "world": 1}')
    (tmp_path / "package.json").write_text("[]")
    assert len(make(ID, games=tmp_path).unwrapped.task_ids) == 1
    with pytest.raises(ValueError, match=r"index.json is not what tw-make writes of a game: leave it out"):
        make(ID, games=[tmp_path / "index.json"])

    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + second.read_bytes())
    env = make(ID, games=[tmp_path / "marked.json"])
    with pytest.raises(ValueError, match=r"cannot read the game .*marked.json: .* Make it again with 'tw-make'"):
        env.reset()


def test_games_of_a_removed_prose_are_refused(textworld_games, tmp_path):
    [file, _] = sorted(textworld_games.glob("*.json"))
    shutil.copy(file, tmp_path / "one.json")
    (tmp_path / "one.ulx").write_bytes(b"Glul")
    with pytest.warns(UserWarning, match=r"^1 games in .* have their prose in \.ulx files.* Compile each \.json to a"):
        make(ID, games=tmp_path)
    with pytest.raises(ValueError, match=r"one\.ulx: TextWorld does not play \.ulx files any more\. Compile each"):
        make(ID, games=[tmp_path / "one.ulx"])
