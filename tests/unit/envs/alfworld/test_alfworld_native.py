"""The native ALFWorld engine: what it plays, its cache, its snapshots and its planner. tests/parity compares it with
TextWorld."""

import json
import random
from pathlib import Path

import gymnasium
import pytest

from hgpo_gym.envs import check_text_env
from hgpo_gym.envs.alfworld.env import ALFWorldEnv
from hgpo_gym.envs.alfworld.native import CompiledGame, NativeEngine, UnknownGameRules, compile_game, shortest_plan
from hgpo_gym.envs.alfworld.native import rules as game_rules
from hgpo_gym.envs.alfworld.native.compiled_games import CompiledGames, read_game_entry
from tests.support.alfworld_games import KITCHEN_GOALS, TASK_TYPES, kitchen, released_games, write_game

pytest.importorskip("alfworld", reason="alfworld is not installed: pip install '.[alfworld]'")

SAMPLE = [(split, task_type) for split in ("valid_seen", "valid_train") for task_type in TASK_TYPES]


@pytest.fixture
def engine(tmp_path) -> NativeEngine:
    return NativeEngine(cache=tmp_path / "cache")


@pytest.fixture
def released_game(alfworld_data) -> Path:
    """One of the released games: something is to be heated."""
    return released_games(alfworld_data, "valid_seen", "pick_heat_then_place_in_recep")[0]


def test_help_and_look_beside_receptacles_at_one_location(engine, tmp_path):
    engine.load(write_game(tmp_path, kitchen("place")))
    assert engine.step("look").feedback == (
        "You are in the middle of a room. Looking quickly around you, you see nothing."
    )
    for command in ("go to cabinet 1", "take mug 1 from cabinet 1", "open cabinet 2", "move mug 1 to cabinet 2"):
        assert engine.step(command).feedback != "Nothing happens."
    # What was moved from one cabinet to its neighbour counts as lying next to them.
    assert engine.step("look").feedback == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a mug 1."


# ---- which games it plays


def test_comments_layout_and_case_of_the_domain_do_not_matter(released_game):
    game = json.loads(released_game.read_text())
    changed = {**game, "pddl_domain": "; a comment\n" + game["pddl_domain"].upper().replace("\n", "\n\n  ")}
    assert compile_game(changed) == compile_game(game)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pddl_domain", "(isHot ?o)\n                (not (isCool ?o))", "(isHot ?o)"),
        ("grammar", "You open the", "You pull open the"),
        ("grammar", "  slice (object)", " slice (object)"),
        ("grammar", '"Your task is to: heat', '"Your task is to: {r.name} heat'),
        ("pddl_problem", "(isHot ?o)", "(isSliced ?o)"),
        ("pddl_problem", "agent1 - agent", "agent1 - agent agent2 - agent"),
        ("pddl_problem", "(:init", "(:init (holdsAny agent1)"),
    ],
)
def test_refuses_rules_it_does_not_know(released_game, name, old, new):
    game = json.loads(released_game.read_text())
    assert old in game[name]
    with pytest.raises(UnknownGameRules):
        compile_game({**game, name: game[name].replace(old, new)})


def test_refuses_a_receptacle_at_two_locations():
    game = kitchen(
        "place",
        "(receptacleAtLocation Fridge_bar_1 loc_bar_5)",
        "(receptacleAtLocation Fridge_bar_1 loc_bar_5) (receptacleAtLocation Fridge_bar_1 loc_bar_6)",
    )
    with pytest.raises(UnknownGameRules, match="one location"):
        compile_game(game)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', '{"pddl_problem": "("}', "\x00\x01", "null"])
def test_an_unsound_game_file_is_refused_by_name(engine, tmp_path, content):
    game_file = tmp_path / "game.tw-pddl"
    game_file.write_text(content)
    with pytest.raises(ValueError, match=r"game\.tw-pddl"):
        engine.load(game_file)


def test_an_engine_without_a_game_says_so(engine, tmp_path):
    with pytest.raises(RuntimeError, match="No game is loaded"):
        engine.reset()
    engine.load(write_game(tmp_path, kitchen("place")))
    engine.reset()
    with pytest.raises(FileNotFoundError):
        engine.load(tmp_path / "missing.tw-pddl")
    for call in (engine.reset, lambda: engine.step("look"), engine.expert_command):
        with pytest.raises(RuntimeError, match="No game is loaded"):
            call()
    engine.close()
    engine.close()


# ---- the cache of compiled games


def test_a_compiled_game_survives_the_cache(alfworld_data, tmp_path):
    for game_file in released_games(alfworld_data, "valid_seen")[::20]:
        game = CompiledGames(tmp_path).get(game_file)
        from_disk = read_game_entry(CompiledGames(tmp_path).entry(game_file.read_bytes()))
        assert from_disk == game == compile_game(json.loads(game_file.read_text()))


def test_engines_share_a_compiled_game(tmp_path):
    game_file = write_game(tmp_path, kitchen("heat"))
    engines = [NativeEngine(cache=tmp_path / "cache") for _ in range(3)]
    for engine in engines:
        engine.load(game_file)
    assert engines[0].game is engines[1].game is engines[2].game


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda entry: entry[: len(entry) // 2],
        lambda entry: entry.replace(b"mug 1", b"mug 2"),
        lambda entry: entry.replace(b"game ", b"game 0", 1),
        lambda entry: entry.split(b"\n", 1)[1],
        lambda _: b"\xff" * 100,
    ],
    ids=["empty", "truncated", "altered", "other-version", "no-header", "noise"],
)
def test_a_damaged_entry_is_compiled_again(tmp_path, damage):
    game_file = write_game(tmp_path, kitchen("heat"))
    good = CompiledGames(tmp_path / "cache").get(game_file)
    entry = CompiledGames(tmp_path / "cache").entry(game_file.read_bytes())
    intact = entry.read_bytes()
    entry.write_bytes(damage(intact))
    assert read_game_entry(entry) is None
    assert CompiledGames(tmp_path / "cache").get(game_file) == good
    assert entry.read_bytes() == intact


def test_a_game_file_that_changes_is_compiled_again(tmp_path):
    games = CompiledGames(tmp_path / "cache")
    before = games.get(write_game(tmp_path, kitchen("heat")))
    after = games.get(write_game(tmp_path, kitchen("place")))
    assert (before.goal.task_type, after.goal.task_type) == ("pick_heat_then_place_in_recep", "pick_and_place_simple")


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="HGPO_GYM_CACHE"):
        game = CompiledGames(tmp_path / "file" / "cache").get(write_game(tmp_path, kitchen("heat")))
    assert game == compile_game(kitchen("heat"))


# ---- snapshots


def test_a_snapshot_is_returned_to_and_branches(released_game, tmp_path):
    engine, other = NativeEngine(cache=tmp_path), NativeEngine(cache=tmp_path)
    engine.load(released_game)
    other.load(released_game)
    rng, state = random.Random(0), engine.reset()
    for _ in range(30):
        snapshot, admissible = engine.snapshot(), state.admissible_commands
        responses = []
        for command in rng.sample(admissible, 5):
            engine.restore(snapshot)
            other.restore(snapshot)
            responses.append(engine.step(command))
            assert other.step(command) == responses[-1]
        assert engine.snapshot() == other.snapshot()
        assert hash(engine.snapshot()) == hash(other.snapshot())
        state = responses[-1]
    opening = engine.reset()
    assert opening.feedback.startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert opening == other.reset()


# ---- the planner


@pytest.mark.parametrize(("split", "task_type"), SAMPLE)
def test_the_planner_wins(alfworld_data, engine, split, task_type):
    for game_file in released_games(alfworld_data, split, task_type):
        engine.load(game_file)
        state, steps = engine.reset(), 0
        expected = shortest_plan(engine.game, engine.snapshot())
        assert expected is not None
        stored = json.loads(game_file.read_text()).get("walkthrough")  # valid_seen's games have one
        assert stored is None or len(expected) <= len(stored)
        while not state.won:
            command = engine.expert_command()
            assert command in state.admissible_commands
            state = engine.step(command)
            steps += 1
        assert steps == len(expected)
        assert engine.expert_command() == "look"


def distance_to_success(game: CompiledGame, state, limit: int) -> int | None:
    """The number of commands to success by exhaustive search, None if it is more than `limit`."""
    seen, frontier = {state}, [state]
    for depth in range(limit + 1):
        if any(game_rules.is_won(game, state) for state in frontier):
            return depth
        reached = (
            game_rules.apply(game, state, action)
            for state in frontier
            for action in game_rules.commands(game, state).values()
        )
        frontier = [after for after in dict.fromkeys(reached) if after not in seen]
        seen.update(frontier)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("goal", KITCHEN_GOALS)
def test_no_plan_is_shorter(goal):
    game = compile_game(kitchen(goal))
    rng, lengths = random.Random(3), set()
    for steps in range(0, 24, 2):
        state = game.initial
        for _ in range(steps):
            state = game_rules.apply(game, state, rng.choice(sorted(game_rules.commands(game, state).items()))[1])
        plan = shortest_plan(game, state)
        assert plan is not None
        shorter = distance_to_success(game, state, limit=min(len(plan), 8) - 1)
        assert shorter is None, (state, plan, shorter)
        lengths.add(len(plan))
    assert len(lengths) > 1


def test_no_plan_where_there_is_no_way():
    game = compile_game(kitchen("place", "(pickupable Mug_bar_1)", ""))
    assert shortest_plan(game, game.initial) is None


def test_no_plan_with_something_in_hand_that_fits_nowhere(engine, tmp_path):
    engine.load(write_game(tmp_path, kitchen("place", "(canContain CabinetType BoxType)", "")))
    assert engine.expert_command() == "go to cabinet 1"
    for command in ("go to cabinet 2", "open cabinet 2", "take box 1 from cabinet 2"):
        assert engine.step(command).feedback != "Nothing happens."
    assert shortest_plan(engine.game, engine.snapshot()) is None
    assert engine.expert_command() == "look"


# ---- as an environment


def test_the_environment_keeps_the_contract_and_its_planner_wins(alfworld_data):
    options = {"data": alfworld_data, "split": "valid_seen", "expert": True, "expert_policy": "planner"}
    env = gymnasium.make("hgpo_gym/ALFWorld-v0", **options)
    check_text_env(env)
    for task_id in env.unwrapped.task_ids[::20]:
        _, info = env.reset(options={"task_id": task_id})
        steps = 0
        while not info["won"]:
            _, reward, _, truncated, info = env.step(info["expert_action"])
            steps += 1
            assert not truncated
        assert reward == 10.0
        assert steps <= 9


@pytest.fixture
def odd_game(alfworld_data, tmp_path):
    """A folder with a released game whose grammar runs a line of Python as it is read: it writes a file."""
    source = released_games(alfworld_data, "valid_seen", "pick_and_place_simple")[0]
    folder = tmp_path / "odd" / "task" / "trial"
    folder.mkdir(parents=True)
    game = json.loads(source.read_text())
    code = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch() or ''"
    game["grammar"] = game["grammar"].replace("Welcome to TextWorld", f"Welcome to {{{code}}}TextWorld")
    (folder / "game.tw-pddl").write_text(json.dumps(game))
    (folder / "traj_data.json").write_text(source.with_name("traj_data.json").read_text())
    return tmp_path


def test_code_in_a_game_runs_only_where_textworld_was_asked_for(odd_game):
    ran = odd_game / "ran"
    for expert, remedy in ((None, "(in commands env.engine=textworld)."), ("planner", "and expert_policy='explorer'.")):
        options = {"expert": True, "expert_policy": expert} if expert else {}
        env = ALFWorldEnv(data=odd_game, split="odd", **options)
        with pytest.raises(ValueError, match=r"runs expressions of its grammar as Python code") as refused:
            env.reset()
        assert str(refused.value).endswith(remedy)
        assert str(odd_game / "odd") in str(refused.value)
        env.close()
    assert not ran.exists()
    env = ALFWorldEnv(data=odd_game, split="odd", engine="textworld")
    env.reset()
    env.close()
    assert ran.exists()  # what the refusal is there for
