"""The native ALFWorld engine says what TextWorld says, after every command of walks through a released game, a kitchen
of rare cases and a generated game. `make parity` plays the others, and every released game at length."""

from pathlib import Path

import pytest

from hgpo_gym.envs.alfworld.games.files import TASK_TYPES as GENERATED_TASK_TYPES
from hgpo_gym.envs.alfworld.generation.games import write_games
from hgpo_gym.envs.alfworld.native import NativeEngine
from hgpo_gym.envs.alfworld.textworld_engine import TextWorldEngine
from tests.checks.alfworld_parity import compare, with_package_rules
from tests.support.alfworld_games import KITCHEN_GOALS, TASK_TYPES, kitchen, released_games, write_game

pytest.importorskip("alfworld", reason="alfworld is not installed: pip install '.[alfworld]'")


@pytest.fixture(scope="session")
def original() -> TextWorldEngine:
    return TextWorldEngine()


@pytest.fixture
def engine(tmp_path: Path) -> NativeEngine:
    return NativeEngine(cache=tmp_path / "cache")


def every(names, *usual):
    """A parameter for each name; all but the usual ones are left to `make parity`."""
    return [pytest.param(name, marks=[] if name in usual else pytest.mark.exhaustive) for name in names]


def smallest(games: list[Path]) -> Path:
    """TextWorld takes longer for large ones."""
    return min(games, key=lambda game_file: game_file.stat().st_size)


@pytest.mark.smoke
@pytest.mark.promise("The native ALFWorld engine answers every command in TextWorld's words.")
@pytest.mark.parametrize("task_type", every(TASK_TYPES, "pick_two_obj_and_place"))
@pytest.mark.parametrize("split", every(("valid_seen", "valid_train"), "valid_seen"))
def test_texts_are_textworlds(alfworld_data, engine, original, split, task_type):
    game_file = smallest(released_games(alfworld_data, split, task_type))
    report = compare(game_file, engine, original, walks=1, steps=30, seed=0)
    assert not report.differences, report.differences[0]
    assert report.steps >= 30
    assert report.wins == 1


@pytest.mark.exhaustive
def test_texts_are_textworlds_by_the_rules_of_the_package(alfworld_data, engine, original, tmp_path):
    game = released_games(alfworld_data, "valid_seen", "pick_heat_then_place_in_recep")[0]
    report = compare(with_package_rules(game, tmp_path), engine, original, walks=1, steps=40, seed=0)
    assert not report.differences, report.differences[0]


@pytest.mark.parametrize("goal", every(KITCHEN_GOALS, "clean"))
def test_texts_are_textworlds_in_a_kitchen_of_rare_cases(engine, original, tmp_path, goal):
    report = compare(write_game(tmp_path, kitchen(goal)), engine, original, walks=2, steps=60, seed=1)
    assert not report.differences, report.differences[0]


@pytest.mark.exhaustive
def test_starts_like_textworld_at_a_receptacle(engine, original, tmp_path):
    game = kitchen("heat", "(atLocation agent1 loc_bar_0)", "(atLocation agent1 loc_bar_1)")
    report = compare(write_game(tmp_path, game), engine, original, walks=1, steps=20, seed=2)
    assert not report.differences, report.differences[0]


@pytest.mark.promise("Generated ALFWorld games play in TextWorld as they do here.")
@pytest.mark.parametrize("task_type", every(GENERATED_TASK_TYPES, "look_at_obj_in_light"))
def test_texts_are_textworlds_for_generated_games(tmp_path, engine, original, task_type):
    games = write_games(tmp_path, range(GENERATED_TASK_TYPES.index(task_type), 60, len(GENERATED_TASK_TYPES)))
    game_file = smallest([tmp_path / game.folder / "game.tw-pddl" for game in games])
    report = compare(game_file, engine, original, walks=1, steps=20, seed=0)
    assert not report.differences, report.differences[0]
    assert report.wins == 1
