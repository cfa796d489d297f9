"""Generated ALFWorld games can be played and solved, follow from their seeds, and resemble ALFWorld's."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import gymnasium
import pytest

pytest.importorskip("alfworld", reason="alfworld is not installed: pip install '.[alfworld]'")

from hgpo_gym.envs import check_text_env
from hgpo_gym.envs.alfworld.generation import rooms
from hgpo_gym.envs.alfworld.generation import splits as generated
from hgpo_gym.envs.alfworld.generation.games import GeneratedGame, generate_game, write_games
from hgpo_gym.envs.alfworld.generation.splits import GENERATED_SPLITS, generated_folder
from hgpo_gym.envs.alfworld.native import rules as game_rules
from hgpo_gym.envs.alfworld.splits import find_games
from tests.checks.generated_games import (
    KINDS,
    Sample,
    generated_sample,
    means,
    objects,
    reachable,
    receptacles,
    released_sample,
    steps,
)
from tests.support import ROOT


@pytest.fixture(scope="session")
def games() -> list[GeneratedGame]:
    return [generate_game(seed) for seed in range(600)]


@pytest.fixture(scope="session")
def made(games) -> list[Sample]:
    return [generated_sample(game) for game in games]


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> Path:
    """No games anywhere: neither in the cache nor ALFWorld's."""
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "none"))
    return tmp_path / "cache"


# ---- each game


def test_the_walkthrough_wins_with_its_last_command(games, made):
    for game, (_, _, table) in zip(games, made, strict=True):
        state = table.initial
        for command in game.game["walkthrough"]:
            assert not game_rules.is_won(table, state), game.task_id
            state = game_rules.apply(table, state, game_rules.commands(table, state)[command])
        assert game_rules.is_won(table, state), game.task_id


def test_games_are_distinct_and_task_types_take_turns(games):
    assert len({game.task_id for game in games}) == len({game.folder for game in games}) == 600
    assert sorted(Counter(game.task_type for game in games).values()) == 6 * [100]


def test_the_goal_is_that_of_the_task(games, made):
    for game, (_, _, table) in zip(games, made, strict=True):
        about = game.trajectory["pddl_params"]
        assert table.goal.task_type == game.task_type == game.trajectory["task_type"]
        assert f" {about['object_target'].lower()} " in table.task
        assert {table.objects[number].split()[0] for number in table.goal.objects} == {about["object_target"].lower()}


def test_the_object_is_neither_where_it_is_to_be_treated_nor_delivered_already(games, made):
    for game, (_, _, table) in zip(games, made, strict=True):
        places = {"clean": table.washing, "hot": table.heating, "cool": table.cooling, "": table.goal.receptacles}
        for number in places[table.goal.quality]:
            assert table.initial.contents[number].isdisjoint(table.goal.objects), game.task_id


def test_a_receptacle_for_one_object_starts_with_one_at_most(made):
    for _, _, table in made:
        for name, contents in zip(table.receptacles, table.initial.contents, strict=True):
            if name.split()[0] in {type_.lower() for type_ in rooms.HOLDS_ONE}:
                assert len(contents) <= 1


def test_alfworld_loads_generated_games(tmp_path):
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

    games = write_games(tmp_path, range(12))
    settings = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]},
        "dataset": {"data_path": str(tmp_path), "num_train_games": -1},
    }
    expected = {str(tmp_path / game.folder / "game.tw-pddl") for game in games}
    assert set(AlfredTWEnv(settings, train_eval="train").game_files) == expected


def test_alfworlds_expert_solves_one(tmp_path):
    write_games(tmp_path, [0])
    env = gymnasium.make(
        "hgpo_gym/ALFWorld-v0", data=tmp_path, split="train", engine="textworld", expert=True,
        expert_policy="hand_coded",
    )  # fmt: skip
    _, info = env.reset()
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(info["expert_action"])
        ended = terminated or truncated
    assert info["won"]


# ---- seeds


# ---- splits


def test_the_splits_share_no_game(games):
    assert set(GENERATED_SPLITS["generated"]).isdisjoint(GENERATED_SPLITS["generated_test"])
    held_out = {generate_game(seed).task_id for seed in GENERATED_SPLITS["generated_test"]}
    assert len(held_out) == len(GENERATED_SPLITS["generated_test"]) == 140
    assert held_out.isdisjoint(game.task_id for game in games)


def test_a_split_is_played_without_any_data(empty_cache):
    env = gymnasium.make("hgpo_gym/ALFWorld-v0", split="generated_test", expert=True, expert_policy="planner")
    assert len(env.unwrapped.task_ids) == 140
    check_text_env(env)
    for task_id in env.unwrapped.task_ids[::20]:
        _, info = env.reset(options={"task_id": task_id})
        while not info["won"]:
            _, _, _, truncated, info = env.step(info["expert_action"])
            assert not truncated
    assert [path.parent for path in empty_cache.glob("alfworld/generated/*")] == [
        empty_cache / "alfworld" / "generated"
    ]


def test_a_split_is_made_once_with_a_message(empty_cache, monkeypatch, capsys):
    monkeypatch.setitem(generated.GENERATED_SPLITS, "generated", range(5))
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    folder = generated_folder("generated")
    assert "Making the games of ALFWorld's split generated, once" in capsys.readouterr().err
    made = folder.stat().st_mtime_ns
    assert generated_folder("generated") == folder
    assert (folder.stat().st_mtime_ns, capsys.readouterr().err) == (made, "")
    assert set(find_games(split="generated").task_ids) == {generate_game(n).task_id for n in range(5)}


def test_without_the_alfworld_package_the_error_says_what_to_install(empty_cache):
    code = (
        "import sys; sys.modules['alfworld'] = None\n"
        "from hgpo_gym.envs.alfworld.splits import find_games; find_games(split='generated')"
    )
    command = [sys.executable, "-c", code]
    failed = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert "ModuleNotFoundError: Generating ALFWorld games needs the files of the package alfworld" in failed.stderr
    assert 'pip install --no-deps "alfworld>=0.4.2"' in failed.stderr
    assert not empty_cache.exists()


# ---- next to ALFWorld's


@pytest.fixture(scope="session")
def released(alfworld_data) -> list[Sample]:
    """The games of valid_train."""
    files = sorted(alfworld_data.glob("json_2.1.1/valid_train/*/*/game.tw-pddl"))
    return [released_sample(file) for file in files]


@pytest.mark.parametrize("measure", [receptacles, objects])
def test_rooms_are_as_large_and_as_full(made, released, measure):
    assert means(made, "kind", measure) == pytest.approx(means(released, "kind", measure), rel=0.1)


def test_tasks_are_as_long(made, released):
    assert means(made, "task_type", steps) == pytest.approx(means(released, "task_type", steps), abs=0.35)


def test_objects_are_as_many(made, released):
    """The mean number of every type of object in a kind of room."""

    def count(samples: list[Sample], kind: str) -> Counter[str]:
        tables = [sample.game for sample in samples if sample.kind == kind]
        found = Counter(table.objects[number].split()[0] for table in tables for number in reachable(table))
        return Counter({name: number / len(tables) for name, number in found.items()})

    for kind in KINDS.values():
        expected, actual = count(released, kind), count(made, kind)
        assert set(actual) <= set(expected)
        for name, number in expected.items():
            assert actual[name] == pytest.approx(number, abs=0.5), (kind, name)


def test_tasks_are_worded_alike(made, released):
    def wordings(samples: list[Sample]) -> set[tuple[str, str]]:
        found = set()
        for _, task_type, table in samples:
            names = {name.split()[0] for name in (*table.objects, *table.receptacles)}
            words = table.task.removesuffix(".").split()
            found.add((task_type, " ".join("..." if word in names else word for word in words)))
        return found

    assert wordings(made) == wordings(released)
    assert len(wordings(made)) == 12
