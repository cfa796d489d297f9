"""ALFWorld on alfworld's games and engine."""

import hashlib
import json
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import hgpo_gym  # noqa: F401 - registers the ids
from hgpo_gym.envs.alfworld.env import ALFWorldEnv
from hgpo_gym.envs.alfworld.games.files import TASK_TYPES, read_game
from hgpo_gym.envs.alfworld.splits import find_games

# Games of valid_seen in bathrooms and bedrooms, which load fast.
LOOK = "look_at_obj_in_light-Pillow-DeskLamp-7bc229d1800a"
PLACE = "pick_and_place_simple-Candle-Toilet-9ebaec0bc458"
CLEAN = "pick_clean_then_place_in_recep-SoapBar-Toilet-fc416e2976e4"
TWO = "pick_two_obj_and_place-SoapBar-GarbageCan-11a14e0cdede"

MakeEnv = Callable[..., ALFWorldEnv]


@pytest.fixture
def make_env(alfworld_data: Path) -> Iterator[MakeEnv]:
    pytest.importorskip("alfworld")
    made: list[ALFWorldEnv] = []

    def make(**options: Any) -> ALFWorldEnv:
        defaults = {"split": "valid_seen", "engine": "textworld", "expert_policy": "hand_coded"}
        env = ALFWorldEnv(**{"data": alfworld_data, **defaults, **options})
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


def start(env: ALFWorldEnv, task_id: str) -> tuple[str, dict[str, Any]]:
    return env.reset(options={"task_id": task_id})


def copy_game(catalogue_data: Path, task_id: str, folder: Path) -> Path:
    """Copies a game of valid_seen into `folder`; returns its `game.tw-pddl`."""
    source = find_games(catalogue_data, "valid_seen").games[task_id].file
    folder.mkdir(parents=True)
    for file in (source, source.with_name("traj_data.json")):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder / source.name


def smallest_games(catalogue_data: Path, count: int) -> list[str]:
    """Task ids of valid_seen: TextWorld takes ten times as long to begin a large game."""
    games = find_games(catalogue_data, "valid_seen").games
    return sorted(games, key=lambda task_id: games[task_id].file.stat().st_size)[:count]


# The environment


def test_gymnasiums_checker_accepts_it(alfworld_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("alfworld")
    copy_game(alfworld_data, smallest_games(alfworld_data, 1)[0], tmp_path / "trial")
    env = gymnasium.make("hgpo_gym/ALFWorld-v0", data=tmp_path, split=".", engine="textworld")
    check_env(env.unwrapped)


def test_reset_tells_the_task_and_what_can_be_done(make_env: MakeEnv) -> None:
    observation, info = start(make_env(), PLACE)
    assert observation.startswith(
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
    )
    assert observation.endswith("\n\nYour task is to: put some candle on toilet.")
    assert info["task"] == "put some candle on toilet."
    assert info["task_type"] == "pick_and_place_simple"
    assert info["won"] is False
    assert "expert_action" not in info
    assert list(info["admissible_actions"]) == sorted(info["admissible_actions"])
    assert {"go to toilet 1", "help", "inventory", "look"} < set(info["admissible_actions"])


@pytest.mark.parametrize(("task_id", "steps"), [(LOOK, 6), (PLACE, 6), (CLEAN, 7), (TWO, 16)])
def test_expert_wins(make_env: MakeEnv, task_id: str, steps: int) -> None:
    env = make_env(expert=True)
    _, info = start(env, task_id)
    assert info["expert_action"] == "look"
    rewards: list[float] = []
    terminated = False
    while not terminated and len(rewards) < 50:
        _, reward, terminated, truncated, info = env.step(info["expert_action"])
        assert info["action_valid"]
        assert not truncated
        rewards.append(reward)
    assert rewards == [0.0] * (steps - 1) + [10.0]
    assert info["won"] is True
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_text_is_the_same_in_every_process(make_env: MakeEnv) -> None:
    """Python's string hashes differ from process to process; this digest does not."""
    env = make_env(expert=True)
    observation, info = start(env, TWO)
    choice, transcript = random.Random(1), hashlib.sha256(observation.encode())
    for step in range(12):
        action = info["expert_action"] if step % 2 else choice.choice(info["admissible_actions"])
        observation, *_, info = env.step(action)
        transcript.update("\n".join((action, observation, *info["admissible_actions"])).encode())
    assert transcript.hexdigest()[:12] == "21721cae98ee"


def test_a_moment_is_brought_back_in_another_environment(make_env: MakeEnv) -> None:
    first, second = make_env(engine="textworld"), make_env(engine="textworld")
    start(first, TWO)
    for _ in range(4):
        first.step(first.np_random.choice(first.snapshot().turn.admissible_actions))
    snapshot = first.snapshot()
    command = snapshot.turn.admissible_actions[0]
    expected = first.step(command)
    start(second, PLACE)
    observation, info = second.restore(snapshot)
    assert observation == snapshot.turn.observation
    assert info["task_id"] == TWO
    assert second.step(command) == expected
    assert start(second, PLACE) == start(first, PLACE)


def test_a_custom_game_file_is_played(make_env: MakeEnv, alfworld_data: Path, tmp_path: Path) -> None:
    file = copy_game(alfworld_data, PLACE, tmp_path / "mine")
    env = make_env(engine="native", split="valid_train")
    observation, info = env.reset(options={"game_file": file})
    assert (info["task_id"], info["task_type"]) == (PLACE, "pick_and_place_simple")
    assert observation == start(make_env(engine="native"), PLACE)[0]
    assert env.reset(seed=1)[1]["task_id"] in env.task_ids
    with pytest.raises(ValueError, match="both name a task"):
        env.reset(options={"game_file": file, "task_id": PLACE})
    with pytest.raises(FileNotFoundError, match=r"There is no game file .*nowhere"):
        env.reset(options={"game_file": tmp_path / "nowhere"})
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match="is not a valid ALFWorld game"):
        env.reset(options={"game_file": file})


def test_odd_actions_change_nothing(make_env: MakeEnv) -> None:
    env = make_env(expert=True)
    _, before = start(env, PLACE)
    odd = ["", " \t\n", "fly", "LOOK", "look around", "go to", "take candle 1 from moon 1", "\ud800", "\x00\x1b[2J"]
    odd += ["l\u0131ook", "look\nlook", "#intro#", "{o.name}", "ü" * 100_000, "put", "open", "go to \udfff 1"]
    for action in odd:
        observation, reward, terminated, truncated, info = env.step(action)
        assert (observation, reward, terminated, truncated) == ("Nothing happens.", 0.0, False, False)
        assert info["action_valid"] is False
        assert info["admissible_actions"] == before["admissible_actions"]
        assert info["expert_action"] in info["admissible_actions"]
    for action in ("look", "\u00a0inventory\r\n"):
        observation, *_, info = env.step(action)
        assert observation != "Nothing happens."
        assert info["action_valid"] is True


def test_the_process_is_left_as_it_was(make_env: MakeEnv, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, random_state = sys.argv, random.getstate()
    env = make_env(expert=True)
    start(env, PLACE)
    for _ in range(3):
        env.step("look")  # the expert repeats itself and draws at random
    env.close()
    assert sys.argv is arguments
    assert random.getstate() == random_state
    assert capfd.readouterr() == ("", "")


def test_expert_is_alfworlds(alfworld_data: Path, make_env: MakeEnv) -> None:
    """The same advice as alfworld's wrapper gives from the same random stream, on and off its course."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredExpert
    from textworld.envs.pddl import PddlEnv

    env = make_env(expert=True)
    _, info = start(env, TWO)
    reference = AlfredExpert(AlfredDemangler(PddlEnv(textworld.EnvInfos())))
    reference.load(str(find_games(alfworld_data, "valid_seen").games[TWO].file))
    random_state = random.getstate()
    random.seed(0)
    state = reference.reset()
    choice = random.Random(2)
    advice, expected = [info["expert_action"]], [state["extra.expert_plan"][0]]
    for step in range(25):
        action = choice.choice([*state["admissible_commands"], "fly"]) if step % 3 == 2 else advice[-1]
        *_, info = env.step(action)
        state, _, _ = reference.step(action)
        advice.append(info["expert_action"])
        expected.append(state["extra.expert_plan"][0])
    random.setstate(random_state)
    assert advice == expected
    assert len(set(advice)) > 8


def test_expert_that_gives_up_says_look(make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    from hgpo_gym.envs.alfworld import textworld_engine

    monkeypatch.setattr(textworld_engine._Expert, "max_steps", 2)
    env = make_env(expert=True)
    start(env, TWO)
    advice = [env.step("inventory")[4]["expert_action"] for _ in range(4)]
    assert advice[0].startswith("go to ")
    assert advice[2:] == ["look", "look"]


def test_close_releases_the_engine_and_works_twice(make_env: MakeEnv) -> None:
    from hgpo_gym.envs.alfworld.textworld_engine import TextWorldEngine

    make_env().close()

    def copies_of_the_library() -> int:
        return sum("libdownward" in line and "r-xp" in line for line in Path("/proc/self/maps").open())

    def open_descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    copies, descriptors = copies_of_the_library(), open_descriptors()
    for _ in range(5):
        env = make_env()
        env.close()
        env.close()
        TextWorldEngine()  # dropped without close()
    assert copies_of_the_library() == copies
    assert open_descriptors() == descriptors
    with pytest.raises(RuntimeError, match="closed"):
        start(env, PLACE)


# The games


@pytest.mark.parametrize(
    ("split", "count", "first", "last"),
    [
        (
            "valid_train",
            200,
            "look_at_obj_in_light-Book-DeskLamp-10deb008b10a",
            "pick_two_obj_and_place-Watch-CoffeeTable-df362df0399c",
        ),
        (
            "valid_seen",
            140,
            "look_at_obj_in_light-AlarmClock-DeskLamp-e740f36f08dc",
            "pick_two_obj_and_place-Watch-Dresser-75051a14b604",
        ),
    ],
)
def test_task_ids_are_the_same_everywhere(alfworld_data: Path, split: str, count: int, first: str, last: str) -> None:
    task_ids = find_games(alfworld_data, split).task_ids
    assert (len(task_ids), task_ids[0], task_ids[-1]) == (count, first, last)
    assert list(task_ids) == sorted(set(task_ids))


def test_games_are_those_that_alfworld_lists(alfworld_data: Path) -> None:
    pytest.importorskip("alfworld")
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

    config = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]},
        "dataset": {"eval_id_data_path": str(alfworld_data / "json_2.1.1" / "valid_seen"), "num_eval_games": -1},
    }
    listed = AlfredTWEnv(config, train_eval="eval_in_distribution").game_files
    found = [game.file for game in find_games(alfworld_data, "valid_seen").games.values()]
    assert {Path(file).resolve() for file in listed} == set(found)


def test_task_ids_depend_on_content_alone(alfworld_data: Path, tmp_path: Path) -> None:
    copy_game(alfworld_data, PLACE, tmp_path / "extra" / "z" / "2")
    copy_game(alfworld_data, LOOK, tmp_path / "extra" / "a" / "1")
    copy_game(alfworld_data, LOOK, tmp_path / "extra" / "zz")
    assert find_games(tmp_path, "extra").task_ids == (LOOK, PLACE)


def test_task_types_choose_games(alfworld_data: Path) -> None:
    every = find_games(alfworld_data, "valid_train")
    counts = {name: len(find_games(alfworld_data, "valid_train", [name]).task_ids) for name in TASK_TYPES}
    assert counts == {
        "look_at_obj_in_light": 19, "pick_and_place_simple": 46, "pick_clean_then_place_in_recep": 37,
        "pick_cool_then_place_in_recep": 28, "pick_heat_then_place_in_recep": 25, "pick_two_obj_and_place": 45,
    }  # fmt: skip
    two = find_games(alfworld_data, "valid_train", ["pick_two_obj_and_place", "look_at_obj_in_light"])
    assert two.task_ids == tuple(i for i in every.task_ids if i.startswith(("pick_two", "look_at")))


@pytest.mark.parametrize("below", ["", "json_2.1.1", "json_2.1.1/valid_seen"])
def test_data_may_name_the_root_the_version_or_the_split(alfworld_data: Path, below: str) -> None:
    assert len(find_games(alfworld_data / below, "valid_seen").task_ids) == 140


def test_environments_share_one_catalogue(alfworld_data: Path) -> None:
    assert find_games(alfworld_data, "valid_seen") is find_games(str(alfworld_data), "valid_seen", list(TASK_TYPES))


def test_alfworld_data_is_the_default(alfworld_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(alfworld_data))
    assert find_games(split="valid_seen") is find_games(alfworld_data, "valid_seen")
    monkeypatch.delenv("ALFWORLD_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=str(tmp_path / ".cache" / "alfworld")):
        find_games()


def test_missing_games_say_how_to_get_them(tmp_path: Path) -> None:
    expected = (
        f"ALFWorld games not found in {tmp_path}/alf: expected **/game.tw-pddl under valid_unseen. "
        "Run 'hgpo-gym data alfworld', or set data=... (in commands env.data=...) or $ALFWORLD_DATA to the folder "
        "that holds json_2.1.1; or play generated games: split='generated' or split='generated_test'."
    )
    for folder in ("", "alf", "alf/json_2.1.1", "alf/json_2.1.1/valid_unseen/task/trial"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        with pytest.raises(FileNotFoundError) as caught:
            find_games(tmp_path / "alf", "valid_unseen")
        assert str(caught.value) == expected


def test_a_missing_split_is_refused_with_those_that_exist(alfworld_data: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"under train \(of .*/json_2\.1\.1, valid_seen, valid_train can be played\)"
    ):
        find_games(alfworld_data, "train")


def test_splits_are_joined_and_the_first_of_a_list_is_used(alfworld_data: Path) -> None:
    joined = find_games(alfworld_data, "valid_seen+valid_train")
    assert (len(joined.task_ids), joined.split) == (340, "valid_seen+valid_train")
    assert set(find_games(alfworld_data, "valid_train").task_ids) < set(joined.task_ids)
    assert find_games(alfworld_data, ["train", "valid_train", "generated"]).split == "valid_train"
    with pytest.raises(FileNotFoundError, match="under valid_unseen"):  # not generated games in silence
        find_games(alfworld_data, ["train", "valid_unseen", "generated"])


def test_a_machine_without_data_plays_generated_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        with pytest.warns(UserWarning, match="no ALFWorld games .*playing generated ones"):
            found = find_games(split=["valid_seen", "generated_test"])
        assert (found.split, len(found.task_ids)) == ("generated_test", 140)
        # as the package alfworld does where it is imported, with the first game that is made
        monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / ".cache" / "alfworld"))


def test_unknown_names_show_the_nearest(alfworld_data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"Unknown split 'generated_train'\..* valid_seen, .*generated, generated_test"
    ):
        find_games(tmp_path, "generated_train")
    with pytest.raises(ValueError, match=r"Unknown split 'valid_sen'\. Did you mean 'valid_seen'\?"):
        find_games(alfworld_data, "valid_sen")
    with pytest.raises(ValueError, match="holds the split 'valid_seen', not 'train'"):
        find_games(alfworld_data / "json_2.1.1" / "valid_seen")
    with pytest.raises(ValueError, match=r"task type 'pick_and_place'\. Did you mean 'pick_and_place_simple'\?"):
        find_games(alfworld_data, "valid_seen", ["pick_and_place"])
    with pytest.raises(ValueError, match="task_types is empty"):
        find_games(alfworld_data, "valid_seen", [])


def test_games_that_alfworld_skips_are_skipped(alfworld_data: Path, tmp_path: Path) -> None:
    def change(file: Path, **changes: Any) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    change(copy_game(alfworld_data, LOOK, tmp_path / "unsolvable"), solvable=False)
    other = copy_game(alfworld_data, LOOK, tmp_path / "other").with_name("traj_data.json")
    change(other, task_type="pick_and_place_with_movable_recep")
    copy_game(alfworld_data, LOOK, tmp_path / "pick_and_place_simple-AppleSliced-None-Fridge-1" / "trial")
    (tmp_path / "no game").mkdir()
    (tmp_path / "no game" / "traj_data.json").write_text("{}")
    with pytest.raises(ValueError, match="1 other task types, 1 movable receptacles or sliced objects, 1 not marked"):
        find_games(tmp_path)
    copy_game(alfworld_data, PLACE, tmp_path / "intact")
    assert find_games(tmp_path).task_ids == (PLACE,)
    with pytest.raises(ValueError, match=r"has the task type look_at_obj_in_light; there are \{'pick_and_place"):
        find_games(tmp_path, task_types=["look_at_obj_in_light"])


def without(key: str) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps({k: v for k, v in json.loads(content).items() if k != key}).encode()


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("game.tw-pddl", lambda content: content[: len(content) // 2], "not JSON"),
        ("game.tw-pddl", lambda _: b"\xff\xfe\x00PK", "not JSON"),
        ("game.tw-pddl", lambda _: b"[1, 2]", "a JSON list"),
        ("game.tw-pddl", lambda _: b'{"quests": []}', "no text 'pddl_domain'"),
        ("game.tw-pddl", without("grammar"), "no text 'grammar'"),
        ("game.tw-pddl", lambda content: content.replace(b"(:goal", b"(:gaol"), "not a whole PDDL problem"),
        ("game.tw-pddl", lambda content: content.replace(b"Your task is to", b"Do"), "no 'Your task is to:'"),
        ("traj_data.json", lambda content: content[:1000], "not JSON"),
        ("traj_data.json", without("pddl_params"), "'pddl_params' must have"),
    ],
)
def test_a_damaged_game_is_named_before_any_episode(
    alfworld_data: Path, tmp_path: Path, name: str, damage: Callable[[bytes], bytes], reason: str
) -> None:
    copy_game(alfworld_data, PLACE, tmp_path / "task" / "intact")
    damaged = copy_game(alfworld_data, LOOK, tmp_path / "task" / "trial").with_name(name)
    damaged.write_bytes(damage(damaged.read_bytes()))
    with pytest.raises(ValueError, match=reason) as caught:
        find_games(tmp_path)
    assert str(caught.value).startswith(f"{damaged} is not a valid ALFWorld game: ")
    assert "hgpo-gym data alfworld" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # it may come from a worker process


def test_engine_names_a_game_that_it_cannot_play(alfworld_data: Path, tmp_path: Path, make_env: MakeEnv) -> None:
    game = copy_game(alfworld_data, LOOK, tmp_path / "task" / "trial")
    content = read_game(game)
    content["pddl_domain"] = content["pddl_domain"][:9000]
    game.write_text(json.dumps(content))
    env = make_env(data=tmp_path, split="train")
    with pytest.raises(ValueError, match=f"cannot play {game}: "):
        env.reset()
