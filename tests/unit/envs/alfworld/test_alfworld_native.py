"""The native ALFWorld engine says what TextWorld says; its cache, its snapshots and its planner keep their promises."""

import json
import random
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import gymnasium
import pytest

from hgpo_gym.envs import TextVectorEnv, check_text_env
from hgpo_gym.envs.alfworld.env import ALFWorldEnv
from hgpo_gym.envs.alfworld.native import CompiledGame, NativeEngine, UnknownGameRules, compile_game, shortest_plan
from hgpo_gym.envs.alfworld.native import rules as game_rules
from hgpo_gym.envs.alfworld.native.compiled_games import CompiledGames, read_game_entry
from hgpo_gym.envs.alfworld.textworld_engine import TextWorldEngine
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.trainers.policies import RandomPolicy, Sampling
from hgpo_gym.trainers.rollouts.collect import collect
from tests.checks.alfworld_parity import compare, with_package_rules
from tests.support import ROOT

pytest.importorskip("alfworld", reason="alfworld is not installed: pip install 'hgpo_gym[alfworld]'")

TASK_TYPES = (
    "look_at_obj_in_light",
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)
SAMPLE = [(split, task_type) for split in ("valid_seen", "valid_train") for task_type in TASK_TYPES]

# A kitchen with what is rare or absent in the released games: two cabinets at one location, an apple that is in both of
# them and another one that is in two places, a knife in a closed drawer, names without coordinates, a receptacle that
# is nowhere.
KITCHEN = """
(define (problem kitchen) (:domain alfred)
 (:objects agent1 - agent  Curtains - object  AppleType - otype  KnifeType - otype  MugType - otype  LampType - otype
    CabinetType - rtype  CounterTopType - rtype  SinkBasinType - rtype  SinkType - rtype  MicrowaveType - rtype
    FridgeType - rtype  DrawerType - rtype  BoxType - otype  ButterKnifeType - otype
    Apple_bar_1 - object  Apple_bar_2 - object  Apple_bar_3 - object  Knife_bar_1 - object  Mug_bar_1 - object
    DeskLamp_bar_1 - object  Box_bar_1 - object  Watch_bar_1 - object
    Cabinet_bar_1 - receptacle  Cabinet_bar_2 - receptacle  CounterTop_bar_1 - receptacle
    Sink_bar_1_bar_SinkBasin - receptacle  Microwave_bar_1 - receptacle  Fridge_bar_1 - receptacle
    Drawer_bar_1 - receptacle  Drawer_bar_2 - receptacle
    loc_bar_0 - location  loc_bar_1 - location  loc_bar_2 - location  loc_bar_3 - location  loc_bar_4 - location
    loc_bar_5 - location  loc_bar_6 - location)
 (:init
    (receptacleType Cabinet_bar_1 CabinetType) (receptacleType Cabinet_bar_2 CabinetType)
    (receptacleType CounterTop_bar_1 CounterTopType) (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType)
    (receptacleType Microwave_bar_1 MicrowaveType) (receptacleType Fridge_bar_1 FridgeType)
    (receptacleType Drawer_bar_1 DrawerType) (receptacleType Drawer_bar_2 DrawerType)
    (objectType Apple_bar_1 AppleType) (objectType Apple_bar_2 AppleType) (objectType Apple_bar_3 AppleType)
    (objectType Knife_bar_1 KnifeType) (objectType Mug_bar_1 MugType) (objectType DeskLamp_bar_1 LampType)
    (objectType Box_bar_1 BoxType) (moveable Curtains)
    (canContain CabinetType AppleType) (canContain CounterTopType AppleType) (canContain SinkBasinType AppleType)
    (canContain MicrowaveType AppleType) (canContain FridgeType AppleType) (canContain DrawerType AppleType)
    (canContain CabinetType MugType) (canContain CounterTopType MugType) (canContain FridgeType MugType)
    (canContain CounterTopType KnifeType) (canContain DrawerType KnifeType) (canContain CabinetType BoxType)
    (pickupable Apple_bar_1) (pickupable Apple_bar_2) (pickupable Apple_bar_3) (pickupable Knife_bar_1)
    (pickupable Mug_bar_1) (pickupable Box_bar_1)
    (isReceptacleObject Box_bar_1) (isReceptacleObject Mug_bar_1) (inReceptacleObject Watch_bar_1 Box_bar_1)
    (openable Cabinet_bar_1) (openable Microwave_bar_1) (openable Fridge_bar_1) (openable Drawer_bar_1)
    (openable Drawer_bar_2) (opened Fridge_bar_1)
    (cleanable Apple_bar_1) (cleanable Apple_bar_2) (cleanable Mug_bar_1) (cleanable Knife_bar_1)
    (heatable Apple_bar_1) (heatable Apple_bar_2) (heatable Apple_bar_3) (heatable Mug_bar_1)
    (coolable Apple_bar_1) (coolable Apple_bar_2) (coolable Apple_bar_3) (coolable Mug_bar_1)
    (toggleable DeskLamp_bar_1) (toggleable Mug_bar_1)
    (sliceable Apple_bar_1) (sliceable Apple_bar_2) (sliceable Apple_bar_3)
    (isCool Apple_bar_2) (isClean Apple_bar_3)
    (inReceptacle Apple_bar_1 Cabinet_bar_1) (inReceptacle Apple_bar_1 Cabinet_bar_2)
    (inReceptacle Apple_bar_2 Fridge_bar_1) (inReceptacle Apple_bar_2 CounterTop_bar_1)
    (inReceptacle Apple_bar_3 CounterTop_bar_1) (inReceptacle Knife_bar_1 Drawer_bar_1)
    (inReceptacle Mug_bar_1 Cabinet_bar_2) (inReceptacle DeskLamp_bar_1 CounterTop_bar_1)
    (inReceptacle Box_bar_1 Cabinet_bar_1) (inReceptacle Curtains Drawer_bar_1)
    (objectAtLocation Apple_bar_1 loc_bar_1) (objectAtLocation Apple_bar_2 loc_bar_5)
    (objectAtLocation Apple_bar_3 loc_bar_2) (objectAtLocation Knife_bar_1 loc_bar_6)
    (objectAtLocation Mug_bar_1 loc_bar_1) (objectAtLocation DeskLamp_bar_1 loc_bar_2)
    (receptacleAtLocation Cabinet_bar_1 loc_bar_1) (receptacleAtLocation Cabinet_bar_2 loc_bar_1)
    (receptacleAtLocation CounterTop_bar_1 loc_bar_2) (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_3)
    (receptacleAtLocation Microwave_bar_1 loc_bar_4) (receptacleAtLocation Fridge_bar_1 loc_bar_5)
    (receptacleAtLocation Drawer_bar_1 loc_bar_6)
    (atLocation agent1 loc_bar_0))
 (:goal GOAL))
"""
PLACE = "(and (exists (?r - receptacle) (exists (?o - object) (and {}))))"
KITCHEN_GOALS = {
    "place": PLACE.format("(inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r FridgeType)"),
    "heat": PLACE.format(
        "(heatable ?o) (objectType ?o AppleType) (receptacleType ?r DrawerType) (isHot ?o) (inReceptacle ?o ?r)"
    ),
    "clean": PLACE.format(
        "(cleanable ?o) (objectType ?o AppleType) (receptacleType ?r CabinetType) (isClean ?o) (inReceptacle ?o ?r)"
    ),
    "two": """(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType)
        (receptacleType ?r MicrowaveType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
        (objectType ?o2 AppleType) (receptacleType ?r MicrowaveType) (inReceptacle ?o2 ?r)))))))""",
    "light": """(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot LampType)
        (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
        (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))""",
}


@pytest.fixture(scope="session")
def original() -> TextWorldEngine:
    return TextWorldEngine()


@pytest.fixture
def engine(tmp_path) -> NativeEngine:
    return NativeEngine(cache=tmp_path / "cache")


@pytest.fixture
def released_game(alfworld_data) -> Path:
    """One of the released games: something is to be heated."""
    return released_games(alfworld_data, "valid_seen", "pick_heat_then_place_in_recep")[0]


def released_games(alfworld_data: Path, split: str, task_type: str = "") -> list[Path]:
    return sorted(alfworld_data.glob(f"json_2.1.1/{split}/{task_type}*/*/game.tw-pddl"))


def kitchen(goal: str, old: str = "", new: str = "") -> dict[str, str]:
    """The kitchen as a game by the alfworld package's rules, with `old` in its problem replaced by `new`."""
    data = files("alfworld") / "data"
    assert old in KITCHEN
    return {
        "pddl_domain": (data / "alfred.pddl").read_text(),
        "grammar": (data / "alfred.twl2").read_text().replace("UNKNOWN GOAL", f"{goal} the kitchen"),
        "pddl_problem": KITCHEN.replace("GOAL", KITCHEN_GOALS[goal]).replace(old, new),
    }


def write_game(folder: Path, game: dict[str, str]) -> Path:
    game_file = folder / "kitchen" / "trial" / "game.tw-pddl"
    game_file.parent.mkdir(parents=True, exist_ok=True)
    game_file.write_text(json.dumps(game))
    return game_file


# ---- the same words as TextWorld's


@pytest.mark.parametrize(("split", "task_type"), SAMPLE)
def test_says_what_textworld_says(alfworld_data, engine, original, split, task_type):
    games = released_games(alfworld_data, split, task_type)
    game_file = min(games, key=lambda game_file: game_file.stat().st_size)  # TextWorld takes longer for large ones
    report = compare(game_file, engine, original, walks=1, steps=30, seed=0)
    assert not report.differences, report.differences[0]
    assert report.steps >= 30
    assert report.wins == 1


def test_says_what_textworld_says_by_the_rules_of_the_package(released_game, engine, original, tmp_path):
    report = compare(with_package_rules(released_game, tmp_path), engine, original, walks=1, steps=40, seed=0)
    assert not report.differences, report.differences[0]


@pytest.mark.parametrize("goal", KITCHEN_GOALS)
def test_says_what_textworld_says_in_a_kitchen_of_rare_cases(engine, original, tmp_path, goal):
    report = compare(write_game(tmp_path, kitchen(goal)), engine, original, walks=2, steps=60, seed=1)
    assert not report.differences, report.differences[0]


def test_starts_like_textworld_at_a_receptacle(engine, original, tmp_path):
    game = kitchen("heat", "(atLocation agent1 loc_bar_0)", "(atLocation agent1 loc_bar_1)")
    report = compare(write_game(tmp_path, game), engine, original, walks=1, steps=20, seed=2)
    assert not report.differences, report.differences[0]


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


def test_a_game_with_a_truncated_problem_is_refused_by_name(engine, tmp_path):
    game = kitchen("place")
    game["pddl_problem"] = game["pddl_problem"][:-300]
    with pytest.raises(ValueError, match="truncated"):
        engine.load(write_game(tmp_path, game))


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


def test_the_cache_is_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "mine"))
    NativeEngine().load(write_game(tmp_path, kitchen("place")))
    assert len(list((tmp_path / "mine" / "alfworld").glob("*/*.json"))) == 1


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
    sound = entry.read_bytes()
    entry.write_bytes(damage(sound))
    assert read_game_entry(entry) is None
    assert CompiledGames(tmp_path / "cache").get(game_file) == good
    assert entry.read_bytes() == sound


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


COMPILE_ALL = """
import sys
from pathlib import Path
from hgpo_gym.envs.alfworld.native.compiled_games import CompiledGames
games = CompiledGames(Path(sys.argv[1]))
for game_file in sorted(Path(sys.argv[2]).glob("**/game.tw-pddl")):
    games.get(game_file)
    print(game_file, flush=True)
"""


def compile_all(cache: Path, folder: Path) -> subprocess.Popen[str]:
    """A process that compiles every game of a folder and prints the name of each one that is done."""
    command = [sys.executable, "-c", COMPILE_ALL, str(cache), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def sound_entries(cache: Path, folder: Path) -> int:
    """How many games of a folder have an entry; fails if one of those is not sound."""
    count = 0
    for game_file in sorted(folder.glob("**/game.tw-pddl")):
        entry = CompiledGames(cache).entry(game_file.read_bytes())
        if entry.exists():
            assert read_game_entry(entry) == compile_game(json.loads(game_file.read_text()))
            count += 1
    return count


def test_two_processes_compile_at_once(alfworld_data, tmp_path):
    folder = alfworld_data / "json_2.1.1" / "valid_train"
    processes = [compile_all(tmp_path, folder) for _ in range(2)]
    printed = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sound_entries(tmp_path, folder) == len(printed[0]) == len(printed[1]) > 0
    assert not list(tmp_path.glob("**/*.tmp"))


def test_a_process_killed_while_it_compiles_leaves_a_sound_cache(alfworld_data, tmp_path):
    folder = alfworld_data / "json_2.1.1" / "valid_train"
    for done in (1, 4, 9):  # killed at once after so many games: in the middle of the next one
        process = compile_all(tmp_path, folder)
        assert process.stdout is not None
        for _ in range(done):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert sound_entries(tmp_path, folder) >= done


# ---- snapshots


def test_a_snapshot_is_returned_to_and_branches(released_game, tmp_path):
    engine, other = NativeEngine(cache=tmp_path), NativeEngine(cache=tmp_path)
    engine.load(released_game)
    other.load(released_game)
    rng, state = random.Random(0), engine.reset()
    for _ in range(30):
        snapshot, admissible = engine.snapshot(), state.admissible_commands
        answers = []
        for command in rng.sample(admissible, 5):
            engine.restore(snapshot)
            other.restore(snapshot)
            answers.append(engine.step(command))
            assert other.step(command) == answers[-1]
        assert engine.snapshot() == other.snapshot()
        assert hash(engine.snapshot()) == hash(other.snapshot())
        state = answers[-1]
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


def test_a_rollout_is_the_same_on_both_engines(alfworld_data):
    """Text, rewards, context keys and group statistics: a run may change its engine in the middle."""
    rollouts = []
    for engine in ("native", "textworld"):
        vector = TextVectorEnv(
            "hgpo_gym/ALFWorld-v0", 2, 2, data=alfworld_data, split="valid_seen", engine=engine, max_episode_steps=8
        )
        env = ContextWrapper(vector, "bare", window=2, history_length=2)
        tasks = [vector.task_ids[0], vector.task_ids[-1]]
        rollouts.append(collect(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=[(0,), (1,)]))
        env.close()
    native, textworld = rollouts
    assert native.steps == textworld.steps
    assert native.episodes == textworld.episodes
    for name in ("group", "trajectory", "step", "reward", "context_keys", "penalty"):
        assert (getattr(native.batch, name) == getattr(textworld.batch, name)).all()


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
