"""ALFWorld's explorer wins knowing only what it has seen, whatever is done in between."""

import random
from collections import Counter, defaultdict

import pytest

from hgpo_gym.envs.alfworld.env import ALFWorldEnv
from hgpo_gym.envs.alfworld.experts.explorer import Explorer, HouseholdTask, read_task
from hgpo_gym.envs.alfworld.experts.likely_places import EVERY_PLACE, LIKELY_PLACES
from hgpo_gym.envs.alfworld.native import NativeEngine
from hgpo_gym.envs.alfworld.splits import find_games

# Games of valid_seen.
LOOK = "look_at_obj_in_light-Pillow-DeskLamp-7bc229d1800a"
TWO = "pick_two_obj_and_place-SoapBar-GarbageCan-11a14e0cdede"


class Room:
    """A game, and an explorer that watches it."""

    def __init__(self, data, task_id, split="valid_seen"):
        self._engine, self._explorer = NativeEngine(), Explorer()
        self._engine.load(find_games(data, split).games[task_id].file)
        self.state = self._engine.reset()
        self._explorer.begin(self.state.feedback, self.state.admissible_commands)
        self.commands = []

    @property
    def advice(self):
        advice = self._explorer.advise()
        assert advice == self._explorer.advise()
        assert advice in self.state.admissible_commands
        return advice

    def do(self, *commands):
        for command in commands:
            self.commands.append(command)
            self.state = self._engine.step(command)
            self._explorer.observe(self.state.feedback, self.state.admissible_commands)

    def follow(self, until, limit=50):
        """Do as advised until the advice starts like this."""
        while not self.advice.startswith(until):
            assert len(self.commands) < limit
            self.do(self.advice)

    def win(self, limit=50, random_actions=0.0, seed=0):
        """Do as advised, but for a share of random commands, and tell whether that wins."""
        draw = random.Random(seed)
        while not self.state.won and len(self.commands) < limit:
            noisy = draw.random() < random_actions
            self.do(draw.choice(self.state.admissible_commands) if noisy else self.advice)
        return self.state.won


def first(data, task_type, about="", split="valid_seen"):
    games = find_games(data, split, [task_type])
    return next(task_id for task_id in games.task_ids if about in task_id)


# Tasks


@pytest.mark.parametrize(
    ("sentence", "errand"),
    [
        ("put a cd in safe.", HouseholdTask("cd", "safe")),
        ("put some fork on drawer.", HouseholdTask("fork", "drawer")),
        ("look at pen under the desklamp.", HouseholdTask("pen", lamp="desklamp")),
        ("examine the mug with the floorlamp.", HouseholdTask("mug", lamp="floorlamp")),
        ("put a clean egg in garbagecan.", HouseholdTask("egg", "garbagecan", treatment="clean")),
        ("clean some egg and put it in garbagecan.", HouseholdTask("egg", "garbagecan", treatment="clean")),
        ("put a hot mug in shelf.", HouseholdTask("mug", "shelf", treatment="heat")),
        ("heat some mug and put it in shelf.", HouseholdTask("mug", "shelf", treatment="heat")),
        ("put a cool pan in stoveburner.", HouseholdTask("pan", "stoveburner", treatment="cool")),
        ("cool some pan and put it in stoveburner.", HouseholdTask("pan", "stoveburner", treatment="cool")),
        ("put two cup in shelf.", HouseholdTask("cup", "shelf", two=True)),
        ("find two book and put them in desk.", HouseholdTask("book", "desk", two=True)),
    ],
)
def test_every_kind_of_task_is_read(sentence, errand):
    assert read_task(sentence) == errand


def test_a_task_in_other_words_is_refused():
    with pytest.raises(ValueError, match=r"cannot read the task 'tidy up\.': choose expert_policy='planner'"):
        read_task("tidy up.")


def test_likely_places_are_counted_on_valid_train(alfworld_data):
    """As the docstring of the table says."""
    engine = NativeEngine()
    holding, present = defaultdict(Counter), defaultdict(Counter)
    receptacles, objects, openable = Counter(), Counter(), set()
    for game in find_games(alfworld_data, "valid_train").games.values():
        engine.load(game.file)
        kinds = [name.split()[0] for name in engine.game.receptacles]
        openable |= {kinds[number] for number in engine.game.openable}
        receptacles.update(kinds)
        here = defaultdict(set)
        for number, contents in enumerate(engine.game.initial.contents):
            objects[kinds[number]] += len(contents)
            for thing in contents & (engine.game.pickupable | engine.game.toggleable):
                here[engine.game.objects[thing].split()[0]].add(number)
        for thing, numbers in here.items():
            present[thing].update(kinds)
            holding[thing].update(kinds[number] for number in numbers)

    def effort(kind):
        return 2 if kind in openable else 1

    def likeliness(thing, kind):
        return (holding[thing][kind] + 0.2) / (present[thing][kind] + 4) / effort(kind)

    counted = {
        thing: " ".join(sorted(kinds, key=lambda kind: (-likeliness(thing, kind), kind)))
        for thing, kinds in holding.items()
    }
    assert counted == LIKELY_PLACES
    assert EVERY_PLACE.split() == sorted(
        receptacles, key=lambda kind: -objects[kind] / receptacles[kind] / effort(kind)
    )


# Games


@pytest.mark.parametrize(("split", "mean_steps"), [("valid_train", 7.58), ("valid_seen", 7.06)])
def test_every_game_is_won_within_50_steps(alfworld_data, split, mean_steps):
    steps = []
    for task_id in find_games(alfworld_data, split).task_ids:
        room = Room(alfworld_data, task_id, split)
        assert room.win(), task_id
        assert not {"look", "inventory", "help"} & set(room.commands)
        steps.append(len(room.commands))
    assert sum(steps) / len(steps) == pytest.approx(mean_steps, abs=0.01)


def test_games_are_won_with_random_commands_in_between(alfworld_data):
    won = [
        Room(alfworld_data, task_id).win(100, random_actions=0.3, seed=task_id)
        for task_id in find_games(alfworld_data, "valid_seen").task_ids
    ]
    assert sum(won) >= 138  # of 140


@pytest.mark.parametrize("task_id", [LOOK, TWO])
def test_it_plays_the_same_with_both_engines(alfworld_data, task_id):
    pytest.importorskip("alfworld")
    transcripts = []
    for engine in ("native", "textworld"):
        env = ALFWorldEnv(data=alfworld_data, split="valid_seen", engine=engine, expert=True)
        _, info = env.reset(options={"task_id": task_id})
        commands = []
        while not info["won"]:
            commands.append(info["expert_action"])
            *_, info = env.step(commands[-1])
        transcripts.append(commands)
        env.close()
    assert transcripts[0] == transcripts[1]


# Situations


def test_the_tour_goes_on_after_one_step_astray_and_starts_again_after_two(alfworld_data):
    room = Room(alfworld_data, first(alfworld_data, "pick_cool_then_place_in_recep"))
    tour = []
    while len(tour) < 3:
        tour += [room.advice] if room.advice.startswith("go to ") else []
        assert not room.advice.startswith("take ")
        room.do(room.advice)
    after = room.advice
    astray = [command for command in room.state.admissible_commands if command.startswith("go to stoveburner")]
    room.do(astray[0])
    assert room.advice == after
    room.do("help")
    assert room.advice == tour[0]


def test_what_is_of_no_use_is_put_down(alfworld_data):
    room = Room(alfworld_data, first(alfworld_data, "pick_heat_then_place_in_recep"))
    room.follow("take ")
    expected = room.advice
    useless = next(
        command
        for command in room.state.admissible_commands
        if command.startswith("take ") and command.split()[1] != expected.split()[1]
    )
    room.do(useless)
    assert room.advice.startswith(f"move {' '.join(useless.split()[1:3])} to ")
    room.do(room.advice)
    assert room.advice == expected


def test_what_was_heated_is_heated_once_unless_it_was_cooled(alfworld_data):
    room = Room(alfworld_data, first(alfworld_data, "pick_heat_then_place_in_recep", "Fridge"))
    room.follow("heat ")
    heat = room.advice
    room.do(heat)
    assert room.advice == "go to fridge 1"
    room.do("go to fridge 1", heat.replace("heat", "cool").replace("microwave", "fridge"))
    assert room.advice == "go to microwave 1"
    room.do("go to microwave 1")
    assert room.advice == heat
    assert room.win()


def test_a_target_that_was_closed_is_opened_again(alfworld_data):
    room = Room(alfworld_data, first(alfworld_data, "pick_clean_then_place_in_recep", "Fridge"))
    room.follow("move ")
    room.do("close fridge 1")
    assert room.advice == "open fridge 1"
    assert room.win()


def test_what_was_dropped_elsewhere_is_fetched_again(alfworld_data):
    room = Room(alfworld_data, first(alfworld_data, "pick_clean_then_place_in_recep", "Fridge"))
    room.follow("clean ")
    thing = " ".join(room.advice.split()[1:3])
    room.do(room.advice, f"move {thing} to sinkbasin 1", "go to fridge 1", "help")
    assert room.advice == "go to sinkbasin 1"
    room.do(room.advice)
    assert room.advice == f"take {thing} from sinkbasin 1"
    room.do(room.advice)
    assert room.advice == "go to fridge 1"


def test_the_first_of_two_is_left_where_it_was_put(alfworld_data):
    room = Room(alfworld_data, TWO)
    room.follow("move ")
    placed = room.advice
    room.do(placed)
    assert placed.replace("move", "take").replace(" to ", " from ") in room.state.admissible_commands
    assert not room.advice.startswith("take ")
    assert room.win()


# The environment


def test_expert_policies_need_their_engine(alfworld_data):
    options = {"data": alfworld_data, "split": "valid_seen", "expert": True}
    with pytest.raises(ValueError, match=r"'planner' needs engine='native', not 'textworld'"):
        ALFWorldEnv(engine="textworld", expert_policy="planner", **options)
    with pytest.raises(ValueError, match=r"'hand_coded' needs engine='textworld', not 'native'"):
        ALFWorldEnv(engine="native", expert_policy="hand_coded", **options)
    with pytest.raises(ValueError, match=r"Unknown expert_policy 'explore'.*'explorer'"):
        ALFWorldEnv(expert_policy="explore", **options)


def test_each_expert_policy_speaks_for_itself(alfworld_data):
    advice = {}
    for policy in ("explorer", "planner"):
        env = ALFWorldEnv(data=alfworld_data, split="valid_seen", expert=True, expert_policy=policy)
        advice[policy] = [env.reset(options={"task_id": name})[1]["expert_action"] for name in env.task_ids]
    assert all(command.startswith("go to ") for commands in advice.values() for command in commands)
    assert advice["explorer"] != advice["planner"]
    env = ALFWorldEnv(data=alfworld_data, split="valid_seen", expert_policy="planner")
    assert "expert_action" not in env.reset(options={"task_id": LOOK})[1]
